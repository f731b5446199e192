//! Why a disk is not faster.
//!
//! At any moment one of four keeps a queue from going on: its limit, its worker, which works; its disk, which has all
//! that was sent; or its guest, which sends nothing more. (A request that has yet to wake up the worker is not seen, so
//! that time is the guest's as well.) The one with the largest share of the time is the
//! bottleneck.

use serde::Serialize;

use super::text::percent;

/// What a queue did with its time. Shares are from 0 to 1.
#[derive(Clone, Copy, Debug, Default)]
pub struct QueueTime {
    /// The number of the worker that serves it.
    pub worker: usize,
    /// How many of its requests ended.
    pub requests: u64,
    /// The share in which it waited for tokens.
    pub throttled: f64,
    /// The share in which its worker had nothing to do while its disk had requests.
    pub disk: f64,
    /// How many requests were in flight in the end.
    pub in_flight: u64,
    /// And in the beginning.
    pub was_in_flight: u64,
    /// How many requests a turn that found any has found.
    pub batch: Option<f64>,
    /// How often its guest kicked, which wakes up its worker.
    pub kicks: u64,
}

/// What a worker did with its time, in shares of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct WorkerTime {
    pub number: usize,
    /// It worked, or waited for its processor.
    pub working: f64,
    /// Its polls were empty.
    pub polling: f64,
    /// It had its processor.
    pub cpu: Option<f64>,
}

/// What keeps a disk from being faster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Bottleneck {
    /// There is nothing to do.
    Idle,
    /// It sends no more.
    Guest,
    /// It is busy.
    Worker,
    /// The disk itself.
    Engine,
    /// It is set.
    Limit,
}

/// The share of the time for which each does, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Shares {
    pub guest: f64,
    pub worker: f64,
    pub engine: f64,
    pub limit: f64,
}

/// Which it is, and the evidence.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    pub which: Bottleneck,
    pub shares: Shares,
    pub why: String,
}

impl Bottleneck {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Guest => "guest",
            Self::Worker => "worker",
            Self::Engine => "engine",
            Self::Limit => "limit",
        }
    }
}

/// Judges a disk by its queues, their workers, and its limits.
pub fn judge(queues: &[QueueTime], workers: &[WorkerTime], limits: &[(String, u64)]) -> Verdict {
    let (mut shares, mut weights) = (Shares::default(), 0.0);
    for queue in queues.iter().filter(|queue| queue.is_used()) {
        let weight = queue.weight();
        let of = queue.shares(workers);
        shares.guest += weight * of.guest;
        shares.worker += weight * of.worker;
        shares.engine += weight * of.engine;
        shares.limit += weight * of.limit;
        weights += weight;
    }
    if weights == 0.0 {
        return Verdict {
            which: Bottleneck::Idle,
            shares: Shares::default(),
            why: "no requests came".to_owned(),
        };
    }
    for share in [
        &mut shares.guest,
        &mut shares.worker,
        &mut shares.engine,
        &mut shares.limit,
    ] {
        *share /= weights;
    }
    let which = shares.largest();
    let why = match which {
        Bottleneck::Limit => of_limit(shares.limit, limits),
        Bottleneck::Engine => of_engine(shares.engine, queues),
        Bottleneck::Worker => of_worker(shares.worker, queues, workers),
        Bottleneck::Guest | Bottleneck::Idle => of_guest(shares.guest, queues),
    };
    Verdict { which, shares, why }
}

impl Shares {
    fn largest(&self) -> Bottleneck {
        let all = [
            (Bottleneck::Limit, self.limit),
            (Bottleneck::Engine, self.engine),
            (Bottleneck::Worker, self.worker),
            (Bottleneck::Guest, self.guest),
        ];
        let largest = all
            .into_iter()
            .max_by(|one, other| one.1.total_cmp(&other.1));
        largest.map_or(Bottleneck::Idle, |(which, _)| which)
    }
}

impl QueueTime {
    fn is_used(&self) -> bool {
        self.requests > 0 || self.is_stuck() || self.throttled > 0.0 || self.disk > 0.0
    }

    /// Nothing has ended of what was in flight.
    fn is_stuck(&self) -> bool {
        self.requests == 0 && self.in_flight > 0 && self.was_in_flight > 0
    }

    /// Queues count by what they have done.
    #[allow(clippy::cast_precision_loss, reason = "it is a weight")]
    fn weight(&self) -> f64 {
        self.requests.max(1) as f64
    }

    fn shares(&self, workers: &[WorkerTime]) -> Shares {
        let worker = workers.iter().find(|worker| worker.number == self.worker);
        let worker = worker.map_or(0.0, |worker| worker.working);
        let rest = 1.0 - worker;
        let limit = self.throttled.min(rest);
        let rest = rest - limit;
        let engine = self.disk.min(rest);
        Shares {
            guest: rest - engine,
            worker,
            engine,
            limit,
        }
    }
}

fn of_limit(share: f64, limits: &[(String, u64)]) -> String {
    let limits: Vec<_> = limits
        .iter()
        .map(|(limit, number)| format!("{limit}={number}"))
        .collect();
    let share = percent(share);
    let limits = if limits.is_empty() {
        "they were lifted since".to_owned()
    } else {
        limits.join(",")
    };
    format!("{share} of the time requests waited for the disk's limits: {limits}")
}

fn of_engine(share: f64, queues: &[QueueTime]) -> String {
    let in_flight: u64 = queues.iter().map(|queue| queue.in_flight).sum();
    if queues.iter().any(QueueTime::is_stuck) {
        return format!("of {in_flight} requests in flight the disk has ended none");
    }
    let share = percent(share);
    format!("{share} of the time its worker only waited for the disk; {in_flight} in flight now")
}

fn of_worker(share: f64, queues: &[QueueTime], workers: &[WorkerTime]) -> String {
    let busiest = queues
        .iter()
        .filter(|queue| queue.is_used())
        .max_by_key(|queue| queue.requests)
        .and_then(|queue| workers.iter().find(|worker| worker.number == queue.worker));
    let Some(worker) = busiest else {
        return format!("its workers were busy {} of the time", percent(share));
    };
    let number = worker.number;
    let busy = percent(worker.working);
    let without = worker
        .cpu
        .filter(|cpu| worker.working + worker.polling - cpu > 0.2);
    let without = without.map(|cpu| format!(", but had its processor for {} only", percent(cpu)));
    let without = without.unwrap_or_default();
    format!("worker {number} was busy {busy} of the time{without}")
}

fn of_guest(share: f64, queues: &[QueueTime]) -> String {
    let busiest = queues.iter().max_by_key(|queue| queue.requests);
    let batch = busiest.and_then(|queue| queue.batch).unwrap_or_default();
    let wakes = busiest.is_some_and(|queue| queue.kicks.saturating_mul(2) > queue.requests);
    let woken = if wakes {
        ", and most wake up their worker first, which takes time as well (`--poll`)"
    } else {
        ""
    };
    let share = percent(share);
    format!(
        "{share} of the time the worker saw no request: the guest sends {batch:.1} at once{woken}"
    )
}

#[cfg(test)]
mod tests;
