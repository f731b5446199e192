//! Whom to look at in a turn, where most bring nothing.
//!
//! A look at a queue that is idle costs little, and at a hundred of them more than a request. So those that
//! have brought something lately are looked at in each turn, and the others by turns: a few in each turn, by
//! how much was found in it.

use std::collections::VecDeque;

/// Places, of which some are looked at in each turn.
#[derive(Debug, Default)]
pub struct Rota {
    /// Looks in vain, by place.
    vain: Vec<u8>,
    awake: Vec<u16>,
    resting: VecDeque<u16>,
}

/// After so many looks in vain a place is looked at by turns.
const PATIENCE: u8 = 64;

/// For so many that are found, one more of those that rest is looked at: this bounds how long they may be
/// kept waiting by the others, and what looking at them costs.
const PER_REST: u16 = 16;

impl Rota {
    /// There is something to be looked at in `place`, from the next turn on.
    pub fn add(&mut self, place: u16) {
        let at = usize::from(place);
        if self.vain.len() <= at {
            self.vain.resize(at + 1, 0);
        }
        self.vain[at] = 0;
        if !self.awake.contains(&place) {
            self.awake.push(place);
        }
        self.resting.retain(|other| *other != place);
    }

    /// Nothing is in `place` any more.
    pub fn remove(&mut self, place: u16) {
        self.awake.retain(|other| *other != place);
        self.resting.retain(|other| *other != place);
    }

    /// All are looked at in the next turn: a sleep is over, or something was found in a place that rests.
    pub fn rouse(&mut self) {
        for place in self.resting.drain(..) {
            self.vain[usize::from(place)] = PATIENCE - 1;
            self.awake.push(place);
        }
    }

    /// One turn: `look` tells how much it has found in a place, or `None` where this turn has brought enough
    /// without it; the next turn begins there. Returns how much was found in all.
    #[inline]
    pub fn turn(&mut self, mut look: impl FnMut(u16) -> Option<u16>) -> u16 {
        let rested = self.resting.len();
        let mut total = 0u16;
        let mut at = 0;
        while let Some(&place) = self.awake.get(at) {
            let Some(found) = look(place) else {
                self.awake.rotate_left(at);
                return total;
            };
            total = total.saturating_add(found);
            let vain = &mut self.vain[usize::from(place)];
            *vain = if found > 0 { 0 } else { *vain + 1 };
            if *vain < PATIENCE {
                at += 1;
            } else {
                self.awake.swap_remove(at);
                self.resting.push_back(place);
            }
        }
        if rested == 0 {
            return total;
        }
        let some = usize::from(1 + total / PER_REST).min(rested);
        total.saturating_add(self.look_at_some(some, look))
    }

    fn look_at_some(&mut self, some: usize, mut look: impl FnMut(u16) -> Option<u16>) -> u16 {
        let mut more = 0u16;
        for _ in 0..some {
            let Some(place) = self.resting.pop_front() else {
                break;
            };
            match look(place) {
                None => {
                    self.resting.push_front(place);
                    break;
                }
                Some(0) => self.resting.push_back(place),
                Some(found) => {
                    more = more.saturating_add(found);
                    self.vain[usize::from(place)] = 0;
                    self.awake.push(place);
                }
            }
        }
        more
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
