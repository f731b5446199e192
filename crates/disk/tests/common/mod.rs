//! What the tests of every disk share: guest memory, a client, and what a disk is expected to do.

#![allow(dead_code, reason = "every test file uses its own part")]

pub mod expectations;
pub mod loops;

use std::sync::Arc;
use std::time::{Duration, Instant};

use pollux_disk::file::{Engine, Settings};
use pollux_disk::wait::Sleeper;
use pollux_disk::{
    Armed, Channel, Completion, Disk, Durability, Failure, File, Op, Options, Queued, Request,
    Ticket, Unmap,
};
use pollux_memory::{Region, Span, Spans};
use rustix::fs::MemfdFlags;
use tempfile::TempDir;

/// Longer than any test takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A stretch of shared memory as a guest has it, cut into the spans of one request.
pub struct Buffer {
    pub region: Arc<Region>,
    /// Never changes, so that it can be lent.
    spans: Box<[Span]>,
}

impl Buffer {
    /// `len` bytes in one span, at the start of a page.
    pub fn new(len: usize) -> Self {
        Self::cut(len, &[])
    }

    /// `len` bytes in several spans, each of which ends at one of `cuts`.
    pub fn cut(len: usize, cuts: &[usize]) -> Self {
        let file = rustix::fs::memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
        let whole = len.max(1) as u64;
        rustix::fs::ftruncate(&file, whole).unwrap();
        let region = Arc::new(Region::map(file.into(), 0, 0, 0, whole).unwrap());
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut % len.max(1)).collect();
        cuts.sort_unstable();
        // SAFETY: the buffer has the region, and every test keeps the buffer until the request that it lends it to
        // has ended.
        let mut rest = unsafe { region.span() }.split_at(len).0;
        let mut spans = Vec::new();
        for cut in cuts {
            let (now, later) = rest.split_at(cut - (len - rest.len()));
            spans.push(now);
            rest = later;
        }
        spans.push(rest);
        Self {
            region,
            spans: spans.into(),
        }
    }

    pub fn holding(bytes: &[u8]) -> Self {
        let buffer = Self::new(bytes.len());
        buffer.fill(bytes);
        buffer
    }

    pub fn fill(&self, bytes: &[u8]) {
        self.region.write(0, bytes);
    }

    pub fn bytes(&self) -> Vec<u8> {
        let len = self.spans.iter().map(|span| span.len()).sum();
        let mut bytes = vec![0; len];
        self.region.read(0, &mut bytes);
        bytes
    }

    pub fn spans(&self) -> Spans {
        // SAFETY: the list is never changed or moved, and every test keeps the buffer until the
        // request it lends it to has ended.
        unsafe { Spans::new(&self.spans) }
    }
}

pub fn read(at: u64, into: &Buffer) -> Op {
    Op::Read {
        at,
        into: into.spans(),
    }
}

pub fn write(at: u64, from: &Buffer) -> Op {
    Op::Write {
        at,
        from: from.spans(),
        durability: Durability::Volatile,
    }
}

pub fn zeroes(at: u64, len: u64, unmap: Unmap) -> Op {
    Op::WriteZeroes {
        at,
        len,
        unmap,
        durability: Durability::Volatile,
    }
}

/// One channel and its owner, who sleeps until something has ended.
pub struct Client {
    sleeper: Sleeper,
    channel: Box<dyn Channel>,
    pub sleeps: u64,
}

impl Client {
    pub fn new(disk: &dyn Disk) -> Self {
        let sleeper = Sleeper::new().unwrap();
        let channel = disk.open_channel(sleeper.point()).unwrap();
        Self {
            sleeper,
            channel,
            sleeps: 0,
        }
    }

    /// Does `op` and waits for its end.
    pub fn run(&mut self, op: Op) -> Result<(), Failure> {
        let mut results = self.run_all(&[op]);
        results.pop().unwrap()
    }

    /// Does all of `ops` at once and waits for their ends.
    pub fn run_all(&mut self, ops: &[Op]) -> Vec<Result<(), Failure>> {
        let mut results = vec![None; ops.len()];
        let mut left = ops.len();
        for (at, &op) in (0u64..).zip(ops) {
            let ticket = Ticket(at);
            if let Queued::Done(result) = self.channel.queue(Request { ticket, op }) {
                results[usize::try_from(at).unwrap()] = Some(result);
                left -= 1;
            }
        }
        self.channel.submit();
        let started = Instant::now();
        while left > 0 {
            left -= self.wait(|done| {
                let slot = &mut results[usize::try_from(done.ticket.0).unwrap()];
                assert!(slot.is_none(), "{:?} ended twice", done.ticket);
                *slot = Some(done.result);
            });
            if started.elapsed() > PATIENCE {
                // No panic: the requests in flight use memory that it would unmap.
                eprintln!("{left} requests have not ended: a lost wake-up, or a lost request");
                std::process::abort();
            }
        }
        self.channel
            .reap(&mut |done| panic!("{done:?} was not asked for"));
        results.into_iter().map(Option::unwrap).collect()
    }

    /// Sleeps until something has ended, and seldom longer or shorter: whoever delivers may wake us
    /// for what we have just collected. Returns how many requests ended.
    fn wait(&mut self, mut done: impl FnMut(Completion)) -> usize {
        self.sleeper.arm();
        match self.channel.arm() {
            Armed::Idle => {
                self.sleeps += 1;
                self.sleeper.sleep(Some(PATIENCE), |_| ()).unwrap();
            }
            Armed::Pending => self.sleeper.disarm(),
            Armed::CannotSleep => panic!("these disks can wake a sleeper"),
        }
        let mut ended = 0;
        self.channel.reap(&mut |completion| {
            ended += 1;
            done(completion);
        });
        self.channel.submit();
        ended
    }

    pub fn read_bytes(&mut self, at: u64, len: usize) -> Vec<u8> {
        let buffer = Buffer::new(len);
        assert_eq!(self.run(read(at, &buffer)), Ok(()));
        buffer.bytes()
    }

    pub fn write_bytes(&mut self, at: u64, bytes: &[u8]) -> Result<(), Failure> {
        self.run(write(at, &Buffer::holding(bytes)))
    }
}

/// Bytes that differ from place to place and from `seed` to `seed`.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// The engines of a file disk that there are here.
pub fn engines() -> Vec<Engine> {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(4096).unwrap();
    let settings = Settings {
        engine: Engine::IoUring,
        ..Settings::default()
    };
    match File::open(file.path(), settings, &Options::default()) {
        Ok(_) => vec![Engine::IoUring, Engine::Threads],
        Err(error) => {
            skip(&error.to_string());
            vec![Engine::Threads]
        }
    }
}

/// Says why something is not tested here; fails where `REQUIRE_PEERS` says that all must be there.
pub fn skip(why: &str) {
    println!("SKIP: {why}");
    let required = std::env::var_os("REQUIRE_PEERS").is_some_and(|value| value == "1");
    assert!(!required, "this must work here: {why}");
}

/// A folder in memory, where there is one.
pub fn tmpfs() -> Option<TempDir> {
    TempDir::new_in("/dev/shm")
        .inspect_err(|error| skip(&format!("no folder in /dev/shm: {error}")))
        .ok()
}

/// Makes a disk of so many bytes, all zeroes.
pub type Make<'a> = &'a dyn Fn(u64) -> Arc<dyn Disk>;
