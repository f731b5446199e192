//! The list of active queues: which queues of a session each turn polls. (With `--poll always` all are.)
//!
//! An empty poll of one queue costs little, and of a hundred queues more than a request. So a queue that has brought nothing for
//! long leaves the list, with its kicks on. From then on a kick makes it active again; and, as a kick reaches only a worker
//! that sleeps, a poll once in a while.
//!
//! ```text
//!         IDLE_AFTER empty polls, of which a sleep counts as many
//!  active ──────────────────────────────────────────────────────▶ idle, its kicks on
//!    ▲                                                              │
//!    └──────────────── a kick, or chains at its turn ───────────────┘
//! ```

use std::collections::VecDeque;

/// The places of queues, by what they have brought lately.
#[derive(Debug, Default)]
pub struct Active {
    /// Empty polls of each place.
    empty: Vec<u16>,
    polled: Vec<u16>,
    idle: VecDeque<u16>,
}

/// After so many empty polls a queue leaves the list: some 0.1 ms. So one with ten thousand requests a second need not kick a
/// worker that is awake for others.
const IDLE_AFTER: u16 = 4096;

/// A sleep without a chain counts as so many empty polls: a queue is armed before eight sleeps, and then left alone.
const SLEEP: u16 = IDLE_AFTER / 8;

impl Active {
    /// There is a queue in `place`, to be polled from the next turn on.
    pub fn add(&mut self, place: u16) {
        let at = usize::from(place);
        if self.empty.len() <= at {
            self.empty.resize(at + 1, 0);
        }
        self.remove(place);
        self.empty[at] = 0;
        self.polled.push(place);
    }

    /// There is no queue in `place` any more.
    pub fn remove(&mut self, place: u16) {
        self.polled.retain(|other| *other != place);
        self.idle.retain(|other| *other != place);
    }

    /// The queue in `place` has kicked.
    pub fn kicked(&mut self, place: u16) {
        self.empty[usize::from(place)] = 0;
        if let Some(at) = self.idle.iter().position(|other| *other == place) {
            self.idle.remove(at);
            self.polled.push(place);
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

    /// One turn: `poll` tells how much it has found in a place, or `None` where this turn has brought enough without it; the
    /// next turn begins there. Has any been empty for so long that it is to [`Active::leave`]?
    #[inline]
    pub fn turn(&mut self, mut poll: impl FnMut(u16) -> Option<u16>) -> bool {
        let mut is_due = false;
        for at in 0..self.polled.len() {
            let place = self.polled[at];
            let Some(found) = poll(place) else {
                self.polled.rotate_left(at);
                break;
            };
            let empty = &mut self.empty[usize::from(place)];
            *empty = if found > 0 { 0 } else { *empty + 1 };
            is_due |= *empty >= IDLE_AFTER;
        }
        is_due
    }

    /// The next turn begins with `place`, if that is active.
    pub fn begin_with(&mut self, place: u16) {
        if let Some(at) = self.polled.iter().position(|other| *other == place) {
            self.polled.rotate_left(at);
        }
    }

    /// A sleep is over.
    pub fn slept(&mut self) {
        for place in &self.polled {
            let empty = &mut self.empty[usize::from(*place)];
            *empty = (*empty + SLEEP).min(IDLE_AFTER);
        }
    }

    /// Those that were empty for long become idle, if `arms` says that their drivers kick from now on; it is asked again after
    /// as many empty polls.
    pub fn leave(&mut self, mut arms: impl FnMut(u16) -> bool) {
        let (empty, idle) = (&mut self.empty, &mut self.idle);
        self.polled.retain(|&place| {
            let empty = &mut empty[usize::from(place)];
            let leaves = *empty >= IDLE_AFTER && arms(place);
            if leaves {
                idle.push_back(place);
            }
            *empty %= IDLE_AFTER;
            !leaves
        });
    }

    /// Polls the next of those that are idle: one that `finds` something is active again.
    pub fn poll_idle(&mut self, finds: impl FnOnce(u16) -> bool) {
        let Some(place) = self.idle.pop_front() else {
            return;
        };
        if finds(place) {
            self.empty[usize::from(place)] = 0;
            self.polled.push(place);
        } else {
            self.idle.push_back(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(places: u16) -> Active {
        let mut active = Active::default();
        (0..places).for_each(|place| active.add(place));
        active
    }

    /// Turns in which each place of `busy` has one; those that are due leave.
    fn turns(active: &mut Active, busy: &[u16], turns: u16) {
        for _ in 0..turns {
            if active.turn(|place| Some(busy.contains(&place).into())) {
                active.leave(|_| true);
            }
        }
    }

    fn polled(active: &Active) -> Vec<u16> {
        let mut polled: Vec<_> = active.iter().collect();
        polled.sort_unstable();
        polled
    }

    #[test]
    fn those_that_bring_nothing_leave_and_come_back() {
        let mut active = of(128);
        turns(&mut active, &[5], IDLE_AFTER - 1);
        assert_eq!(polled(&active).len(), 128);
        turns(&mut active, &[5], 1);
        assert_eq!(polled(&active), [5]);
        (0..127).for_each(|_| active.poll_idle(|place| place == 9));
        assert_eq!(polled(&active), [5, 9], "each is polled in as many polls");
        active.kicked(7);
        active.kicked(7);
        assert_eq!(polled(&active), [5, 7, 9]);
        turns(&mut active, &[5, 9], IDLE_AFTER);
        assert_eq!(polled(&active), [5, 9]);
    }

    #[test]
    fn sleeps_leave_those_alone_that_bring_nothing() {
        let mut active = of(3);
        for sleeps in 1..=8 {
            turns(&mut active, &[0], 1);
            active.kicked(1);
            active.slept();
            active.leave(|_| true);
            let all = polled(&active);
            assert_eq!(
                all.len(),
                if sleeps < 8 { 3 } else { 2 },
                "{sleeps}: {all:?}"
            );
        }
        assert_eq!(polled(&active), [0, 1], "a queue that kicks is not idle");
    }

    #[test]
    fn one_that_cannot_be_armed_stays() {
        let mut active = of(1);
        let mut asked = 0;
        for _ in 0..2 * IDLE_AFTER {
            if active.turn(|_| Some(0)) {
                active.leave(|_| {
                    asked += 1;
                    false
                });
            }
        }
        assert_eq!((asked, polled(&active)), (2, vec![0]));
        (0..100).for_each(|_| active.slept());
        assert!(active.turn(|_| Some(0)));
    }

    #[test]
    fn a_turn_that_has_brought_enough_goes_on_with_the_next() {
        let mut active = of(4);
        let mut served = [0u32; 4];
        for _ in 0..100 {
            // All have as many as may be; a turn brings those of one.
            let mut left = 64u16;
            active.turn(|place| {
                if left == 0 {
                    return None;
                }
                served[usize::from(place)] += u32::from(left);
                Some(std::mem::take(&mut left))
            });
        }
        assert_eq!(served, [25 * 64; 4]);
    }

    #[test]
    fn places_come_and_go() {
        let mut active = of(2);
        active.remove(0);
        assert_eq!(polled(&active), [1]);
        active.add(0);
        active.add(0);
        assert_eq!(polled(&active), [0, 1]);
        turns(&mut active, &[], IDLE_AFTER);
        assert!(active.is_empty());
        active.remove(0);
        (0..2).for_each(|_| active.poll_idle(|_| true));
        assert_eq!(polled(&active), [1]);
    }
}
