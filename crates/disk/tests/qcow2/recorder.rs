//! A file that remembers each write and each sync, in their order: QEMU's `blklogwrites` behind a FUSE mount.
//!
//! A file system that loses its power keeps all that was synced and *any* of what was written since. What reaches a
//! disk first on a machine of today is chance; from the record every choice can be made.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use fastrand::Rng;

use super::images::Lab;
use super::skip;

/// What is written as one: of more than that, a part may survive.
const SECTOR: usize = 512;
const FLUSH: u64 = 1;
const DISCARD: u64 = 4;

/// One line of the record.
#[derive(Clone, Copy, Debug)]
struct Entry {
    at: u64,
    len: usize,
    /// Where in the record its bytes are.
    bytes: u64,
    flags: u64,
}

/// A file at a path, as long as this lives.
pub struct Recorder {
    path: PathBuf,
    before: Vec<u8>,
    log: fs::File,
    next: u64,
    entries: Vec<Entry>,
    daemon: u32,
    /// Gone when the daemon is.
    pid: PathBuf,
}

impl Recorder {
    /// Puts the file at `path` behind a record. `None`, with a word, where that cannot be.
    pub fn over(lab: &Lab, path: &Path) -> Option<Self> {
        let before = fs::read(path).unwrap();
        let (behind, log, pid) = (lab.path("behind"), lab.path("record"), lab.path("pid"));
        fs::copy(path, &behind).unwrap();
        let record = fs::File::create(&log).unwrap();
        record.set_len(4 << 30).unwrap();
        let name = |path: &Path| path.to_str().unwrap().to_owned();
        let file = |node: &str, path: &Path| {
            let path = name(path);
            format!("driver=file,filename={path},node-name={node},discard=unmap,locking=off")
        };
        let record = "driver=blklogwrites,file=behind,log=record,node-name=all,log-sector-size=512,discard=unmap";
        let export = format!(
            "type=fuse,id=export,node-name=all,mountpoint={},writable=on,growable=on",
            name(path)
        );
        let arguments = [
            "--blockdev",
            &file("behind", &behind),
            "--blockdev",
            &file("record", &log),
            "--blockdev",
            record,
            "--export",
            &export,
            "--pidfile",
            &name(&pid),
            "--daemonize",
        ];
        let started = Command::new("qemu-storage-daemon").args(arguments).output();
        match started {
            Ok(Output { status, .. }) if status.success() => {}
            other => {
                skip(&format!("no record of writes: {other:?}"));
                return None;
            }
        }
        let daemon = fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
        Some(Self {
            path: path.to_owned(),
            before,
            log: fs::File::open(&log).unwrap(),
            next: SECTOR as u64,
            entries: Vec::new(),
            daemon,
            pid,
        })
    }

    /// How many writes and syncs there were.
    pub fn count(&mut self) -> usize {
        let mut header = [0; 32];
        loop {
            self.log.read_exact_at(&mut header, self.next).unwrap();
            let field = |at: usize| u64::from_le_bytes(header[at * 8..][..8].try_into().unwrap());
            let (sector, count, flags) = (field(0), field(1), field(2));
            if count == 0 && flags == 0 {
                return self.entries.len();
            }
            let len = usize::try_from(count).unwrap() * SECTOR;
            let bytes = self.next + SECTOR as u64;
            self.entries.push(Entry {
                at: sector * SECTOR as u64,
                len,
                bytes,
                flags,
            });
            self.next = match flags & DISCARD {
                0 => bytes + len as u64,
                _ => bytes,
            };
        }
    }

    /// How many syncs there were.
    pub fn syncs(&mut self) -> usize {
        self.count();
        let syncs = self.entries.iter().filter(|entry| entry.flags & FLUSH != 0);
        syncs.count()
    }

    /// What a disk holds if the power fails while write number `alone` is under way, and of all that was not synced by
    /// then it alone survives.
    pub fn with_one_alone(&self, alone: usize) -> Vec<u8> {
        let mut bytes = self.before.clone();
        let synced = self.entries[..alone]
            .iter()
            .rposition(|entry| entry.flags & FLUSH != 0)
            .unwrap_or(0);
        for entry in self.entries[..synced].iter().chain([&self.entries[alone]]) {
            let (from, to) = (usize::try_from(entry.at).unwrap(), entry.len);
            if bytes.len() < from + to {
                bytes.resize(from + to, 0);
            }
            let into = &mut bytes[from..][..to];
            if entry.flags & DISCARD == 0 {
                self.log.read_exact_at(into, entry.bytes).unwrap();
            } else {
                into.fill(0);
            }
        }
        bytes
    }

    /// How long the file is.
    pub fn len(&self) -> usize {
        usize::try_from(fs::metadata(&self.path).unwrap().len()).unwrap()
    }

    /// What a disk holds on which the first `count` were under way when the power failed: all before the last sync, and
    /// any of the rest.
    pub fn after_power_cut(&self, count: usize, len: usize, random: &mut Rng) -> Vec<u8> {
        let mut bytes = self.before.clone();
        bytes.resize(len.max(bytes.len()), 0);
        let entries = &self.entries[..count];
        let synced = entries
            .iter()
            .rposition(|entry| entry.flags & FLUSH != 0)
            .unwrap_or(0);
        // All, none, or some more than others.
        let survive = [0, 10, 50, 90, 100][random.usize(..5)];
        for (number, entry) in entries.iter().enumerate() {
            for piece in (0..entry.len).step_by(SECTOR) {
                if number > synced && random.u8(..100) >= survive {
                    continue;
                }
                let at = usize::try_from(entry.at).unwrap() + piece;
                if bytes.len() < at + SECTOR {
                    bytes.resize(at + SECTOR, 0);
                }
                let into = &mut bytes[at..at + SECTOR];
                if entry.flags & DISCARD == 0 {
                    let from = entry.bytes + piece as u64;
                    self.log.read_exact_at(into, from).unwrap();
                } else {
                    into.fill(0);
                }
            }
        }
        bytes
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let mounted = || {
            let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
            mounts.contains(self.path.to_str().unwrap())
        };
        let _ = Command::new("kill").arg(self.daemon.to_string()).status();
        for _ in 0..2000 {
            if !mounted() && !self.pid.exists() {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
        eprintln!("{} is still mounted", self.path.display());
    }
}
