//! Rates as text: cells, and tables that are printed once.

use super::rates::{DiskRates, Rates, WorkerRates};
use crate::control::table::{Align, bytes, table};

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
        number(of.iops),
        byte_rate(of.read_bytes_per_second),
        byte_rate(of.written_bytes_per_second),
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
            number(of.sleeps_per_second),
            number(of.turns_per_second),
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

/// A number of three or four digits.
pub fn number(value: f64) -> String {
    match value {
        value if value >= 1e7 => format!("{:.1}M", value / 1e6),
        value if value >= 1e4 => format!("{:.1}K", value / 1e3),
        value => format!("{value:.0}"),
    }
}

pub fn ratio(value: f64) -> String {
    format!("{value:.3}")
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bytes a second are not negative, and are told with three digits"
)]
pub fn byte_rate(value: f64) -> String {
    bytes(value as u64)
}

/// A time in nanoseconds.
#[allow(clippy::cast_precision_loss, reason = "three digits are told")]
pub fn time(ns: u64) -> String {
    match ns {
        u64::MAX => ">30 s".to_owned(),
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_have_few_digits() {
        for (value, wanted) in [
            (0.0, "0"),
            (9999.4, "9999"),
            (12_345.0, "12.3K"),
            (2e7, "20.0M"),
        ] {
            assert_eq!(number(value), wanted);
        }
        for (ns, wanted) in [
            (0, "0 ns"),
            (1_280, "1.3 µs"),
            (5_000_000, "5.0 ms"),
            (2_500_000_000, "2.5 s"),
            (u64::MAX, ">30 s"),
        ] {
            assert_eq!(time(ns), wanted);
        }
        assert_eq!(
            (percent(0.375), ratio(0.0)),
            ("38%".to_owned(), "0.000".to_owned())
        );
    }
}
