//! The server that a test is about: Pollux, unless `POLLUX_TEST_SERVER=qsd` says otherwise.
//!
//! The same test against `qemu-storage-daemon` tells our faults from the client's. Where the two
//! are set up differently, it is here. Two variables make all tests tell whether another way of working
//! is right, too: `POLLUX_TEST_OPTIONS` adds options to every `pollux serve`, e.g. `--poll never`, and
//! `POLLUX_TEST_FILE` makes every disk a file that is opened with these keys, e.g. `engine=threads`.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::client::Access;
use crate::server::{Ready, Server, pollux_command, qemu_storage_daemon_command};

/// Which program serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// `pollux serve`.
    Pollux,
    /// `qemu-storage-daemon` from the path.
    QemuStorageDaemon,
}

impl Program {
    /// The program under test, from `$POLLUX_TEST_SERVER` (`pollux` or `qsd`).
    pub fn chosen() -> Self {
        match std::env::var("POLLUX_TEST_SERVER").as_deref() {
            Err(_) | Ok("pollux") => Self::Pollux,
            Ok("qsd") => Self::QemuStorageDaemon,
            Ok(other) => panic!("POLLUX_TEST_SERVER={other} is neither `pollux` nor `qsd`"),
        }
    }
}

/// What is behind the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Nothing: reads complete untouched, writes are dropped.
    Null,
    /// The server's own memory; a file on tmpfs for `qemu-storage-daemon`, which has no such disk, and
    /// where all disks shall be files.
    Memory,
    /// A regular file on the file system of temporary files.
    File,
}

/// A disk to serve.
#[derive(Clone, Copy, Debug)]
pub struct Disk {
    /// What is behind it.
    pub backing: Backing,
    /// Bytes.
    pub size: u64,
    /// Queues that the server offers.
    pub queues: u16,
    /// Whether it may be written.
    pub access: Access,
}

impl Disk {
    /// A writable disk of `size` bytes in memory, with `queues` queues.
    pub const fn memory(size: u64, queues: u16) -> Self {
        let backing = Backing::Memory;
        let access = Access::ReadWrite;
        Self {
            backing,
            size,
            queues,
            access,
        }
    }

    /// A writable disk of `size` bytes with nothing behind it, with `queues` queues.
    pub const fn null(size: u64, queues: u16) -> Self {
        let backing = Backing::Null;
        Self {
            backing,
            ..Self::memory(size, queues)
        }
    }

    /// A writable disk of `size` bytes in a file, with `queues` queues.
    pub const fn file(size: u64, queues: u16) -> Self {
        let backing = Backing::File;
        Self {
            backing,
            ..Self::memory(size, queues)
        }
    }

    /// The same disk for reading only.
    #[must_use]
    pub const fn read_only(self) -> Self {
        let access = Access::ReadOnly;
        Self { access, ..self }
    }
}

/// A started server with the folder that holds its socket and its file.
pub struct Subject {
    /// The process.
    pub server: Server,
    folder: TempDir,
}

impl Subject {
    /// Serves `disk` by the chosen program, with `options` for Pollux alone.
    pub fn start(disk: Disk, options: &[&str]) -> io::Result<Self> {
        let folder = match disk.backing {
            Backing::Memory => TempDir::new_in("/dev/shm")?,
            Backing::Null | Backing::File => TempDir::new()?,
        };
        let (mut command, ready) = match Program::chosen() {
            Program::Pollux => (pollux(&folder, disk, options)?, Ready::LogLine),
            Program::QemuStorageDaemon => (qemu_storage_daemon(&folder, disk)?, Ready::Monitor),
        };
        let server = Server::start(&mut command, &socket_in(&folder), ready)?;
        Ok(Self { server, folder })
    }

    /// Where clients connect.
    pub fn socket(&self) -> &Path {
        self.server.socket()
    }

    /// Sends `signal` and waits for the end: the status, and everything the server said.
    pub fn end_by(self, signal: Signal) -> io::Result<(ExitStatus, String)> {
        self.server.end_by(signal)
    }

    /// The file behind a disk that has one.
    pub fn image(&self) -> PathBuf {
        image_in(&self.folder)
    }
}

fn socket_in(folder: &TempDir) -> PathBuf {
    folder.path().join("disk.sock")
}

fn image_in(folder: &TempDir) -> PathBuf {
    folder.path().join("disk.img")
}

fn make_image(folder: &TempDir, size: u64) -> io::Result<PathBuf> {
    let image = image_in(folder);
    File::create(&image)?.set_len(size)?;
    Ok(image)
}

/// `$POLLUX_TEST_FILE`: with which keys files are opened, and that there are no other disks.
pub fn chosen_keys() -> Option<String> {
    std::env::var("POLLUX_TEST_FILE").ok()
}

/// The SPEC of the file at `path` with a test's own `keys`, and of the chosen ones those that the test
/// leaves open.
pub fn file_spec(path: &Path, keys: &str) -> String {
    fn name(key: &str) -> Option<&str> {
        key.split('=').next()
    }
    let chosen = chosen_keys().unwrap_or_default();
    let open = |key: &&str| !keys.split(',').any(|own| name(own) == name(key));
    let all = keys.split(',').chain(chosen.split(',').filter(open));
    let mut spec = format!("file:path={}", path.display());
    for key in all.filter(|key| !key.is_empty()) {
        spec.push(',');
        spec.push_str(key);
    }
    spec
}

fn pollux(folder: &TempDir, disk: Disk, options: &[&str]) -> io::Result<Command> {
    let spec = match disk.backing {
        Backing::Null => format!("null:size={}", disk.size),
        Backing::Memory if chosen_keys().is_none() => format!("memory:size={}", disk.size),
        Backing::Memory | Backing::File => file_spec(&make_image(folder, disk.size)?, ""),
    };
    let queues = disk.queues.to_string();
    let mut args = vec!["--disk", &spec, "--num-queues", &queues];
    if disk.access == Access::ReadOnly {
        args.push("--read-only");
    }
    args.extend(options);
    let more = std::env::var("POLLUX_TEST_OPTIONS").unwrap_or_default();
    args.extend(more.split_whitespace());
    Ok(pollux_command(&socket_in(folder), &args))
}

fn qemu_storage_daemon(folder: &TempDir, disk: Disk) -> io::Result<Command> {
    let (writable, read_only) = match disk.access {
        Access::ReadWrite => ("on", "off"),
        Access::ReadOnly => ("off", "on"),
    };
    let driver = match disk.backing {
        Backing::Null => format!("driver=null-co,size={}", disk.size),
        Backing::Memory | Backing::File => {
            let image = make_image(folder, disk.size)?;
            format!("driver=file,filename={}", image.display())
        }
    };
    let blockdev = format!("{driver},discard=unmap,read-only={read_only}");
    let export = format!("num-queues={},writable={writable}", disk.queues);
    let program = Path::new("qemu-storage-daemon");
    Ok(qemu_storage_daemon_command(
        program,
        &socket_in(folder),
        &blockdev,
        &export,
    ))
}
