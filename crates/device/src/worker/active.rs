//! The list of active queues: which queues of a session each turn polls. (With `--poll always` all are.)
//!
//! An empty poll of one queue costs little, and of a hundred queues more than a request. So a queue that was empty for
//! long leaves the list, with its kicks on. From then on a kick makes it active again, which a worker that is awake
//! hears now and then; so does a poll once in a while.
//!
//! ```text
//!         IDLE_AFTER empty polls, of which a sleep counts as many
//!  active ──────────────────────────────────────────────────────▶ idle, its kicks on
//!    ▲                                                              │
//!    └──────────────── a kick, or chains at its turn ───────────────┘
//! ```

use std::collections::VecDeque;

use crate::queue::Budget;

/// The positions of queues, by what was found there lately.
#[derive(Debug, Default)]
pub struct Active {
    /// Empty polls of each position.
    empty: Vec<u16>,
    polled: Vec<u16>,
    idle: VecDeque<u16>,
}

/// After so many empty polls a queue leaves the list: some 0.1 ms. So one with ten thousand requests a second need not
/// kick a worker that is awake for others. Eight sleeps without a chain count as many: a queue is armed before each of
/// those, and then left alone.
const IDLE_AFTER: u16 = 4096;

impl Active {
    /// There is a queue in `position`, to be polled from the next turn on.
    pub fn add(&mut self, position: u16) {
        let at = usize::from(position);
        if self.empty.len() <= at {
            self.empty.resize(at + 1, 0);
        }
        self.remove(position);
        self.empty[at] = 0;
        self.polled.push(position);
    }

    /// There is no queue in `position` any more.
    pub fn remove(&mut self, position: u16) {
        self.polled.retain(|other| *other != position);
        self.idle.retain(|other| *other != position);
    }

    /// The queue in `position` has kicked.
    pub fn kicked(&mut self, position: u16) {
        self.empty[usize::from(position)] = 0;
        if let Some(at) = self.idle.iter().position(|other| *other == position) {
            self.idle.remove(at);
            self.polled.push(position);
        }
    }

    /// The active ones.
    pub fn iter(&self) -> impl Iterator<Item = u16> {
        self.polled.iter().copied()
    }

    /// Are all idle?
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.polled.is_empty()
    }

    /// Is any idle?
    pub fn has_idle(&self) -> bool {
        !self.idle.is_empty()
    }

    /// One turn, until `budget` is spent: `poll` tells how much it has found in a position. Has any been empty for so
    /// long that it is to [`Active::leave`]?
    ///
    /// The next turn begins with the first queue that was cut short; where that has had its share, with the one after
    /// it. So the begin moves on with each turn that is cut, and no queue begins two of them in a row. It moves on as
    /// well from one that its limits have cut short: others share them.
    #[inline]
    pub fn turn(
        &mut self,
        budget: &mut Budget,
        mut poll: impl FnMut(u16, &mut Budget) -> u16,
    ) -> bool {
        let (mut is_due, mut served, mut next) = (false, 0, None);
        for at in 0..self.polled.len() {
            if budget.is_spent() {
                next = next.or(Some(at));
                break;
            }
            let position = self.polled[at];
            let before = *budget;
            let found = poll(position, budget);
            served += u16::from(found > 0);
            if budget.cuts_short(before, served) {
                next = next.or(Some(at));
            } else if budget.is_limited() {
                next = next.or(Some((at + 1) % self.polled.len()));
            }
            let empty = &mut self.empty[usize::from(position)];
            *empty = if found > 0 {
                0
            } else {
                (*empty + 1).min(IDLE_AFTER)
            };
            is_due |= *empty >= IDLE_AFTER;
        }
        if let Some(next) = next {
            self.polled.rotate_left(next);
        }
        is_due
    }

    /// A sleep is over.
    pub fn slept(&mut self) {
        for position in &self.polled {
            let empty = &mut self.empty[usize::from(*position)];
            *empty = (*empty + IDLE_AFTER / 8).min(IDLE_AFTER);
        }
    }

    /// Those that were empty for long become idle, if `arms` says that their drivers kick from now on; it is asked
    /// again after as many empty polls.
    pub fn leave(&mut self, mut arms: impl FnMut(u16) -> bool) {
        let (empty, idle) = (&mut self.empty, &mut self.idle);
        self.polled.retain(|&position| {
            let empty = &mut empty[usize::from(position)];
            let leaves = *empty >= IDLE_AFTER && arms(position);
            if leaves {
                idle.push_back(position);
            }
            *empty %= IDLE_AFTER;
            !leaves
        });
    }

    /// Polls the next of those that are idle: one that `finds` something is active again.
    pub fn poll_idle(&mut self, finds: impl FnOnce(u16) -> bool) {
        let Some(position) = self.idle.pop_front() else {
            return;
        };
        if finds(position) {
            self.empty[usize::from(position)] = 0;
            self.polled.push(position);
        } else {
            self.idle.push_back(position);
        }
    }
}

#[cfg(test)]
mod tests;
