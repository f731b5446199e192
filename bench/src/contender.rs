//! The servers that are compared, and how each is started.

mod parse;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use pollux_tests::peers;
use pollux_tests::server::{
    Ready, Server, pollux_binary, pollux_command, qemu_storage_daemon_command,
};

use crate::cell::Disk;
use crate::images::Images;
use crate::pinned::Pinned;
use crate::spdk;

/// How `--ours` and `--peer` are written.
pub const SYNTAX: &str = "\
Servers (--ours, --peer):
  pollux [disk:KEY=VALUE[,…]] [OPTION…]  ours; `disk:` adds to the SPEC of its file disks
  qsd [aio=…] [PROGRAM]                  qemu-storage-daemon, in its main loop
  qsd-iothread [aio=…] [PROGRAM]         the same in an iothread, which polls before it sleeps
  qsd10, qsd10-iothread                  the same, of the QEMU 10 that tests/setup.sh fetches
  exec: PROGRAM ARG…                     any other; {socket}, {file}, {size} and {queues} are filled
                                         in, and {disk}, the SPEC of an older Pollux, which serves
                                         every disk then

For example, ours with a mechanism off: --peer 'pollux --kicks per-turn', or with another engine:
--set file --peer 'pollux disk:engine=threads'; or an older build:
--peer 'exec: /old/pollux serve --disk {disk} --num-queues {queues} --socket-path {socket}'.

The sets kernel, density and direct have qsd-iothread beside --peer, and kernel has SPDK's vhost
target where POLLUX_SPDK_VHOST names the program.";

/// A server to measure.
#[derive(Clone, Debug)]
pub struct Contender {
    /// What the tables call it.
    pub name: String,
    /// What it is.
    pub program: Program,
}

/// How to start a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// `pollux serve` from the release build.
    Pollux {
        /// What is added to the SPEC of file disks: `engine=threads`.
        disk: Vec<String>,
        /// Options beyond the disk and the socket.
        options: Vec<String>,
    },
    /// `qemu-storage-daemon`.
    ///
    /// Its null disk is `null-co` with `read-zeroes=off`: it does not touch the data either. It has no
    /// disk in memory; the fair peer is a file on tmpfs through the page cache.
    QemuStorageDaemon {
        /// The program.
        path: PathBuf,
        /// Whether the export runs in an iothread, which polls before it sleeps, or in the main loop.
        looper: Looper,
        /// How it does I/O on files, if not in the way that was the fastest.
        aio: Option<String>,
    },
    /// SPDK's vhost target.
    Spdk(PathBuf),
    /// Anything else: the words of its command, with placeholders.
    Command(Vec<String>),
}

/// Where `qemu-storage-daemon` serves an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Looper {
    /// Its main loop, the default.
    Main,
    /// An iothread.
    Iothread,
}

/// What a server serves.
#[derive(Clone, Copy, Debug)]
pub struct Exports {
    /// The disk.
    pub disk: Disk,
    /// Its queues.
    pub queues: u16,
    /// Such disks, each on a socket of its own: of Pollux alone more than one.
    pub count: usize,
    /// Which copy of its file: two servers that run at the same time do not share one.
    pub copy: usize,
}

impl Exports {
    /// One `disk` with one queue.
    pub const fn one(disk: Disk) -> Self {
        Self {
            disk,
            queues: 1,
            count: 1,
            copy: 0,
        }
    }

    /// Where each disk is served when the first is on `socket`.
    pub fn sockets(self, socket: &Path) -> Vec<PathBuf> {
        let one = |number| match number {
            0 => socket.to_owned(),
            later => socket.with_extension(format!("{later}.sock")),
        };
        (0..self.count).map(one).collect()
    }
}

/// Placeholders.
const SOCKET: &str = "{socket}";
const FILE: &str = "{file}";
const DISK: &str = "{disk}";

impl Contender {
    /// What the program calls itself.
    pub fn version(&self) -> String {
        let program = match &self.program {
            Program::Pollux { .. } => pollux_binary(),
            Program::QemuStorageDaemon { path, .. } | Program::Spdk(path) => path.clone(),
            Program::Command(words) => (&words[0]).into(),
        };
        first_line(Command::new(program).arg("--version"))
    }

    /// Can it serve `disk`?
    pub fn check(&self, disk: Disk) -> io::Result<()> {
        self.refuses(disk)
            .map_or(Ok(()), |refusal| Err(io::Error::other(refusal)))
    }

    /// Why it cannot serve `disk`, if so.
    fn refuses(&self, disk: Disk) -> Option<String> {
        let name = &self.name;
        match (&self.program, disk) {
            (Program::Pollux { disk: more, .. }, Disk::Null | Disk::Memory | Disk::Delayed(_))
                if !more.is_empty() =>
            {
                Some(format!(
                    "`{name}`: `disk:` is for files, and {disk} is none; add --set file"
                ))
            }
            (Program::Command(words), Disk::Null | Disk::Delayed(_) | Disk::Rbd)
                if !takes_specs(words) =>
            {
                Some(format!(
                    "`{name}` serves files, and {disk} is none; add --set file, or {{disk}} to its command"
                ))
            }
            (Program::Spdk(_), Disk::Delayed(_) | Disk::Image | Disk::Fresh | Disk::Rbd) => {
                Some(format!("`{name}` has no {disk}"))
            }
            _ => None,
        }
    }

    /// The same with these options too; `None` when it is not Pollux.
    pub fn with_options(&self, more: &[&str]) -> Option<Self> {
        let Program::Pollux { disk, options } = &self.program else {
            return None;
        };
        let mut options = options.clone();
        options.extend(more.iter().map(|&option| option.to_owned()));
        Some(Self {
            name: self.name.clone(),
            program: Program::Pollux {
                disk: disk.clone(),
                options,
            },
        })
    }

    /// Does its disk have to be filled by a client once it runs?
    pub fn starts_empty(&self, disk: Disk) -> bool {
        let own_memory = match &self.program {
            Program::Pollux { .. } | Program::Spdk(_) => true,
            Program::QemuStorageDaemon { .. } => false,
            Program::Command(words) => takes_specs(words),
        };
        own_memory && matches!(disk, Disk::Memory | Disk::Delayed(_))
    }

    /// How it tells that it is ready.
    pub const fn ready(&self) -> Ready {
        match self.program {
            Program::Pollux { .. } => Ready::JsonLine,
            Program::QemuStorageDaemon { .. } => Ready::Monitor,
            Program::Spdk(_) | Program::Command(_) => Ready::Listening,
        }
    }

    /// The command that serves `exports` on `socket` from processor `cpu`.
    ///
    /// # Errors
    /// When a file that it is to read cannot be written beside the socket.
    pub fn command(
        &self,
        exports: Exports,
        images: &Images,
        socket: &Path,
        cpu: usize,
    ) -> io::Result<Command> {
        let Exports {
            disk, queues, copy, ..
        } = exports;
        let path = images.path(disk, copy);
        let file = images.place(disk, copy);
        Ok(match &self.program {
            Program::Pollux {
                disk: more,
                options,
            } => {
                let spec = spec(disk, &file, more);
                let mut command = pollux(exports, &spec, socket)?;
                command.args(["--log-format", "json"]).args(options);
                command
            }
            Program::QemuStorageDaemon { path, looper, aio } => {
                let mut export = format!("num-queues={queues},writable=on");
                if *looper == Looper::Iothread {
                    export.push_str(",iothread=loop");
                }
                let blockdev = blockdev(disk, &file, aio.as_deref());
                let command = qemu_storage_daemon_command(path, socket, &blockdev, &export);
                let mut command = with_iothread(command, *looper);
                // Its driver of images in a cluster is a package of its own, which `tests/setup.sh` only unpacks.
                let modules = "ceph/usr/lib/x86_64-linux-gnu/qemu";
                command.env("QEMU_MODULE_DIR", peers::directory().join(modules));
                command
            }
            Program::Spdk(program) => {
                spdk::command(program, &spdk::disk(disk, &path), socket, cpu)?
            }
            Program::Command(words) => {
                let values = [
                    (SOCKET, socket.display().to_string()),
                    (DISK, spec(disk, &file, &[])),
                    (FILE, file),
                    ("{size}", disk.size().to_string()),
                    ("{queues}", queues.to_string()),
                ];
                let mut words = filled_in(words, &values).into_iter();
                let mut command = Command::new(words.next().expect("`command_words` saw some"));
                command.args(words);
                command
            }
        })
    }

    /// Starts it on `cpu`; its socket is made in `folder`.
    pub fn start(
        &self,
        exports: Exports,
        images: &Images,
        folder: &Path,
        cpu: usize,
    ) -> io::Result<Server> {
        let socket = folder.join("disk.sock");
        let mut command = self.command(exports, images, &socket, cpu)?;
        // A child inherits the affinity of the thread that starts it.
        let _pinned = Pinned::to(cpu)?;
        Server::start(&mut command, &socket, self.ready())
    }
}

/// Is it told of disks as Pollux is?
fn takes_specs(words: &[String]) -> bool {
    words.iter().any(|word| word.contains(DISK))
}

/// A command with its placeholders filled in, word by word: a blank in a path does not split it.
fn filled_in(words: &[String], values: &[(&str, String)]) -> Vec<String> {
    let word = |word: &String| {
        let fill = |word: String, (name, value): &(&str, String)| word.replace(name, value);
        values.iter().fold(word.clone(), fill)
    };
    words.iter().map(word).collect()
}

/// `pollux serve` of disks like `spec`: several are described by a file beside the socket.
fn pollux(exports: Exports, spec: &str, socket: &Path) -> io::Result<Command> {
    let queues = exports.queues.to_string();
    if exports.count == 1 {
        let args = ["--disk", spec, "--num-queues", &queues];
        return Ok(pollux_command(socket, &args));
    }
    let one = |socket: &PathBuf| {
        let socket = socket.display().to_string();
        format!("[[disk]]\nsocket-path = {socket:?}\ndisk = {spec:?}\nnum-queues = {queues}\n")
    };
    let all: String = exports.sockets(socket).iter().map(one).collect();
    let file = socket.with_extension("toml");
    fs::write(&file, all)?;
    let mut command = Command::new(pollux_binary());
    command.args(["serve", "--config"]).arg(file);
    Ok(command)
}

/// The SPEC of a disk of Pollux, with what `more` adds to it.
fn spec(disk: Disk, file: &str, more: &[String]) -> String {
    let size = disk.size();
    let mut spec = match disk {
        Disk::Null => format!("null:size={size}"),
        Disk::Memory => format!("memory:size={size}"),
        Disk::Delayed(us) => format!("fault:delay={us}us,on=memory:size={size}"),
        Disk::Tmpfs | Disk::Cached => format!("file:path={}", file.replace(',', ",,")),
        Disk::Direct => format!("file:path={},cache=none", file.replace(',', ",,")),
        Disk::Image | Disk::Fresh => format!("qcow2:path={}", file.replace(',', ",,")),
        Disk::Rbd => file.to_owned(),
    };
    for option in more {
        spec.push(',');
        spec.push_str(option);
    }
    spec
}

/// The block device of `qemu-storage-daemon`; `aio` if it shall not be what was the fastest.
fn blockdev(disk: Disk, file: &str, aio: Option<&str>) -> String {
    let (spec, file) = (file, file.replace(',', ",,"));
    match disk {
        Disk::Null => format!("driver=null-co,size={},read-zeroes=off", disk.size()),
        Disk::Delayed(us) => format!(
            "driver=null-co,size={},read-zeroes=off,latency-ns={}",
            disk.size(),
            1000 * u32::from(us)
        ),
        Disk::Memory | Disk::Tmpfs | Disk::Cached => {
            format!(
                "driver=file,aio={},filename={file}",
                aio.unwrap_or("io_uring")
            )
        }
        Disk::Image | Disk::Fresh => {
            let aio = aio.unwrap_or("io_uring");
            format!(
                "driver=qcow2,discard=unmap,file.driver=file,file.aio={aio},file.filename={file}"
            )
        }
        // Without librbd's cache, as ours. The keys are the same.
        Disk::Rbd => spec.replacen("rbd:", "driver=rbd,cache.direct=on,", 1),
        Disk::Direct => {
            let aio = aio.unwrap_or("io_uring");
            format!("driver=file,aio={aio},cache.direct=on,filename={file}")
        }
    }
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

/// The first line that a command prints; empty if it cannot be run.
pub fn first_line(command: &mut Command) -> String {
    let output = command
        .output()
        .map(|output| output.stdout)
        .unwrap_or_default();
    let text = String::from_utf8_lossy(&output);
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
