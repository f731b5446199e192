//! Channels into a shared queue: each has an owner that sleeps at a wait point of its own, and one of those that
//! sleep holds the call descriptor ([`Listeners`](super::listeners::Listeners)).
//!
//! What is read from the descriptor on the way is handled here, at once.

use std::io;

use super::listeners::Listener;
use super::parker::CallSleeper;
use super::parts::{Ends, Transport};
use super::switchboard::Switchboard;
use crate::notify::call::Heard;
use crate::notify::call_policy::CallPolicy;

impl<E: Ends, S: CallSleeper, O: Transport> Switchboard<E, S, O> {
    /// Counts the calls that have come.
    pub fn hear(&self) {
        let heard = self.transport.call().hear();
        self.look_after(Some(heard), |_| ());
    }

    /// A channel, whose owner sleeps at `point`, and is awake.
    pub fn listener(&self, point: &O::Point) -> Listener<O::Point> {
        self.listeners.add(point)
    }

    /// Its owner goes to sleep, unless this poll finds something for it.
    ///
    /// # Errors
    ///
    /// Where it cannot be called, and so may not sleep.
    pub fn sleeps(&self, listener: &Listener<O::Point>) -> io::Result<()> {
        let heard = self
            .listeners
            .sleep(listener, |from, to| self.hand(from, to))?;
        self.look_after(heard, CallPolicy::sleep);
        Ok(())
    }

    /// Its owner is awake: another is called.
    pub fn wakes(&self, listener: &Listener<O::Point>) {
        let heard = self
            .listeners
            .wake(listener, |from, to| self.hand(from, to));
        self.look_after(heard, CallPolicy::wake);
    }

    /// It goes, and its owner is awake.
    pub fn leaves(&self, listener: &Listener<O::Point>) {
        let heard = self
            .listeners
            .remove(listener, |from, to| self.hand(from, to));
        self.look_after(heard, |_| ());
    }

    /// Reaps for all, and so for those that have not seen the calls that were heard.
    fn look_after(
        &self,
        heard: Option<Heard<'_, O::EventFd>>,
        attend: impl FnOnce(&mut CallPolicy),
    ) {
        self.attend(|_, policy| attend(policy));
        if let Some(heard) = heard {
            heard.reaped();
        }
    }

    /// Calls end the sleep at `to` from now on, and no more that at `from`.
    fn hand(
        &self,
        from: Option<&O::Point>,
        to: Option<&O::Point>,
    ) -> io::Result<Option<Heard<'_, O::EventFd>>> {
        let mut heard = None;
        if let Some(to) = to {
            // Calls of before would end its sleep at once.
            heard = Some(self.transport.call().hear());
            self.transport.watched_by(to)?;
        }
        if let Some(from) = from {
            self.transport.unwatched_by(from);
        }
        Ok(heard)
    }
}
