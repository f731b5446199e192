//! What a guest says of its load, understood.

use std::io;

/// What it found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    /// Requests.
    pub requests: f64,
    /// Requests a second.
    pub iops: f64,
    /// Half of them were faster, in microseconds.
    pub p50_us: f64,
    /// All but one in a hundred were faster, in microseconds.
    pub p99_us: f64,
    /// How often the disks have interrupted the guest.
    pub interrupts: f64,
    /// What the queues' locks have cost, where they were timed.
    pub locks: Option<Locks>,
}

/// Times of locks, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Locks {
    /// All waits together.
    pub waited_us: f64,
    /// The longest hold.
    pub longest_hold_us: f64,
}

/// From the driver's counters, of all queues; `None` if no lock was timed.
pub(super) fn parse_locks(line: &str) -> io::Result<Option<Locks>> {
    let of = |name: &str| -> io::Result<Vec<f64>> {
        let values = line
            .split(' ')
            .filter_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        values.map(|value| number(value, line)).collect()
    };
    if of("locks-timed")?.iter().sum::<f64>() == 0.0 {
        return Ok(None);
    }
    Ok(Some(Locks {
        waited_us: of("lock-wait-ns")?.iter().sum::<f64>() / 1e3,
        longest_hold_us: of("longest-hold-ns")?.into_iter().fold(0.0, f64::max) / 1e3,
    }))
}

/// From what the generator says: `read bs=4096 qd=4 …: 14402 IOs in 200 ms = 72010 IOPS, mean … ns p50 … p99 … ns, errs
/// 0`.
pub(super) fn parse(line: &str) -> io::Result<Report> {
    let words: Vec<&str> = line
        .split([' ', ','])
        .filter(|word| !word.is_empty())
        .collect();
    let at = |word: &str, step: isize| -> io::Result<f64> {
        let place = words.iter().position(|known| *known == word);
        let place = place.and_then(|place| place.checked_add_signed(step));
        number(
            place
                .and_then(|place| words.get(place))
                .copied()
                .unwrap_or_default(),
            line,
        )
    };
    if at("errs", 1)? != 0.0 {
        return Err(io::Error::other(format!(
            "requests of the guest failed: {line}"
        )));
    }
    Ok(Report {
        requests: at("IOs", -1)?,
        iops: at("IOPS", -1)?,
        p50_us: at("p50", 1)? / 1e3,
        p99_us: at("p99", 1)? / 1e3,
        interrupts: 0.0,
        locks: None,
    })
}

pub(super) fn number(text: &str, of: &str) -> io::Result<f64> {
    let wrong = |_| {
        io::Error::other(format!(
            "the guest says {text:?} where a number was expected: {of}"
        ))
    };
    text.parse().map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::float_cmp)] // they are exact
    fn the_report_of_the_generator_is_understood() {
        let line = "read bs=4096 qd=4 jobs=1 polled=0: 14402 IOs in 200 ms = 72010 IOPS, mean 55123 ns p50 54016 p99 81152 ns, errs 0";
        let report = parse(line).unwrap();
        assert_eq!((report.requests, report.iops), (14402.0, 72010.0));
        assert_eq!((report.p50_us, report.p99_us), (54.016, 81.152));
        assert!(
            parse(&line.replace("errs 0", "errs 2"))
                .unwrap_err()
                .to_string()
                .contains("failed")
        );
        assert!(parse("").is_err());
    }

    #[test]
    fn times_of_locks_are_those_of_all_queues() {
        let line = "queue=0 kicks=7 locks-timed=2 lock-wait-ns=1000 longest-hold-ns=500 \
                    queue=1 locks-timed=0 lock-wait-ns=2000 longest-hold-ns=4000";
        let locks = parse_locks(line).unwrap();
        let expected = Locks {
            waited_us: 3.0,
            longest_hold_us: 4.0,
        };
        assert_eq!(locks, Some(expected));
        assert_eq!(parse_locks("").unwrap(), None);
        assert_eq!(parse_locks("queue=0 locks-timed=0").unwrap(), None);
    }
}
