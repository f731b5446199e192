//! What throughput at a depth does not tell of the driver: each study has a client of its own, and
//! compares trials that take turns on our server.

mod lock;
mod mix;
mod rates;
mod stacks;

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::time::Duration;

use pollux_tests::process::Process;

use crate::cell::Disk;
use crate::compare::Comparison;
use crate::contender::Contender;
use crate::images::TMPFS;
use crate::load;
use crate::measure::watched;
use crate::pinned::Pinned;
use crate::quiet::{Disturbance, Usage};
use crate::results::findings::{Row, Section};
use crate::set::Set;

/// What a trial found of one thing: numbers, by the headings of their columns.
pub type Finding = Vec<(&'static str, f64)>;

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
    /// What our server is given.
    const OPTIONS: &'static [&'static str];
    /// What it serves.
    const DISK: Disk;
    /// The numbers of which the ratio within a pair is told.
    const RATIOS: &'static [&'static str];
    /// How long a trial lasts, by the measurements of two servers.
    const SHARE_OF_RUNTIME: f64;
    /// Is the client bound to its processor?
    const PINNED: bool;

    /// What is tried.
    fn cases() -> Vec<Case<Self::Trial>>;

    /// Is the client of the server at `socket` for `time`.
    fn run(trial: Self::Trial, socket: &Path, time: Duration) -> io::Result<Vec<Finding>>;
}

/// Those that were asked for.
pub fn run(comparison: &Comparison) -> io::Result<Vec<Section>> {
    type Run = fn(&Comparison) -> io::Result<Option<Section>>;
    let all: [(Set, Run); 4] = [
        (Set::Rates, study::<rates::Rates>),
        (Set::Mix, study::<mix::Mix>),
        (Set::Lock, study::<lock::Lock>),
        (Set::Stack, study::<stacks::Stacks>),
    ];
    let mut sections = vec![];
    for (set, run) in all {
        if comparison.options.wants(set)
            && let Some(section) = run(comparison)?
        {
            println!("\n{}", section.plain());
            sections.push(section);
        }
    }
    Ok(sections)
}

/// `None` when our server is not Pollux, or no row was asked for.
fn study<S: Study>(comparison: &Comparison) -> io::Result<Option<Section>> {
    let [ours, _] = comparison.contenders;
    let Some(server) = ours.with_options(S::OPTIONS) else {
        eprintln!("{}: on Pollux alone", S::TITLE);
        return Ok(None);
    };
    let mut rows = vec![];
    for case in S::cases() {
        if comparison.options.wants_row(&case.name) {
            rows.extend(rows_of::<S>(comparison, &server, &case)?);
        }
    }
    Ok((!rows.is_empty()).then_some(Section {
        title: S::TITLE,
        explanation: S::EXPLANATION,
        rows,
    }))
}

fn rows_of<S: Study>(
    comparison: &Comparison,
    server: &Contender,
    case: &Case<S::Trial>,
) -> io::Result<Vec<Row>> {
    let pairs = comparison.options.pairs();
    let mut found = vec![vec![]; case.trials.len()];
    for pair in 1..=pairs {
        for (trial, found) in case.trials.iter().zip(&mut found) {
            let name = format!("{}/{trial} {pair}/{pairs}", case.name);
            let (findings, _) =
                comparison.undisturbed(&name, || measure::<S>(comparison, server, *trial))?;
            eprintln!("{name}: {findings:?}");
            found.push(findings);
        }
    }
    let of = |place: Place| -> Vec<Finding> {
        let trials = found[place.trial].iter();
        trials.map(|all| all[place.finding].clone()).collect()
    };
    let row = |(name, [one, other]): &(&str, [Place; 2])| {
        let name = format!("{}/{name}", case.name);
        Row::new(name, &[of(*one), of(*other)], S::RATIOS)
    };
    Ok(case.rows.iter().map(row).collect())
}

/// Starts the server, tries once, and ends it.
fn measure<S: Study>(
    comparison: &Comparison,
    server: &Contender,
    trial: S::Trial,
) -> io::Result<(Vec<Finding>, Disturbance)> {
    comparison.interrupt.check()?;
    let folder = tempfile::tempdir_in(TMPFS)?;
    let cpu = comparison.options.server_cpu;
    let server = server.start(S::DISK, comparison.images, folder.path(), cpu)?;
    if S::DISK == Disk::Memory {
        load::fill(server.socket(), S::DISK)?;
    }
    let time = comparison.plan.runtime.mul_f64(S::SHARE_OF_RUNTIME);
    let socket = server.socket().to_owned();
    let client_cpu = comparison.plan.client_cpu;
    let patience = time + Duration::from_secs(60);
    let process = Some(Process::new(server.pid()));
    let usage = Usage::now(process)?;
    let found = watched(patience, comparison.interrupt, move || {
        let _pinned = S::PINNED.then(|| Pinned::to(client_cpu)).transpose()?;
        S::run(trial, &socket, time)
    });
    let told = |error| io::Error::other(format!("{trial}: {error}\n{}", server.log()));
    let disturbance = usage.others_until(&Usage::now(process)?);
    Ok((found.map_err(told)?, disturbance))
}
