//! Counters at one moment: plain numbers to subtract, add up, print and send on.

use std::iter::Sum;
use std::ops::Add;

use serde::{Deserialize, Serialize};

use crate::counter::{Distribution, ratio};

/// Requests of one kind by how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[allow(
    missing_docs,
    reason = "the statuses of virtio-blk: OK, IOERR and UNSUPP"
)]
pub struct Outcomes {
    pub ok: u64,
    pub ioerr: u64,
    pub unsupp: u64,
}

/// Requests by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[allow(missing_docs, reason = "see `Kind`")]
pub struct Requests {
    pub read: Outcomes,
    pub write: Outcomes,
    pub flush: Outcomes,
    pub get_id: Outcomes,
    pub discard: Outcomes,
    pub write_zeroes: Outcomes,
    pub unknown: Outcomes,
}

/// The counters of a queue, or of several, at one moment or over some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Snapshot {
    /// Requests that ended.
    pub requests: Requests,
    /// Bytes read from the disk by requests that succeeded.
    pub bytes_read: u64,
    /// Bytes written to the disk by requests that succeeded.
    pub bytes_written: u64,
    /// Kicks received from the driver.
    pub kicks: u64,
    /// Turns that found work.
    pub turns_busy: u64,
    /// Turns that found none.
    pub turns_idle: u64,
    /// Sleeps of the worker.
    pub sleeps: u64,
    /// Time asleep, in nanoseconds.
    pub asleep_ns: u64,
    /// Calls sent to the driver.
    pub calls_sent: u64,
    /// Calls that the driver did not ask for.
    pub calls_suppressed: u64,
    /// Chains taken in a turn that took any.
    pub chains_per_turn: Distribution,
    /// Completions published by one store of the used index.
    pub completions_per_publish: Distribution,
    /// Faults of the peer.
    pub peer_faults: u64,
    /// Waits for the limits of the disk.
    #[serde(default)]
    pub throttled: u64,
    /// Time in those waits, in nanoseconds.
    #[serde(default)]
    pub throttled_ns: u64,
    /// Time that the worker slept or made empty polls while the disk had requests, in nanoseconds.
    #[serde(default)]
    pub disk_wait_ns: u64,
}

impl Outcomes {
    /// However they ended.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.ok + self.ioerr + self.unsupp
    }

    fn combine(self, other: Self, with: fn(u64, u64) -> u64) -> Self {
        Self {
            ok: with(self.ok, other.ok),
            ioerr: with(self.ioerr, other.ioerr),
            unsupp: with(self.unsupp, other.unsupp),
        }
    }
}

impl Requests {
    /// Each kind by its name, in the order of [`Kind`](crate::Kind).
    #[must_use]
    pub const fn by_name(&self) -> [(&'static str, Outcomes); 7] {
        [
            ("read", self.read),
            ("write", self.write),
            ("flush", self.flush),
            ("get-id", self.get_id),
            ("discard", self.discard),
            ("write-zeroes", self.write_zeroes),
            ("unknown", self.unknown),
        ]
    }

    /// Of every kind, however they ended: the I/Os that "per I/O" means.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.by_name().iter().map(|(_, of)| of.total()).sum()
    }

    fn combine(self, other: Self, with: fn(u64, u64) -> u64) -> Self {
        Self {
            read: self.read.combine(other.read, with),
            write: self.write.combine(other.write, with),
            flush: self.flush.combine(other.flush, with),
            get_id: self.get_id.combine(other.get_id, with),
            discard: self.discard.combine(other.discard, with),
            write_zeroes: self.write_zeroes.combine(other.write_zeroes, with),
            unknown: self.unknown.combine(other.unknown, with),
        }
    }
}

impl Snapshot {
    /// What was counted since `earlier`, a snapshot of the same queues.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        self.combine(earlier, u64::wrapping_sub)
    }

    /// Kicks received for each request; `None` without requests.
    #[must_use]
    pub fn kicks_per_io(&self) -> Option<f64> {
        ratio(self.kicks, self.requests.total())
    }

    /// Calls sent for each request; `None` without requests.
    #[must_use]
    pub fn calls_per_io(&self) -> Option<f64> {
        ratio(self.calls_sent, self.requests.total())
    }

    fn combine(self, other: Self, with: fn(u64, u64) -> u64) -> Self {
        Self {
            requests: self.requests.combine(other.requests, with),
            bytes_read: with(self.bytes_read, other.bytes_read),
            bytes_written: with(self.bytes_written, other.bytes_written),
            kicks: with(self.kicks, other.kicks),
            turns_busy: with(self.turns_busy, other.turns_busy),
            turns_idle: with(self.turns_idle, other.turns_idle),
            sleeps: with(self.sleeps, other.sleeps),
            asleep_ns: with(self.asleep_ns, other.asleep_ns),
            calls_sent: with(self.calls_sent, other.calls_sent),
            calls_suppressed: with(self.calls_suppressed, other.calls_suppressed),
            chains_per_turn: self.chains_per_turn.combine(other.chains_per_turn, with),
            completions_per_publish: self
                .completions_per_publish
                .combine(other.completions_per_publish, with),
            peer_faults: with(self.peer_faults, other.peer_faults),
            throttled: with(self.throttled, other.throttled),
            throttled_ns: with(self.throttled_ns, other.throttled_ns),
            disk_wait_ns: with(self.disk_wait_ns, other.disk_wait_ns),
        }
    }
}

/// The counters of several queues together.
impl Add for Snapshot {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.combine(other, u64::wrapping_add)
    }
}

impl Sum for Snapshot {
    fn sum<I: Iterator<Item = Self>>(snapshots: I) -> Self {
        snapshots.fold(Self::default(), Self::add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, Outcome, QueueStats};

    fn sample() -> Snapshot {
        let stats = QueueStats::default();
        for kind in [Kind::Read, Kind::Write, Kind::Flush, Kind::Discard] {
            stats.request(kind, Outcome::Ok);
        }
        stats.request(Kind::Unknown, Outcome::Unsupp);
        stats.bytes_read.add(512);
        stats.kicks.add(2);
        stats.calls_sent.add(3);
        stats.chains_per_turn.record(5);
        stats.chains_per_turn.record(2);
        stats.snapshot()
    }

    #[test]
    fn a_difference_undoes_a_sum() {
        let one = sample();
        let three: Snapshot = [one, one, one].into_iter().sum();
        assert_eq!(three.requests.total(), 15);
        assert_eq!(three.since(one).since(one), one);
        assert_eq!(one.since(one), Snapshot::default());
    }

    #[test]
    fn ratios_are_per_request_and_absent_without_requests() {
        let one = sample();
        assert_eq!(one.kicks_per_io(), Some(0.4));
        assert_eq!(one.calls_per_io(), Some(0.6));
        assert_eq!(one.chains_per_turn.mean(), Some(3.5));
        assert_eq!(one.chains_per_turn.highest(), Some((4, 7)));
        let none = Snapshot::default();
        assert_eq!(none.kicks_per_io(), None);
        assert_eq!(none.chains_per_turn.highest(), None);
    }

    #[test]
    fn a_snapshot_survives_json() {
        let json = serde_json::to_string(&sample()).unwrap();
        assert_eq!(
            serde_json::from_str::<Snapshot>(&json).unwrap(),
            sample(),
            "{json}"
        );
    }

    #[test]
    fn a_snapshot_is_json_by_name() {
        let json = serde_json::to_value(sample()).unwrap();
        assert_eq!(json["requests"]["read"]["ok"], 1);
        assert_eq!(json["requests"]["unknown"]["unsupp"], 1);
        assert_eq!(json["chains_per_turn"]["buckets"][2], 1);
        assert_eq!(json["kicks"], 2);
    }
}
