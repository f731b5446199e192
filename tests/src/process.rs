//! What the kernel says about a process: its descriptors, threads, memory, and how often it woke.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::time::{Duration, Instant};

pub use pollux_disk_conformance::eventually;

/// How long something that must come may take before a test gives up on it.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the kernel calls the state of a thread that waits for something.
const ASLEEP: char = 'S';
/// What it calls that of a thread that a signal has stopped.
const STOPPED: char = 'T';
/// What it calls the number of sleeps.
const SLEEPS: &str = "voluntary_ctxt_switches:";
/// What it calls that of a thread that waits for what no signal ends.
const STUCK: char = 'D';

/// A process, seen through `/proc`.
#[derive(Clone, Copy, Debug)]
pub struct Process(u32);

/// What a process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holdings {
    /// Open file descriptors.
    pub fds: usize,
    /// Threads.
    pub threads: usize,
}

/// How often each thread went to sleep, by thread id. Whoever wakes goes to sleep again.
pub type Sleeps = BTreeMap<u32, u64>;

impl Process {
    /// The process with this id.
    pub const fn new(pid: u32) -> Self {
        Self(pid)
    }

    fn path(self, name: &str) -> String {
        format!("/proc/{}/{name}", self.0)
    }

    /// Its number.
    pub const fn id(self) -> u32 {
        self.0
    }

    /// Its open descriptors and its threads, but for those of the kernel's (`iou-…`), which come and go, and those of a
    /// file's pool, which start as they are needed, sixteen at most, and stay.
    pub fn holdings(self) -> io::Result<Holdings> {
        let fds = fs::read_dir(self.path("fd"))?.count();
        let names = self.threads()?.into_iter();
        // One that has ended meanwhile is none.
        let names =
            names.filter_map(|id| fs::read_to_string(self.path(&format!("task/{id}/comm"))).ok());
        let comes_and_goes =
            |name: &String| name.starts_with("iou-") || name.trim() == "pollux-file";
        let threads = names.filter(|name| !comes_and_goes(name)).count();
        Ok(Holdings { fds, threads })
    }

    /// The ids of its threads.
    pub fn threads(self) -> io::Result<Vec<u32>> {
        let entries = fs::read_dir(self.path("task"))?;
        let id = |entry: io::Result<fs::DirEntry>| {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|text| text.parse().ok());
            number.ok_or_else(|| io::Error::other("a thread without a number"))
        };
        entries.map(id).collect()
    }

    /// The id of the thread of that name.
    pub fn thread_named(self, name: &str) -> io::Result<u32> {
        for id in self.threads()? {
            if self
                .told_of(id, "comm")?
                .is_some_and(|called| called.trim() == name)
            {
                return Ok(id);
            }
        }
        Err(io::Error::other(format!("no thread is called {name}")))
    }

    /// Bytes of anonymous memory (`RssAnon`): heap and stacks, but nothing mapped from files.
    pub fn anonymous_memory(self) -> io::Result<u64> {
        let status = fs::read_to_string(self.path("status"))?;
        Ok(1024 * field(&status, "RssAnon:")?)
    }

    /// How often each of its threads went to sleep by its own will. One may end while this looks.
    pub fn sleeps(self) -> io::Result<Sleeps> {
        let of_thread = |id: u32| {
            let status = self.told_of(id, "status")?;
            let sleeps = status.map(|status| field(&status, SLEEPS)).transpose()?;
            Ok(sleeps.map(|sleeps| (id, sleeps)))
        };
        let threads = self.threads()?.into_iter();
        threads.filter_map(|id| of_thread(id).transpose()).collect()
    }

    /// How often this thread of it went to sleep by its own will.
    pub fn sleeps_of(self, thread: u32) -> io::Result<u64> {
        let status = fs::read_to_string(self.path(&format!("task/{thread}/status")))?;
        field(&status, SLEEPS)
    }

    /// Nanoseconds that its living threads have spent on a processor.
    pub fn cpu_ns(self) -> io::Result<u64> {
        let of_thread = |id: u32| {
            let Some(stat) = self.told_of(id, "schedstat")? else {
                return Ok(0);
            };
            let first = stat
                .split(' ')
                .next()
                .and_then(|text| text.parse::<u64>().ok());
            first.ok_or_else(|| io::Error::other(format!("no time in schedstat {stat:?}")))
        };
        self.threads()?.into_iter().map(of_thread).sum()
    }

    /// Are all of its threads asleep?
    pub fn is_asleep(self) -> io::Result<bool> {
        self.is_all(ASLEEP)
    }

    /// Has a signal stopped all of its threads?
    pub fn is_stopped(self) -> io::Result<bool> {
        self.is_all(STOPPED)
    }

    fn is_all(self, state: char) -> io::Result<bool> {
        for id in self.threads()? {
            if self
                .told_of(id, "status")?
                .is_some_and(|status| !is_in(state, &status))
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits until this thread of it is asleep and nothing is under way that would wake it: many looks in a row find it
    /// so, as a lock that it had to wait for is no sleep. Each look begins with `check`.
    ///
    /// # Panics
    /// When it stays awake for a minute.
    pub fn wait_for_sleep(self, thread: u32, mut check: impl FnMut()) {
        const LOOKS: u32 = 50;
        let mut in_a_row = 0;
        let sleeps = || {
            check();
            let asleep = self.is_thread_asleep(thread).unwrap_or(false);
            in_a_row = if asleep { in_a_row + 1 } else { 0 };
            in_a_row == LOOKS
        };
        eventually(sleeps, || format!("thread {thread} is awake"));
    }

    /// Is this thread of it asleep?
    pub fn is_thread_asleep(self, id: u32) -> io::Result<bool> {
        let status = fs::read_to_string(self.path(&format!("task/{id}/status")))?;
        Ok(is_in(ASLEEP, &status))
    }

    /// Does this thread of it wait for something that no signal ends?
    pub fn is_thread_stuck(self, id: u32) -> io::Result<bool> {
        let status = self.told_of(id, "status")?;
        Ok(status.is_some_and(|status| is_in(STUCK, &status)))
    }

    /// What `file` says of a thread of it; `None` if that has ended since it was listed.
    fn told_of(self, thread: u32, file: &str) -> io::Result<Option<String>> {
        match fs::read_to_string(self.path(&format!("task/{thread}/{file}"))) {
            Err(gone) if gone.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(gone) if gone.raw_os_error() == Some(libc::ESRCH) => Ok(None),
            told => told.map(Some),
        }
    }
}

/// Is a thread of such a `status` in that state?
fn is_in(wanted: char, status: &str) -> bool {
    let state = status.lines().find_map(|line| line.strip_prefix("State:"));
    state.is_some_and(|state| state.trim_start().starts_with(wanted))
}

fn field(status: &str, name: &str) -> io::Result<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix(name));
    let number = value.and_then(|text| text.split_whitespace().next()?.parse().ok());
    number.ok_or_else(|| io::Error::other(format!("no {name} in the status of a process")))
}

/// What `look` shows once it shows the same twice, a second apart: what came before is over.
///
/// # Panics
/// If it has not for a minute.
pub fn unchanging<T: PartialEq>(mut look: impl FnMut() -> T) -> T {
    let start = Instant::now();
    let mut before = look();
    while start.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_secs(1));
        let now = look();
        if now == before {
            return now;
        }
        before = now;
    }
    panic!("it is not quiet for a second in a minute");
}

/// Nothing happens in this process for so long, once it is quiet: that can only be seen by watching.
///
/// # Panics
/// If a thread of it has slept again or run on.
pub fn assert_idle(process: Process, watched: Duration) {
    let activity = || {
        let of = (process.sleeps(), process.cpu_ns());
        (of.0.expect("it runs"), of.1.expect("it runs"))
    };
    let at_rest = unchanging(activity);
    std::thread::sleep(watched);
    assert_eq!(activity(), at_rest, "a thread has slept again or run on");
}
