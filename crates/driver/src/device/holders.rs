//! What holds each queue of a device.

use std::sync::{Condvar, Mutex, PoisonError};

use pollux_threads::lock;

/// What holds a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// It may be taken.
    Nobody,
    /// A channel of its own.
    Channel,
    /// All that share it, until the last of them has let go and it has stopped.
    Everybody,
    /// It could not be started or stopped, so it is not known what the server does with it.
    Stuck,
}

/// What holds each queue.
#[derive(Debug)]
pub struct Holders {
    by_queue: Mutex<Box<[Holder]>>,
    /// A queue has stopped.
    stopped: Condvar,
}

impl Holders {
    /// Of so many queues, all free.
    pub fn of(queues: u16) -> Self {
        Self {
            by_queue: Mutex::new(vec![Holder::Nobody; usize::from(queues)].into()),
            stopped: Condvar::new(),
        }
    }

    /// Is any queue in use?
    pub fn have_any(&self) -> bool {
        let holders = lock(&self.by_queue);
        holders.iter().any(|holder| *holder != Holder::Nobody)
    }

    /// Takes the first free queue, for a channel.
    pub fn take(&self, within: impl Iterator<Item = u16>) -> Option<u16> {
        let mut holders = lock(&self.by_queue);
        let free = within
            .into_iter()
            .find(|index| holders[usize::from(*index)] == Holder::Nobody)?;
        holders[usize::from(free)] = Holder::Channel;
        Some(free)
    }

    /// Takes queue `index` for all that share it, of which the caller is the first. The last of those before
    /// may just have let go: then this waits until the queue has stopped.
    ///
    /// # Errors
    ///
    /// What holds it otherwise.
    pub fn take_shared(&self, index: u16) -> Result<(), Holder> {
        let index = usize::from(index);
        let stops = |holders: &mut Box<[Holder]>| holders[index] == Holder::Everybody;
        let holders = self.stopped.wait_while(lock(&self.by_queue), stops);
        let mut holders = holders.unwrap_or_else(PoisonError::into_inner);
        match holders[index] {
            Holder::Nobody => {
                holders[index] = Holder::Everybody;
                Ok(())
            }
            other => Err(other),
        }
    }

    /// Takes [`Holders::take`] back, or [`Holders::take_shared`]: `to` have queue `index` now.
    pub fn give_back(&self, index: u16, to: Holder) {
        lock(&self.by_queue)[usize::from(index)] = to;
        self.stopped.notify_all();
    }

    /// Another server has come, which has never heard of a queue that is stuck.
    pub fn free_stuck(&self) {
        let mut holders = lock(&self.by_queue);
        let stuck = holders
            .iter_mut()
            .filter(|holder| **holder == Holder::Stuck);
        stuck.for_each(|holder| *holder = Holder::Nobody);
    }
}
