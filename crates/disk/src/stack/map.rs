//! Where the bytes of a stacked disk lie: arithmetic, and nothing else.
//!
//! The layout is device-mapper's. A striped target of `n` legs with chunks of `c` bytes puts its chunk `i` into
//! row `i / n` of leg `i % n`:
//!
//! ```text
//!            leg 0   leg 1   leg 2
//!   row 0      0       1       2
//!   row 1      3       4       5
//!   row 2      6      (7 is shorter, or missing: the last row need not be full)
//! ```

use std::ops::Range;

/// A stretch of a leg, from `at` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stretch {
    /// Which of the stack's legs.
    pub leg: usize,
    /// Where on it, in bytes.
    pub at: u64,
}

/// How a target lies on its legs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// One after the other.
    Linear(Stretch),
    /// In chunks, by turns.
    Striped {
        /// Bytes of a chunk: a power of two.
        chunk: u64,
        /// The stretches that take turns, in that order.
        stripes: Vec<Stretch>,
    },
}

/// A part of a stacked disk: a line of its table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// Its first byte.
    pub start: u64,
    /// How many bytes it has.
    pub len: u64,
    /// Where they are.
    pub layout: Layout,
}

impl Target {
    /// The stretches of its legs, and how many bytes it has on each.
    pub(super) fn stretches(&self) -> impl Iterator<Item = (Stretch, u64)> + '_ {
        self.parts(0..self.len)
    }

    /// Where `range`, counted from the target's start, lies: one stretch for each leg that has some of it,
    /// as neighbouring rows of a leg are neighbours there.
    fn parts(&self, range: Range<u64>) -> impl Iterator<Item = (Stretch, u64)> + '_ {
        let (chunk, stripes) = match &self.layout {
            Layout::Linear(stretch) => (u64::MAX, std::slice::from_ref(stretch)),
            Layout::Striped { chunk, stripes } => (*chunk, &stripes[..]),
        };
        let count = stripes.len() as u64;
        (0u64..).zip(stripes).filter_map(move |(turn, stretch)| {
            let before = |end| before(end, chunk, turn, count);
            let (from, to) = (before(range.start), before(range.end));
            let stretch = Stretch {
                at: stretch.at + from,
                ..*stretch
            };
            (to > from).then_some((stretch, to - from))
        })
    }

    /// Where byte `at`, counted from the target's start, lies, and how many follow it there.
    #[inline]
    fn find(&self, at: u64) -> (Stretch, u64) {
        match &self.layout {
            Layout::Linear(Stretch { leg, at: start }) => {
                let stretch = Stretch {
                    leg: *leg,
                    at: start + at,
                };
                (stretch, self.len - at)
            }
            Layout::Striped { chunk, stripes } => {
                let (shift, within) = (chunk.trailing_zeros(), at & (chunk - 1));
                let (number, count) = (at >> shift, stripes.len() as u64);
                let (row, turn) = (number / count, number % count);
                let turn = usize::try_from(turn).expect("less than there are legs");
                let Stretch { leg, at: start } = stripes[turn];
                let stretch = Stretch {
                    leg,
                    at: start + (row << shift) + within,
                };
                (stretch, (chunk - within).min(self.len - at))
            }
        }
    }
}

/// How many of the first `end` bytes of a target fall to the leg whose `turn` it is of `count`.
fn before(end: u64, chunk: u64, turn: u64, count: u64) -> u64 {
    if count == 1 {
        return end;
    }
    let row = chunk.saturating_mul(count);
    let whole = (end / row) * chunk;
    let rest = (end % row).saturating_sub(turn.saturating_mul(chunk));
    whole + rest.min(chunk)
}

/// All targets, one after the other without a gap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map(Vec<Target>);

impl Map {
    /// Of `targets` as they follow each other: the caller has checked that they do.
    pub(super) fn new(targets: Vec<Target>) -> Self {
        Self(targets)
    }

    /// The targets.
    pub(super) fn targets(&self) -> &[Target] {
        &self.0
    }

    /// How many bytes they have.
    pub(super) fn bytes(&self) -> u64 {
        self.0.last().map_or(0, |last| last.start + last.len)
    }

    /// Where byte `at` lies, and how many follow it there.
    #[inline]
    pub(super) fn find(&self, at: u64) -> (Stretch, u64) {
        let target = &self.0[self.number(at)];
        target.find(at - target.start)
    }

    /// In which target byte `at` is.
    #[inline]
    fn number(&self, at: u64) -> usize {
        self.0[1..].partition_point(|target| target.start <= at)
    }

    /// Where `len` bytes from `at` lie: a stretch for each leg of each target that has some of them.
    pub(super) fn parts(&self, at: u64, len: u64) -> impl Iterator<Item = (Stretch, u64)> + '_ {
        let end = at + len;
        let first = if len == 0 {
            self.0.len()
        } else {
            self.number(at)
        };
        let targets = self.0[first..].iter();
        targets
            .take_while(move |target| target.start < end)
            .flat_map(move |target| {
                let from = at.saturating_sub(target.start);
                let to = (end - target.start).min(target.len);
                target.parts(from..to)
            })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The plainest program there is: one byte at a time, as device-mapper's documentation tells it.
    fn place(target: &Target, at: u64) -> Stretch {
        match &target.layout {
            Layout::Linear(stretch) => Stretch {
                at: stretch.at + at,
                ..*stretch
            },
            Layout::Striped { chunk, stripes } => {
                let (number, within) = (at / chunk, at % chunk);
                let turn = usize::try_from(number).unwrap() % stripes.len();
                let row = number / stripes.len() as u64;
                Stretch {
                    leg: stripes[turn].leg,
                    at: stripes[turn].at + row * chunk + within,
                }
            }
        }
    }

    fn layouts() -> impl Strategy<Value = Layout> {
        let stretch = || (0usize..4, 0u64..100).prop_map(|(leg, at)| Stretch { leg, at });
        let stripes = prop::collection::vec(stretch(), 1..5);
        prop_oneof![
            stretch().prop_map(Layout::Linear),
            (0u32..5, stripes).prop_map(|(shift, stripes)| Layout::Striped {
                chunk: 1 << shift,
                stripes
            })
        ]
    }

    fn maps() -> impl Strategy<Value = Map> {
        prop::collection::vec((1u64..200, layouts()), 1..4).prop_map(|parts| {
            let mut start = 0;
            let targets = parts.into_iter().map(|(len, layout)| {
                let target = Target { start, len, layout };
                start += len;
                target
            });
            Map::new(targets.collect())
        })
    }

    proptest! {
        /// Bytes need no blocks, so the arithmetic is tried with the smallest of chunks.
        #[test]
        fn every_byte_is_found_where_device_mapper_puts_it(map in maps()) {
            let mut at = 0;
            while at < map.bytes() {
                let (found, run) = map.find(at);
                prop_assert!(run > 0);
                for more in 0..run {
                    let here = at + more;
                    let target = map.targets().iter().rfind(|target| target.start <= here).unwrap();
                    let expected = place(target, here - target.start);
                    let seen = Stretch { at: found.at + more, ..found };
                    prop_assert_eq!(seen, expected, "byte {}", here);
                }
                at += run;
            }
        }

        #[test]
        fn the_parts_of_a_range_are_the_places_of_its_bytes(
            map in maps(), from in any::<prop::sample::Index>(), to in any::<prop::sample::Index>()
        ) {
            let bytes = usize::try_from(map.bytes()).unwrap();
            let (from, to) = (from.index(bytes + 1) as u64, to.index(bytes + 1) as u64);
            let range = from.min(to)..from.max(to);
            let mut expected: Vec<_> = range.clone().map(|at| map.find(at).0).collect();
            let parts = map.parts(range.start, range.end - range.start);
            let mut seen: Vec<_> = parts
                .flat_map(|(stretch, len)| {
                    (0..len).map(move |more| Stretch { at: stretch.at + more, ..stretch })
                })
                .collect();
            let order = |stretch: &Stretch| (stretch.leg, stretch.at);
            expected.sort_by_key(order);
            seen.sort_by_key(order);
            prop_assert_eq!(seen, expected);
        }
    }

    #[test]
    fn the_last_row_need_not_be_full() {
        let stripes = vec![Stretch { leg: 0, at: 0 }, Stretch { leg: 1, at: 8 }];
        let layout = Layout::Striped { chunk: 4, stripes };
        let target = Target {
            start: 0,
            len: 9,
            layout,
        };
        let stretches: Vec<_> = target.stretches().collect();
        let expected = [
            (Stretch { leg: 0, at: 0 }, 5),
            (Stretch { leg: 1, at: 8 }, 4),
        ];
        assert_eq!(stretches, expected);
    }
}
