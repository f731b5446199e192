//! System calls of a server or a client, counted from outside by `perf stat` on the kernel's
//! tracepoints: the same way for every program, and at a fraction of what `strace` would cost.
//!
//! Kicks and calls are system calls too: a kick is a `write` of the client to an eventfd that it
//! shares with the server, a call is one of the server. Which descriptors these are, `fdinfo` tells:
//! an eventfd has the same id wherever it is open. Pollux has the kernel signal eventfds by `io_submit`, which it uses
//! for nothing else; a peer that is told to do its transfers so (`aio=native`) has those counted as well.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process};

/// What is watched.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    /// All threads of a process, new ones included.
    Process(u32),
    /// One thread.
    Thread(u32),
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// System calls.
    pub syscalls: u64,
    /// Of these, those that notify: writes to the eventfds that were named, and `io_submit`; `None` when none could be
    /// named.
    pub notifications: Option<u64>,
}

/// A `perf stat` that is attached.
pub struct Counting {
    perf: Child,
    control: File,
    answer: File,
    output: PathBuf,
    notifications: bool,
}

/// How long `perf` may take for anything.
const PATIENCE: Duration = Duration::from_secs(20);

/// Says why system calls cannot be counted here, if so.
pub fn unavailable() -> Option<String> {
    let mut perf = Command::new("perf");
    perf.args(["stat", "-x;", "-e", "raw_syscalls:sys_enter", "true"]);
    match perf.output() {
        Err(error) => Some(format!("`perf` does not run: {error}")),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let counts = parse(&said);
            let works = output.status.success() && counts.first().is_some_and(|count| *count > 0);
            (!works).then(|| format!("`perf stat` cannot count system calls: {}", said.trim()))
        }
    }
}

impl Counting {
    /// Attaches to `target`, not counting yet; `eventfds` are the descriptors of it that count as
    /// notifications, if known. Pipes and output are made in `folder`.
    pub fn attach(target: Target, eventfds: Option<&[i32]>, folder: &Path) -> io::Result<Self> {
        let (option, id) = match target {
            Target::Process(id) => ("-p", id),
            Target::Thread(id) => ("-t", id),
        };
        let file = |name: &str| folder.join(format!("perf-{id}.{name}"));
        let (control, answer, output) = (file("control"), file("answer"), file("output"));
        for pipe in [&control, &answer] {
            mknodat(CWD, pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
        }
        let mut perf = Command::new("perf");
        perf.args(["stat", "-x;", "-D", "-1", "-e", "raw_syscalls:sys_enter"]);
        let filter = eventfds.map(filter).filter(|filter| !filter.is_empty());
        if let Some(filter) = &filter {
            perf.args(["-e", "syscalls:sys_enter_write", "--filter", filter]);
            perf.args(["-e", "syscalls:sys_enter_io_submit"]);
        }
        perf.arg("--control")
            .arg(format!("fifo:{},{}", control.display(), answer.display()))
            .arg("-o")
            .arg(&output)
            .args([option, &id.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // Opened for both: neither end of a pipe waits for the other to open it.
        let both = |path: &Path| OpenOptions::new().read(true).write(true).open(path);
        Ok(Self {
            control: both(&control)?,
            answer: both(&answer)?,
            perf: perf.spawn()?,
            output,
            notifications: filter.is_some(),
        })
    }

    /// Counts from now on.
    pub fn enable(&mut self) -> io::Result<()> {
        self.tell("enable\n")
    }

    /// Stops counting.
    pub fn disable(&mut self) -> io::Result<()> {
        self.tell("disable\n")
    }

    fn tell(&mut self, what: &str) -> io::Result<()> {
        self.control.write_all(what.as_bytes())?;
        let start = Instant::now();
        let tenth =
            Timespec::try_from(Duration::from_millis(100)).expect("a tenth of a second fits");
        while poll(
            &mut [PollFd::new(&self.answer, PollFlags::IN)],
            Some(&tenth),
        )? == 0
        {
            if let Some(status) = self.perf.try_wait()? {
                return Err(io::Error::other(format!("perf ended early with {status}")));
            }
            if start.elapsed() > PATIENCE {
                return Err(io::Error::other(format!("perf does not answer {what:?}")));
            }
        }
        // Its answer is `ack\n` with a zero byte; more than one may have come together, never half.
        let mut answer = [0; 64];
        let len = self.answer.read(&mut answer)?;
        if answer[..len].starts_with(b"ack") {
            return Ok(());
        }
        let answer = String::from_utf8_lossy(&answer[..len]).into_owned();
        Err(io::Error::other(format!("perf answers {answer:?}")))
    }

    /// Ends `perf`: what it has counted.
    pub fn finish(mut self) -> io::Result<Counts> {
        kill_process(Pid::from_child(&self.perf), Signal::INT)?;
        self.perf.wait()?;
        let text = fs::read_to_string(&self.output)?;
        match (self.notifications, &parse(&text)[..]) {
            (false, &[syscalls]) => Ok(Counts {
                syscalls,
                notifications: None,
            }),
            (true, &[syscalls, writes, submits]) => Ok(Counts {
                syscalls,
                notifications: Some(writes + submits),
            }),
            _ => Err(io::Error::other(format!("perf says {text:?}"))),
        }
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        let _ = self.perf.kill();
        let _ = self.perf.wait();
    }
}

/// The counts in the output of `perf stat -x;`, in the order of the events. `<not counted>` is what
/// it says of a thread that did not run: nothing was there to be counted.
fn parse(output: &str) -> Vec<u64> {
    let lines = output.lines().filter(|line| line.contains("sys_enter"));
    let counts = lines.filter_map(|line| {
        let count = line.split(';').next()?;
        if count == "<not counted>" {
            return Some(0);
        }
        count.parse().ok()
    });
    counts.collect()
}

fn filter(descriptors: &[i32]) -> String {
    let one = |descriptor: &i32| format!("fd == {descriptor}");
    let all: Vec<String> = descriptors.iter().map(one).collect();
    all.join(" || ")
}

/// The eventfds that both processes hold: the descriptors of each. `None` where the kernel does not
/// tell (before Linux 5.2), or the two share none.
pub fn shared_eventfds(one: u32, other: u32) -> io::Result<Option<[Vec<i32>; 2]>> {
    let [one, other] = [eventfds(one)?, eventfds(other)?];
    let both = |own: &BTreeMap<i32, u64>, others: &BTreeMap<i32, u64>| -> Vec<i32> {
        let shared = |id: &u64| others.values().any(|other| other == id);
        let descriptors = own.iter().filter(|(_, id)| shared(id));
        descriptors.map(|(&descriptor, _)| descriptor).collect()
    };
    let shared = [both(&one, &other), both(&other, &one)];
    Ok((!shared[0].is_empty()).then_some(shared))
}

/// The eventfds of a process: their ids by descriptor.
fn eventfds(process: u32) -> io::Result<BTreeMap<i32, u64>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{process}/fdinfo"))? {
        let entry = entry?;
        // A descriptor may be closed meanwhile.
        let info = fs::read_to_string(entry.path()).unwrap_or_default();
        let id = info
            .lines()
            .find_map(|line| line.strip_prefix("eventfd-id:"));
        let name = entry.file_name();
        let descriptor = name.to_str().and_then(|name| name.parse().ok());
        if let (Some(id), Some(descriptor)) = (id, descriptor)
            && let Ok(id) = id.trim().parse()
        {
            found.insert(descriptor, id);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use rustix::event::{EventfdFlags, eventfd};
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_thread_that_did_not_run_made_no_calls() {
        let output = "# started on Sat\n\n1234;;raw_syscalls:sys_enter;5;100.00;;\n\
                      <not counted>;;syscalls:sys_enter_write;0;100.00;;\n";
        assert_eq!(parse(output), [1234, 0]);
        assert!(parse("<not supported>;;raw_syscalls:sys_enter;").is_empty());
    }

    #[test]
    fn system_calls_and_notifications_of_a_thread_are_counted() {
        pollux_memory::eventfd::prepare().unwrap();
        if let Some(why) = unavailable() {
            // Not captured: what is skipped is seen.
            writeln!(io::stderr(), "SKIP: {why}").unwrap();
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let [mut named, mut other] =
            [0; 2].map(|_| File::from(eventfd(0, EventfdFlags::CLOEXEC).unwrap()));
        let own = rustix::thread::gettid()
            .as_raw_nonzero()
            .get()
            .cast_unsigned();
        let eventfds = [named.as_raw_fd()];
        let target = Target::Thread(own);
        let mut counting = Counting::attach(target, Some(&eventfds), folder.path()).unwrap();
        counting.enable().unwrap();
        for _ in 0..100 {
            named.write_all(&1u64.to_ne_bytes()).unwrap();
            other.write_all(&1u64.to_ne_bytes()).unwrap();
            pollux_memory::eventfd::signal(&named).unwrap();
        }
        counting.disable().unwrap();
        let counts = counting.finish().unwrap();
        assert_eq!(counts.notifications, Some(200));
        // And those few that ask perf to stop.
        assert!((300..330).contains(&counts.syscalls), "{counts:?}");
    }

    #[test]
    fn an_eventfd_is_known_by_its_id_under_every_descriptor() {
        let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let again = event.try_clone().unwrap();
        let own = eventfds(std::process::id()).unwrap();
        assert!(own.contains_key(&event.as_raw_fd()), "{own:?}");
        assert_eq!(own[&event.as_raw_fd()], own[&again.as_raw_fd()]);
        assert_eq!(filter(&[3, 5]), "fd == 3 || fd == 5");
    }
}
