//! What is to be done once a queue's lock is released: waking is a system call, and wakes somebody who
//! may want the lock.

use std::cell::Cell;
use std::task::Waker;

use pollux_disk::Completion;
use pollux_disk::inbox::Address;

/// Who is to be woken, and told what.
#[derive(Debug, Default)]
pub struct Wakes {
    wakers: Vec<Waker>,
    letters: Vec<(Address, Completion)>,
}

thread_local! {
    /// Lists that have grown, so that none is made under a lock.
    static SPARE: Cell<Wakes> = const {
        Cell::new(Wakes {
            wakers: Vec::new(),
            letters: Vec::new(),
        })
    };
}

impl Wakes {
    /// Nobody and nothing yet.
    #[inline]
    pub fn none() -> Self {
        // A thread that ends may drop requests after its own variables.
        SPARE.try_with(Cell::take).unwrap_or_default()
    }

    /// `waker` is woken.
    pub fn wake(&mut self, waker: Waker) {
        self.wakers.push(waker);
    }

    /// `completion` is delivered to a channel, whose owner is woken if it sleeps.
    pub fn deliver(&mut self, to: Address, completion: Completion) {
        self.letters.push((to, completion));
    }

    /// Does it all. No lock of a queue is held.
    #[inline]
    pub fn send(mut self) {
        for waker in self.wakers.drain(..) {
            waker.wake();
        }
        // All that is for a channel arrives before its owner is woken.
        for (address, completion) in &self.letters {
            address.put(*completion);
        }
        for (address, _) in self.letters.drain(..) {
            address.wake();
        }
        let _ = SPARE.try_with(|spare| spare.set(self));
    }
}
