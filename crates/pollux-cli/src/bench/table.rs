//! The report for people.

use std::fmt::Write;

use pollux::driver::{Counters, LockTimes};
use pollux_load::Histogram;

use super::report::Report;
use crate::log::chain;
use crate::units::{bytes, count, float, per, rate, ratio, time, us_per};
use pollux_load::{Direction, Split};

/// The headings of the table, each at the right edge of its column.
const HEADINGS: [&str; 8] = [
    "IOPS",
    "bandwidth",
    "mean",
    "p50",
    "p99",
    "p99.9",
    "max",
    "requests",
];
const LABEL: usize = 18;
const WIDTH: usize = 11;

/// The report of a run.
pub fn report(report: &Report<'_>) -> String {
    let mut text = format!(
        "{}, {:.1} s\n\n",
        report.title(),
        report.elapsed().as_secs_f64()
    );
    row(&mut text, "", &HEADINGS.map(str::to_owned));
    for (label, direction) in [("read", Direction::Read), ("write", Direction::Write)] {
        side(&mut text, report, label, direction);
    }
    text.push('\n');
    per_request(&mut text, report);
    if let Some(times) = &report.outcome.lock {
        lock(&mut text, times, report);
    }
    text.push('\n');
    for remark in remarks(report) {
        text.push_str("  ");
        text.push_str(&remark);
        text.push('\n');
    }
    text
}

fn row(text: &mut String, label: &str, cells: &[String]) {
    let mut line = format!("  {label:LABEL$}");
    for cell in cells {
        write!(line, "{cell:>WIDTH$}").expect("a string takes everything");
    }
    text.push_str(line.trim_end());
    text.push('\n');
}

/// One direction, and of which kinds its requests were.
fn side(text: &mut String, report: &Report<'_>, label: &str, direction: Direction) {
    let side = report.side(direction);
    if side.requests == 0 {
        return;
    }
    let kind = |label: &str, times: &Histogram, text: &mut String| {
        let requests = times.len();
        let moved = requests * report.plan.bytes as u64;
        let mut cells = vec![
            count(rate(requests, report.elapsed())),
            bytes(rate(moved, report.elapsed())) + "/s",
        ];
        cells.extend(latencies(times));
        cells.push(requests.to_string());
        row(text, label, &cells);
    };
    kind(label, &side.latency, text);
    if report.plan.is_mixed() {
        let latencies = &report.outcome.latencies;
        let Split { polled, called, .. } = match direction {
            Direction::Read => &latencies.read,
            Direction::Write => &latencies.write,
        };
        kind("  polled", polled, text);
        kind("  by calls", called, text);
    }
}

fn latencies(times: &Histogram) -> [String; 5] {
    let at = |percentile| time(float(times.value_at_percentile(percentile)));
    [
        time(times.mean()),
        at(50.0),
        at(99.0),
        at(99.9),
        time(float(times.max())),
    ]
}

/// What requests cost beside their time.
fn per_request(text: &mut String, report: &Report<'_>) {
    let (outcome, requests) = (report.outcome, report.requests());
    let counters = outcome.counters;
    let each = |count| per(count, requests);
    let mut line = |what: &str, cost: String, remark: &str| {
        row(text, what, &[cost, format!("  {remark}")]);
    };
    let vain = format!(
        "polls for completions, {:.3} of them empty",
        each(counters.empty_polls)
    );
    for (what, count, remark) in [
        ("kicks", counters.kicks, "from the driver to the device"),
        ("calls", counters.calls, "from the device to the driver"),
        ("polls", counters.polls, &vain),
        ("sleeps", counters.sleeps, "a job went to sleep over it"),
    ] {
        line(what, format!("{:.3}", each(count)), remark);
    }
    let us = |time| format!("{:.2} µs", us_per(time, requests));
    line("CPU of the client", us(outcome.client.total), "");
    line(
        "CPU of the server",
        outcome.server.map_or("-".to_owned(), us),
        "",
    );
}

fn lock(text: &mut String, lock: &LockTimes, report: &Report<'_>) {
    let requests = report.requests();
    let headings = ["per I/O", "mean", "p50", "p99", "p99.9", "max"];
    text.push('\n');
    row(text, "the queue's lock", &headings.map(str::to_owned));
    for (label, times) in [("held", &lock.hold), ("waited for", &lock.wait)] {
        let sum = times.mean() * float(times.len());
        let mut cells = vec![time(ratio(sum, float(requests)))];
        cells.extend(latencies(times));
        row(text, label, &cells);
    }
    let (kicks, preempted) = (report.outcome.counters.kicks_under_lock, lock.preempted);
    let line = format!(
        "{kicks} kicks under it; {preempted} times left out in which a thread was preempted\n"
    );
    text.push_str("  ");
    text.push_str(&line);
}

/// What a reader has to know of the numbers above.
fn remarks(report: &Report<'_>) -> Vec<String> {
    let (outcome, requests) = (report.outcome, report.requests());
    let mut remarks = Vec::new();
    if requests > 0 {
        remarks.push(who_slept(&outcome.counters));
    }
    let mut late = outcome.latencies.read.late.clone();
    late.add(&outcome.latencies.write.late)
        .expect("both have the same bounds");
    if !late.is_empty() {
        let (mean, p99) = (
            time(late.mean()),
            time(float(late.value_at_percentile(99.0))),
        );
        remarks.push(format!(
            "Requests were started {mean} (p99: {p99}) after they were due, which their latency includes."
        ));
    }
    if outcome.unstarted > 0 {
        let left = outcome.unstarted;
        remarks.push(format!(
            "The server did not keep up: {left} requests were due and still in line at the end. Give a \
             lower --rate-iops, or a higher --iodepth."
        ));
    }
    remarks.extend(how_it_ended(report));
    remarks
}

/// Whether it failed, or whether what was read can be relied upon.
fn how_it_ended(report: &Report<'_>) -> Option<String> {
    let outcome = report.outcome;
    if let Some(error) = &outcome.error {
        return Some(format!("The run failed: {}.", chain(error)));
    }
    if report.is_verified() {
        let blocks = outcome.checked;
        return Some(format!(
            "Verified: {blocks} blocks were read, each as it was written last."
        ));
    }
    let is_cut_off = report.plan.verify && outcome.stopped;
    let words = "The run was ended early: not all that was written has been read back.";
    is_cut_off.then(|| words.to_owned())
}

/// What happens in a smaller share of all waits hardly happens.
const HARDLY: f64 = 0.05;

/// A wait ends with a poll that finds something: with many requests in flight it finds many, so what was counted is
/// held against waits, not against requests.
fn who_slept(counters: &Counters) -> String {
    let waits = counters.polls - counters.empty_polls;
    let hardly = |count| per(count, waits) < HARDLY;
    let device = if hardly(counters.kicks) {
        "The device polled for requests"
    } else {
        "The device asked for kicks"
    };
    let driver = if !hardly(counters.sleeps) {
        let percent = (100.0 * per(counters.sleeps, waits)).min(100.0);
        let woken = if hardly(counters.calls) {
            "hardly ever woken by a call"
        } else {
            "woken by calls"
        };
        format!("slept in {percent:.0}% of its waits, and was {woken}")
    } else if hardly(counters.calls.saturating_sub(counters.sleeps)) {
        "polled for completions".to_owned()
    } else {
        "polled for completions, and was called all the same".to_owned()
    };
    format!("{device}; the driver {driver}.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::tests::{
        given, given_load, of_a_mixed_run, of_a_run, of_verified_runs,
    };
    use crate::bench::run::Outcome;

    #[test]
    fn the_table_is_aligned_and_has_units() {
        let text = given(&of_a_run(), report);
        let expected = "\
randread of 4K at a time, 16 in flight, completion adaptive, 2.0 s

                           IOPS  bandwidth       mean        p50        p99      p99.9        max   requests
  read                      500 1.95 MiB/s    20.0 µs    20.0 µs    20.0 µs    20.0 µs    20.0 µs       1000

  kicks                   0.500  from the driver to the device
  calls                   0.001  from the device to the driver
  polls                   3.000  polls for completions, 2.000 of them empty
  sleeps                  0.001  a job went to sleep over it
  CPU of the client     2.00 µs
  CPU of the server           -

  The device asked for kicks; the driver polled for completions.
";
        assert_eq!(text, expected, "\n{text}");
    }

    #[test]
    fn a_sleeper_is_known_by_sleeps_and_not_by_calls() {
        for (kicks, calls, sleeps, words) in [
            (
                0,
                0,
                0,
                "polled for requests; the driver polled for completions.",
            ),
            (
                999,
                0,
                0,
                "The device asked for kicks; the driver polled for completions.",
            ),
            (0, 60, 49, "; the driver polled for completions."),
            (
                0,
                1000,
                49,
                "polled for completions, and was called all the same.",
            ),
            (
                0,
                0,
                300,
                "slept in 30% of its waits, and was hardly ever woken by a call.",
            ),
            (
                0,
                900,
                1100,
                "slept in 100% of its waits, and was woken by calls.",
            ),
        ] {
            // Of many requests each.
            let mut counters = of_a_run().counters;
            (counters.polls, counters.empty_polls) = (5000, 4000);
            (counters.kicks, counters.calls, counters.sleeps) = (kicks, calls, sleeps);
            let text = who_slept(&counters);
            assert!(text.ends_with(words), "{text}");
        }
    }

    #[test]
    fn both_kinds_of_a_mixed_run_have_a_row() {
        let text = given(&of_a_mixed_run(), report);
        let rows: Vec<_> = text.lines().map(str::trim_start).collect();
        for label in ["read ", "polled ", "by calls ", "write "] {
            assert!(
                rows.iter().any(|row| row.starts_with(label)),
                "{label}: {text}"
            );
        }
    }

    #[test]
    fn what_makes_numbers_doubtful_is_said() {
        let mut outcome = of_a_run();
        outcome.unstarted = 12;
        outcome.latencies.started(Direction::Read, 70_000);
        let text = given(&outcome, report);
        assert!(text.contains("12 requests were due"), "{text}");
        assert!(
            text.contains("started 70.0 µs (p99: 70.0 µs) after"),
            "{text}"
        );
    }

    #[test]
    fn only_what_was_verified_is_called_so() {
        for (outcome, load, is_verified) in of_verified_runs() {
            let text = given_load(load, &outcome, report);
            let words = match (is_verified, &outcome.error) {
                (true, _) => "  Verified: 7 blocks were read",
                (false, None) => "  The run was ended early: not all that was written",
                (false, Some(_)) => "  The run failed: found zeroes.",
            };
            assert!(text.contains(words), "{load}: {text}");
            let title = text.lines().next().unwrap();
            assert_eq!(title.contains("verified"), is_verified, "{load}: {text}");
            assert_eq!(text.contains("Verified"), is_verified, "{load}: {text}");
        }
    }

    #[test]
    fn a_run_without_requests_is_no_fault() {
        let text = given(&Outcome::default(), report);
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }
}
