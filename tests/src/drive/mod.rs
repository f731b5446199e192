//! Our own driver under load: random requests, checked against a model, by every way of waiting.

mod channels;
mod executor;
mod own;
mod queues;
mod window;
mod work;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use pollux_disk::Disk as _;
use pollux_driver::{CompletionMode, Driver, Queue, Waiter, Waiting};
use pollux_memory::Region;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

pub use executor::run as run_tasks;
pub use own::Own;
pub use window::Window;
pub use work::{Job, Op, Work};

/// How long an answer may take before it counts as lost.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// How one thread uses its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Of a shared queue: it looks until its requests have ended, and never sleeps.
    Poll,
    /// Of a shared queue: it waits for one request after the other.
    Wait,
    /// Of a shared queue: tasks of an event loop.
    Futures,
    /// A channel over a shared queue.
    Shared(Waiting),
    /// A queue of its own.
    Own(Waiting),
}

/// Every way there is to wait on a shared queue; a test that starts as many threads has them all.
pub const SHARED_MODES: [Mode; 6] = [
    Mode::Poll,
    Mode::Wait,
    Mode::Futures,
    Mode::Shared(Waiting::Adaptive),
    Mode::Shared(Waiting::Call),
    Mode::Shared(Waiting::Polled),
];

/// When a load is to end.
#[derive(Clone, Debug)]
pub enum End {
    /// At that time.
    At(Instant),
    /// When somebody says so.
    When(Arc<AtomicBool>),
}

impl End {
    fn has_come(&self) -> bool {
        match self {
            Self::At(end) => Instant::now() >= *end,
            Self::When(end) => end.load(Ordering::Relaxed),
        }
    }
}

/// Which completions a thread asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kinds {
    /// Of its requests, each as chance has it.
    Mixed,
    /// All like this.
    Only(CompletionMode),
}

impl Kinds {
    fn choose(self, random: &mut Rng) -> CompletionMode {
        match self {
            Self::Only(kind) => kind,
            Self::Mixed if random.bool() => CompletionMode::Polled,
            Self::Mixed => CompletionMode::Call,
        }
    }
}

/// Runs `work` as one thread of several, until `end` and with `depth` requests in flight; then reads all
/// of its part of the disk.
///
/// # Panics
///
/// When something reads other than it should, fails, or never ends.
pub fn run(
    driver: &Driver,
    queue: Option<&Queue>,
    mode: Mode,
    kinds: Kinds,
    mut work: Work,
    depth: usize,
    end: &End,
) -> io::Result<u64> {
    let shared = || queue.expect("a mode of a shared queue").clone();
    match mode {
        Mode::Poll | Mode::Wait => {
            queues::run(driver, &shared(), mode, kinds, &mut work, depth, end)?;
        }
        Mode::Futures => queues::run_tasks(driver, &shared(), kinds, &mut work, depth, end)?,
        Mode::Shared(waiting) => {
            let mut waiter = Waiter::new(waiting)?;
            let mut channel = shared().channel(waiter.point())?;
            channels::run(
                driver,
                &mut channel,
                &mut waiter,
                kinds,
                &mut work,
                depth,
                end,
            )?;
        }
        Mode::Own(waiting) => {
            let mut waiter = Waiter::new(waiting)?;
            let mut channel = driver.channel(waiter.point())?;
            channels::run(
                driver,
                &mut channel,
                &mut waiter,
                kinds,
                &mut work,
                depth,
                end,
            )?;
        }
    }
    Ok(work.count())
}

/// Memory of a user's own, registered with a disk for as long as this lives.
pub struct Registered {
    driver: Driver,
    region: Arc<Region>,
}

impl Registered {
    /// `len` zeroes.
    pub fn new(driver: &Driver, len: usize) -> io::Result<Self> {
        let memfd: OwnedFd = memfd_create("pollux-test-user", MemfdFlags::CLOEXEC)?;
        ftruncate(&memfd, len as u64)?;
        let region = Region::map(memfd.into(), 0, 0, 0, len as u64).map_err(io::Error::other)?;
        let region = Arc::new(region);
        driver.map(&region)?;
        Ok(Self {
            driver: driver.clone(),
            region,
        })
    }

    /// All of it.
    ///
    /// # Safety
    ///
    /// This is kept until nobody uses the span any more.
    pub unsafe fn span(&self) -> pollux_memory::Span {
        // SAFETY: by this function's own promise.
        unsafe { self.region.span() }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.driver.unmap(&self.region);
    }
}
