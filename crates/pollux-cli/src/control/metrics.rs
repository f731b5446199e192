//! The counters for Prometheus: `OpenMetrics` for those that ask for it, and its older text format for all others.
//!
//! A scrape reads what is there and keeps nothing.

use std::collections::HashSet;
use std::fmt;

use pollux::stats::{Kind, Times};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use super::state::State;
use crate::disks::Served;
use crate::model::{Counters, Disk, DiskStats, QueueCounters, Worker};
use family::{counts, gauges, seconds};

mod family;
mod latency;
mod worker;

/// The media types.
pub const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
pub const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Everything at one moment.
#[derive(Debug)]
struct Moment {
    disks: Vec<(Disk, DiskStats)>,
    workers: Vec<Worker>,
    /// Of the disks of which they are counted.
    latencies: Vec<(String, Vec<(Kind, Times)>)>,
}

/// What `state` has counted, and how it is written for a client that accepts these media types.
pub fn scrape(state: &State, accepted: &str) -> (&'static str, String) {
    let both = |served: &Served| (served.disk(), served.stats());
    let latencies = |served: &Served| {
        let latencies = served.device.observation().latencies()?;
        Some((served.name.clone(), latencies))
    };
    let disks = state.disks();
    let moment = Moment {
        latencies: disks.iter().filter_map(latencies).collect(),
        disks: disks.iter().map(both).collect(),
        workers: state.workers(),
    };
    // To write it down takes longer, and needs none of them.
    drop(disks);
    let mut registry = Registry::default();
    registry.register_collector(Box::new(moment));
    let mut text = String::new();
    encode(&mut text, &registry).expect("a string takes all");
    if accepted.contains("application/openmetrics-text") {
        (OPEN_METRICS, text)
    } else {
        (TEXT, as_text(&text))
    }
}

/// The older format, where a counter's family has the name of its samples.
fn as_text(open_metrics: &str) -> String {
    let counters: HashSet<&str> = open_metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    let mut text = String::new();
    for line in open_metrics.lines().filter(|line| *line != "# EOF") {
        let words: Vec<_> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", about, name, rest] if counters.contains(name) => {
                text.extend(["# ", about, " ", name, "_total ", rest]);
            }
            _ => text.push_str(line),
        }
        text.push('\n');
    }
    text
}

/// What is counted for each queue.
type Counter = (&'static str, &'static str, fn(&Counters) -> u64);

const COUNTERS: [Counter; 10] = [
    (
        "pollux_queue_read_bytes",
        "Bytes read from the disk by requests that succeeded",
        |queue| queue.bytes_read,
    ),
    (
        "pollux_queue_written_bytes",
        "Bytes written to the disk by requests that succeeded",
        |queue| queue.bytes_written,
    ),
    (
        "pollux_queue_kicks",
        "Kicks received from the driver",
        |queue| queue.kicks,
    ),
    (
        "pollux_queue_calls_sent",
        "Calls sent to the driver",
        |queue| queue.calls_sent,
    ),
    (
        "pollux_queue_calls_suppressed",
        "Calls that the driver did not ask for",
        |queue| queue.calls_suppressed,
    ),
    (
        "pollux_queue_turns_busy",
        "Turns of the worker that found something on the queue",
        |queue| queue.turns_busy,
    ),
    (
        "pollux_queue_turns_idle",
        "Turns of the worker that found nothing on the queue",
        |queue| queue.turns_idle,
    ),
    (
        "pollux_queue_sleeps",
        "Sleeps of the worker while it served the queue",
        |queue| queue.sleeps,
    ),
    (
        "pollux_queue_peer_faults",
        "Faults of the driver, each of which ended the queue",
        |queue| queue.peer_faults,
    ),
    (
        "pollux_queue_throttled",
        "Waits for the limits of the disk",
        |queue| queue.throttled,
    ),
];

/// As those, of time in nanoseconds, which is told in seconds.
const TIMES: [Counter; 3] = [
    (
        "pollux_queue_asleep_seconds",
        "Time in sleeps of the worker",
        |queue| queue.asleep_ns,
    ),
    (
        "pollux_queue_throttled_seconds",
        "Time in waits for the limits of the disk",
        |queue| queue.throttled_ns,
    ),
    (
        "pollux_queue_disk_wait_seconds",
        "Time in which the worker had nothing to do while requests of the queue were in flight",
        |queue| queue.disk_wait_ns,
    ),
];

impl Collector for Moment {
    fn encode(&self, mut to: DescriptorEncoder) -> fmt::Result {
        let to = &mut to;
        self.disks(to)?;
        self.requests(to)?;
        for (name, help, value) in COUNTERS {
            counts(to, name, help, self.counted(value))?;
        }
        for (name, help, value) in TIMES {
            seconds(to, name, help, self.counted(value))?;
        }
        self.now(to)?;
        latency::encode(&self.latencies, to)?;
        worker::encode(&self.workers, to)
    }
}

impl Moment {
    /// All queues with their labels.
    fn queues(&self) -> impl Iterator<Item = ([(&str, String); 2], &QueueCounters)> {
        self.disks.iter().flat_map(|(disk, stats)| {
            stats.queues.iter().map(|queue| {
                let number = queue.queue.to_string();
                ([("disk", disk.name.clone()), ("queue", number)], queue)
            })
        })
    }

    fn counted(
        &self,
        value: fn(&Counters) -> u64,
    ) -> impl Iterator<Item = ([(&str, String); 2], u64)> {
        let queues = self.queues();
        queues.map(move |(labels, queue)| (labels, value(&queue.counters)))
    }

    fn disks(&self, to: &mut DescriptorEncoder) -> fmt::Result {
        let version = ([("version", env!("CARGO_PKG_VERSION"))], 1);
        gauges(to, "pollux_build_info", "Which Pollux this is", [version])?;
        let disks = || self.disks.iter().map(|(disk, _)| disk);
        let sizes = disks().map(|disk| ([("disk", &*disk.name)], disk.bytes));
        gauges(to, "pollux_disk_size_bytes", "Size of the disk", sizes)?;
        gauges(
            to,
            "pollux_disk_frontend_connected",
            "Whether a frontend is connected",
            disks().map(|disk| ([("disk", &*disk.name)], disk.frontend.is_some().into())),
        )
    }

    fn requests(&self, to: &mut DescriptorEncoder) -> fmt::Result {
        let ended = self.queues().flat_map(|(queue, counted)| {
            let by_name = counted.counters.requests.by_name().into_iter();
            by_name.flat_map(move |(op, outcomes)| {
                let labels = |result| {
                    let [disk, queue] = queue.clone();
                    [disk, queue, ("op", op.to_owned()), ("result", result)]
                };
                [
                    (labels("ok".to_owned()), outcomes.ok),
                    (labels("error".to_owned()), outcomes.error),
                    (labels("unsupported".to_owned()), outcomes.unsupported),
                ]
            })
        });
        counts(
            to,
            "pollux_queue_requests",
            "Requests that ended, by what they asked for and how they ended",
            ended,
        )
    }

    /// What is not counted, but holds now; and what the disks count themselves.
    fn now(&self, to: &mut DescriptorEncoder) -> fmt::Result {
        gauges(
            to,
            "pollux_queue_requests_in_flight",
            "Requests that have begun and not ended, as of the last turn of the worker",
            self.queues()
                .map(|(labels, queue)| (labels, queue.in_flight)),
        )?;
        gauges(
            to,
            "pollux_queue_worker_info",
            "Which worker serves the queue, or served it last",
            self.queues().map(|([disk, number], queue)| {
                let worker = ("worker", queue.worker.to_string());
                ([disk, number, worker], 1)
            }),
        )?;
        let limits = self.disks.iter().flat_map(|(disk, _)| {
            let limits = disk.limits.by_word().into_iter();
            limits.map(|(limit, number)| ([("disk", disk.name.clone()), ("limit", limit)], number))
        });
        gauges(
            to,
            "pollux_disk_limit",
            "Requests or bytes a second that the disk may have, and how many at once (-max)",
            limits,
        )?;
        let operations = self.disks.iter().flat_map(|(disk, stats)| {
            let counted = stats.disk.iter();
            counted.map(|of| ([("disk", &*disk.name), ("operation", &*of.name)], of.count))
        });
        counts(
            to,
            "pollux_disk_operations",
            "What the disk itself counts, such as the ways that requests went",
            operations,
        )
    }
}
