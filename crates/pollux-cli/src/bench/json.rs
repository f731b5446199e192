//! The report as fio's `--output-format=json` has it, and an object `pollux` for the rest.

use std::time::Duration;

use pollux::driver::{Counters, LockTimes};
use pollux_load::Histogram;
use serde_json::{Map, Value, json};

use super::options::name;
use super::report::{PERCENTILES, Report};
use crate::units::{float, per, rate, ratio, us_per};
use pollux_load::{Direction, Split};

/// The report of a run. Other than with fio, `jobs` has one entry, for all jobs together.
pub fn report(report: &Report<'_>) -> Value {
    let outcome = report.outcome;
    let (client, elapsed) = (outcome.client, report.elapsed());
    let percent = |time: Duration| {
        let all = elapsed.as_secs_f64() * f64::from(report.plan.jobs);
        ratio(100.0 * time.as_secs_f64(), all)
    };
    let error = outcome.error.as_ref();
    json!({
        // Programs that read fio's reports know one by this key.
        "fio version": concat!("pollux-", env!("CARGO_PKG_VERSION")),
        "jobs": [{
            "jobname": name(report.args.rw),
            "groupid": 0,
            "error": i32::from(error.is_some()),
            "elapsed": elapsed.as_secs(),
            "job options": options(report),
            "read": side(report, Direction::Read),
            "write": side(report, Direction::Write),
            "job_runtime": milliseconds(elapsed),
            "usr_cpu": percent(client.user),
            "sys_cpu": percent(client.system),
            "ctx": client.switches,
        }],
        "pollux": pollux(report),
    })
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn options(report: &Report<'_>) -> Value {
    let (args, plan) = (report.args, report.plan);
    let mut options = Map::new();
    let mut put = |key: &str, value: Option<String>| {
        options.extend(value.map(|value| (key.to_owned(), Value::from(value))));
    };
    put(
        "socket",
        args.socket.as_ref().map(|path| path.display().to_string()),
    );
    put("disk", args.spec().ok().flatten());
    put("rw", Some(name(args.rw)));
    put("rwmixread", Some(plan.reads.to_string()));
    put("bs", Some(args.bs.to_string()));
    put("iodepth", Some(plan.depth.to_string()));
    put("numjobs", Some(plan.jobs.to_string()));
    put("runtime", Some(format!("{}ms", plan.runtime.as_millis())));
    let ramp = plan.ramp_time.as_millis();
    put("ramp_time", (ramp > 0).then(|| format!("{ramp}ms")));
    put("size", args.size.map(|size| size.to_string()));
    put("rate_iops", plan.rate.map(|rate| rate.to_string()));
    put(
        "hipri_percent",
        args.hipri_percent.map(|percent| percent.to_string()),
    );
    put(
        "completion",
        (!plan.is_mixed()).then(|| name(args.completion)),
    );
    put("verify", args.verify.map(name));
    put("cpus", args.process.cpus.clone());
    put("share_queue", args.share_queue.then(|| "1".to_owned()));
    put("kick_lock", args.kick_lock.map(name));
    Value::Object(options)
}

/// `read` or `write` of a job.
fn side(report: &Report<'_>, direction: Direction) -> Value {
    let (side, elapsed) = (report.side(direction), report.elapsed());
    let bandwidth = whole(rate(side.bytes, elapsed));
    json!({
        "io_bytes": side.bytes,
        "io_kbytes": side.bytes >> 10,
        "bw_bytes": bandwidth,
        "bw": bandwidth >> 10,
        "iops": rate(side.requests, elapsed),
        "runtime": milliseconds(elapsed),
        "total_ios": side.requests,
        "short_ios": 0,
        "drop_ios": 0,
        // How late a request was started, where it was due at a time; a part of its latency.
        "slat_ns": distribution(&side.late),
        "clat_ns": with_percentiles(&side.latency),
        "lat_ns": distribution(&side.latency),
    })
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is not negative, and beyond 2^64 a second there is nothing to measure"
)]
fn whole(rate: f64) -> u64 {
    rate.round() as u64
}

fn distribution(times: &Histogram) -> Value {
    json!({
        "min": if times.is_empty() { 0 } else { times.min() },
        "max": times.max(),
        "mean": times.mean(),
        "stddev": times.stdev(),
        "N": times.len(),
    })
}

fn with_percentiles(times: &Histogram) -> Value {
    let entry = |percentile: &f64| {
        let time = times.value_at_percentile(*percentile);
        (format!("{percentile:.6}"), Value::from(time))
    };
    let mut object = distribution(times);
    object["percentile"] = Value::Object(PERCENTILES.iter().map(entry).collect());
    object
}

/// What fio cannot know.
fn pollux(report: &Report<'_>) -> Value {
    let (outcome, requests) = (report.outcome, report.requests());
    let counters = outcome.counters;
    let each = |count| per(count, requests);
    let mut object = json!({
        "kicks": counters.kicks,
        "calls": counters.calls,
        "polls": counters.polls,
        "empty_polls": counters.empty_polls,
        "sleeps": counters.sleeps,
        "kicks_per_io": each(counters.kicks),
        "calls_per_io": each(counters.calls),
        "polls_per_io": each(counters.polls),
        "empty_polls_per_io": each(counters.empty_polls),
        "sleeps_per_io": each(counters.sleeps),
        "cpu_us_per_io": {
            "client": us_per(outcome.client.total, requests),
            // Null where it is not known.
            "server": outcome.server.map(|time| us_per(time, requests)),
        },
        "unstarted": outcome.unstarted,
        // Null without --verify.
        "verified": report.plan.verify.then(|| report.is_verified()),
        "blocks_verified": outcome.checked,
        "error": outcome.error.as_ref().map(|error| crate::log::chain(error)),
        "lock": outcome.lock.as_ref().map(|times| lock(times, &counters, requests)),
    });
    if report.plan.is_mixed() {
        object["read"] = split(&outcome.latencies.read);
        object["write"] = split(&outcome.latencies.write);
    }
    object
}

/// Polled requests and the others.
fn split(times: &Split) -> Value {
    let kind =
        |times: &Histogram| json!({ "total_ios": times.len(), "clat_ns": with_percentiles(times) });
    json!({ "polled": kind(&times.polled), "call": kind(&times.called) })
}

fn lock(times: &LockTimes, counters: &Counters, requests: u64) -> Value {
    let kind = |times: &Histogram| {
        let sum = times.mean() * float(times.len());
        let mut object = with_percentiles(times);
        object["ns_per_io"] = json!(ratio(sum, float(requests)));
        object
    };
    json!({
        "hold_ns": kind(&times.hold),
        "wait_ns": kind(&times.wait),
        "preempted": times.preempted,
        "kicks_under_lock": counters.kicks_under_lock,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::tests::{
        given, given_load, of_a_mixed_run, of_a_run, of_verified_runs,
    };

    #[test]
    fn fios_fields_are_where_fio_has_them() {
        let report = given(&of_a_run(), report);
        let job = &report["jobs"][0];
        assert_eq!(job["jobname"], "randread");
        assert_eq!(job["error"], 0);
        assert_eq!(job["job options"]["iodepth"], "16");
        let read = &job["read"];
        assert_eq!(read["iops"], 500.0);
        assert_eq!(read["total_ios"], 1000);
        assert_eq!(read["io_bytes"], 4096 * 1000);
        assert_eq!(read["bw_bytes"], 4096 * 500);
        assert_eq!(read["bw"], 4 * 500);
        assert_eq!(read["runtime"], 2000);
        assert_eq!(read["clat_ns"]["N"], 1000);
        for percentile in [
            "1.000000",
            "50.000000",
            "99.000000",
            "99.900000",
            "99.990000",
        ] {
            let time = read["clat_ns"]["percentile"][percentile].as_u64().unwrap();
            assert!((19_980..=20_020).contains(&time), "{percentile}: {time}");
        }
        assert_eq!(job["write"]["total_ios"], 0);
        assert_eq!(job["write"]["clat_ns"]["min"], 0);
    }

    #[test]
    fn what_fio_cannot_know_is_in_an_object_of_its_own() {
        let report = given(&of_a_run(), report);
        let pollux = &report["pollux"];
        assert_eq!(pollux["kicks"], 500);
        assert_eq!(pollux["kicks_per_io"], 0.5);
        assert_eq!(pollux["polls_per_io"], 3.0);
        assert_eq!(pollux["cpu_us_per_io"]["client"], 2.0);
        assert!(pollux["cpu_us_per_io"]["server"].is_null());
        assert!(pollux["lock"].is_null() && pollux["error"].is_null());
        assert!(pollux.get("read").is_none());
    }

    #[test]
    fn polled_requests_and_the_others_are_told_apart() {
        let report = given(&of_a_mixed_run(), report);
        let read = &report["pollux"]["read"];
        assert_eq!(read["polled"]["total_ios"], 1000);
        assert_eq!(read["call"]["clat_ns"]["N"], 1);
        assert_eq!(report["pollux"]["write"]["call"]["total_ios"], 1);
        assert_eq!(report["jobs"][0]["read"]["total_ios"], 1001);
    }

    #[test]
    fn only_what_was_verified_is_called_so() {
        for (outcome, load, is_verified) in of_verified_runs() {
            let report = given_load(load, &outcome, report);
            assert_eq!(report["pollux"]["verified"], is_verified, "{load}");
        }
        let report = given(&of_a_run(), report);
        assert!(report["pollux"]["verified"].is_null());
    }

    #[test]
    fn a_run_without_requests_is_json_all_the_same() {
        let report = given(&crate::bench::run::Outcome::default(), report);
        assert_eq!(report["jobs"][0]["read"]["iops"], 0.0);
        assert_eq!(report["pollux"]["kicks_per_io"], 0.0);
    }
}
