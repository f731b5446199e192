//! A file whose changes are remembered: a thread of the test keeps it, and is asked by the kernel for all that is done
//! with it (Linux, `include/uapi/linux/fuse.h`).
//!
//! A sync is told as such: a close of a descriptor is another message, be it by Pollux or by a child process that has
//! inherited the descriptor from another test. What changes is told before the call returns, since the kernel caches
//! nothing.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::thread::UnshareFlags;

/// What was done to the file.
#[derive(Debug)]
pub enum Change {
    Write {
        at: usize,
        bytes: Vec<u8>,
    },
    /// It is no longer by that.
    Zero {
        at: usize,
        len: usize,
    },
    Length(usize),
    Sync,
}

impl Change {
    /// How many bytes it changes; a length is changed as one.
    pub fn len(&self) -> usize {
        match self {
            Self::Write { bytes, .. } => bytes.len(),
            Self::Zero { len, .. } => *len,
            Self::Length(_) => 1,
            Self::Sync => 0,
        }
    }

    /// Does `part` of it to what a file holds.
    pub fn apply(&self, part: Range<usize>, file: &mut Vec<u8>) {
        match *self {
            Self::Write { at, ref bytes } => {
                let end = at + part.end;
                file.resize(file.len().max(end), 0);
                file[at + part.start..end].copy_from_slice(&bytes[part]);
            }
            Self::Zero { at, .. } => {
                let end = file.len().min(at + part.end);
                file[end.min(at + part.start)..end].fill(0);
            }
            Self::Length(len) => file.resize(len, 0),
            Self::Sync => {}
        }
    }
}

/// All changes so far, in their order.
pub type Changes = Arc<Mutex<Vec<Change>>>;

/// A file at a path, as long as this lives.
pub struct Mounted(PathBuf);

impl Mounted {
    /// Hides the file at `path` behind a copy, from this thread and those that it starts.
    ///
    /// # Errors
    ///
    /// Where that takes more rights than the test has.
    pub fn over(path: &Path, changes: &Changes) -> io::Result<Self> {
        let file = fs::read(path)?;
        let device = File::options().read(true).write(true).open("/dev/fuse")?;
        enter_own_namespace()?;
        // The root of the file system is a file.
        let (fd, file_type) = (device.as_raw_fd(), "100000");
        let options = format!("fd={fd},rootmode={file_type},user_id=0,group_id=0\0");
        let options = CStr::from_bytes_with_nul(options.as_bytes()).unwrap();
        rustix::mount::mount("record", path, "fuse", MountFlags::empty(), options)?;
        let mounted = Self(path.to_owned());
        let changes = Arc::clone(changes);
        let mut server = Server {
            device,
            file,
            changes,
        };
        thread::Builder::new().spawn(move || server.run())?;
        Ok(mounted)
    }
}

impl Drop for Mounted {
    /// The thread ends when the last descriptor of the file is closed.
    fn drop(&mut self) {
        if let Err(error) = rustix::mount::unmount(&self.0, UnmountFlags::DETACH) {
            eprintln!("{} is still mounted: {error}", self.0.display());
        }
    }
}

/// Mounts of this thread and of those that it starts are theirs alone, and end with them.
fn enter_own_namespace() -> io::Result<()> {
    // SAFETY: of the thread's descriptors nothing is unshared; that its working directory no longer follows `chdir` of
    // other threads concerns no test.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    Ok(rustix::mount::mount_change("/", private)?)
}

struct Server {
    device: File,
    file: Vec<u8>,
    changes: Changes,
}

/// What the kernel asks for.
mod op {
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const INTERRUPT: u32 = 36;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
}

/// Bytes of the header of a message, and of its answer's.
const ASKED: usize = 40;
const ANSWER: usize = 16;
/// As much as one message writes, which is as much as 32 pages hold.
const MAX_WRITE: usize = 128 << 10;

/// A field of a message.
fn field32(message: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(message[at..][..4].try_into().unwrap())
}

/// The same of one that is twice as long.
fn field64(message: &[u8], at: usize) -> usize {
    usize::try_from(u64::from_le_bytes(message[at..][..8].try_into().unwrap())).unwrap()
}

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

impl Server {
    /// Answers until the file is used no more.
    fn run(&mut self) {
        let mut message = vec![0; 2 * MAX_WRITE];
        loop {
            let len = match self.device.read(&mut message) {
                Ok(len) => len,
                Err(error) => match Errno::from_io_error(&error) {
                    Some(Errno::NODEV) => return,
                    // It was given up before it was read.
                    Some(Errno::NOENT | Errno::INTR) => continue,
                    _ => panic!("{error}"),
                },
            };
            let (header, body) = message[..len].split_at(ASKED);
            let (error, answer) = match self.answer(field32(header, 4), body) {
                Ok(None) => continue,
                Ok(Some(answer)) => (0, answer),
                Err(error) => (-error.raw_os_error(), Vec::new()),
            };
            let len = u32::try_from(ANSWER + answer.len()).unwrap();
            let unique = &header[8..16];
            let whole = [
                &len.to_le_bytes(),
                &error.to_le_bytes(),
                unique,
                &answer[..],
            ];
            // What was given up meanwhile takes no answer.
            let _ = self.device.write(&whole.concat());
        }
    }

    /// What to answer; nothing to some.
    fn answer(&mut self, op: u32, asked: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
        Ok(Some(match op {
            op::INIT => {
                const VERSION: u64 = 7 | 31 << 32;
                const BIG_WRITES: u64 = 1 << 5;
                const NANOSECONDS: u64 = 1;
                let readahead = u64::from(field32(asked, 8));
                let flags = readahead | BIG_WRITES << 32;
                let writes = (MAX_WRITE as u64) << 32;
                bytes(&[VERSION, flags, writes, NANOSECONDS, 0, 0, 0, 0])
            }
            op::GETATTR => self.attributes(),
            op::SETATTR => {
                const SIZE: u32 = 1 << 3;
                if field32(asked, 0) & SIZE != 0 {
                    self.change(Change::Length(field64(asked, 16)));
                }
                self.attributes()
            }
            op::OPEN => {
                const DIRECT_IO: u64 = 1;
                bytes(&[0, DIRECT_IO])
            }
            op::READ => {
                let from = self.file.len().min(field64(asked, 8));
                let len = usize::try_from(field32(asked, 16)).unwrap();
                let to = self.file.len().min(from + len);
                self.file[from..to].to_vec()
            }
            op::WRITE => {
                let (at, len) = (field64(asked, 8), field32(asked, 16));
                let written = bytes(&[len.into()]);
                let bytes = asked[40..].to_vec();
                self.change(Change::Write { at, bytes });
                written
            }
            op::FALLOCATE => {
                // FALLOC_FL_KEEP_SIZE with PUNCH_HOLE or ZERO_RANGE.
                const ZEROES: [u32; 2] = [1 | 1 << 1, 1 | 1 << 4];
                if !ZEROES.contains(&field32(asked, 24)) {
                    return Err(Errno::OPNOTSUPP);
                }
                let (at, len) = (field64(asked, 8), field64(asked, 16));
                self.change(Change::Zero { at, len });
                Vec::new()
            }
            op::FSYNC => {
                self.change(Change::Sync);
                Vec::new()
            }
            op::STATFS => {
                let block = 4096;
                bytes(&[0, 0, 0, 0, 0, block, block, 0, 0, 0])
            }
            op::FLUSH | op::RELEASE => Vec::new(),
            op::FORGET | op::BATCH_FORGET | op::INTERRUPT => return Ok(None),
            _ => return Err(Errno::NOSYS),
        }))
    }

    fn change(&mut self, change: Change) {
        change.apply(0..change.len(), &mut self.file);
        self.changes.lock().unwrap().push(change);
    }

    /// They are asked for anew each time.
    fn attributes(&self) -> Vec<u8> {
        const NODE: u64 = 1;
        const MODE: u64 = 0o100_644 << 32;
        const LINKS: u64 = 1;
        const BLOCK: u64 = 4096;
        let len = self.file.len() as u64;
        let mut words = [0; 13];
        words[2..5].copy_from_slice(&[NODE, len, len.div_ceil(512)]);
        words[9..].copy_from_slice(&[MODE, LINKS, 0, BLOCK]);
        bytes(&words)
    }
}
