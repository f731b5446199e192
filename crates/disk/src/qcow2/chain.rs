//! An image and the files that it is made of: its backing files, and theirs, and the file that has its data.
//!
//! All are opened, locked and looked at before one of them is used. Backing files are only read.

use std::collections::HashSet;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use imago::qcow2::Qcow2;
use imago::raw::Raw as RawImage;
use imago::{DenyImplicitOpenGate, FormatAccess, FormatDriverBuilder};

use super::barrier::Barrier;
use super::header::{Header, MAGIC, Refusal};
use super::node::{Node, Role};
use super::order::{Order, read_or_zero};
use super::{Backing, Settings};
use crate::file::{self, Cache, Format, Raw};
use crate::{Access, Disk, File, OpenError, Options};

/// So many images stand on each other at most. QEMU's own limit is as far from what users have.
const DEEPEST: usize = 64;

/// An image that is open.
pub struct Chain {
    pub header: Header,
    pub image: FormatAccess<Node>,
    pub order: Option<Arc<Order>>,
    /// The files, first that of the image itself, then that of its data if there is one, then those below.
    pub disks: Vec<Arc<dyn Disk>>,
    pub files: Vec<Raw>,
    pub lengths: Vec<u64>,
    /// Bytes of the backing file's disk.
    pub backing_size: u64,
}

/// One of the images, from the top.
struct Layer {
    path: PathBuf,
    leg: usize,
    /// Nothing to say of a raw disk.
    header: Option<Header>,
    data: Option<usize>,
}

/// Those that are open.
struct Open<'options> {
    settings: Settings,
    options: &'options Options,
    disks: Vec<Arc<dyn Disk>>,
    files: Vec<Raw>,
    lengths: Vec<u64>,
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
            known: HashSet::new(),
        };
        let layers = open.layers(path)?;
        open.build(layers)
    }
}

impl Open<'_> {
    /// All images, from the top.
    fn layers(&mut self, path: &Path) -> Result<Vec<Layer>, OpenError> {
        let mut layers = vec![self.layer(path, self.options.access())?];
        while let Some(top) = layers.last()
            && let Some(header) = &top.header
            && let Some(name) = &header.backing
        {
            let refuse = |source| refused(&top.path, source);
            if self.settings.backing == Backing::None {
                return Err(refuse(Refusal::Backing(name.clone())));
            }
            if layers.len() > DEEPEST {
                return Err(refuse(Refusal::TooDeep(DEEPEST)));
            }
            let path = resolve(&top.path, name).map_err(refuse)?;
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
        let failed = failed("read the header of", path);
        let file = self.files[leg].cached().map_err(&failed)?;
        let header = Header::read(&file, access).map_err(&failed)?;
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
        let read = self.files[raw.leg]
            .cached()
            .and_then(|file| read_or_zero(&file, &mut first, 0));
        read.map_err(failed("read", path))?;
        if &first == MAGIC {
            return Err(refused(path, Refusal::Unnamed));
        }
        Ok(raw)
    }

    /// Opens and locks a file, which is not there yet: its number.
    fn file(&mut self, path: &Path, access: Access) -> Result<usize, OpenError> {
        let settings = file::Settings {
            format: Format::Raw,
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
        let look = || {
            let file = raw.cached()?;
            let metadata = file.metadata()?;
            Ok(((metadata.dev(), metadata.ino()), file::size(&file)?))
        };
        let (id, length) = look().map_err(failed("look at", path))?;
        if !self.known.insert(id) {
            return Err(refused(path, Refusal::Loop));
        }
        self.disks.push(Arc::new(disk));
        self.files.push(raw);
        self.lengths.push(length);
        Ok(self.files.len() - 1)
    }

    /// From the bottom up.
    fn build(self, mut layers: Vec<Layer>) -> Result<Chain, OpenError> {
        let mut below = None;
        while layers.len() > 1
            && let Some(layer) = layers.pop()
        {
            let built = self.read_only(&layer, below);
            below = Some(built.map_err(|error| bad(&layer.path, &error))?);
        }
        let Some(Layer {
            path,
            header: Some(header),
            data,
            ..
        }) = layers.pop()
        else {
            unreachable!("the first layer is a qcow2 image");
        };
        let backing_size = below.as_ref().map_or(0, FormatAccess::size);
        if self.options.access() == Access::ReadOnly {
            let layer = Layer {
                path: path.clone(),
                leg: 0,
                header: Some(header.clone()),
                data,
            };
            let built = self.read_only(&layer, below);
            let image = built.map_err(|error| bad(&path, &error))?;
            return Ok(self.chain(header, image, None, backing_size));
        }
        let order = self.order(&path, &header)?;
        let built = self.writable(&order, data, below);
        let image = built.map_err(|error| bad(&path, &error))?;
        order.opened();
        Ok(self.chain(header, image, Some(order), backing_size))
    }

    fn chain(
        self,
        header: Header,
        image: FormatAccess<Node>,
        order: Option<Arc<Order>>,
        backing_size: u64,
    ) -> Chain {
        Chain {
            header,
            image,
            order,
            disks: self.disks,
            files: self.files,
            lengths: self.lengths,
            backing_size,
        }
    }

    fn order(&self, path: &Path, header: &Header) -> Result<Arc<Order>, OpenError> {
        let written = self.files[..=usize::from(header.external_data)].to_vec();
        let opened = || {
            let file = self.files[0].cached()?;
            Order::new(file, header.clone(), Barrier::new(written)?)
        };
        let order = opened().map_err(failed("read the tables of", path))?;
        Ok(Arc::new(order.map_err(|source| refused(path, source))?))
    }

    fn node(&self, leg: usize, role: Role) -> io::Result<Node> {
        Ok(Node::new(leg, self.files[leg].cached()?, role))
    }

    fn read_only(
        &self,
        layer: &Layer,
        below: Option<FormatAccess<Node>>,
    ) -> io::Result<FormatAccess<Node>> {
        if layer.header.is_none() {
            let node = self.node(layer.leg, Role::ReadOnly)?;
            let raw = RawImage::builder(node).open(DenyImplicitOpenGate::default())?;
            return Ok(FormatAccess::new(raw));
        }
        let data = layer.data.map(|leg| self.node(leg, Role::ReadOnly));
        let node = self.node(layer.leg, Role::ReadOnlyImage)?;
        let image = Qcow2::<Node>::builder(node)
            .backing(below)
            .data_file(data.transpose()?)
            .open(DenyImplicitOpenGate::default())?;
        Ok(FormatAccess::new(image))
    }

    fn writable(
        &self,
        order: &Arc<Order>,
        data: Option<usize>,
        below: Option<FormatAccess<Node>>,
    ) -> io::Result<FormatAccess<Node>> {
        let data = data.map(|leg| self.node(leg, Role::Data(Arc::clone(order))));
        let node = self.node(0, Role::Image(Arc::clone(order)))?;
        let image = Qcow2::<Node>::builder(node)
            .backing(below)
            .data_file(data.transpose()?)
            .write(true)
            .open(DenyImplicitOpenGate::default())?;
        Ok(FormatAccess::new(image))
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

fn refused(path: &Path, why: Refusal) -> OpenError {
    let path = path.to_owned();
    OpenError::Image { path, why }
}

fn bad(path: &Path, error: &io::Error) -> OpenError {
    refused(path, Refusal::Damaged(error.to_string()))
}

fn failed(doing: &'static str, path: &Path) -> impl Fn(io::Error) -> OpenError {
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
