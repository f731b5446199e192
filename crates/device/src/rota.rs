//! Whom to look at in a turn, where most bring nothing.
//!
//! A look at a queue that is idle costs little, and at a hundred of them more than a request. So those that
//! have brought something lately are looked at in each turn, and the others by turns: a few in each turn, by
//! how much was found in it. Those that have brought nothing for many sleeps are left alone by sleeps as well.
//!
//! ```text
//!         64 looks in vain          8 sleeps in vain, and it kicks
//!  awake ─────────────────▶ resting ──────────────────────────────▶ dormant
//!    ▲ ▲       a sleep         │                                      │
//!    │ └───────────────────────┘                                      │
//!    └────────────────── it brings something, or kicks ───────────────┘
//! ```

use std::collections::VecDeque;

/// Places, of which some are looked at in each turn.
#[derive(Debug, Default)]
pub struct Rota {
    /// What each place has not brought.
    vain: Vec<Vain>,
    awake: Vec<u16>,
    /// Awake from the next turn on: in this one they were looked at.
    risen: Vec<u16>,
    resting: VecDeque<u16>,
    dormant: VecDeque<u16>,
    /// What the last turn has brought.
    brought: u16,
    turns: u32,
}

/// Looks and sleeps since a place has brought something.
#[derive(Clone, Copy, Debug, Default)]
struct Vain {
    looks: u8,
    sleeps: u8,
}

/// After so many looks in vain a place is looked at by turns.
const PATIENCE: u8 = 64;

/// After so many sleeps in vain a place that kicks is left alone by sleeps.
const SLEEPS: u8 = 8;

/// In so many turns one of those that are dormant is looked at: one in each was 7 % of a turn that brings one chain.
const DORMANT_EVERY: u32 = 4;

/// For so many that are found, one more of those that rest is looked at: this bounds how long they may be
/// kept waiting by the others, and what looking at them costs.
const PER_REST: u16 = 16;

impl Rota {
    /// There is something to be looked at in `place`, from the next turn on.
    pub fn add(&mut self, place: u16) {
        let at = usize::from(place);
        if self.vain.len() <= at {
            self.vain.resize(at + 1, Vain::default());
        }
        self.remove(place);
        self.vain[at] = Vain::default();
        self.awake.push(place);
    }

    /// Nothing is in `place` any more.
    pub fn remove(&mut self, place: u16) {
        self.awake.retain(|other| *other != place);
        self.resting.retain(|other| *other != place);
        self.dormant.retain(|other| *other != place);
    }

    /// Whatever is in `place` has kicked: it is looked at in the next turn, before anybody sleeps again.
    pub fn kicked(&mut self, place: u16) {
        let vain = std::mem::take(&mut self.vain[usize::from(place)]);
        // Most who kick are not, and are not looked for.
        if vain.sleeps >= SLEEPS
            && let Some(at) = self.dormant.iter().position(|other| *other == place)
        {
            self.dormant.remove(at);
            self.awake.push(place);
        }
    }

    /// All but those that are dormant are looked at in the next turn.
    pub fn rouse(&mut self) {
        for place in self.resting.drain(..) {
            self.vain[usize::from(place)].looks = PATIENCE - 1;
            self.awake.push(place);
        }
    }

    /// A sleep is over. Those that have brought nothing for long, and of which `kicks` says that a kick is asked
    /// for, become dormant; the others are looked at in the next turn.
    pub fn slept(&mut self, mut kicks: impl FnMut(u16) -> bool) {
        self.rouse();
        let (vain, dormant) = (&mut self.vain, &mut self.dormant);
        self.awake.retain(|&place| {
            let sleeps = &mut vain[usize::from(place)].sleeps;
            *sleeps = sleeps.saturating_add(1);
            let stays = *sleeps < SLEEPS || !kicks(place);
            if !stays {
                dormant.push_back(place);
            }
            stays
        });
    }

    /// All that are not dormant.
    pub fn alert(&self) -> impl Iterator<Item = u16> {
        self.awake.iter().chain(&self.resting).copied()
    }

    /// One turn: `look` tells how much it has found in a place, or `None` where this turn has brought enough
    /// without it; the next turn begins there. Returns how much was found in all.
    #[inline]
    pub fn turn(&mut self, mut look: impl FnMut(u16) -> Option<u16>) -> u16 {
        let mut total = 0u16;
        if !self.resting.is_empty() || !self.dormant.is_empty() {
            // First, as those that are awake may well bring enough in each turn.
            total = self.by_turns(&mut look);
        }
        let mut at = 0;
        while let Some(&place) = self.awake.get(at) {
            let Some(found) = look(place) else {
                self.awake.rotate_left(at);
                break;
            };
            total = total.saturating_add(found);
            let vain = &mut self.vain[usize::from(place)];
            if found > 0 {
                *vain = Vain::default();
            } else {
                vain.looks += 1;
            }
            if vain.looks < PATIENCE {
                at += 1;
            } else {
                self.awake.swap_remove(at);
                self.resting.push_back(place);
            }
        }
        self.awake.append(&mut self.risen);
        self.brought = total;
        total
    }

    /// Looks at the next of those that wait for their turn.
    fn by_turns(&mut self, look: &mut impl FnMut(u16) -> Option<u16>) -> u16 {
        self.turns = self.turns.wrapping_add(1);
        let (mut total, more) = (0u16, self.brought / PER_REST);
        let one_dormant = u16::from(self.turns.is_multiple_of(DORMANT_EVERY));
        for (waiting, one) in [(&mut self.resting, 1), (&mut self.dormant, one_dormant)] {
            for _ in 0..usize::from(one + more).min(waiting.len()) {
                let Some(place) = waiting.pop_front() else {
                    break;
                };
                match look(place) {
                    None => {
                        waiting.push_front(place);
                        break;
                    }
                    Some(0) => waiting.push_back(place),
                    Some(found) => {
                        total = total.saturating_add(found);
                        self.vain[usize::from(place)] = Vain::default();
                        self.risen.push(place);
                    }
                }
            }
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rota(places: u16) -> Rota {
        let mut rota = Rota::default();
        (0..places).for_each(|place| rota.add(place));
        rota
    }

    /// Who is looked at in a turn in which each place of `busy` has one.
    fn looked_at(rota: &mut Rota, busy: &[u16]) -> Vec<u16> {
        let mut looked = Vec::new();
        rota.turn(|place| {
            looked.push(place);
            Some(u16::from(busy.contains(&place)))
        });
        looked
    }

    #[test]
    fn those_that_bring_nothing_are_looked_at_by_turns() {
        let mut rota = rota(128);
        for _ in 0..64 {
            assert_eq!(looked_at(&mut rota, &[5]).len(), 128);
        }
        let mut seen = [0; 128];
        for _ in 0..127 {
            let looked = looked_at(&mut rota, &[5]);
            assert_eq!(looked.len(), 2);
            for place in looked {
                seen[usize::from(place)] += 1;
            }
        }
        let expected = |place| if place == 5 { 127 } else { 1 };
        assert!(
            (0..128).all(|place| seen[place] == expected(place)),
            "{seen:?}"
        );
        // One of them has something.
        let found = (0..128).find(|_| looked_at(&mut rota, &[5, 9]).contains(&9));
        assert!(found.is_some());
        for _ in 0..50 {
            assert!(
                looked_at(&mut rota, &[5]).contains(&9),
                "it stays for a while"
            );
        }
    }

    #[test]
    fn after_a_sleep_all_are_looked_at_once() {
        let mut rota = rota(16);
        for _ in 0..65 {
            looked_at(&mut rota, &[]);
        }
        assert_eq!(looked_at(&mut rota, &[]).len(), 1);
        rota.rouse();
        assert_eq!(looked_at(&mut rota, &[]).len(), 16);
        assert_eq!(looked_at(&mut rota, &[]).len(), 1);
    }

    #[test]
    fn sleeps_leave_those_alone_that_are_dormant() {
        let mut rota = rota(3);
        let sleep = |rota: &mut Rota| {
            for _ in 0..65 {
                looked_at(rota, &[0]);
            }
            // The last place sends no kicks.
            rota.slept(|place| place != 2);
            let mut alert: Vec<_> = rota.alert().collect();
            alert.sort_unstable();
            alert
        };
        for _ in 1..SLEEPS {
            assert_eq!(sleep(&mut rota), [0, 1, 2]);
        }
        assert_eq!(sleep(&mut rota), [0, 2]);
        assert!(
            (0..DORMANT_EVERY).any(|_| looked_at(&mut rota, &[0]).contains(&1)),
            "it is looked at by turns"
        );
        for _ in 1..SLEEPS {
            rota.kicked(1);
            rota.slept(|place| place != 2);
            assert!(
                looked_at(&mut rota, &[0]).contains(&1),
                "a sleep that it ended with a kick does not send it back"
            );
        }
        while sleep(&mut rota).len() > 2 {}
        while !looked_at(&mut rota, &[1]).contains(&1) {}
        for _ in 1..SLEEPS {
            assert_eq!(sleep(&mut rota), [0, 1, 2], "it has brought something");
        }
        assert_eq!(sleep(&mut rota), [0, 2]);
    }

    #[test]
    fn a_turn_that_has_brought_enough_goes_on_with_the_next() {
        let mut rota = rota(4);
        let mut served = [0u32; 4];
        for _ in 0..100 {
            // All have as many as may be; a turn brings those of one.
            let mut left = 64u16;
            rota.turn(|place| {
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
    fn nobody_is_looked_at_twice_in_a_turn() {
        let mut rota = rota(4);
        for _ in 0..65 {
            looked_at(&mut rota, &[0]);
        }
        for _ in 0..4 {
            let mut looked = looked_at(&mut rota, &[0, 1, 2, 3]);
            looked.sort_unstable();
            let all = looked.len();
            looked.dedup();
            assert_eq!(looked.len(), all, "{looked:?}");
        }
    }

    #[test]
    fn one_that_brings_enough_in_each_turn_keeps_nobody_waiting() {
        let mut rota = rota(32);
        for _ in 0..64 {
            looked_at(&mut rota, &[0]);
        }
        let mut seen = [false; 32];
        for _ in 0..16 {
            let mut enough = false;
            rota.turn(|place| {
                seen[usize::from(place)] = true;
                (!enough).then(|| {
                    enough = place == 0;
                    if enough { 64 } else { 0 }
                })
            });
        }
        assert_eq!(seen, [true; 32]);
    }

    #[test]
    fn places_come_and_go() {
        let mut rota = rota(2);
        rota.remove(0);
        assert_eq!(looked_at(&mut rota, &[]), [1]);
        rota.add(0);
        rota.add(0);
        assert_eq!(looked_at(&mut rota, &[]), [1, 0]);
        rota.remove(0);
        rota.remove(1);
        assert!(looked_at(&mut rota, &[]).is_empty());
    }
}
