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

use crate::queue::Budget;

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

    /// One turn, until `budget` is spent: `poll` tells how much it has found in a place. Has any been empty for so long that it is
    /// to [`Active::leave`]?
    ///
    /// The next turn begins with the first queue that was cut short; where that has had its share, with the one after it. So
    /// the begin moves on with each turn that is cut, and no queue begins two of them in a row.
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
            let place = self.polled[at];
            let before = *budget;
            let found = poll(place, budget);
            served += u16::from(found > 0);
            if budget.cuts_short(before, served) {
                next = next.or(Some(at));
            }
            let empty = &mut self.empty[usize::from(place)];
            *empty = if found > 0 { 0 } else { *empty + 1 };
            is_due |= *empty >= IDLE_AFTER;
        }
        if let Some(next) = next {
            self.polled.rotate_left(next);
        }
        is_due
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
    use crate::queue::{BUDGET, SLICE, WORK};

    fn of(places: u16) -> Active {
        let mut active = Active::default();
        (0..places).for_each(|place| active.add(place));
        active
    }

    /// Turns in which each place of `busy` has one; those that are due leave.
    fn turns(active: &mut Active, busy: &[u16], turns: u16) {
        for _ in 0..turns {
            if active.turn(&mut Budget::default(), |place, _| {
                busy.contains(&place).into()
            }) {
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
            if active.turn(&mut Budget::default(), |_, _| 0) {
                active.leave(|_| {
                    asked += 1;
                    false
                });
            }
        }
        assert_eq!((asked, polled(&active)), (2, vec![0]));
        (0..100).for_each(|_| active.slept());
        assert!(active.turn(&mut Budget::default(), |_, _| 0));
    }

    /// How much of a turn so many requests are, each of so much work.
    #[expect(clippy::cast_precision_loss, reason = "a few MiB")]
    fn turns_of((requests, work): (u16, u64)) -> f64 {
        let each = (1.0 / f64::from(BUDGET)).max(work as f64 / WORK as f64);
        f64::from(requests) * each
    }

    /// Queues whose drivers keep so many requests in flight, each of so much work: how much each got in so many turns, in turns.
    fn served(queues: &[(u16, u64)], turns: u32) -> Vec<f64> {
        let mut active = of(u16::try_from(queues.len()).unwrap());
        let mut served = vec![0.0; queues.len()];
        for _ in 0..turns {
            active.turn(&mut Budget::default(), |place, budget| {
                let (depth, work) = queues[usize::from(place)];
                let mut found = 0;
                while found < depth && !budget.is_spent() {
                    budget.chains -= 1;
                    budget.spend(work);
                    found += 1;
                }
                served[usize::from(place)] += turns_of((found, work));
                found
            });
        }
        served
    }

    #[test]
    fn no_queue_starves_another_whatever_each_sends() {
        const TURNS: u32 = 100;
        let small = [0, 1, 20, 33, 63, 64, 256].map(|depth| (depth, 0));
        let large = [(64, 4096), (1, SLICE), (2, SLICE), (64, SLICE)];
        let kinds = [&small[..], &large].concat();
        let mut mixes = vec![vec![]];
        for _ in 0..3 {
            let longer = |mix: &Vec<_>| {
                let mix = mix.clone();
                kinds.iter().map(move |kind| [&mix[..], &[*kind]].concat())
            };
            mixes = mixes.iter().flat_map(longer).collect();
            for mix in &mixes {
                // By turns, each would get what it sends, up to a turn; so it does, give or take the half.
                let sent: Vec<_> = mix.iter().map(|queue| turns_of(*queue).min(1.0)).collect();
                let rounds = f64::from(TURNS) / sent.iter().sum::<f64>().max(1.0);
                let got = served(mix, TURNS);
                for (sent, each) in sent.iter().zip(&got) {
                    let least = 0.5 * sent * rounds - 2.0;
                    assert!(*each >= least, "{each} of {least} in {mix:?}: {got:?}");
                }
            }
        }
    }

    #[test]
    fn a_queue_cut_short_begins_the_next_turn_and_not_the_one_after() {
        // Of a driver with 63 in flight and one with more than a turn takes, and many that send nothing now.
        for silent in [0, 1, 125] {
            let mut queues = vec![(63, 0), (256, 0)];
            queues.resize(2 + silent, (0, 0));
            let got = served(&queues, 1000);
            assert!((0.9..1.1).contains(&(got[0] / got[1])), "{silent}: {got:?}");
        }
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
