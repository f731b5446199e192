//! The files behind the disks: made and filled once for a run, a copy for each of the servers that run at one time.

use std::cell::OnceCell;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use pollux_tests::ceph::Ceph;
use pollux_tests::peers;
use pollux_tests::process::Process;
use rustix::fs::{OFlags, statfs};
use tempfile::TempDir;

use crate::cell::Disk;

/// tmpfs, as far as we need one.
pub const TMPFS: &str = "/dev/shm";

const STEP: usize = 1 << 20;

/// A folder on tmpfs, one on a disk's file system, and a cluster. All go with their files when this is dropped.
pub struct Images {
    tmpfs: TempDir,
    disk: TempDir,
    /// Started for its first image.
    ceph: OnceCell<Ceph>,
}

impl Images {
    /// Folders without files yet; the one of the disk below `folder`.
    ///
    /// # Errors
    /// When `folder` is on tmpfs: then there is no disk.
    pub fn below(folder: &Path) -> io::Result<Self> {
        const MAGIC_OF_TMPFS: i64 = 0x0102_1994;
        fs::create_dir_all(folder).map_err(doing("make", folder))?;
        if statfs(folder)?.f_type == MAGIC_OF_TMPFS {
            return Err(io::Error::other(format!(
                "--folder {}: it lies on tmpfs; give a folder on a disk",
                folder.display()
            )));
        }
        Ok(Self {
            tmpfs: tempfile::tempdir_in(TMPFS)?,
            disk: tempfile::tempdir_in(folder)?,
            ceph: OnceCell::new(),
        })
    }

    /// Is there all that `disk` takes?
    pub fn check(disk: Disk) -> io::Result<()> {
        let cluster = peers::directory().join("ceph/usr/bin/ceph-osd");
        if disk == Disk::Rbd && !cluster.exists() {
            let cluster = cluster.display();
            return Err(io::Error::other(format!(
                "{cluster} is missing: run tests/setup.sh"
            )));
        }
        Ok(())
    }

    /// How servers name that copy of the file of `disk`: by its path, or by the SPEC of an image in the cluster.
    pub fn place(&self, disk: Disk, copy: usize) -> String {
        let path = self.path(disk, copy);
        match self.ceph.get() {
            Some(ceph) if disk == Disk::Rbd => ceph.spec(&copy.to_string(), ""),
            _ => path.display().to_string(),
        }
    }

    /// The configuration of the cluster, from its first image on.
    pub fn conf(&self) -> Option<PathBuf> {
        self.ceph.get().map(Ceph::conf)
    }

    /// What runs beside the servers: the cluster's daemons, from its first image on.
    pub fn daemons(&self) -> io::Result<Vec<Process>> {
        let daemons = self.ceph.get().map(Ceph::daemons).transpose()?;
        Ok(daemons.into_iter().flatten().collect())
    }

    /// Where that copy of the file of `disk` is, or would be. For `Memory` it is that of a peer that has no disk
    /// in memory.
    pub fn path(&self, disk: Disk, copy: usize) -> PathBuf {
        let folder = match disk {
            Disk::Null
            | Disk::Memory
            | Disk::Delayed(_)
            | Disk::Tmpfs
            | Disk::Image
            | Disk::Fresh
            | Disk::Rbd => &self.tmpfs,
            Disk::Cached | Disk::Direct => &self.disk,
        };
        folder.path().join(format!("{disk}.{copy}.img"))
    }

    /// Makes that copy of the file of `disk` what its name promises: full of data and, if `Cached`, in the page cache.
    pub fn prepare(&self, disk: Disk, copy: usize) -> io::Result<()> {
        let path = self.path(disk, copy);
        if matches!(disk, Disk::Null | Disk::Delayed(_)) {
            return Ok(());
        }
        if disk == Disk::Fresh {
            let size = disk.size().to_string();
            return qemu_img(
                &["create", "-q", "-f", "qcow2"],
                &[path.as_os_str(), size.as_ref()],
            );
        }
        if disk == Disk::Image {
            return image(&path, disk.size());
        }
        if disk == Disk::Rbd {
            return self.import(&path, copy);
        }
        if !path.exists() {
            fill(&path, disk.size()).map_err(doing("fill", &path))?;
        }
        match disk {
            Disk::Cached => read_through(&path).map_err(doing("read", &path)),
            Disk::Direct => open_directly(&path).map(drop).map_err(|error| {
                io::Error::other(format!(
                    "{}: no O_DIRECT here ({error}); give --folder on another file system",
                    path.display()
                ))
            }),
            Disk::Null
            | Disk::Memory
            | Disk::Delayed(_)
            | Disk::Tmpfs
            | Disk::Image
            | Disk::Fresh
            | Disk::Rbd => Ok(()),
        }
    }

    /// An image of noise in the cluster, unless it is there; the noise is at `path` for a while.
    fn import(&self, path: &Path, copy: usize) -> io::Result<()> {
        let start = || Ceph::start_in_memory().expect("`check` has found its programs");
        let (ceph, name) = (self.ceph.get_or_init(start), copy.to_string());
        if ceph.run("rbd", &["ls"]).lines().any(|known| known == name) {
            return Ok(());
        }
        fill(path, Disk::Rbd.size()).map_err(doing("fill", path))?;
        let raw = path.display().to_string();
        ceph.run("rbd", &["import", "--no-progress", &raw, &name]);
        fs::remove_file(path)
    }
}

/// Opens `path` past the page cache.
pub fn open_directly(path: &Path) -> io::Result<File> {
    let direct = i32::try_from(OFlags::DIRECT.bits()).expect("it is one low bit");
    OpenOptions::new()
        .read(true)
        .custom_flags(direct)
        .open(path)
}

/// Writes noise, down to the disk: blocks that were only reserved would be read without it.
fn fill(path: &Path, size: u64) -> io::Result<()> {
    let mut noise = vec![0; STEP];
    fastrand::Rng::with_seed(1).fill(&mut noise);
    let mut file = File::create(path)?;
    for _ in 0..size / STEP as u64 {
        file.write_all(&noise)?;
    }
    file.sync_all()
}

/// An image of noise, unless it is there.
fn image(path: &Path, size: u64) -> io::Result<()> {
    if path.exists() {
        return Ok(());
    }
    let raw = path.with_extension("raw");
    fill(&raw, size).map_err(doing("fill", &raw))?;
    qemu_img(
        &["convert", "-f", "raw", "-O", "qcow2"],
        &[raw.as_os_str(), path.as_os_str()],
    )?;
    fs::remove_file(&raw)
}

fn qemu_img(options: &[&str], operands: &[&OsStr]) -> io::Result<()> {
    let mut command = Command::new("qemu-img");
    let output = command.args(options).args(operands).output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{command:?}: {said}")))
}

fn read_through(path: &Path) -> io::Result<()> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; STEP];
    while file.read(&mut buffer)? > 0 {}
    Ok(())
}

fn doing<'a>(what: &'a str, path: &'a Path) -> impl FnOnce(io::Error) -> io::Error + 'a {
    move |error| {
        let path = path.display();
        io::Error::new(error.kind(), format!("could not {what} {path}: {error}"))
    }
}
