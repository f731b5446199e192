//! An image and the files that it is made of: its backing files, and theirs, and the file that has its data.
//!
//! All are opened, locked and looked at before one of them is used. Backing files are only read.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use super::barrier::Barrier;
use super::header::{Header, MAGIC, Refusal};
use super::map::MAX_LEGS;
use super::order::read_or_zero;
use super::settings::{Backing, Settings};
use crate::file::{self, Cache, Format, Locked, Raw};
use crate::{Access, Disk, File, OpenError, Options};

/// So many images stand on each other at most, each of which may have its data in a file of its own. QEMU's own limit
/// is as far from what users have.
const DEEPEST: usize = MAX_LEGS / 2 - 1;

/// The files of an image, which are open.
pub struct Chain {
    /// The images, from the top, which is a qcow2 image.
    pub layers: Vec<Layer>,
    /// The files, first that of the image itself, then that of its data if there is one, then those below.
    pub disks: Vec<Arc<dyn Disk>>,
    pub files: Vec<Raw>,
    pub lengths: Vec<u64>,
    /// The same files through the page cache.
    pub cached: Vec<Arc<fs::File>>,
    pub access: Access,
    /// Does the image itself get longer? Not on a block device.
    pub grows: bool,
    /// That of those that are written. It is made once: inside the sandbox it cannot be made anew.
    pub barrier: Arc<Mutex<Barrier>>,
}

/// One of the images.
#[derive(Debug)]
pub struct Layer {
    pub path: PathBuf,
    pub leg: usize,
    /// Nothing to say of a raw disk.
    pub header: Option<Header>,
    pub data: Option<usize>,
}

/// Those that are open.
struct Open<'options> {
    settings: Settings,
    options: &'options Options,
    disks: Vec<Arc<dyn Disk>>,
    files: Vec<Raw>,
    lengths: Vec<u64>,
    cached: Vec<Arc<fs::File>>,
    /// Which files they are: device and inode.
    known: HashSet<(u64, u64)>,
}

impl Chain {
    /// Opens the image at `path`, and what it stands on.
    pub fn open(path: &Path, settings: Settings, options: &Options) -> Result<Self, OpenError> {
        let mut open = Open {
            settings,
            options,
            disks: Vec::new(),
            files: Vec::new(),
            lengths: Vec::new(),
            cached: Vec::new(),
            known: HashSet::new(),
        };
        let layers = open.layers(path)?;
        let external = layers[0].data.is_some();
        let written = open.files[..=usize::from(external)].to_vec();
        let barrier = Barrier::new(written).map_err(failed("prepare to sync", path))?;
        let kind = open.cached[0].metadata().map_err(failed("look at", path))?;
        Ok(Self {
            grows: kind.is_file(),
            barrier: Arc::new(Mutex::new(barrier)),
            layers,
            disks: open.disks,
            files: open.files,
            lengths: open.lengths,
            cached: open.cached,
            access: options.access(),
        })
    }

    /// That of the image itself.
    pub fn header(&self) -> &Header {
        let header = self.layers.first().and_then(|top| top.header.as_ref());
        header.expect("the first layer is a qcow2 image")
    }

    /// How many of the files are written: the first ones.
    pub fn written(&self) -> usize {
        match self.access {
            Access::ReadWrite => 1 + usize::from(self.header().external_data),
            Access::ReadOnly => 0,
        }
    }
}

impl Open<'_> {
    /// All images, from the top.
    fn layers(&mut self, path: &Path) -> Result<Vec<Layer>, OpenError> {
        let mut layers = vec![self.layer(path, self.options.access())?];
        if let (Backing::At(_), [top]) = (&self.settings.backing, &*layers)
            && top
                .header
                .as_ref()
                .is_none_or(|header| header.backing.is_none())
        {
            return Err(refused(path, Refusal::NoBacking));
        }
        while let Some(top) = layers.last()
            && let Some(header) = &top.header
            && let Some(name) = &header.backing
        {
            let refuse = |source| refused(&top.path, source);
            if layers.len() > DEEPEST {
                return Err(refuse(Refusal::TooDeep(DEEPEST)));
            }
            let path = match &self.settings.backing {
                Backing::None => return Err(refuse(Refusal::Backing(name.clone()))),
                Backing::At(path) if layers.len() == 1 => path.clone(),
                Backing::At(_) | Backing::Named => resolve(&top.path, name).map_err(refuse)?,
            };
            let format = header.backing_format.as_deref();
            let below = match format {
                None => self.unnamed(&path),
                Some("qcow2") => self.layer(&path, Access::ReadOnly),
                Some("raw" | "file" | "host_device") => self.raw(&path, Access::ReadOnly),
                Some(other) => Err(refuse(Refusal::BackingFormat(other.to_owned()))),
            };
            let of = top.path.clone();
            layers.push(below.map_err(|source| match source {
                OpenError::Image { .. } => source,
                OpenError::Missing { path } => OpenError::NoBacking { of, path },
                source => {
                    let source = Box::new(source);
                    OpenError::Backing { of, source }
                }
            })?);
        }
        Ok(layers)
    }

    /// A qcow2 image.
    fn layer(&mut self, path: &Path, access: Access) -> Result<Layer, OpenError> {
        let leg = self.file(path, access)?;
        let header = Header::read(&self.cached[leg], access);
        let header = header.map_err(failed("read the header of", path))?;
        let header = header.map_err(|source| refused(path, source))?;
        let data = match (&header.data_file, header.external_data) {
            (_, false) => None,
            (None, true) => return Err(refused(path, Refusal::NoDataFile)),
            (Some(name), true) if self.settings.backing == Backing::None => {
                return Err(refused(path, Refusal::DataFile(name.clone())));
            }
            (Some(name), true) => {
                let data = resolve(path, name).map_err(|source| refused(path, source))?;
                Some(self.file(&data, access)?)
            }
        };
        Ok(Layer {
            path: path.to_owned(),
            leg,
            header: Some(header),
            data,
        })
    }

    /// A raw disk.
    fn raw(&mut self, path: &Path, access: Access) -> Result<Layer, OpenError> {
        Ok(Layer {
            path: path.to_owned(),
            leg: self.file(path, access)?,
            header: None,
            data: None,
        })
    }

    /// A file of which the image above does not say what it is. A guest that wrote to a raw disk could have made
    /// whatever it likes of it, so that only what looks like nothing else is one.
    fn unnamed(&mut self, path: &Path) -> Result<Layer, OpenError> {
        let raw = self.raw(path, Access::ReadOnly)?;
        let mut first = [0; 4];
        let read = read_or_zero(&self.cached[raw.leg], &mut first, 0);
        read.map_err(failed("read", path))?;
        if &first == MAGIC {
            return Err(refused(path, Refusal::Unnamed));
        }
        Ok(raw)
    }

    /// Opens and locks a file, which is not there yet: its number.
    fn file(&mut self, path: &Path, access: Access) -> Result<usize, OpenError> {
        let lock = match access {
            Access::ReadWrite => self.settings.file.lock,
            // Any number of images may stand on what is only read.
            Access::ReadOnly => Locked::Always,
        };
        let settings = file::Settings {
            format: Format::Raw,
            lock,
            ..self.settings.file
        };
        let options = Options {
            read_only: access == Access::ReadOnly,
            ..*self.options
        };
        // Before it is opened, as it would be locked against itself. What is missing says so below.
        let known = |file: &std::fs::Metadata| self.known.contains(&(file.dev(), file.ino()));
        if std::fs::metadata(path).is_ok_and(|file| known(&file)) {
            return Err(refused(path, Refusal::Loop));
        }
        let (disk, raw) = File::open_image(path, settings, &options)?;
        if let (Locked::Running, Some(storage)) = (lock, raw.others_write_unseen()) {
            return Err(refused(path, Refusal::Incoherent(storage)));
        }
        let examine = || {
            let file = raw.cached()?;
            let metadata = file.metadata()?;
            let length = file::size(&file)?;
            Ok(((metadata.dev(), metadata.ino()), length, file))
        };
        let (id, length, through_cache) = examine().map_err(failed("look at", path))?;
        if !self.known.insert(id) {
            return Err(refused(path, Refusal::Loop));
        }
        self.disks.push(Arc::new(disk));
        self.files.push(raw);
        self.lengths.push(length);
        self.cached.push(Arc::new(through_cache));
        Ok(self.files.len() - 1)
    }
}

/// Where the file `name` is that the image at `path` refers to: relative to the folder of the image.
fn resolve(path: &Path, name: &str) -> Result<PathBuf, Refusal> {
    let plain = name.strip_prefix("file:").unwrap_or(name);
    let protocol = plain
        .split('/')
        .next()
        .is_some_and(|first| first.contains(':'));
    if protocol || plain.is_empty() {
        return Err(Refusal::Protocol(name.to_owned()));
    }
    Ok(path.parent().unwrap_or(Path::new("")).join(plain))
}

pub fn refused(path: &Path, why: Refusal) -> OpenError {
    let path = path.to_owned();
    OpenError::Image { path, why }
}

pub fn failed(doing: &'static str, path: &Path) -> impl Fn(std::io::Error) -> OpenError {
    move |source| OpenError::Io {
        doing,
        path: path.to_owned(),
        source,
    }
}

/// The cache of the files is that of the image.
impl From<Cache> for Settings {
    fn from(cache: Cache) -> Self {
        Self {
            file: cache.into(),
            backing: Backing::default(),
        }
    }
}
