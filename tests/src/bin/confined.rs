//! A thread in the sandbox of `pollux serve` that tries what it should not.
//!
//! `confined KIND WHAT FOLDER`: a thread of that kind does WHAT, in a sandbox for disks of every kind that
//! leaves it sockets to remove in FOLDER, and a list of disks to keep in `list` beside that. Ends with status 0 if it
//! was done, with 1 if it was refused, whose reason is on the output; or by the sandbox.

use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::thread;

use pollux_sandbox::{Level, Needs, Plan, Sandbox};
use pollux_threads::{Birth, Kind};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::process::{Pid, Signal};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [kind, what, folder] = args.as_slice() else {
        return Err("usage: confined KIND WHAT FOLDER".into());
    };
    let mut kinds = Kind::ALL.into_iter();
    let kind = kinds.find(|known| known.name() == kind.as_str());
    let kind = kind.ok_or("there is no such kind of thread")?;
    let plan = Plan {
        needs: Needs {
            files: true,
            images: true,
            io_uring: true,
            driver: true,
            control: true,
            opener: true,
            cluster: true,
        },
        removes_in: vec![folder.into()],
        connects_in: vec![folder.into()],
        reads: vec![],
        opens_in: vec![folder.into()],
        keeps_in: Some(Path::new(folder).join("../list")),
    };
    let prepared = Prepared::new(folder.as_ref())?;
    let sandbox = Sandbox::prepare(Level::Require, &plan)?;
    // These are born before main gives up what it may do.
    if ![Kind::Opener, Kind::Keeper].contains(&kind) {
        sandbox.enter()?;
    }
    // As its parent would start it. What only main starts is started by main.
    let birth = Birth::of(kind);
    let tried = thread::scope(|scope| {
        let thread = scope.spawn(|| {
            if kind != Kind::Main {
                birth.happens();
            }
            prepared.attempt(what)
        });
        thread.join().expect("trying does not panic")
    });
    Ok(match tried {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            writeln!(io::stdout(), "refused: {error}")?;
            ExitCode::FAILURE
        }
    })
}

/// What an attempt needs and could not get inside.
struct Prepared<'folder> {
    folder: &'folder Path,
    file: File,
    parent: Pid,
}

impl<'folder> Prepared<'folder> {
    fn new(folder: &'folder Path) -> io::Result<Self> {
        Ok(Self {
            folder,
            file: File::open(folder.join("image"))?,
            parent: rustix::process::getppid().ok_or(io::ErrorKind::NotFound)?,
        })
    }

    fn attempt(&self, what: &str) -> io::Result<()> {
        match what {
            "run-a-program" => Err(Command::new("/bin/true").exec()),
            "start-a-process" => Command::new("/bin/true").spawn().map(drop),
            "read-a-file" => File::open("/etc/passwd").map(drop),
            "read-the-image" => File::open(self.folder.join("image")).map(drop),
            "read-through-a-link" => File::open(self.folder.join("link")).map(drop),
            "read-above" => File::open(self.folder.join("../kept")).map(drop),
            "move-a-file-out" => {
                fs::rename(self.folder.join("image"), self.folder.join("../image"))
            }
            "keep-the-list" => keep(&self.folder.join("../list")),
            "make-a-file" => File::create(self.folder.join("new")).map(drop),
            "write-the-image" => write(&self.folder.join("image")),
            "write-what-was-read" => write(&again(self.file.as_raw_fd())),
            "remove-a-socket" => fs::remove_file(self.folder.join("socket")),
            "remove-another-file" => fs::remove_file(self.folder.join("../kept")),
            "talk-tcp" => TcpStream::connect("127.0.0.1:9").map(drop),
            "talk-udp" => UdpSocket::bind("127.0.0.1:0").map(drop),
            "signal-the-parent" => Ok(rustix::process::kill_process(self.parent, Signal::WINCH)?),
            "signal-a-thread-of-the-parent" => signal_thread(self.parent),
            "write-code" => write_code(),
            "become-somebody" => Ok(rustix::thread::set_thread_uid(rustix::fs::Uid::ROOT)?),
            "wait" => Ok(()),
            _ => Err(io::Error::other("nobody knows how to do that")),
        }
    }
}

/// Replaces a file in `folder`, to last.
fn keep(folder: &Path) -> io::Result<()> {
    let mut file = File::create(folder.join("new"))?;
    file.write_all(b"disks")?;
    file.sync_all()?;
    fs::rename(folder.join("new"), folder.join("state"))?;
    File::open(folder)?.sync_all()
}

fn again(fd: i32) -> std::path::PathBuf {
    format!("/proc/self/fd/{fd}").into()
}

fn write(path: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).open(path).map(drop)
}

/// Asks whether a thread of another process can be signalled.
fn signal_thread(process: Pid) -> io::Result<()> {
    // Its first one has its number.
    let first = process.as_raw_nonzero().get();
    // SAFETY: no signal is sent; it is only asked for leave.
    match unsafe { libc::syscall(libc::SYS_tgkill, first, first, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Maps memory that can be written and run.
fn write_code() -> io::Result<()> {
    let all = ProtFlags::READ | ProtFlags::WRITE | ProtFlags::EXEC;
    // SAFETY: a new mapping wherever there is room; nothing else is touched.
    let mapped =
        unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), 4096, all, MapFlags::PRIVATE) };
    mapped.map(drop).map_err(io::Error::from)
}
