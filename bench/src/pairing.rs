//! Which measurements may be compared: pairs of which both were made in the same state of the host.
//!
//! Two states show only in what they do. The *distance* of the two processors is measured around each sample
//! ([`tagged`](crate::round_trip::tagged)). The *mode* is not: whether the host polls before it lets a halted processor
//! sleep makes the same wake-up cost 4 µs or 30 µs, and all that can be seen is that the speeds of one server lie in
//! two heaps with nothing between them. A mean over two states describes neither, so there is none.

use std::fmt;

use serde::Serialize;

/// How far the client's processor is from the server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Distance {
    /// They share a cache.
    Near,
    /// They do not.
    Far,
}

/// One of two heaps of speeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The greater ones.
    Fast,
    /// The smaller ones.
    Slow,
}

/// What the host did while a pair was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct State {
    /// Of the two processors.
    pub distance: Distance,
    /// Where there are two.
    pub mode: Option<Mode>,
}

/// A measurement, and the distance at which it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Tagged<T> {
    /// `None` if the host moved the processors meanwhile.
    pub distance: Option<Distance>,
    /// What was measured.
    #[serde(flatten)]
    pub found: T,
}

/// Pairs that were measured in the same state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// That state.
    pub state: State,
    /// The numbers of the pairs.
    pub pairs: Vec<usize>,
}

impl Distance {
    /// By the time of a round trip in nanoseconds. Between 95 and 560, which are usual, there is room for other
    /// machines.
    pub fn of(round_trip_ns: f64) -> Self {
        const FAR_NS: f64 = 250.0;
        if round_trip_ns < FAR_NS {
            Self::Near
        } else {
            Self::Far
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.distance {
            Distance::Near => "near",
            Distance::Far => "far",
        })?;
        f.write_str(match self.mode {
            None => "",
            Some(Mode::Fast) => ", fast",
            Some(Mode::Slow) => ", slow",
        })
    }
}

/// Which pairs `one[i]`, `other[i]` are alike, by the state in which both were measured; the others are not to be
/// compared. `speed` tells modes apart, where it is known.
pub fn alike<T>(
    one: &[Tagged<T>],
    other: &[Tagged<T>],
    speed: impl Fn(&T) -> Option<f64>,
) -> Vec<Group> {
    let of_distance = |distance: Distance| {
        let here = |side: &[Tagged<T>], pair: usize| side[pair].distance == Some(distance);
        let pairs = 0..one.len().min(other.len());
        let pairs = pairs.filter(|&pair| here(one, pair) && here(other, pair));
        let pairs: Vec<usize> = pairs.collect();
        let modes = [one, other].map(|side| {
            let speeds = pairs.iter().map(|&pair| speed(&side[pair].found));
            modes(&speeds.collect::<Vec<_>>())
        });
        by_mode(distance, &pairs, &modes)
    };
    let all = [Distance::Near, Distance::Far].into_iter();
    let groups = all.flat_map(of_distance);
    groups.filter(|group| !group.pairs.is_empty()).collect()
}

/// `modes` are those of either side, pair by pair. A side that has but one is compared with both of the other's.
fn by_mode(distance: Distance, pairs: &[usize], modes: &[Vec<Option<Mode>>; 2]) -> Vec<Group> {
    let group = |mode: Option<Mode>| {
        let fits = |at: &usize| {
            modes
                .iter()
                .all(|side| side[*at].is_none_or(|own| Some(own) == mode))
        };
        let alike = (0..pairs.len()).filter(fits);
        Group {
            state: State { distance, mode },
            pairs: alike.map(|at| pairs[at]).collect(),
        }
    };
    if modes.iter().flatten().all(Option::is_none) {
        return vec![group(None)];
    }
    [Mode::Fast, Mode::Slow]
        .map(|mode| group(Some(mode)))
        .into()
}

/// The mode of each, where the speeds lie in two heaps.
fn modes(speeds: &[Option<f64>]) -> Vec<Option<Mode>> {
    let known: Option<Vec<f64>> = speeds.iter().copied().collect();
    let border = known.and_then(|known| border(&known));
    let mode = |speed: &Option<f64>| match (speed, border) {
        (Some(speed), Some(border)) if *speed < border => Some(Mode::Slow),
        (Some(_), Some(_)) => Some(Mode::Fast),
        _ => None,
    };
    speeds.iter().map(mode).collect()
}

/// The least of the upper heap, where there are two: the widest gap between neighbours is wide, and not one between
/// all of them and a few outliers.
fn border(speeds: &[f64]) -> Option<f64> {
    const WIDE: f64 = 1.4;
    let mut sorted = speeds.to_vec();
    sorted.sort_by(f64::total_cmp);
    let heap = (sorted.len() / 8).max(2);
    let inside = heap..(sorted.len() + 1).saturating_sub(heap);
    let ratio = |at: &usize| sorted[*at] / sorted[*at - 1];
    let widest = inside.max_by(|one, other| ratio(one).total_cmp(&ratio(other)))?;
    (ratio(&widest) >= WIDE).then_some(sorted[widest])
}

#[cfg(test)]
mod tests {
    use super::Distance::{Far, Near};
    use super::*;

    fn side(samples: &[(Option<Distance>, f64)]) -> Vec<Tagged<f64>> {
        let tagged = |&(distance, found)| Tagged { distance, found };
        samples.iter().map(tagged).collect()
    }

    fn groups(
        one: &[(Option<Distance>, f64)],
        other: &[(Option<Distance>, f64)],
    ) -> Vec<(String, Vec<usize>)> {
        let groups = alike(&side(one), &side(other), |speed| Some(*speed));
        let shown = |group: Group| (group.state.to_string(), group.pairs);
        groups.into_iter().map(shown).collect()
    }

    #[test]
    fn the_usual_round_trips_are_far_from_the_border() {
        let found = [50.0, 95.0, 130.0, 400.0, 560.0].map(Distance::of);
        assert_eq!(found, [Near, Near, Near, Far, Far]);
    }

    #[test]
    fn a_pair_has_both_sides_at_the_same_distance() {
        let (near, far) = ((Some(Near), 1.0), (Some(Far), 1.0));
        let one = [near, near, far, far, near];
        let other = [near, far, far, near, near];
        let found = groups(&one, &other);
        assert_eq!(
            found,
            [("near".into(), vec![0, 4]), ("far".into(), vec![2])]
        );
    }

    #[test]
    fn what_was_moved_meanwhile_is_in_no_pair() {
        let (near, moved) = ((Some(Near), 1.0), (None, 1.0));
        assert_eq!(groups(&[near, moved, moved], &[moved, near, moved]), []);
    }

    #[test]
    fn two_heaps_of_either_side_are_paired_heap_by_heap() {
        let near = |speeds: [f64; 6]| speeds.map(|speed| (Some(Near), speed));
        let one = near([100.0, 30.0, 101.0, 31.0, 99.0, 29.0]);
        let other = near([80.0, 20.0, 20.0, 80.0, 81.0, 21.0]);
        let found = groups(&one, &other);
        let expected = [
            ("near, fast".into(), vec![0, 4]),
            ("near, slow".into(), vec![1, 5]),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_side_with_one_heap_is_compared_with_both_of_the_other() {
        let near = |speeds: [f64; 4]| speeds.map(|speed| (Some(Near), speed));
        let found = groups(
            &near([50.0, 51.0, 52.0, 53.0]),
            &near([99.0, 30.0, 31.0, 98.0]),
        );
        let expected = [
            ("near, fast".into(), vec![0, 3]),
            ("near, slow".into(), vec![1, 2]),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn modes_are_those_of_one_distance() {
        let one = [
            (Some(Near), 100.0),
            (Some(Far), 30.0),
            (Some(Near), 101.0),
            (Some(Far), 31.0),
        ];
        let found = groups(&one, &one);
        assert_eq!(
            found,
            [("near".into(), vec![0, 2]), ("far".into(), vec![1, 3])]
        );
    }

    #[test]
    fn a_spread_without_a_gap_and_a_single_outlier_are_no_heaps() {
        assert_eq!(border(&[100.0, 120.0, 144.0, 170.0, 200.0, 240.0]), None);
        assert_eq!(border(&[100.0, 101.0, 102.0, 103.0, 104.0, 30.0]), None);
        assert_eq!(
            border(&[100.0, 101.0, 102.0, 103.0, 31.0, 30.0]),
            Some(100.0)
        );
        assert_eq!(border(&[1.0]), None);
        assert_eq!(border(&[]), None);
    }

    #[test]
    fn without_a_speed_there_are_no_modes() {
        let one = side(&[
            (Some(Near), 1.0),
            (Some(Near), 2.0),
            (Some(Near), 1.0),
            (Some(Near), 2.0),
        ]);
        let found = alike(&one, &one, |_| None);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].pairs, [0, 1, 2, 3]);
    }
}
