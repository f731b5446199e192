//! The counters of workers.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;

use super::family::{counts, seconds};
use crate::model::Worker;

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
        |worker| Some(worker.working_ns),
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
    let samples = |value: fn(&Worker) -> Option<u64>| {
        workers.iter().filter_map(move |worker| {
            Some(([("worker", worker.number.to_string())], value(worker)?))
        })
    };
    for (name, help, value) in TIMES {
        seconds(to, name, help, samples(value))?;
    }
    for (name, help, value) in COUNTERS {
        counts(to, name, help, samples(value))?;
    }
    Ok(())
}
