//! A queue with one owner: no lock anywhere.

use std::io;
use std::sync::Arc;

use pollux_disk::{Armed, Completion, Queued, Request, Ticket, WaitPoint};
use pollux_ring::{Armed as RingArmed, Notify};

use crate::counters::Counters;
use crate::device::Device;
use crate::device::active_queue::ActiveQueue;
use crate::notify::call_policy::CallPolicy;
use crate::notify::doorbell::Doorbell;
use crate::options::CompletionMode;
use crate::requests::command::Command;
use crate::requests::core::Core;
use crate::requests::hybrid::Hybrid;

/// A queue of its own for one owner.
///
/// Calls are off until its owner [`arm`](pollux_disk::Channel::arm)s, or has queued a request as
/// [`CompletionMode::Call`]; its wait point watches the call descriptor.
#[derive(Debug)]
pub struct Channel {
    /// Goes first: the queue stops with it, and only then are the requests' own buffers let go.
    queue: ActiveQueue,
    core: Core<(Ticket, CompletionMode)>,
    policy: CallPolicy,
    /// Its owner has armed and may be asleep.
    asleep: bool,
    doorbell: Doorbell,
    /// What was counted before it was opened.
    before: Counters,
    wait: WaitPoint,
}

impl Channel {
    /// Of `queue`, whose owner sleeps at `wait`.
    pub(crate) fn new(queue: ActiveQueue, wait: &WaitPoint) -> io::Result<Self> {
        queue.watched_by(wait)?;
        let device = Arc::clone(queue.device());
        Ok(Self {
            core: Core::new(Arc::clone(&device), queue.index()),
            policy: CallPolicy::new(device.options().experiment.mixed),
            asleep: false,
            doorbell: queue.doorbell().clone(),
            before: device.counts(queue.index()).snapshot(),
            wait: wait.clone(),
            queue,
        })
    }

    fn device(&self) -> &Arc<Device> {
        self.core.device()
    }

    /// Turns calls on or off, as they are needed now. An owner polls after this, and then sleeps.
    #[inline]
    fn settle(&mut self) {
        if self.asleep || self.policy.wanted() {
            self.ask_for_call();
        } else {
            self.core.disarm();
        }
    }

    /// Asks for a call, unless that was done.
    #[inline(never)]
    fn ask_for_call(&mut self) {
        if !self.core.is_armed()
            && let Err(fault) = self.core.arm()
        {
            self.core.broken(fault);
        }
    }
}

#[cfg(test)]
impl Channel {
    pub(crate) fn rings(&self) -> &crate::device::rings::Rings {
        self.core.rings()
    }
}

// SAFETY: as for `pollux_disk::Channel`.
unsafe impl Hybrid for Channel {
    #[inline]
    fn queue_as(&mut self, request: Request, completion: CompletionMode) -> Queued {
        let Request { ticket, op } = request;
        match self.core.accept(Command::Op(op), (ticket, completion)) {
            Ok(()) => {
                self.policy.begin(completion);
                Queued::Pending
            }
            Err((_, result)) => Queued::Done(result),
        }
    }

    fn counters(&mut self) -> Counters {
        let core = &self.core;
        let uncounted = self.queue.call().hear().unless(|| core.is_pending());
        let mut counters = self.queue.counts().snapshot().since(self.before);
        // The server says how many.
        counters.calls = counters.calls.wrapping_add(uncounted);
        counters
    }
}

// SAFETY: a request ends when the device has handed back all of its chains, or is gone, and what was bounced has been
// copied (`Core::reap`). What a device that is gone still writes, it writes into memory that is shared with it, as a
// peer may at any time.
unsafe impl pollux_disk::Channel for Channel {
    #[inline]
    fn queue(&mut self, request: Request) -> Queued {
        self.queue_as(request, CompletionMode::Polled)
    }

    #[inline]
    fn submit(&mut self) {
        match self.core.publish() {
            Notify::Needed => self.doorbell.ring(),
            Notify::Suppressed => {}
        }
        self.settle();
    }

    fn reap(&mut self, done: &mut dyn FnMut(Completion)) {
        self.asleep = false;
        let policy = &mut self.policy;
        let chains = self.core.reap(&mut |(ticket, completion), result| {
            policy.end(completion);
            done(Completion { ticket, result });
        });
        self.queue.counts().polled(chains);
    }

    fn arm(&mut self) -> Armed {
        self.asleep = true;
        let armed = self.core.arm();
        // After the poll, as the thread that gives up a device, or has another one take its place, says so first
        // and then wakes the sleepers. The ring means nothing any more: there is as much to reap as there
        // was in flight, or the other one to go to.
        if self.device().epoch() != self.core.epoch() {
            return if self.device().is_lost() && self.core.is_idle() {
                Armed::Idle
            } else {
                Armed::Pending
            };
        }
        match armed {
            Ok(RingArmed::Idle) => {
                self.queue.counts().sleeps.add(1);
                return Armed::Idle;
            }
            Ok(RingArmed::Pending) => {}
            Err(fault) => self.core.broken(fault),
        }
        Armed::Pending
    }

    fn replacements(&self) -> Option<u64> {
        // The core follows to another server once it is polled.
        let replacements = self.device().replacements();
        Some(replacements.wrapping_add(self.core.epoch()))
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.queue.unwatched_by(&self.wait);
    }
}
