//! What is to be done once a queue's lock is released: waking is a system call, and wakes somebody who
//! may want the lock.

use std::task::Waker;

use pollux_disk::Completion;
use pollux_disk::inbox::Address;

/// Who is to be woken, and told what.
#[derive(Debug, Default)]
pub struct Wakes {
    wakers: Vec<Waker>,
    letters: Vec<(Address, Completion)>,
}

impl Wakes {
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
    pub fn send(&mut self) {
        for waker in self.wakers.drain(..) {
            waker.wake();
        }
        for (address, completion) in self.letters.drain(..) {
            address.deliver(completion);
        }
    }
}
