//! Makes the trials of a study, in turn, until each row has its pairs.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use pollux_tests::server::Server;

use super::site::{Seen, Site};
use super::study::{Case, Place, Study};
use crate::compare::Comparison;
use crate::images::TMPFS;
use crate::measure::watched;
use crate::pairing::{Distance, Tagged};
use crate::pinned::Pinned;
use crate::results::findings::{Finding, Row, Section, comparable};
use crate::round_trip;
use crate::statistics::median;

/// The cases with rows that were asked for, and those rows of theirs.
fn wanted<S: Study>(comparison: &Comparison) -> Vec<Case<S::Trial>> {
    let mut cases = S::cases();
    for Case { name, rows, .. } in &mut cases {
        rows.retain(|(row, _)| comparison.options.wants_row(&format!("{name}/{row}")));
    }
    cases.retain(|case| !case.rows.is_empty());
    cases
}

/// Can the servers serve what the study needs, as far as it was asked for?
pub fn check<S: Study>(comparison: &Comparison) -> io::Result<()> {
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

/// What the study found; `None` when our server is not Pollux, or no row was asked for.
pub fn run<S: Study>(comparison: &Comparison) -> io::Result<Option<Section>> {
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

/// The same without the trials that no row is about, without those whose server is not there, and without their rows.
fn with_servers<S: Study>(case: Case<S::Trial>, comparison: &Comparison) -> Case<S::Trial> {
    let is_there = |trial: &S::Trial| S::setup(*trial).contender(comparison.contenders).is_some();
    let compared = case.rows.iter().flat_map(|(_, places)| places);
    let is_kept: Vec<bool> = (0..)
        .zip(&case.trials)
        .map(|(at, trial)| compared.clone().any(|place| place.trial == at) && is_there(trial))
        .collect();
    let place: Vec<Option<usize>> = is_kept
        .iter()
        .scan(0, |next, is_kept| {
            let place = is_kept.then_some(*next);
            *next += usize::from(*is_kept);
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
        trials: case
            .trials
            .into_iter()
            .zip(is_kept)
            .filter_map(|(trial, is_kept)| is_kept.then_some(trial))
            .collect(),
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
    let site = Site::new(setup, &servers, folder.path(), comparison, time, seen);
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
    use super::super::study::only;
    use super::Distance::{Far, Near};
    use super::*;

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
