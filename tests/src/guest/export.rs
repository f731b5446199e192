//! A disk to serve to a guest, whoever serves it.
//!
//! Tests are written for Pollux. With `POLLUX_TEST_SERVER=qsd` each kernel gets the qemu-storage-daemon
//! of its own QEMU instead, which tells our faults from the guest's and from the test's.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::VhostUserBlk;
use crate::client::Access;
use crate::server::{Ready, Server, pollux_command, qemu_storage_daemon_command};
use crate::subject;

#[derive(Clone, Debug)]
enum Backing {
    Memory {
        mib: u64,
    },
    /// `keys` are those of the SPEC beside its path.
    File {
        path: PathBuf,
        keys: String,
    },
    /// Any SPEC of Pollux's.
    Spec(String),
}

/// What is served: start from [`Export::memory`] or [`Export::file`].
#[derive(Clone, Debug)]
pub struct Export {
    backing: Backing,
    queues: u16,
    queue_size: Option<u16>,
    block_size: Option<u32>,
    serial: Option<String>,
    access: Access,
    control: Control,
}

/// Has Pollux a control socket?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Control {
    None,
    Beside,
}

impl Export {
    /// An empty disk of `mib` MiB that lives as long as its server.
    pub fn memory(mib: u64) -> Self {
        Self::of(Backing::Memory { mib })
    }

    /// The disk in the file `path`.
    pub fn file(path: &Path) -> Self {
        Self::file_with(path, "")
    }

    /// The disk in the file `path`, opened with `keys`, e.g. `cache=none,engine=threads`.
    pub fn file_with(path: &Path, keys: &str) -> Self {
        Self::of(Backing::File {
            path: path.to_owned(),
            keys: keys.to_owned(),
        })
    }

    /// The disk that `spec` describes, which only Pollux understands.
    pub fn spec(spec: &str) -> Self {
        Self::of(Backing::Spec(spec.to_owned()))
    }

    fn of(backing: Backing) -> Self {
        Self {
            backing,
            queues: 1,
            queue_size: None,
            block_size: None,
            serial: None,
            access: Access::ReadWrite,
            control: Control::None,
        }
    }

    /// How many request queues the server offers, and the guest's device uses.
    #[must_use]
    pub fn queues(mut self, queues: u16) -> Self {
        self.queues = queues;
        self
    }

    /// The size of each queue, told to both the server and the guest's device.
    #[must_use]
    pub fn queue_size(mut self, entries: u16) -> Self {
        self.queue_size = Some(entries);
        self
    }

    /// The logical block size in bytes.
    #[must_use]
    pub fn block_size(mut self, bytes: u32) -> Self {
        self.block_size = Some(bytes);
        self
    }

    /// The disk's serial number (qemu-storage-daemon has its own and keeps it).
    #[must_use]
    pub fn serial(mut self, serial: &str) -> Self {
        self.serial = Some(serial.to_owned());
        self
    }

    /// The disk cannot be written to.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.access = Access::ReadOnly;
        self
    }

    /// Pollux has a control socket beside the disk's, `NAME.control`.
    #[must_use]
    pub fn controlled(mut self) -> Self {
        self.control = Control::Beside;
        self
    }

    /// The device by which a guest attaches this export when it is served on `socket`.
    pub fn device(&self, socket: &Path) -> VhostUserBlk {
        let device = VhostUserBlk::new(socket).with(&format!("num-queues={}", self.queues));
        match self.queue_size {
            Some(entries) => device.with(&format!("queue-size={entries}")),
            None => device,
        }
    }

    /// Serves the disk by `pollux serve` on `socket`.
    pub fn by_pollux(&self, socket: &Path) -> io::Result<Server> {
        let disk = match &self.backing {
            Backing::Memory { mib } if subject::chosen_keys().is_none() => {
                format!("memory:size={mib}M")
            }
            Backing::Memory { mib } => subject::file_spec(&file_for(socket, *mib)?, ""),
            Backing::File { path, keys } => subject::file_spec(path, keys),
            Backing::Spec(spec) => spec.clone(),
        };
        let mut args = vec!["--disk".to_owned(), disk];
        let options = [
            ("--num-queues", Some(self.queues.to_string())),
            ("--queue-size", self.queue_size.map(|n| n.to_string())),
            ("--block-size", self.block_size.map(|n| n.to_string())),
            ("--serial", self.serial.clone()),
        ];
        for (option, value) in options {
            if let Some(value) = value {
                args.extend([option.to_owned(), value]);
            }
        }
        if self.access == Access::ReadOnly {
            args.push("--read-only".to_owned());
        }
        if self.control == Control::Beside {
            let path = socket.with_extension("control");
            args.extend(["--control".to_owned(), path.display().to_string()]);
        }
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        Server::start(&mut pollux_command(socket, &args), socket, Ready::LogLine)
    }

    /// Serves the disk by the qemu-storage-daemon `daemon` on `socket`.
    pub fn by_qemu(&self, daemon: &Path, socket: &Path) -> io::Result<Server> {
        let (path, keys) = match &self.backing {
            Backing::File { path, keys } => (path.clone(), keys.as_str()),
            Backing::Memory { mib } => (file_for(socket, *mib)?, ""),
            Backing::Spec(spec) => {
                return Err(io::Error::other(format!("no disk of QEMU's is {spec}")));
            }
        };
        let direct = if keys.contains("cache=none") {
            "on"
        } else {
            "off"
        };
        let (read_only, writable) = match self.access {
            Access::ReadOnly => ("on", "off"),
            Access::ReadWrite => ("off", "on"),
        };
        let blockdev = format!(
            "driver={},filename={},discard=unmap,read-only={read_only},cache.direct={direct}",
            if path.starts_with("/dev/loop") {
                "host_device"
            } else {
                "file"
            },
            path.display()
        );
        let export = format!(
            "num-queues={},writable={writable},logical-block-size={}",
            self.queues,
            self.block_size.unwrap_or(512)
        );
        let mut command = qemu_storage_daemon_command(daemon, socket, &blockdev, &export);
        Server::start(&mut command, socket, Ready::Monitor)
    }
}

/// The file in place of a disk in memory.
fn file_for(socket: &Path, mib: u64) -> io::Result<PathBuf> {
    let path = socket.with_extension("disk");
    File::create(&path)?.set_len(mib << 20)?;
    Ok(path)
}
