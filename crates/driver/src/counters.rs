//! What a queue counts: every kick, call, poll and sleep.

use pollux_stats::Counter;

/// The counters of one queue, as they are counted.
#[derive(Debug, Default)]
#[repr(align(64))]
pub struct Counts {
    /// Kicks sent.
    pub kicks: Counter,
    /// Of those, sent while a lock was held that is recorded.
    pub kicks_under_lock: Counter,
    /// Calls received, as far as they were read.
    pub calls: Counter,
    /// Polls of the used ring.
    pub polls: Counter,
    /// Polls that found nothing.
    pub empty_polls: Counter,
    /// Times that an owner went to sleep over the queue.
    pub sleeps: Counter,
    /// Chains that have come back.
    pub requests: Counter,
    /// Times that the queue was taken up again at a server that came back.
    pub restarts: Counter,
    /// Chains that were handed to another server, as the one before had not ended their requests.
    pub replayed: Counter,
    /// Of those, chains that had come back.
    pub undone: Counter,
}

/// What a queue has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Kicks sent to the device.
    pub kicks: u64,
    /// Of those, sent while a queue lock was held. Counted only where locks are recorded.
    pub kicks_under_lock: u64,
    /// Calls that the device sent.
    pub calls: u64,
    /// Polls of the used ring.
    pub polls: u64,
    /// Polls that found nothing.
    pub empty_polls: u64,
    /// Times that an owner went to sleep over the queue.
    pub sleeps: u64,
    /// Requests that have come back from the device; one that was cut counts once for each piece.
    pub requests: u64,
    /// Times that the queue was taken up again, at a server that came back.
    pub restarts: u64,
    /// Requests that were handed to such a server, because the one before had not ended them; one that was cut counts
    /// once for each piece, of which some may have come back before.
    pub replayed: u64,
}

impl Counts {
    /// The one owner of a queue has polled it, and has found so many chains.
    #[inline]
    pub fn polled(&self, chains: u16) {
        self.polls.add(1);
        if chains == 0 {
            self.empty_polls.add(1);
        } else {
            self.requests.add(u64::from(chains));
        }
    }

    /// The queue goes on at another server, with so many chains, of which so many had come back.
    pub fn restarted(&self, chains: usize, undone: usize) {
        self.restarts.add_shared(1);
        self.replayed.add_shared(chains as u64);
        self.undone.add_shared(undone as u64);
    }

    /// Chains that have come back and are not handed out again.
    pub fn ended(&self) -> u64 {
        self.requests.get().saturating_sub(self.undone.get())
    }

    /// All of them now.
    pub fn snapshot(&self) -> Counters {
        Counters {
            kicks: self.kicks.get(),
            kicks_under_lock: self.kicks_under_lock.get(),
            calls: self.calls.get(),
            polls: self.polls.get(),
            empty_polls: self.empty_polls.get(),
            sleeps: self.sleeps.get(),
            requests: self.requests.get(),
            restarts: self.restarts.get(),
            replayed: self.replayed.get(),
        }
    }
}

impl Counters {
    /// The sums of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            kicks: self.kicks.wrapping_add(other.kicks),
            kicks_under_lock: self.kicks_under_lock.wrapping_add(other.kicks_under_lock),
            calls: self.calls.wrapping_add(other.calls),
            polls: self.polls.wrapping_add(other.polls),
            empty_polls: self.empty_polls.wrapping_add(other.empty_polls),
            sleeps: self.sleeps.wrapping_add(other.sleeps),
            requests: self.requests.wrapping_add(other.requests),
            restarts: self.restarts.wrapping_add(other.restarts),
            replayed: self.replayed.wrapping_add(other.replayed),
        }
    }

    /// What was counted since `before`.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            kicks: self.kicks.wrapping_sub(before.kicks),
            kicks_under_lock: self.kicks_under_lock.wrapping_sub(before.kicks_under_lock),
            calls: self.calls.wrapping_sub(before.calls),
            polls: self.polls.wrapping_sub(before.polls),
            empty_polls: self.empty_polls.wrapping_sub(before.empty_polls),
            sleeps: self.sleeps.wrapping_sub(before.sleeps),
            requests: self.requests.wrapping_sub(before.requests),
            restarts: self.restarts.wrapping_sub(before.restarts),
            replayed: self.replayed.wrapping_sub(before.replayed),
        }
    }
}
