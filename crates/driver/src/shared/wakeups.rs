//! What is to be done once a queue's lock is released: waking is a system call, and wakes a thread that
//! may want the lock.

use std::cell::Cell;
use std::collections::VecDeque;
use std::task::Waker;

use pollux_disk::Completion;
use pollux_disk::inbox::Address;

use crate::sync::model_has_ended;

/// What is to be woken, and what each is told.
#[derive(Debug, Default)]
pub struct Wakeups {
    wakers: VecDeque<Waker>,
    deliveries: Vec<(Address, Completion)>,
}

thread_local! {
    /// Lists that have grown, so that none is made under a lock.
    static SPARE: Cell<Wakeups> = const {
        Cell::new(Wakeups {
            wakers: VecDeque::new(),
            deliveries: Vec::new(),
        })
    };
}

impl Wakeups {
    /// Nobody and nothing yet.
    #[inline]
    pub fn none() -> Self {
        // A thread that ends may drop requests after its own variables.
        SPARE.try_with(Cell::take).unwrap_or_default()
    }

    /// `waker` is woken.
    pub fn wake(&mut self, waker: Waker) {
        self.wakers.push_back(waker);
    }

    /// `completion` is delivered to a channel, whose owner is woken if it sleeps.
    pub fn deliver(&mut self, to: Address, completion: Completion) {
        self.deliveries.push((to, completion));
    }

    /// Does it all. No lock of a queue is held.
    #[inline]
    pub fn send(self) {
        let mut sent = Sent(self);
        sent.all();
        let emptied = std::mem::take(&mut sent.0);
        let _ = SPARE.try_with(|spare| spare.set(emptied));
    }
}

/// On the way. Wakers are others' code: one that panics takes no wake-up of another.
struct Sent(Wakeups);

impl Sent {
    #[inline]
    fn all(&mut self) {
        let Wakeups { wakers, deliveries } = &mut self.0;
        // All that is for a channel arrives before its owner is woken.
        for (address, completion) in deliveries.iter() {
            address.put(*completion);
        }
        for (address, _) in deliveries.drain(..) {
            address.wake();
        }
        while let Some(waker) = wakers.pop_front() {
            waker.wake();
        }
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        if !model_has_ended() {
            self.all();
        }
    }
}
