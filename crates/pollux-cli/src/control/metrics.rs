//! The counters for Prometheus: `OpenMetrics` for those that ask for it, and its older text format for all others.
//!
//! A scrape reads what is there and keeps nothing.

use std::collections::HashSet;
use std::fmt;

use pollux::stats::{Kind, Times};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeGaugeValue, EncodeLabelSet, EncodeMetric, MetricEncoder,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::model::{Counters, Disk, DiskStats, Worker};
use super::state::{Served, State};

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
        self.disks(&mut to)?;
        self.requests(&mut to)?;
        for (name, help, value) in COUNTERS {
            let mut metric = to.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (labels, counters) in self.queues() {
                count(&mut metric, &labels, value(counters))?;
            }
        }
        for (name, help, value) in TIMES {
            let mut metric = to.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (labels, counters) in self.queues() {
                count_seconds(&mut metric, &labels, value(counters))?;
            }
        }
        self.in_flight(&mut to)?;
        self.limits(&mut to)?;
        self.of_the_disk(&mut to)?;
        latency::encode(&self.latencies, &mut to)?;
        worker::encode(&self.workers, &mut to)
    }
}

impl Moment {
    fn queues(&self) -> impl Iterator<Item = ([(&str, String); 2], &Counters)> {
        self.disks.iter().flat_map(|(disk, stats)| {
            stats.queues.iter().map(|queue| {
                let labels = [
                    ("disk", disk.name.clone()),
                    ("queue", queue.queue.to_string()),
                ];
                (labels, &queue.counters)
            })
        })
    }

    fn disks(&self, to: &mut DescriptorEncoder) -> fmt::Result {
        let name = "pollux_build_info";
        let mut metric =
            to.encode_descriptor(name, "Which Pollux this is", None, MetricType::Gauge)?;
        gauge(&mut metric, &[("version", env!("CARGO_PKG_VERSION"))], 1u32)?;
        let name = "pollux_disk_size_bytes";
        let mut metric = to.encode_descriptor(name, "Size of the disk", None, MetricType::Gauge)?;
        for (disk, _) in &self.disks {
            gauge(&mut metric, &[("disk", &*disk.name)], size(disk.bytes))?;
        }
        let (name, help) = (
            "pollux_disk_frontend_connected",
            "Whether a frontend is connected",
        );
        let mut metric = to.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (disk, _) in &self.disks {
            let connected = u32::from(disk.frontend.is_some());
            gauge(&mut metric, &[("disk", &*disk.name)], connected)?;
        }
        Ok(())
    }

    fn in_flight(&self, to: &mut DescriptorEncoder) -> fmt::Result {
        let name = "pollux_queue_requests_in_flight";
        let help = "Requests that have begun and not ended, as of the last turn of the worker";
        let mut metric = to.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (disk, stats) in &self.disks {
            for queue in &stats.queues {
                let labels = [
                    ("disk", disk.name.clone()),
                    ("queue", queue.queue.to_string()),
                ];
                gauge(&mut metric, &labels, size(queue.in_flight))?;
            }
        }
        let name = "pollux_queue_worker_info";
        let help = "Which worker serves the queue, or served it last";
        let mut metric = to.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (disk, stats) in &self.disks {
            for queue in &stats.queues {
                let labels = [
                    ("disk", disk.name.clone()),
                    ("queue", queue.queue.to_string()),
                    ("worker", queue.worker.to_string()),
                ];
                gauge(&mut metric, &labels, 1u32)?;
            }
        }
        Ok(())
    }

    fn limits(&self, to: &mut DescriptorEncoder) -> fmt::Result {
        let (name, help) = (
            "pollux_disk_limit",
            "Requests or bytes a second that the disk may have, and how many at once (-max)",
        );
        let mut metric = to.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (disk, _) in &self.disks {
            for (limit, number) in disk.limits.by_word() {
                let labels = [("disk", &*disk.name), ("limit", &*limit)];
                gauge(&mut metric, &labels, size(number))?;
            }
        }
        Ok(())
    }

    fn requests(&self, to: &mut DescriptorEncoder) -> fmt::Result {
        let (name, help) = (
            "pollux_queue_requests",
            "Requests that ended, by what they asked for and how they ended",
        );
        let mut metric = to.encode_descriptor(name, help, None, MetricType::Counter)?;
        for ([disk, queue], counters) in self.queues() {
            for (op, outcomes) in counters.requests.by_name() {
                let each = [
                    ("ok", outcomes.ok),
                    ("error", outcomes.error),
                    ("unsupported", outcomes.unsupported),
                ];
                for (result, ended) in each {
                    let labels = [
                        disk.clone(),
                        queue.clone(),
                        ("op", op.to_owned()),
                        ("result", result.to_owned()),
                    ];
                    count(&mut metric, &labels, ended)?;
                }
            }
        }
        Ok(())
    }

    fn of_the_disk(&self, to: &mut DescriptorEncoder) -> fmt::Result {
        let (name, help) = (
            "pollux_disk_operations",
            "What the disk itself counts, such as the ways that requests went",
        );
        let mut metric = to.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (disk, stats) in &self.disks {
            for counted in &stats.disk {
                let labels = [("disk", &*disk.name), ("operation", &*counted.name)];
                count(&mut metric, &labels, counted.count)?;
            }
        }
        Ok(())
    }
}

fn count(metric: &mut MetricEncoder, labels: &impl EncodeLabelSet, value: u64) -> fmt::Result {
    ConstCounter::new(value).encode(metric.encode_family(labels)?)
}

/// Seconds are what Prometheus counts time in.
fn count_seconds(
    metric: &mut MetricEncoder,
    labels: &impl EncodeLabelSet,
    nanoseconds: u64,
) -> fmt::Result {
    let seconds = std::time::Duration::from_nanos(nanoseconds).as_secs_f64();
    ConstCounter::new(seconds).encode(metric.encode_family(labels)?)
}

/// A gauge has a sign.
fn size(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn gauge(
    metric: &mut MetricEncoder,
    labels: &impl EncodeLabelSet,
    value: impl EncodeGaugeValue,
) -> fmt::Result {
    ConstGauge::new(value).encode(metric.encode_family(labels)?)
}
