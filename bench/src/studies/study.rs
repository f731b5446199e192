//! What a study is: trials that take turns, what they find, and the rows that compare it.

use std::fmt::Display;
use std::io;

use super::site::{Rival, Setup, Site};
use crate::results::findings::Finding;
use crate::results::plot::Plot;

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
pub const fn only(trial: usize) -> Place {
    Place { trial, finding: 0 }
}

/// Ours beside each of the others that there are, under one client: the trials, and a row for each other.
pub fn beside_all<T>(trial: impl Fn(Rival) -> T, name: String, others: &[Rival]) -> Case<T> {
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
pub trait Study {
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

/// `number` as a number of a finding.
#[allow(clippy::cast_precision_loss, reason = "15 digits are enough")]
pub const fn count(number: u64) -> f64 {
    number as f64
}
