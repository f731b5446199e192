//! Are calls needed? A machine without ring, lock or clock, so that each rule is a line of a test.
//!
//! *Calls are needed while a call-driven request is in flight or any owner sleeps on the queue*, those
//! included that wait for room; else they are off. A request that its owner goes to sleep over is
//! call-driven from then on, whatever it was submitted as: no owner polls for it any more.
//!
//! The Linux RFC of 2021 turned calls off while *any* polled request was in flight. A poller that is
//! stopped then holds up everybody else on the queue without bound: `tests/loom` shows it.

use crate::{CompletionMode, Mixed};

/// What is in flight on a queue, and how many owners sleep.
#[derive(Clone, Debug)]
pub struct CallPolicy {
    mixed: Mixed,
    polled: usize,
    call_driven: usize,
    /// Those that sleep without a request of theirs being counted as call-driven: they wait for room, or
    /// for anything at all.
    sleepers: usize,
    /// An owner has waited for as long as calls may be suspended, and no poller has come by since.
    overdue: bool,
}

impl CallPolicy {
    /// Of a queue without requests.
    pub const fn new(mixed: Mixed) -> Self {
        Self {
            mixed,
            polled: 0,
            call_driven: 0,
            sleepers: 0,
            overdue: false,
        }
    }

    /// A request begins.
    #[inline]
    pub fn begin(&mut self, completion: CompletionMode) {
        match completion {
            CompletionMode::Polled => self.polled += 1,
            CompletionMode::Call => self.call_driven += 1,
        }
    }

    /// It has ended.
    #[inline]
    pub fn end(&mut self, completion: CompletionMode) {
        match completion {
            CompletionMode::Polled => self.polled -= 1,
            CompletionMode::Call => self.call_driven -= 1,
        }
    }

    /// The owner of a polled request goes to sleep over it.
    pub fn turn_over(&mut self) {
        self.polled -= 1;
        self.call_driven += 1;
    }

    /// An owner goes to sleep, for room or for anything.
    pub fn sleep(&mut self) {
        self.sleepers += 1;
    }

    /// An owner that went to sleep does not sleep any more.
    pub fn wake(&mut self) {
        self.sleepers -= 1;
    }

    /// An owner has waited for a call for as long as it may be suspended.
    pub fn overdue(&mut self) {
        self.overdue = true;
    }

    /// A poller has come by and has found something.
    #[inline]
    pub fn polled(&mut self) {
        self.overdue = false;
    }

    /// Does an owner wait for a call that is suspended? A timer has to bound that.
    pub fn suspended(&self) -> bool {
        matches!(self.mixed, Mixed::SuspendedFor(_)) && self.waited_for() && !self.wanted()
    }

    #[inline]
    fn waited_for(&self) -> bool {
        self.call_driven > 0 || self.sleepers > 0
    }

    /// Must the device call?
    #[inline]
    pub fn wanted(&self) -> bool {
        // Where everything is polled, that is all there is to ask.
        self.waited_for()
            && match self.mixed {
                Mixed::WhileNeeded => true,
                Mixed::SuspendedFor(_) => self.polled == 0 || self.overdue,
            }
    }
}

#[cfg(test)]
mod tests;
