//! The servers that are compared, each started afresh for every measurement.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use pollux_tests::server::{
    Ready, Server, pollux_binary, pollux_command, qemu_storage_daemon_command,
};

use crate::cell::Disk;
use crate::machine::first_line;
use crate::pinned::Pinned;

/// A server to measure.
#[derive(Clone, Debug)]
pub struct Contender {
    /// What the tables call it.
    pub name: String,
    /// How to start it.
    pub program: Program,
}

/// How to start a server.
#[derive(Clone, Debug)]
pub enum Program {
    /// `pollux serve` from the release build.
    Pollux {
        /// Options beyond the disk and the socket.
        options: Vec<String>,
    },
    /// `qemu-storage-daemon`.
    ///
    /// Its null disk is `null-co` with `read-zeroes=off`: it does not touch the data either. It has no
    /// disk in memory; the fair peer is a file on tmpfs through the page cache, by `io_uring`, which was
    /// faster there than its pool of threads (up to 1.7 times).
    QemuStorageDaemon {
        /// The program.
        path: PathBuf,
        /// Whether the export runs in an iothread, which polls before it sleeps, or in the main loop.
        looper: Looper,
    },
}

/// Where `qemu-storage-daemon` serves an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looper {
    /// Its main loop, the default.
    Main,
    /// An iothread.
    Iothread,
}

impl FromStr for Contender {
    type Err = String;

    /// `pollux OPTION…`, `qsd` or `qsd-iothread`; the last two may be followed by a program.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.split_whitespace();
        let kind = words.next().unwrap_or_default();
        let mut daemon = |looper| Program::QemuStorageDaemon {
            path: words.next().unwrap_or("qemu-storage-daemon").into(),
            looper,
        };
        let program = match kind {
            "qsd" => daemon(Looper::Main),
            "qsd-iothread" => daemon(Looper::Iothread),
            "pollux" => Program::Pollux {
                options: words.map(str::to_owned).collect(),
            },
            other => return Err(format!("`{other}` is none of pollux, qsd, qsd-iothread")),
        };
        let name = text.to_owned();
        Ok(Self { name, program })
    }
}

impl Contender {
    /// What the program calls itself.
    pub fn version(&self) -> String {
        let program = match &self.program {
            Program::Pollux { .. } => pollux_binary(),
            Program::QemuStorageDaemon { path, .. } => path.clone(),
        };
        first_line(Command::new(program).arg("--version"))
    }

    /// Starts it on `cpu` with one queue of `disk`; `folder`, on tmpfs, is for its socket and file.
    pub fn start(&self, disk: Disk, folder: &Path, cpu: usize) -> io::Result<Server> {
        let socket = folder.join("disk.sock");
        let (mut command, ready) = match &self.program {
            Program::Pollux { options } => {
                let spec = if let Ok(s) = std::env::var("POLLUX_SPEC") {
                    s
                } else {
                    match disk {
                        Disk::Null => format!("null:size={}", disk.size()),
                        Disk::Memory => format!("memory:size={}", disk.size()),
                    }
                };
                let mut args = vec!["--disk", &spec, "--num-queues", "1"];
                args.extend(options.iter().map(String::as_str));
                (pollux_command(&socket, &args), Ready::LogLine)
            }
            Program::QemuStorageDaemon { path, looper } => {
                let mut export = "num-queues=1,writable=on".to_owned();
                if *looper == Looper::Iothread {
                    export.push_str(",iothread=loop");
                }
                let blockdev = match disk {
                    Disk::Null => format!("driver=null-co,size={},read-zeroes=off", disk.size()),
                    Disk::Memory => {
                        format!("driver=file,aio=io_uring,filename={}", image(folder, disk)?)
                    }
                };
                let command = qemu_storage_daemon_command(path, &socket, &blockdev, &export);
                (with_iothread(command, *looper), Ready::Monitor)
            }
        };
        // A child inherits the affinity of the thread that starts it.
        let _pinned = Pinned::to(cpu)?;
        Server::start(&mut command, &socket, ready)
    }
}

fn image(folder: &Path, disk: Disk) -> io::Result<String> {
    let image = folder.join("disk.img");
    File::create(&image)?.set_len(disk.size())?;
    Ok(image.display().to_string())
}

/// The same command with an iothread, which must come before the export that names it.
fn with_iothread(command: Command, looper: Looper) -> Command {
    if looper == Looper::Main {
        return command;
    }
    let mut with = Command::new(command.get_program());
    with.args(["--object", "iothread,id=loop"]);
    with.args(command.get_args());
    with
}
