//! Two servers beside each other as a picture: what a reader of the project's front page wants to see first.

use pollux_tests::client::Waiting;

use super::outcome::Outcome;
use super::plot::{Line, Panel, Plot};
use crate::cell::{Cell, Contest, Disk, Work};
use crate::measure::Sample;

/// The file beside that of the tables.
const FILE: &str = "beside.svg";

/// The disks of the picture, a row for each.
const DISKS: [(Disk, &str); 2] = [
    (Disk::Memory, "memory"),
    (Disk::Cached, "file in the page cache"),
];

/// What is shown of each.
const NUMBERS: [(&str, Of); 2] = [
    ("requests a second", |sample| sample.throughput.iops),
    ("server's processor time for each, µs", |sample| {
        sample.throughput.server.cpu_us
    }),
];

type Of = fn(&Sample) -> f64;

/// Reads at random offsets by a client that polls, by the number of requests in flight; nothing where none of them was
/// measured. `names` are those of the two servers.
pub fn picture(outcomes: &[&Outcome], names: [&str; 2]) -> Option<Plot> {
    let panels = DISKS.into_iter().flat_map(|(disk, called)| {
        NUMBERS.map(|(number, of)| Panel {
            title: format!("{called}: {number}"),
            x: "requests in flight",
            y: number,
            lines: lines(outcomes, disk, of, names),
        })
    });
    let panels: Vec<Panel> = panels.collect();
    let points = |panel: &Panel| panel.lines.iter().any(|line| !line.points.is_empty());
    panels
        .iter()
        .any(points)
        .then_some(Plot { file: FILE, panels })
}

fn lines(outcomes: &[&Outcome], disk: Disk, of: Of, names: [&str; 2]) -> Vec<Line> {
    let shown = outcomes
        .iter()
        .filter(|outcome| is_shown(outcome.cell(), disk));
    let medians: Vec<_> = shown
        .filter_map(|outcome| Some((f64::from(outcome.cell().depth), outcome.medians(of)?)))
        .collect();
    let line = |side: usize| Line {
        name: names[side].to_owned(),
        points: medians
            .iter()
            .map(|(depth, both)| (*depth, both[side]))
            .collect(),
    };
    vec![line(0), line(1)]
}

fn is_shown(cell: &Cell, disk: Disk) -> bool {
    cell.disk == disk
        && cell.work == Work::RandRead
        && cell.contest == Contest::Servers(Waiting::Polling)
}
