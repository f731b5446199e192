//! Rates as text: cells, and tables that are printed once.

use super::rates::{DiskRates, Rates, WorkerRates};
use crate::control::table::{Align, table};
use crate::units::{self, bytes, count};

/// The columns of disks.
pub const DISKS: [(&str, Align); 11] = [
    ("DISK", Align::Left),
    ("IOPS", Align::Right),
    ("READ/s", Align::Right),
    ("WRITE/s", Align::Right),
    ("P50", Align::Right),
    ("P99", Align::Right),
    ("DEPTH", Align::Right),
    ("KICK/IO", Align::Right),
    ("CALL/IO", Align::Right),
    ("SLEEP/IO", Align::Right),
    ("HELD BY", Align::Left),
];

const WORKERS: [(&str, Align); 7] = [
    ("WORKER", Align::Left),
    ("WORKS", Align::Right),
    ("POLLS", Align::Right),
    ("SLEEPS", Align::Right),
    ("CPU", Align::Right),
    ("SLEEPS/s", Align::Right),
    ("TURNS/s", Align::Right),
];

/// The cells of a disk.
pub fn disk(of: &DiskRates) -> [String; 11] {
    [
        of.name.clone(),
        count(of.iops),
        bytes(of.read_bytes_per_second),
        bytes(of.written_bytes_per_second),
        optional(of.p50_ns, time),
        optional(of.p99_ns, time),
        format!("{:.1}", of.depth),
        optional(of.kicks_per_io, ratio),
        optional(of.calls_per_io, ratio),
        optional(of.sleeps_per_io, ratio),
        of.bottleneck.which.name().to_owned(),
    ]
}

/// What a worker is called: with its daemon's socket if there are several.
pub fn worker_name(of: &WorkerRates, alone: bool) -> String {
    let name = of.control.file_stem().unwrap_or_default();
    if alone {
        of.number.to_string()
    } else {
        format!("{} {}", name.to_string_lossy(), of.number)
    }
}

/// Why a disk is not faster, as a line.
pub fn why(of: &DiskRates) -> String {
    let verdict = &of.bottleneck;
    format!("{}: {}: {}", of.name, verdict.which.name(), verdict.why)
}

/// Everything, to be printed once.
pub fn report(rates: &Rates) -> String {
    let rows: Vec<_> = rates.disks.iter().map(disk).collect();
    let mut text = table(DISKS, &rows);
    let alone = rates.is_of_one_daemon();
    let row = |of: &WorkerRates| {
        [
            worker_name(of, alone),
            percent(of.working),
            percent(of.polling),
            percent(of.asleep),
            optional(of.cpu, percent),
            count(of.sleeps_per_second),
            count(of.turns_per_second),
        ]
    };
    let rows: Vec<_> = rates.workers.iter().map(row).collect();
    text += "\n";
    text += &table(WORKERS, &rows);
    text += "\n";
    for of in &rates.disks {
        text += &why(of);
        text += "\n";
    }
    text
}

/// A share.
pub fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

pub fn optional<T>(value: Option<T>, text: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), text)
}

pub fn ratio(value: f64) -> String {
    format!("{value:.3}")
}

/// A time in nanoseconds, of a histogram that ends at 30 s.
pub fn time(ns: u64) -> String {
    match ns {
        u64::MAX => ">30 s".to_owned(),
        ns => units::time(units::float(ns)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_have_few_digits() {
        assert_eq!((&*time(1_280), &*time(u64::MAX)), ("1.28 µs", ">30 s"));
        assert_eq!(
            (percent(0.375), ratio(0.0)),
            ("38%".to_owned(), "0.000".to_owned())
        );
    }
}
