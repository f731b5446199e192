//! What throughput at a depth does not tell: each study has a client of its own, and compares trials that
//! take turns.

mod curve;
mod lock;
mod mechanisms;
mod mix;
mod neighbour;
mod open_loop;
mod queues;
mod rates;
mod sharing;
mod silence;
mod site;
mod stacks;

use std::fmt::Display;
use std::io;
use std::time::Duration;

use crate::compare::Comparison;
use crate::images::TMPFS;
use crate::measure::watched;
use crate::pinned::Pinned;
use crate::quiet::{Disturbance, Usage};
use crate::results::findings::{Row, Section};
use crate::results::plot::Plot;
use crate::set::Set;
use crate::statistics::median;

use site::{Setup, Site};

/// What a trial found of one thing: numbers, by the headings of their columns.
pub type Finding = Vec<(&'static str, f64)>;

/// A trial, and the medians of its first finding.
pub type Median<T> = (T, Finding);

/// Trials that take turns, and the rows that compare them.
pub struct Case<T> {
    /// The first part of the names of its rows.
    pub name: String,
    /// What takes turns.
    pub trials: Vec<T>,
    /// The rest of a row's name, and the two findings that it compares.
    pub rows: Vec<(&'static str, [Place; 2])>,
}

/// Where a finding is.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Of which trial of the case.
    pub trial: usize,
    /// Which one of those it has made.
    pub finding: usize,
}

/// The only finding of a trial.
const fn only(trial: usize) -> Place {
    Place { trial, finding: 0 }
}

/// A question with a client of its own.
trait Study {
    /// One way to run that client.
    type Trial: Copy + Display + Send + 'static;

    /// Its heading.
    const TITLE: &'static str;
    /// What is compared, and how to read it.
    const EXPLANATION: &'static str;
    /// The numbers of which the ratio within a pair is told.
    const RATIOS: &'static [&'static str];
    /// How long a trial lasts, by the measurements of two servers.
    const SHARE_OF_RUNTIME: f64;
    /// Is the client bound to its processor?
    const PINNED: bool;

    /// What is tried.
    fn cases() -> Vec<Case<Self::Trial>>;

    /// What that client is to find.
    fn setup(trial: Self::Trial) -> Setup;

    /// Is that client.
    fn run(trial: Self::Trial, site: &Site) -> io::Result<Vec<Finding>>;

    /// A picture of what each trial has found.
    fn plot(_medians: &[Median<Self::Trial>]) -> Option<Plot> {
        None
    }
}

#[allow(clippy::cast_precision_loss, reason = "15 digits are enough")]
const fn count(number: u64) -> f64 {
    number as f64
}

/// A study, and whether its servers can serve what it needs.
type Known = (
    Set,
    fn(&Comparison) -> io::Result<()>,
    fn(&Comparison) -> io::Result<Option<Section>>,
);

const ALL: [Known; 9] = [
    known::<mechanisms::Mechanisms>(Set::Mechanisms),
    known::<curve::Curve>(Set::Load),
    known::<sharing::Sharing>(Set::Sharing),
    known::<neighbour::Neighbour>(Set::Neighbour),
    known::<silence::Silence>(Set::Idle),
    known::<rates::Rates>(Set::Rates),
    known::<mix::Mix>(Set::Mix),
    known::<lock::Lock>(Set::Lock),
    known::<stacks::Stacks>(Set::Stack),
];

const fn known<S: Study>(set: Set) -> Known {
    (set, check_one::<S>, study::<S>)
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

fn check_one<S: Study>(comparison: &Comparison) -> io::Result<()> {
    let cases = S::cases().into_iter();
    let wanted = cases.filter(|case| comparison.options.wants_row(&case.name));
    for trial in wanted.flat_map(|case| case.trials) {
        let Setup {
            server, exports, ..
        } = S::setup(trial);
        comparison.contender(server).check(exports.disk)?;
    }
    Ok(())
}

/// `None` when our server is not Pollux, or no row was asked for.
fn study<S: Study>(comparison: &Comparison) -> io::Result<Option<Section>> {
    let [ours, _] = comparison.contenders;
    if ours.with_options(&[]).is_none() {
        eprintln!("{}: on Pollux alone", S::TITLE);
        return Ok(None);
    }
    let (mut rows, mut medians) = (vec![], vec![]);
    for case in S::cases() {
        if comparison.options.wants_row(&case.name) {
            let found = pairs_of::<S>(comparison, &case)?;
            rows.extend(rows_of::<S>(&case, &found));
            medians.extend(
                case.trials
                    .iter()
                    .copied()
                    .zip(found.iter().map(medians_of)),
            );
        }
    }
    Ok((!rows.is_empty()).then(|| Section {
        title: S::TITLE,
        explanation: S::EXPLANATION,
        rows,
        plot: S::plot(&medians),
    }))
}

/// What each trial of a case has found, pair by pair.
type Found = Vec<Vec<Vec<Finding>>>;

/// Makes the trials of `case`, in turn.
fn pairs_of<S: Study>(comparison: &Comparison, case: &Case<S::Trial>) -> io::Result<Found> {
    let pairs = comparison.options.pairs();
    let mut found = vec![vec![]; case.trials.len()];
    for pair in 1..=pairs {
        for (trial, found) in case.trials.iter().zip(&mut found) {
            let name = format!("{}/{trial} {pair}/{pairs}", case.name);
            let (findings, _) =
                comparison.undisturbed(&name, || measure::<S>(comparison, *trial))?;
            eprintln!("{name}: {findings:?}");
            found.push(findings);
        }
    }
    Ok(found)
}

fn rows_of<S: Study>(case: &Case<S::Trial>, found: &Found) -> Vec<Row> {
    let of = |place: Place| -> Vec<Finding> {
        let trials = found[place.trial].iter();
        trials.map(|all| all[place.finding].clone()).collect()
    };
    let row = |(name, [one, other]): &(&str, [Place; 2])| {
        let name = format!("{}/{name}", case.name);
        Row::new(name, &[of(*one), of(*other)], S::RATIOS)
    };
    case.rows.iter().map(row).collect()
}

/// Those of the first finding of a trial.
fn medians_of(pairs: &Vec<Vec<Finding>>) -> Finding {
    let number = |at: usize| {
        let values = pairs.iter().map(|findings| findings[0][at].1);
        (pairs[0][0][at].0, median(&values.collect::<Vec<_>>()))
    };
    (0..pairs[0][0].len()).map(number).collect()
}

/// Starts the server, tries once, and ends it.
fn measure<S: Study>(
    comparison: &Comparison,
    trial: S::Trial,
) -> io::Result<(Vec<Finding>, Disturbance)> {
    comparison.interrupt.check()?;
    let folder = tempfile::tempdir_in(TMPFS)?;
    let setup = S::setup(trial);
    let server = setup.start(comparison, folder.path())?;
    let time = comparison.plan.runtime.mul_f64(S::SHARE_OF_RUNTIME);
    let site = Site::new(setup, &server, folder.path(), comparison.plan, time);
    let client_cpu = comparison.plan.client_cpu;
    let patience = 2 * time + Duration::from_secs(60);
    let process = Some(site.server);
    let usage = Usage::now(process)?;
    let found = watched(patience, comparison.interrupt, move || {
        let _pinned = S::PINNED.then(|| Pinned::to(client_cpu)).transpose()?;
        S::run(trial, &site)
    });
    let told = |error| io::Error::other(format!("{trial}: {error}\n{}", server.log()));
    let disturbance = usage.others_until(&Usage::now(process)?);
    Ok((found.map_err(told)?, disturbance))
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
            names_of::<mechanisms::Mechanisms>(),
            names_of::<curve::Curve>(),
            names_of::<sharing::Sharing>(),
            names_of::<neighbour::Neighbour>(),
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

    #[test]
    fn medians_are_of_each_number() {
        let pairs: Vec<Vec<Finding>> = [3.0, 1.0, 2.0]
            .map(|value| vec![vec![("k IOPS", value), ("p99 µs", 10.0 * value)]])
            .into();
        assert_eq!(medians_of(&pairs), [("k IOPS", 2.0), ("p99 µs", 20.0)]);
    }
}
