//! What the tests of the driver share.

#![allow(dead_code)] // each of them uses some of it

pub mod asleep;
pub mod exhaust;
pub mod losing;
pub mod place;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use fastrand::Rng;
use pollux_disk::{Disk as _, Durability, Unmap};
use pollux_driver::{Buffer, CompletionMode, Driver, Options, Queue};
use pollux_memory::memfd;
use pollux_tests::busy::SetOnDrop;
use pollux_tests::drive::{self, End, Kinds, Mode, Own, Work};
use pollux_tests::random::seed;

/// How long a part of a test may take before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(240);

/// Does `what` on a thread of its own: one that never ends is a failure, not a test that hangs.
///
/// # Panics
///
/// With `what`, or if it takes more than four minutes.
pub fn patiently<T: Send + 'static>(what: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, end) = channel();
    let thread = std::thread::spawn(move || {
        let outcome = what();
        let _ = done.send(());
        outcome
    });
    let ended = end.recv_timeout(PATIENCE);
    assert_ne!(ended, Err(RecvTimeoutError::Timeout), "it does not end");
    match thread.join() {
        Ok(outcome) => outcome,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// A load of several threads on one connection.
#[derive(Clone, Debug)]
pub struct Case {
    /// How to connect.
    pub options: Options,
    /// One thread each.
    pub modes: Vec<Mode>,
    /// What the requests ask for.
    pub kinds: Kinds,
    /// Requests in flight, of each thread.
    pub depth: usize,
    /// Bytes of the longest request.
    pub longest: usize,
    /// For how long.
    pub duration: Duration,
}

impl Case {
    pub fn new(duration: Duration) -> Self {
        Self {
            options: Options::default(),
            modes: vec![],
            kinds: Kinds::Mixed,
            depth: 6,
            longest: 5 << 20,
            duration,
        }
    }

    /// Runs it against the server at `socket`.
    pub fn run(&self, socket: &Path) {
        let driver = Driver::connect(socket, &self.options).unwrap();
        self.run_on(&driver);
        assert_eq!(driver.lost(), None);
    }

    /// Runs it on a connection that exists, over a disk that is empty at first.
    pub fn run_on(&self, driver: &Driver) {
        self.run_until(driver, || End::At(Instant::now() + self.duration));
    }

    /// Runs it while `meanwhile` goes on, which can ask whether it has ended: it has failed then.
    pub fn run_while<T>(
        &self,
        driver: &Driver,
        meanwhile: impl FnOnce(&dyn Fn() -> bool) -> T,
    ) -> T {
        let over = Arc::new(AtomicBool::new(false));
        let (ready, is_ready) = channel();
        std::thread::scope(|scope| {
            // A failure ends the load as well.
            let ends = SetOnDrop(&over);
            let end = End::When(Arc::clone(&over));
            let load = scope.spawn(move || {
                self.run_until(driver, || {
                    ready.send(()).unwrap();
                    end
                });
            });
            is_ready.recv().expect("its message is above");
            let outcome = meanwhile(&|| load.is_finished());
            assert!(!load.is_finished(), "it has failed");
            drop(ends);
            load.join().expect("its message is above");
            outcome
        })
    }

    /// Runs it; `end` says when it ends, once the disk is empty.
    pub fn run_until(&self, driver: &Driver, end: impl FnOnce() -> End) {
        println!("{self:?}");
        let seed = seed();
        empty(driver);
        // Before the queues run: some servers take no memory later.
        let mut registered = registered(driver, OWN * self.modes.len());
        let own = |mode: &&Mode| matches!(mode, Mode::Own(_));
        let shared =
            driver.queues() - u16::try_from(self.modes.iter().filter(own).count()).unwrap();
        let queues: Vec<Queue> = (0..shared)
            .map(|index| driver.queue(index).unwrap())
            .collect();
        let part = driver.geometry().bytes / self.modes.len() as u64 / 4096 * 4096;
        let end = &end();
        std::thread::scope(|scope| {
            let threads: Vec<_> = (self.modes.iter().enumerate())
                .map(|(index, mode)| {
                    let queue = queues.get(index % queues.len().max(1));
                    let start = part * index as u64;
                    let random = Rng::with_seed(seed + index as u64);
                    let range = start..start + part;
                    let mut work = Work::new(&range, driver.geometry(), self.longest, random);
                    let memory = registered.split_off(registered.len() - OWN);
                    work.own = Own::new(memory, 257 * index);
                    let run =
                        move || drive::run(driver, queue, *mode, self.kinds, work, self.depth, end);
                    scope.spawn(run)
                })
                .collect();
            for (thread, mode) in threads.into_iter().zip(&self.modes) {
                let count = thread.join().expect("its message is above").unwrap();
                println!("{count} requests by {mode:?}");
            }
        });
        for queue in &queues {
            println!("{:?}", queue.counters());
        }
        drop(queues);
        let left = driver.unregister(registered);
        left.expect("no request has any of it, and no queue runs");
    }
}

/// Bytes of registered memory of each thread.
const OWN: usize = 2 << 20;

/// Memory of our own, registered with the device.
pub fn registered(driver: &Driver, bytes: usize) -> Buffer {
    let file = memfd("pollux-test-own", bytes).unwrap();
    driver.register(file, 0, bytes as u64).unwrap()
}

/// Makes all of the disk read as zeroes, by one request if the device can do that.
pub fn empty(driver: &Driver) {
    let queue = driver.queue(0).unwrap();
    let geometry = driver.geometry();
    if geometry.write_zeroes.is_some() {
        let (unmap, durability) = (Unmap::Allowed, Durability::Volatile);
        let zeroes = queue.write_zeroes(0, geometry.bytes, unmap, durability, CompletionMode::Call);
        return zeroes.wait().unwrap();
    }
    let len = usize::try_from(geometry.bytes).unwrap();
    let mut buffer = driver.allocate(len).unwrap();
    buffer.write(0, &vec![0; len]);
    queue
        .write(0, buffer, Durability::Volatile, CompletionMode::Call)
        .wait()
        .unwrap();
}
