//! What has happened between two samples.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::sample::{Daemon, Sample};
use super::verdict::{QueueTime, Verdict, WorkerTime, judge};
use crate::control::command::lossy;
use crate::model::{Counters, Disk, DiskStats, Latency, Outcomes, QueueCounters, Worker};

/// Everything, over the time between two samples.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Rates {
    pub disks: Vec<DiskRates>,
    pub workers: Vec<WorkerRates>,
    /// Daemons that did not answer, and why.
    pub failed: Vec<String>,
}

/// One disk.
#[derive(Clone, Debug, Serialize)]
pub struct DiskRates {
    #[serde(serialize_with = "lossy")]
    pub control: PathBuf,
    pub name: String,
    pub seconds: f64,
    pub connected: bool,
    pub latencies: bool,
    pub iops: f64,
    pub read_bytes_per_second: f64,
    pub written_bytes_per_second: f64,
    pub errors_per_second: f64,
    /// Of all kinds of requests together; null where they are not counted, or there were none.
    pub p50_ns: Option<u64>,
    pub p99_ns: Option<u64>,
    /// How many requests were in the device: the mean where their times are counted, else how many were in flight in
    /// the end.
    pub depth: f64,
    pub kicks_per_io: Option<f64>,
    pub calls_per_io: Option<f64>,
    pub sleeps_per_io: Option<f64>,
    pub bottleneck: Verdict,
    pub ops: Vec<OpRates>,
    pub queues: Vec<QueueRates>,
    /// What the disk itself counts, a second.
    pub disk: Vec<(String, f64)>,
    pub limits: Vec<(String, u64)>,
}

/// Requests of one kind.
#[derive(Clone, Debug, Serialize)]
pub struct OpRates {
    pub op: &'static str,
    pub iops: f64,
    pub p50_ns: Option<u64>,
    pub p99_ns: Option<u64>,
}

/// One queue.
#[derive(Clone, Debug, Serialize)]
pub struct QueueRates {
    pub queue: usize,
    pub worker: u64,
    pub iops: f64,
    pub in_flight: u64,
    pub kicks_per_second: f64,
    pub calls_per_second: f64,
}

/// One worker. Shares are of the time, from 0 to 1.
#[derive(Clone, Debug, Serialize)]
pub struct WorkerRates {
    #[serde(serialize_with = "lossy")]
    pub control: PathBuf,
    pub number: usize,
    pub working: f64,
    pub polling: f64,
    pub asleep: f64,
    /// Of its processor.
    pub cpu: Option<f64>,
    pub sleeps_per_second: f64,
    pub turns_per_second: f64,
}

/// What has happened from one sample to the next. What is only in one of them is left out.
pub fn between(before: &Sample, after: &Sample) -> Rates {
    let mut rates = Rates {
        failed: after.failed.clone(),
        ..Rates::default()
    };
    for now in &after.daemons {
        let was = before.daemons.iter().find(|was| was.control == now.control);
        if let Some(was) = was {
            rates.of_daemon(was, now);
        }
    }
    rates
}

impl Rates {
    /// Do all workers belong to one daemon?
    pub fn is_of_one_daemon(&self) -> bool {
        let mut controls = self.workers.iter().map(|worker| &worker.control);
        let first = controls.next();
        controls.all(|control| Some(control) == first)
    }

    fn of_daemon(&mut self, was: &Daemon, now: &Daemon) {
        let seconds = now.at.saturating_duration_since(was.at).as_secs_f64();
        // A daemon that was started anew has counters of its own.
        let restarted = was.workers.iter().zip(&now.workers);
        let mut restarted = restarted.map(|(was, now)| now.age_ns < was.age_ns);
        if seconds <= 0.0 || restarted.any(|restarted| restarted) {
            return;
        }
        let workers: Vec<_> = was.workers.iter().zip(&now.workers).collect();
        let times: Vec<_> = workers.iter().map(|(was, now)| time(was, now)).collect();
        for (disk, stats) in &now.disks {
            let before = was.disks.iter().find(|(_, was)| was.name == stats.name);
            if let Some((_, before)) = before {
                let rates = of_disk(&now.control, disk, (before, stats), seconds, &times);
                self.disks.push(rates);
            }
        }
        for ((was, now_), time) in workers.iter().zip(&times) {
            self.workers.push(WorkerRates {
                control: now.control.clone(),
                number: now_.number,
                working: time.working,
                polling: time.polling,
                asleep: (1.0 - time.working - time.polling).max(0.0),
                cpu: time.cpu,
                sleeps_per_second: per(now_.sleeps, was.sleeps, seconds),
                turns_per_second: per(now_.turns, was.turns, seconds),
            });
        }
    }
}

fn time(was: &Worker, now: &Worker) -> WorkerTime {
    let of = |now: u64, was: u64| now.saturating_sub(was);
    let passed = of(now.age_ns, was.age_ns);
    let cpu = now.cpu_ns.zip(was.cpu_ns).map(|(now, was)| of(now, was));
    WorkerTime {
        number: now.number,
        working: share(of(now.working_ns, was.working_ns), passed),
        polling: share(of(now.polling_ns, was.polling_ns), passed),
        cpu: cpu.map(|cpu| share(cpu, passed)),
    }
}

fn of_disk(
    control: &Path,
    disk: &Disk,
    (was, now): (&DiskStats, &DiskStats),
    seconds: f64,
    workers: &[WorkerTime],
) -> DiskRates {
    let (total, before) = (&now.total, &was.total);
    let ios = requests(total).saturating_sub(requests(before));
    let per_io = |now: u64, was: u64| (ios > 0).then(|| ratio(now.saturating_sub(was), ios));
    let rate = |now: u64, was: u64| per(now, was, seconds);
    let latencies = since(was.latencies.as_deref(), now.latencies.as_deref());
    let all = latencies.values().flatten();
    let in_flight: u64 = now.queues.iter().map(|queue| queue.in_flight).sum();
    let busy_ns: u64 = sums(now).saturating_sub(sums(was));
    let queues: Vec<_> = now
        .queues
        .iter()
        .map(|queue| (of_queue(was, queue), queue))
        .collect();
    let times: Vec<_> = queues
        .iter()
        .map(|(was, now)| queue_time(was.as_ref(), now, seconds))
        .collect();
    DiskRates {
        control: control.to_owned(),
        name: now.name.clone(),
        seconds,
        connected: disk.frontend.is_some(),
        latencies: disk.latencies,
        iops: per(ios, 0, seconds),
        read_bytes_per_second: rate(total.bytes_read, before.bytes_read),
        written_bytes_per_second: rate(total.bytes_written, before.bytes_written),
        errors_per_second: rate(errors(total), errors(before)),
        p50_ns: quantile(all.clone(), 0.5),
        p99_ns: quantile(all, 0.99),
        depth: if disk.latencies {
            ratio(busy_ns, 1_000_000_000) / seconds
        } else {
            ratio(in_flight, 1)
        },
        kicks_per_io: per_io(total.kicks, before.kicks),
        calls_per_io: per_io(total.calls_sent, before.calls_sent),
        sleeps_per_io: per_io(total.sleeps, before.sleeps),
        bottleneck: judge(&times, workers, &disk.limits.by_word()),
        ops: ops(before, total, &latencies, seconds),
        queues: queues
            .iter()
            .map(|(was, now)| queue_rates(was.as_ref(), now, seconds))
            .collect(),
        disk: now
            .disk
            .iter()
            .map(|count| {
                let was = was.disk.iter().find(|was| was.name == count.name);
                let was = was.map_or(0, |was| was.count);
                (count.name.clone(), rate(count.count, was))
            })
            .collect(),
        limits: disk.limits.by_word(),
    }
}

fn of_queue(was: &DiskStats, now: &QueueCounters) -> Option<QueueCounters> {
    let was = was.queues.iter().find(|was| was.queue == now.queue);
    was.cloned()
}

fn queue_time(was: Option<&QueueCounters>, now: &QueueCounters, seconds: f64) -> QueueTime {
    let of = |value: fn(&Counters) -> u64| {
        let was = was.map_or(0, |was| value(&was.counters));
        value(&now.counters).saturating_sub(was)
    };
    let of_time = |ns: u64| (ratio(ns, 1_000_000_000) / seconds).min(1.0);
    QueueTime {
        worker: usize::try_from(now.worker).unwrap_or(usize::MAX),
        requests: of(requests),
        throttled: of_time(of(|counters| counters.throttled_ns)),
        disk: of_time(of(|counters| counters.disk_wait_ns)),
        in_flight: now.in_flight,
        was_in_flight: was.map_or(0, |was| was.in_flight),
        batch: {
            let turns = of(|counters| counters.turns_busy);
            (turns > 0).then(|| ratio(of(requests), turns))
        },
        kicks: of(|counters| counters.kicks),
    }
}

fn queue_rates(was: Option<&QueueCounters>, now: &QueueCounters, seconds: f64) -> QueueRates {
    let of = |value: fn(&Counters) -> u64| {
        let was = was.map_or(0, |was| value(&was.counters));
        per(value(&now.counters), was, seconds)
    };
    QueueRates {
        queue: now.queue,
        worker: now.worker,
        iops: of(requests),
        in_flight: now.in_flight,
        kicks_per_second: of(|counters| counters.kicks),
        calls_per_second: of(|counters| counters.calls_sent),
    }
}

type Buckets = BTreeMap<u64, u64>;

/// The times of requests that ended since, by kind. What lasts longer than can be told is told as `u64::MAX`.
fn since(was: Option<&[Latency]>, now: Option<&[Latency]>) -> BTreeMap<String, Buckets> {
    let mut counted = BTreeMap::new();
    for latency in now.into_iter().flatten() {
        let buckets = latency.buckets.iter();
        let mut here: Buckets = buckets
            .map(|bucket| (bucket.to_ns.unwrap_or(u64::MAX), bucket.count))
            .collect();
        let was = was.into_iter().flatten().find(|was| was.op == latency.op);
        // Counted anew since, there are fewer than there were.
        let was = was.filter(|was| was.count <= latency.count);
        for bucket in was.into_iter().flat_map(|was| &was.buckets) {
            if let Some(count) = here.get_mut(&bucket.to_ns.unwrap_or(u64::MAX)) {
                *count = count.saturating_sub(bucket.count);
            }
        }
        counted.insert(latency.op.clone(), here);
    }
    counted
}

/// The time that a share of the requests did not exceed; that of their bucket.
fn quantile<'a>(buckets: impl Iterator<Item = (&'a u64, &'a u64)>, share: f64) -> Option<u64> {
    let mut together = Buckets::new();
    for (to, count) in buckets {
        *together.entry(*to).or_default() += count;
    }
    let count: u64 = together.values().sum();
    let mut seen = 0;
    let found = together.into_iter().find(|(_, here)| {
        seen += here;
        *here > 0 && ratio(seen, count) >= share
    });
    found.map(|(to, _)| to)
}

fn ops(
    was: &Counters,
    now: &Counters,
    latencies: &BTreeMap<String, Buckets>,
    seconds: f64,
) -> Vec<OpRates> {
    let before = was.requests.by_name();
    let both = now.requests.by_name().into_iter().zip(before);
    let rates = both.map(|((op, now), (_, was))| {
        let of = |share| quantile(latencies.get(op)?.iter(), share);
        OpRates {
            op,
            iops: per(now.total(), was.total(), seconds),
            p50_ns: of(0.5),
            p99_ns: of(0.99),
        }
    });
    rates.filter(|op| op.iops > 0.0).collect()
}

fn sums(stats: &DiskStats) -> u64 {
    let latencies = stats.latencies.iter().flatten();
    latencies.map(|latency| latency.sum_ns).sum()
}

fn requests(counters: &Counters) -> u64 {
    counters.requests.all().iter().map(Outcomes::total).sum()
}

fn errors(counters: &Counters) -> u64 {
    let all = counters.requests.all();
    all.iter().map(|of| of.error + of.unsupported).sum()
}

fn per(now: u64, was: u64, seconds: f64) -> f64 {
    ratio(now.saturating_sub(was), 1) / seconds
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    ratio(part, whole).min(1.0)
}

#[allow(
    clippy::cast_precision_loss,
    reason = "15 digits are enough for a ratio"
)]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_the_bound_of_its_bucket() {
        let buckets = Buckets::from([(10, 50), (20, 49), (u64::MAX, 1)]);
        let at = |share| quantile(buckets.iter(), share);
        assert_eq!(
            (at(0.5), at(0.99), at(1.0)),
            (Some(10), Some(20), Some(u64::MAX))
        );
        assert_eq!(quantile(Buckets::from([(10, 0)]).iter(), 0.5), None);
    }

    #[test]
    fn times_are_those_since_the_sample_before() {
        let latency = |counts: &[(u64, u64)]| Latency {
            op: "read".to_owned(),
            count: counts.iter().map(|(_, count)| count).sum(),
            sum_ns: 0,
            buckets: counts
                .iter()
                .map(|(to, count)| crate::model::Bucket {
                    to_ns: Some(*to),
                    count: *count,
                })
                .collect(),
        };
        let (was, now) = ([latency(&[(10, 5)])], [latency(&[(10, 7), (20, 1)])]);
        let counted = since(Some(&was), Some(&now));
        assert_eq!(counted["read"], Buckets::from([(10, 2), (20, 1)]));
        // Switched off and on again.
        let anew = [latency(&[(20, 1)])];
        assert_eq!(
            since(Some(&was), Some(&anew))["read"],
            Buckets::from([(20, 1)])
        );
        assert!(since(Some(&was), None).is_empty());
    }
}
