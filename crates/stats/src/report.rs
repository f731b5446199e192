//! A snapshot as a person reads it in a log.

use std::fmt;
use std::time::Duration;

use crate::{Distribution, Snapshot};

/// Lines without an end of line after the last. Kinds of requests that did not occur are left out.
///
/// ```text
/// requests              ok    ioerr   unsupp       bytes
///   read            812345        0        0     3.1 GiB
///   flush               12        0        0           -
/// kicks                151   0.000 per I/O, from the driver
/// calls               6711   0.008 per I/O, to the driver; it suppressed 93411 others
/// chains/turn         8.12   requests taken at once, mean, at most 32-63
/// completions         6.90   shown at once, mean, at most 16-31
/// turns             100122   with work, and 20112 empty polls
/// sleeps                31   1.204s asleep
/// peer faults            0   rings that the driver broke
/// ```
impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.requests_table(f)?;
        let per_io = |ratio: Option<f64>| ratio.map_or("-".into(), |ratio| format!("{ratio:.3}"));
        line(
            f,
            "kicks",
            self.kicks,
            &format!("{} per I/O, from the driver", per_io(self.kicks_per_io())),
        )?;
        let calls = format!(
            "{} per I/O, to the driver; it suppressed {} others",
            per_io(self.calls_per_io()),
            self.calls_suppressed
        );
        line(f, "calls", self.calls_sent, &calls)?;
        batches(
            f,
            "chains/turn",
            "requests taken at once, mean",
            &self.chains_per_turn,
        )?;
        batches(
            f,
            "completions",
            "shown at once, mean",
            &self.completions_per_publish,
        )?;
        line(
            f,
            "turns",
            self.turns_busy,
            &format!("with work, and {} empty polls", self.turns_idle),
        )?;
        // Of what is longer than a millisecond, the rest is noise to a reader.
        let digits = if self.asleep_ns < 1_000_000 {
            1_000
        } else {
            1_000_000
        };
        let asleep = Duration::from_nanos(self.asleep_ns - self.asleep_ns % digits);
        line(f, "sleeps", self.sleeps, &format!("{asleep:?} asleep"))?;
        write!(
            f,
            "{:<13}{:>11}   rings that the driver broke",
            "peer faults", self.peer_faults
        )
    }
}

impl Snapshot {
    fn requests_table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<13}{:>11}{:>9}{:>9}{:>12}",
            "requests", "ok", "ioerr", "unsupp", "bytes"
        )?;
        for (name, of) in self.requests.by_name() {
            if of.total() == 0 {
                continue;
            }
            let bytes = match name {
                "read" => human(self.bytes_read),
                "write" => human(self.bytes_written),
                _ => "-".into(),
            };
            let (ok, ioerr, unsupp) = (of.ok, of.ioerr, of.unsupp);
            writeln!(f, "  {name:<12}{ok:>10}{ioerr:>9}{unsupp:>9}{bytes:>12}")?;
        }
        Ok(())
    }
}

fn line(f: &mut fmt::Formatter<'_>, name: &str, count: u64, rest: &str) -> fmt::Result {
    writeln!(f, "{name:<13}{count:>11}   {rest}")
}

fn batches(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    what: &str,
    sizes: &Distribution,
) -> fmt::Result {
    match (sizes.mean(), sizes.highest()) {
        (Some(mean), Some((first, last))) if first == last => {
            writeln!(f, "{name:<13}{mean:>11.2}   {what}, at most {first}")
        }
        (Some(mean), Some((first, u64::MAX))) => {
            writeln!(
                f,
                "{name:<13}{mean:>11.2}   {what}, at most {first} or more"
            )
        }
        (Some(mean), Some((first, last))) => {
            writeln!(f, "{name:<13}{mean:>11.2}   {what}, at most {first}-{last}")
        }
        _ => writeln!(f, "{name:<13}{:>11}   {what}", "-"),
    }
}

/// A number of bytes with three or four digits and its unit.
#[allow(clippy::cast_precision_loss, reason = "it is rounded anyway")]
fn human(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let power = bytes.ilog2() / 10;
    let scaled = bytes as f64 / (1u64 << (10 * power)) as f64;
    format!("{scaled:.1} {}", UNITS[power as usize - 1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, Outcome, QueueStats};

    #[test]
    fn a_report_reads_like_this() {
        let stats = QueueStats::default();
        for _ in 0..1000 {
            stats.request(Kind::Read, Outcome::Ok);
        }
        stats.request(Kind::WriteZeroes, Outcome::IoErr);
        stats.bytes_read.add(4096 * 1000);
        stats.kicks.add(10);
        stats.calls_sent.add(250);
        stats.calls_suppressed.add(17);
        stats.chains_per_turn.record(1);
        stats.chains_per_turn.record(40);
        stats.completions_per_publish.record(1);
        stats.turns_busy.add(2);
        stats.turns_idle.add(99);
        stats.sleeps.add(3);
        stats.asleep_ns.add(1_204_567_890);
        let expected = "\
requests              ok    ioerr   unsupp       bytes
  read              1000        0        0     3.9 MiB
  write-zeroes         0        1        0           -
kicks                 10   0.010 per I/O, from the driver
calls                250   0.250 per I/O, to the driver; it suppressed 17 others
chains/turn        20.50   requests taken at once, mean, at most 32-63
completions         1.00   shown at once, mean, at most 1
turns                  2   with work, and 99 empty polls
sleeps                 3   1.204s asleep
peer faults            0   rings that the driver broke";
        assert_eq!(stats.snapshot().to_string(), expected);
    }

    #[test]
    fn an_unused_queue_has_no_ratios() {
        let report = Snapshot::default().to_string();
        assert!(
            report.contains("kicks                  0   - per I/O"),
            "{report}"
        );
        assert!(
            report.contains("chains/turn            -   requests taken at once, mean"),
            "{report}"
        );
    }

    #[test]
    fn bytes_are_rounded_to_a_unit() {
        assert_eq!(human(0), "0 B");
        assert_eq!(human(1023), "1023 B");
        assert_eq!(human(1024), "1.0 KiB");
        assert_eq!(human(3 << 29), "1.5 GiB");
        assert_eq!(human(u64::MAX), "16.0 EiB");
    }
}
