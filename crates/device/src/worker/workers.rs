//! The threads that serve queues, and the way to reach them.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Instant;

use crossbeam_channel::{Sender, unbounded};
use pollux_disk::WaitPoint;
use pollux_memory::eventfd;
use pollux_stats::{WorkerSnapshot, WorkerStats};
use pollux_threads::{Birth, Kind};
use rustix::thread::{CpuSet, gettid, sched_setaffinity};

use super::Worker;
use super::command::{Command, SessionId};
use crate::tuning::Tuning;

/// A worker cannot run where it was told to.
#[derive(Debug, thiserror::Error)]
#[error("cannot run on CPU {cpu}")]
struct NotOnCpu {
    cpu: usize,
    source: io::Error,
}

/// A running worker.
#[derive(Debug)]
pub struct Handle {
    commands: Sender<Command>,
    point: WaitPoint,
    /// As the kernel numbers it.
    thread: u32,
    stats: Arc<WorkerStats>,
    started: Instant,
    tuning: Tuning,
}

impl Handle {
    /// Sends a command and wakes the worker if it sleeps.
    pub(crate) fn send(&self, command: Command) {
        self.commands
            .send(command)
            .expect("workers live as long as their handles");
        self.point.wake();
    }

    /// As it was started, and so its queues are.
    pub(crate) fn tuning(&self) -> Tuning {
        self.tuning
    }

    /// Where its completions wake it.
    pub(crate) fn point(&self) -> &WaitPoint {
        &self.point
    }
}

/// All workers of a process. Any number of disks share them.
#[derive(Debug)]
pub struct Workers {
    handles: Vec<Handle>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    sessions: AtomicU32,
}

impl Workers {
    /// Starts `threads` workers. With `cpus`, the first worker runs on the first of them, the second on
    /// the second, and round again.
    ///
    /// # Errors
    ///
    /// When a thread cannot be started, or a CPU does not exist or is not allowed.
    pub fn start(threads: usize, cpus: &[usize], tuning: Tuning) -> io::Result<Self> {
        eventfd::prepare()?;
        let mut handles = Vec::new();
        let mut joins = Vec::new();
        for number in 0..threads {
            let (commands, receiver) = unbounded();
            let worker = Worker::new(receiver, tuning)?;
            let point = worker.point().clone();
            let (stats, started) = worker.stats();
            let cpu = (!cpus.is_empty()).then(|| cpus[number % cpus.len()]);
            let (pinned, is_pinned) = crossbeam_channel::bounded(1);
            let builder = std::thread::Builder::new().name(format!("worker-{number}"));
            let birth = Birth::of(Kind::Worker);
            joins.push(builder.spawn(move || {
                // First: a sandbox does not let a worker choose its CPU.
                let is_pinned = pin(cpu);
                birth.happens();
                let thread = gettid().as_raw_nonzero().get().unsigned_abs();
                let _ = pinned.send(is_pinned.map(|()| thread));
                worker.run();
            })?);
            let thread = is_pinned.recv().expect("a worker reports its start")?;
            handles.push(Handle {
                commands,
                point,
                thread,
                stats,
                started,
                tuning,
            });
        }
        Ok(Self {
            handles,
            threads: Mutex::new(joins),
            sessions: AtomicU32::new(0),
        })
    }

    /// The threads, in their order, as the kernel numbers them: to ask how much time each has used.
    #[must_use]
    pub fn threads(&self) -> Vec<u32> {
        self.handles.iter().map(|handle| handle.thread).collect()
    }

    /// What each has counted, in their order.
    #[must_use]
    pub fn snapshots(&self) -> Vec<WorkerSnapshot> {
        let of = |handle: &Handle| {
            let age = || u64::try_from(handle.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
            handle.stats.snapshot(age)
        };
        self.handles.iter().map(of).collect()
    }

    /// Wakes those that sleep, to learn of what has changed: limits, say.
    pub fn wake(&self) {
        for handle in &self.handles {
            handle.point.wake();
        }
    }

    /// A number for a new session.
    pub(crate) fn new_session(&self) -> SessionId {
        SessionId(self.sessions.fetch_add(1, Ordering::Relaxed))
    }

    /// The worker that serves queue `index` of `session`. Queues go round all workers, and sessions
    /// start at different ones.
    pub(crate) fn number_for(&self, session: SessionId, index: u16) -> usize {
        (session.0 as usize + usize::from(index)) % self.handles.len()
    }

    pub(crate) fn get(&self, number: usize) -> &Handle {
        &self.handles[number]
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.handles.len()
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for handle in &self.handles {
            handle.send(Command::End);
        }
        for thread in self
            .threads
            .get_mut()
            .into_iter()
            .flat_map(|threads| threads.drain(..))
        {
            // A worker that panicked has said so.
            let _ = thread.join();
        }
    }
}

fn pin(cpu: Option<usize>) -> io::Result<()> {
    let Some(cpu) = cpu else { return Ok(()) };
    let mut set = CpuSet::new();
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("there is no CPU {cpu}"),
        ));
    }
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(|errno| {
        let source = io::Error::from(errno);
        io::Error::new(source.kind(), NotOnCpu { cpu, source })
    })
}
