//! What throughput at a depth does not tell: each study has a client of its own, and compares trials that
//! take turns.

mod curve;
mod density;
mod direct;
mod kernel;
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
use std::sync::Arc;
use std::time::Duration;

use pollux_tests::server::Server;

use crate::compare::Comparison;
use crate::images::TMPFS;
use crate::measure::watched;
use crate::pairing::{Distance, Tagged};
use crate::pinned::Pinned;
use crate::results::findings::{Row, Section, comparable};
use crate::results::plot::Plot;
use crate::round_trip;
use crate::set::Set;
use crate::statistics::median;

use site::{Rival, Seen, Setup, Site};

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

/// Ours beside each of the others that there are, under one client: the trials, and a row for each other.
fn beside_all<T>(trial: impl Fn(Rival) -> T, name: String, others: &[Rival]) -> Case<T> {
    let all = std::iter::once(Rival::Ours).chain(others.iter().copied());
    let rows = (1..).zip(others);
    let rows = rows.map(|(at, other)| (other.row(), [only(0), only(at)]));
    Case {
        name,
        rows: rows.collect(),
        trials: all.map(trial).collect(),
    }
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

    /// Is there what its client needs?
    fn check() -> io::Result<()> {
        Ok(())
    }

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

const ALL: [Known; 12] = [
    known::<mechanisms::Mechanisms>(Set::Mechanisms),
    known::<curve::Curve>(Set::Load),
    known::<sharing::Sharing>(Set::Sharing),
    known::<neighbour::Neighbour>(Set::Neighbour),
    known::<kernel::Kernel>(Set::Kernel),
    known::<density::Density>(Set::Density),
    known::<direct::Direct>(Set::Direct),
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

/// The cases that were asked for.
fn wanted<S: Study>(comparison: &Comparison) -> Vec<Case<S::Trial>> {
    let mut cases = S::cases();
    cases.retain(|case| comparison.options.wants_row(&case.name));
    cases
}

fn check_one<S: Study>(comparison: &Comparison) -> io::Result<()> {
    let cases = wanted::<S>(comparison);
    if !cases.is_empty() {
        S::check()?;
    }
    for trial in cases.into_iter().flat_map(|case| case.trials) {
        let setup = S::setup(trial);
        if let Some(contender) = setup.contender(comparison.contenders) {
            contender.check(setup.exports.disk)?;
        }
    }
    Ok(())
}

/// `None` when our server is not Pollux, or no row was asked for.
fn study<S: Study>(comparison: &Comparison) -> io::Result<Option<Section>> {
    if comparison.contenders.ours.with_options(&[]).is_none() {
        eprintln!("{}: on Pollux alone", S::TITLE);
        return Ok(None);
    }
    let (mut rows, mut medians) = (vec![], vec![]);
    for case in wanted::<S>(comparison) {
        let case = with_servers::<S>(case, comparison);
        let (found, repeated) = rounds_of::<S>(comparison, &case)?;
        rows.extend(rows_of(&case, &found, repeated, S::RATIOS));
        let trials = case.trials.iter().copied();
        medians.extend(trials.zip(found.iter().map(|all| medians_of(all))));
    }
    Ok((!rows.is_empty()).then(|| Section {
        title: S::TITLE,
        explanation: S::EXPLANATION,
        rows,
        plot: S::plot(&medians),
    }))
}

/// The same without the trials whose server is not there, and without their rows.
fn with_servers<S: Study>(case: Case<S::Trial>, comparison: &Comparison) -> Case<S::Trial> {
    let is_there = |trial: &S::Trial| S::setup(*trial).contender(comparison.contenders).is_some();
    let place: Vec<Option<usize>> = case
        .trials
        .iter()
        .scan(0, |next, trial| {
            let place = is_there(trial).then_some(*next);
            *next += usize::from(place.is_some());
            Some(place)
        })
        .collect();
    let moved = |at: Place| {
        Some(Place {
            trial: place[at.trial]?,
            ..at
        })
    };
    let rows = case.rows.into_iter();
    let rows = rows.filter_map(|(name, [one, other])| Some((name, [moved(one)?, moved(other)?])));
    Case {
        rows: rows.collect(),
        trials: case.trials.into_iter().filter(is_there).collect(),
        name: case.name,
    }
}

/// What each trial of a case has found, round by round.
type Found = Vec<Vec<Tagged<Vec<Finding>>>>;

/// Makes the trials of `case`, in turn, until each row has its pairs, but not for ever; and says how many trials were
/// made again.
fn rounds_of<S: Study>(
    comparison: &Comparison,
    case: &Case<S::Trial>,
) -> io::Result<(Found, usize)> {
    let pairs = comparison.options.pairs();
    let mut found: Found = vec![vec![]; case.trials.len()];
    let (mut repeated, mut round) = (0, 0);
    while round < pairs || (round < 2 * pairs && fewest_pairs(case, &found) < pairs) {
        round += 1;
        for (trial, found) in case.trials.iter().zip(&mut found) {
            let name = format!("{}/{trial} {round}/{pairs}", case.name);
            let measure = || measure::<S>(comparison, *trial);
            let taken = comparison.undisturbed(&name, measure, |one| one.distance.is_some())?;
            repeated += taken.again;
            eprintln!("{name}: {:?} {:?}", taken.found.distance, taken.found.found);
            found.push(taken.found);
        }
    }
    Ok((found, repeated))
}

/// Of the row that has the fewest.
fn fewest_pairs<T>(case: &Case<T>, found: &Found) -> usize {
    let pairs_of = |(_, places): &(&str, [Place; 2])| {
        let [one, other] = places.map(|place| at(place, found));
        let groups = comparable(&one, &other);
        groups.iter().map(|group| group.pairs.len()).sum()
    };
    case.rows.iter().map(pairs_of).min().unwrap_or(usize::MAX)
}

fn at(place: Place, found: &Found) -> Vec<Tagged<Finding>> {
    let one = |all: &Tagged<Vec<Finding>>| Tagged {
        distance: all.distance,
        found: all.found[place.finding].clone(),
    };
    found[place.trial].iter().map(one).collect()
}

fn rows_of<T>(case: &Case<T>, found: &Found, repeated: usize, ratios: &[&str]) -> Vec<Row> {
    let rows = |(name, places): &(&str, [Place; 2])| {
        let name = format!("{}/{name}", case.name);
        let sides = places.map(|place| at(place, found));
        Row::by_state(&name, &sides, repeated, ratios)
    };
    case.rows.iter().flat_map(rows).collect()
}

/// Those of the first finding of a trial, at the distance at which it was made most often.
fn medians_of(rounds: &[Tagged<Vec<Finding>>]) -> Finding {
    let of = |distance: Distance| -> Vec<&Finding> {
        let here = rounds
            .iter()
            .filter(|round| round.distance == Some(distance));
        here.map(|round| &round.found[0]).collect()
    };
    let (near, far) = (of(Distance::Near), of(Distance::Far));
    let most = if near.len() >= far.len() { near } else { far };
    let Some(first) = most.first() else {
        return vec![];
    };
    let number = |&(name, _): &(&'static str, f64)| {
        let all = most.iter().flat_map(|finding| finding.iter());
        let values = all.filter(|(known, _)| *known == name);
        let values: Vec<f64> = values.map(|(_, value)| *value).collect();
        (name, median(&values))
    };
    first.iter().map(number).collect()
}

/// Tries once, and says at which distance of the processors that was.
fn measure<S: Study>(comparison: &Comparison, trial: S::Trial) -> io::Result<Tagged<Vec<Finding>>> {
    let processors = comparison.plan.processors;
    let seen = Arc::new(Seen::new());
    let whole = round_trip::tagged(processors, || attempt::<S>(comparison, trial, &seen))?;
    Ok(Tagged {
        distance: *seen.get().unwrap_or(&whole.distance),
        found: whole.found,
    })
}

/// Starts the servers, tries once, and ends them.
fn attempt<S: Study>(
    comparison: &Comparison,
    trial: S::Trial,
    seen: &Arc<Seen>,
) -> io::Result<Vec<Finding>> {
    let folder = tempfile::tempdir_in(TMPFS)?;
    let setup = S::setup(trial);
    let servers = setup.start(comparison, folder.path())?;
    let time = comparison.plan.runtime.mul_f64(S::SHARE_OF_RUNTIME);
    let site = Site::new(setup, &servers, folder.path(), comparison.plan, time, seen);
    let client_cpu = comparison.plan.processors.own;
    let patience = 2 * time + Duration::from_secs(60);
    let found = watched(patience, comparison.interrupt, move || {
        let _pinned = S::PINNED.then(|| Pinned::to(client_cpu)).transpose()?;
        S::run(trial, &site)
    });
    comparison.interrupt.check()?; // it reaches the servers too: then their end is no news
    let logs = || servers.iter().map(Server::log).collect::<String>();
    found.map_err(|error| io::Error::other(format!("{trial}: {error}\n{}", logs())))
}

#[cfg(test)]
mod tests {
    use super::Distance::{Far, Near};
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
            names_of::<kernel::Kernel>(),
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

    #[test]
    fn medians_are_of_each_number_at_the_distance_that_was_usual() {
        let at = |distance, value| Tagged {
            distance,
            found: vec![vec![("k IOPS", value), ("p99 µs", 10.0 * value)]],
        };
        let near = |value| at(Some(Near), value);
        let rounds = [
            near(3.0),
            at(Some(Far), 90.0),
            at(None, 70.0),
            near(1.0),
            near(2.0),
        ];
        assert_eq!(medians_of(&rounds), [("k IOPS", 2.0), ("p99 µs", 20.0)]);
    }

    #[test]
    fn the_row_with_the_fewest_pairs_decides_whether_to_go_on() {
        let at = |distance| Tagged {
            distance: Some(distance),
            found: vec![vec![("k IOPS", 1.0)]],
        };
        let case = Case {
            name: "case".into(),
            trials: vec![(), (), ()],
            rows: vec![("a:b", [only(0), only(1)]), ("a:c", [only(0), only(2)])],
        };
        let found = vec![
            vec![at(Near), at(Near), at(Far)],
            vec![at(Near), at(Near), at(Far)],
            vec![at(Near), at(Far), at(Near)],
        ];
        assert_eq!(fewest_pairs(&case, &found), 1);
    }
}
