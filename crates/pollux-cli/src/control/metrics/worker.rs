//! The counters of workers.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;

use super::{count, count_seconds};
use crate::control::model::Worker;

type Counter = (&'static str, &'static str, fn(&Worker) -> Option<u64>);

/// Of time, in nanoseconds.
const TIMES: [Counter; 4] = [
    (
        "pollux_worker_cpu_seconds",
        "Processor time that the worker has used, for work and polling",
        |worker| worker.cpu_ns,
    ),
    (
        "pollux_worker_asleep_seconds",
        "Time that the worker slept",
        |worker| Some(worker.asleep_ns),
    ),
    (
        "pollux_worker_polling_seconds",
        "Time of polls of the worker that found nothing",
        |worker| Some(worker.polling_ns),
    ),
    (
        "pollux_worker_working_seconds",
        "Time that the worker worked, or waited for its processor",
        |worker| Some(worker.working_ns()),
    ),
];

const COUNTERS: [Counter; 2] = [
    ("pollux_worker_sleeps", "Sleeps of the worker", |worker| {
        Some(worker.sleeps)
    }),
    (
        "pollux_worker_turns",
        "Turns of the loop of the worker",
        |worker| Some(worker.turns),
    ),
];

/// Writes them all.
pub fn encode(workers: &[Worker], to: &mut DescriptorEncoder) -> fmt::Result {
    let times = TIMES.map(|time| (time, true));
    let counters = COUNTERS.map(|counter| (counter, false));
    for ((name, help, value), is_time) in times.into_iter().chain(counters) {
        let mut metric = to.encode_descriptor(name, help, None, MetricType::Counter)?;
        for worker in workers {
            let labels = [("worker", worker.number.to_string())];
            match value(worker) {
                Some(ns) if is_time => count_seconds(&mut metric, &labels, ns)?,
                Some(value) => count(&mut metric, &labels, value)?,
                None => {}
            }
        }
    }
    Ok(())
}
