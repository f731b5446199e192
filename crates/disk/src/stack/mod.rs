//! Disks made of other disks: one after the other (linear), or in chunks by turns (striped).
//!
//! Written over [`Disk`] and [`Channel`] alone, so it is the same over files, memory and virtqueues, and stacks
//! stack to any depth. A request becomes sub-requests, one for each stretch of a leg that it touches; it ends when
//! the last of them has ended, and fails if any has failed.
//!
//! Ten lines open one and poll it from several threads:
//!
//! ```
//! use std::sync::Arc;
//! use pollux_disk::{Disk, Op, Options, PollScope, Queued, Request, Spec, Ticket, wait::Sleeper};
//!
//! let legs: Vec<Arc<dyn Disk>> = (0..3)
//!     .map(|_| "memory:size=64M".parse::<Spec>()?.open(&Options::default()).map_err(Into::into))
//!     .collect::<Result<_, Box<dyn std::error::Error>>>()?;
//! let disk = pollux_disk::striped(64 << 10, legs, PollScope::default())?;
//! std::thread::scope(|scope| {
//!     for _ in 0..2 {
//!         scope.spawn(|| {
//!             let sleeper = Sleeper::new().unwrap();
//!             let mut channel = disk.open_channel(sleeper.point()).unwrap(); // one for each thread
//!             let done = channel.queue(Request { ticket: Ticket(1), op: Op::Flush });
//!             let mut ended = usize::from(matches!(done, Queued::Done(_)));
//!             while ended == 0 {
//!                 channel.submit();
//!                 channel.reap(&mut |_| ended += 1); // polls the legs that work for this thread, and no others
//!             }
//!         });
//!     }
//! });
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod build;
mod channel;
mod counts;
mod map;
mod shared;

use std::fmt;
use std::io;
use std::sync::{Arc, Weak};

use pollux_memory::Region;

use build::Plan;
pub use build::StackError;
use channel::StackChannel;
pub use map::{Layout, Stretch, Target};
pub use shared::PollScope;
use shared::Shared;

use crate::{Channel, Disk, Effort, Event, Events, Geometry, ResizeError, Subscription, WaitPoint};

/// A disk made of other disks.
pub struct Stack {
    shared: Arc<Shared>,
    _subscriptions: Vec<Subscription>,
}

/// The disks of `legs` one after the other, each in whole blocks of the largest block size among them.
///
/// # Errors
///
/// See [`StackError`].
pub fn linear(legs: Vec<Arc<dyn Disk>>, scope: PollScope) -> Result<Stack, StackError> {
    let sizes = legs.iter().map(|leg| leg.geometry().bytes).collect();
    Stack::new(Plan::Joined(sizes), legs, scope)
}

/// The disks of `legs` by turns, in chunks of `chunk` bytes: as many whole chunks of each as the smallest has.
///
/// # Errors
///
/// See [`StackError`].
pub fn striped(
    chunk: u64,
    legs: Vec<Arc<dyn Disk>>,
    scope: PollScope,
) -> Result<Stack, StackError> {
    Stack::new(Plan::Striped(chunk), legs, scope)
}

/// The disk that a table describes: targets that follow each other, on `legs` by number.
///
/// # Errors
///
/// See [`StackError`].
pub fn table(
    targets: Vec<Target>,
    legs: Vec<Arc<dyn Disk>>,
    scope: PollScope,
) -> Result<Stack, StackError> {
    Stack::new(Plan::Table(targets), legs, scope)
}

impl Stack {
    fn new(plan: Plan, legs: Vec<Arc<dyn Disk>>, scope: PollScope) -> Result<Self, StackError> {
        let geometries: Vec<_> = legs.iter().map(|leg| leg.geometry()).collect();
        let whole = plan.whole(&geometries)?;
        let shared = Arc::new(Shared::new(legs, scope, plan, whole));
        let subscribe = |leg: &Arc<dyn Disk>| {
            let shared = Arc::downgrade(&shared);
            leg.events().subscribe(move |event| heard(&shared, event))
        };
        let subscriptions = shared.legs.iter().map(subscribe).collect();
        // One may have changed since it was asked.
        shared.renew();
        Ok(Self {
            _subscriptions: subscriptions,
            shared,
        })
    }
}

/// A leg has told of `event`: so does the whole.
fn heard(shared: &Weak<Shared>, event: Event) {
    let Some(shared) = shared.upgrade() else {
        return;
    };
    if event == Event::Changed {
        shared.renew();
    }
    shared.events.tell(event);
}

impl Disk for Stack {
    fn geometry(&self) -> Geometry {
        self.shared.whole().geometry
    }

    /// That of the leg that costs most; to split what lies on several takes its time as well.
    fn effort(&self) -> Effort {
        let legs = self.shared.legs.iter().map(|leg| leg.effort());
        legs.fold(Effort::HandOver, Effort::max)
    }

    fn give_up(&self) {
        self.shared.legs.iter().for_each(|leg| leg.give_up());
    }

    fn open_channel(&self, wait: &WaitPoint) -> io::Result<Box<dyn Channel>> {
        Ok(Box::new(StackChannel::new(&self.shared, wait)?))
    }

    fn map(&self, region: &Arc<Region>) -> io::Result<()> {
        for (at, leg) in self.shared.legs.iter().enumerate() {
            if let Err(error) = leg.map(region) {
                self.shared.legs[..at]
                    .iter()
                    .for_each(|leg| leg.unmap(region));
                return Err(error);
            }
        }
        Ok(())
    }

    fn unmap(&self, region: &Arc<Region>) {
        self.shared.legs.iter().for_each(|leg| leg.unmap(region));
    }

    fn acquire(&self) -> io::Result<()> {
        for (at, leg) in self.shared.legs.iter().enumerate() {
            if let Err(error) = leg.acquire() {
                for leg in &self.shared.legs[..at] {
                    // Nothing was written through it: there is nothing that could fail.
                    let _ = leg.release();
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Every leg is let go, and the first that fails is told of.
    fn release(&self) -> io::Result<()> {
        let released = self.shared.legs.iter().map(|leg| leg.release());
        released.fold(Ok(()), Result::and)
    }

    /// Every leg reads its own size, but for those that have none to read or hear of changes by themselves.
    /// The first that cannot is told of.
    fn resize(&self, bytes: Option<u64>) -> Result<(), ResizeError> {
        if bytes.is_some() {
            return Err(ResizeError::Stacked);
        }
        let before = self.geometry().bytes;
        let resized = self.shared.legs.iter().map(|leg| match leg.resize(None) {
            Err(ResizeError::Fixed | ResizeError::Elsewhere | ResizeError::NoSize { .. }) => Ok(()),
            resized => resized,
        });
        resized.fold(Ok(()), Result::and)?;
        if self.geometry().bytes > before {
            // What moves none the less is in the log.
            return Ok(());
        }
        let geometries: Vec<_> = self.shared.legs.iter().map(|leg| leg.geometry()).collect();
        self.shared.plan.moves(&geometries).map_or(Ok(()), Err)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.shared.tally.named()
    }

    fn events(&self) -> &Events {
        &self.shared.events
    }
}

impl fmt::Debug for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stack")
            .field("plan", &self.shared.plan)
            .field("scope", &self.shared.scope)
            .finish_non_exhaustive()
    }
}
