//! How a completion travels from the thread that finished a request to the owner of its channel.
//!
//! Many threads deliver, one collects. Looking into an empty inbox costs one load, and delivering to
//! an owner that is awake is not woken.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use pollux_threads::lock;

use crate::{Completion, WaitPoint};

#[derive(Debug)]
struct Shared {
    arrived: Mutex<Vec<Completion>>,
    /// The length of `arrived`, to read without the lock.
    count: AtomicUsize,
    wait: WaitPoint,
}

/// The collecting side, one a channel.
#[derive(Debug)]
pub struct Inbox {
    shared: Arc<Shared>,
    /// Swapped with `arrived`, so that neither allocates once they have grown.
    collected: Vec<Completion>,
}

/// The delivering side; clone it for every request or thread that needs one.
#[derive(Clone, Debug)]
pub struct Address(Arc<Shared>);

impl Inbox {
    /// An empty inbox whose owner sleeps at `wait`.
    #[must_use]
    pub fn new(wait: &WaitPoint) -> Self {
        Self {
            shared: Arc::new(Shared {
                arrived: Mutex::default(),
                count: AtomicUsize::new(0),
                wait: wait.clone(),
            }),
            collected: Vec::new(),
        }
    }

    /// Where to deliver to.
    #[must_use]
    pub fn address(&self) -> Address {
        Address(Arc::clone(&self.shared))
    }

    /// Is there nothing to collect? Before a sleep, the wait point is armed first.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        // An owner that arms passes a fence, then reads this; a thread that delivers stores the count, passes the
        // fence in `wake`, then reads whether the owner sleeps: one of them sees the other.
        self.shared.count.load(Ordering::Relaxed) == 0
    }

    /// Hands everything that has arrived to `done`; returns how many.
    #[inline]
    pub fn collect(&mut self, done: &mut dyn FnMut(Completion)) -> usize {
        if self.is_empty() {
            return 0;
        }
        self.take();
        let count = self.collected.len();
        self.collected.drain(..).for_each(done);
        count
    }

    fn take(&mut self) {
        let mut arrived = lock(&self.shared.arrived);
        std::mem::swap(&mut *arrived, &mut self.collected);
        self.shared.count.store(0, Ordering::Relaxed);
    }
}

impl Address {
    /// Delivers `completion` and wakes the owner if it sleeps.
    ///
    /// Everything that was done before, the copy of the data above all, is visible to the thread that collects it.
    pub fn deliver(&self, completion: Completion) {
        self.put(completion);
        // After the lock, which the owner is about to take. It may have collected this already, and
        // sleep again: then it is woken once for nothing.
        self.wake();
    }

    /// As [`Address::deliver`], by a thread that has more to do than that, as those of a library: where they share a
    /// processor with the owner, it sleeps rather than polls there, and they give it more at once.
    pub fn deliver_from_outside(&self, completion: Completion) {
        self.put(completion);
        self.0.wait.rouse();
    }

    /// Delivers `completion` without a wake: [`Address::wake`] follows, once for all that was put.
    pub fn put(&self, completion: Completion) {
        let mut arrived = lock(&self.0.arrived);
        arrived.push(completion);
        self.0.count.store(arrived.len(), Ordering::Relaxed);
    }

    /// Wakes the owner if it sleeps.
    pub fn wake(&self) {
        self.0.wait.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ticket, wait::Sleeper};

    fn completion(ticket: u64) -> Completion {
        Completion {
            ticket: Ticket(ticket),
            result: Ok(()),
        }
    }

    #[test]
    fn what_is_delivered_is_collected_once_and_in_order() {
        let sleeper = Sleeper::new().unwrap();
        let mut inbox = Inbox::new(sleeper.point());
        let address = inbox.address();
        let mut tickets = Vec::new();
        for round in 0..3 {
            assert!(inbox.is_empty());
            address.deliver(completion(2 * round));
            address.clone().deliver(completion(2 * round + 1));
            assert!(!inbox.is_empty());
            assert_eq!(inbox.collect(&mut |done| tickets.push(done.ticket.0)), 2);
        }
        assert_eq!(tickets, [0, 1, 2, 3, 4, 5]);
        assert_eq!(inbox.collect(&mut |_| unreachable!()), 0);
    }

    #[test]
    fn a_sleeper_collects_from_many_threads_and_misses_nothing() {
        collects_all_that(Address::deliver);
        collects_all_that(Address::deliver_from_outside);
    }

    fn collects_all_that(deliver: fn(&Address, Completion)) {
        const THREADS: u64 = 4;
        const EACH: u64 = 5000;
        let mut sleeper = Sleeper::new().unwrap();
        let mut inbox = Inbox::new(sleeper.point());
        let start = |thread: u64| {
            let address = inbox.address();
            std::thread::spawn(move || {
                (0..EACH).for_each(|n| deliver(&address, completion(thread * EACH + n)));
            })
        };
        let threads: Vec<_> = (0..THREADS).map(start).collect();
        let mut seen = vec![false; usize::try_from(THREADS * EACH).unwrap()];
        let mut missing = seen.len();
        while missing > 0 {
            sleeper.arm();
            if inbox.is_empty() {
                sleeper.sleep(None, |_| ()).unwrap();
            } else {
                sleeper.disarm();
            }
            missing -= inbox.collect(&mut |done| {
                let ticket = usize::try_from(done.ticket.0).unwrap();
                assert!(
                    !std::mem::replace(&mut seen[ticket], true),
                    "{ticket} twice"
                );
            });
        }
        for thread in threads {
            thread.join().unwrap();
        }
    }
}
