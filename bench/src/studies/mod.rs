//! What throughput at a depth does not tell: each study has a client of its own, and compares trials that
//! take turns.

mod curve;
mod density;
mod direct;
mod guest;
mod kernel;
mod librbd;
mod lock;
mod mechanisms;
mod mix;
mod neighbour;
mod open_loop;
mod queues;
mod rates;
mod rounds;
mod sharing;
mod silence;
mod site;
mod stacks;
mod study;

use std::io;

use crate::compare::Comparison;
use crate::results::findings::Section;
use crate::set::Set;

use study::Study;

/// A study, and whether its servers can serve what it needs.
type Known = (
    Set,
    fn(&Comparison) -> io::Result<()>,
    fn(&Comparison) -> io::Result<Option<Section>>,
);

const ALL: [Known; 14] = [
    known::<librbd::Librbd>(Set::RbdDirect),
    known::<mechanisms::Mechanisms>(Set::Mechanisms),
    known::<curve::Curve>(Set::Load),
    known::<sharing::Sharing>(Set::Sharing),
    known::<neighbour::Neighbour>(Set::Neighbour),
    known::<kernel::Kernel>(Set::Kernel),
    known::<guest::Guest>(Set::Guest),
    known::<density::Density>(Set::Density),
    known::<direct::Direct>(Set::Direct),
    known::<silence::Silence>(Set::Idle),
    known::<rates::Rates>(Set::Rates),
    known::<mix::Mix>(Set::Mix),
    known::<lock::Lock>(Set::Lock),
    known::<stacks::Stacks>(Set::Stack),
];

const fn known<S: Study>(set: Set) -> Known {
    (set, rounds::check::<S>, rounds::run::<S>)
}

/// Can the servers serve what the studies need that were asked for?
pub fn check(comparison: &Comparison) -> io::Result<()> {
    let wanted = ALL
        .iter()
        .filter(|(set, ..)| comparison.options.wants(*set));
    wanted
        .into_iter()
        .try_for_each(|(_, check, _)| check(comparison))
}

/// Those that were asked for.
pub fn run(comparison: &Comparison) -> io::Result<Vec<Section>> {
    let mut sections = vec![];
    for (set, _, run) in ALL {
        if comparison.options.wants(set)
            && let Some(section) = run(comparison)?
        {
            println!("\n{}", section.plain());
            sections.push(section);
        }
    }
    Ok(sections)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names_of<S: Study>() -> Vec<String> {
        let mut names = vec![];
        for case in S::cases() {
            for (name, places) in case.rows {
                assert!(places.iter().all(|place| place.trial < case.trials.len()));
                names.push(format!("{}/{name}", case.name));
            }
        }
        names
    }

    #[test]
    fn rows_compare_what_is_tried_and_have_names_of_their_own() {
        let all = [
            names_of::<librbd::Librbd>(),
            names_of::<mechanisms::Mechanisms>(),
            names_of::<curve::Curve>(),
            names_of::<sharing::Sharing>(),
            names_of::<neighbour::Neighbour>(),
            names_of::<kernel::Kernel>(),
            names_of::<guest::Guest>(),
            names_of::<density::Density>(),
            names_of::<direct::Direct>(),
            names_of::<silence::Silence>(),
            names_of::<rates::Rates>(),
            names_of::<mix::Mix>(),
            names_of::<lock::Lock>(),
            names_of::<stacks::Stacks>(),
        ];
        let mut names = all.concat();
        let before = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), before, "{names:?}");
    }

    #[test]
    fn every_set_is_of_cells_or_a_study() {
        use clap::ValueEnum;
        for set in Set::value_variants() {
            let studied = ALL.iter().filter(|(known, ..)| known == set).count();
            assert_eq!(studied, usize::from(set.cells().is_none()), "{set:?}");
        }
    }
}
