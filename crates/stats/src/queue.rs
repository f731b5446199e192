//! All counters of one queue.

use crate::{Counter, Gauge, Histogram, Outcomes, Requests, Snapshot, Waiting};

/// What a request asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Read from the disk.
    Read,
    /// Write to the disk.
    Write,
    /// Make earlier writes durable.
    Flush,
    /// Tell the serial number.
    GetId,
    /// Forget ranges.
    Discard,
    /// Fill ranges with zeroes.
    WriteZeroes,
    /// Something that there is no name for.
    Unknown,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was done.
    Ok,
    /// It failed, or was malformed.
    IoErr,
    /// There is no such request.
    Unsupp,
}

impl Kind {
    pub(crate) const COUNT: usize = Self::Unknown as usize + 1;

    /// All of them.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Read,
        Self::Write,
        Self::Flush,
        Self::GetId,
        Self::Discard,
        Self::WriteZeroes,
        Self::Unknown,
    ];
}

impl Outcome {
    const COUNT: usize = Self::Unsupp as usize + 1;

    /// All of them.
    pub const ALL: [Self; Self::COUNT] = [Self::Ok, Self::IoErr, Self::Unsupp];
}

/// The counters of one queue. Its worker, the only writer, adds to them; others take a [`Snapshot`].
///
/// In the order of the fields: those of every turn share the first cache line, those of every request
/// follow, and no line is shared with another queue.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct QueueStats {
    /// Turns that found work on this queue.
    pub turns_busy: Counter,
    /// Turns that found none.
    pub turns_idle: Counter,
    /// Calls sent to the driver.
    pub calls_sent: Counter,
    /// Calls that the driver did not ask for: publishes without one.
    pub calls_suppressed: Counter,
    /// Kicks of the driver that reached its worker; several at once are one.
    pub kicks: Counter,
    /// Sleeps of the worker. They stop to count for a queue that was empty in eight of them, until it kicks.
    pub sleeps: Counter,
    /// Time in those sleeps, in nanoseconds.
    pub asleep_ns: Counter,
    /// Faults of the peer, each of which ended the queue.
    pub peer_faults: Counter,
    /// By outcome, then by kind, so that requests that succeed stay within a line.
    requests: [[Counter; Kind::COUNT]; Outcome::COUNT],
    /// Bytes read from the disk by requests that succeeded.
    pub bytes_read: Counter,
    /// Bytes written to the disk by requests that succeeded.
    pub bytes_written: Counter,
    /// Chains taken in a turn that took any.
    pub chains_per_turn: Histogram,
    /// Completions published by one store of the used index.
    pub completions_per_publish: Histogram,
    /// Waits for the limits of the disk.
    pub throttled: Counter,
    /// Time in those waits.
    pub throttled_time: Waiting,
    /// Requests that have begun and not ended, as of the last turn.
    pub in_flight: Gauge,
    /// Time that the worker slept or made empty polls while the disk had requests of this queue.
    pub disk_wait: Waiting,
    /// The worker that serves the queue, or served it last.
    pub worker: Gauge,
}

impl QueueStats {
    /// Counts a request of `kind` that ended with `outcome`.
    #[inline]
    pub fn request(&self, kind: Kind, outcome: Outcome) {
        self.requests[outcome as usize][kind as usize].add(1);
    }

    /// All counters now. While the worker counts on, they may be a few requests apart.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let requests = |kind: Kind| {
            let of = |outcome: Outcome| self.requests[outcome as usize][kind as usize].get();
            Outcomes {
                ok: of(Outcome::Ok),
                ioerr: of(Outcome::IoErr),
                unsupp: of(Outcome::Unsupp),
            }
        };
        Snapshot {
            requests: Requests {
                read: requests(Kind::Read),
                write: requests(Kind::Write),
                flush: requests(Kind::Flush),
                get_id: requests(Kind::GetId),
                discard: requests(Kind::Discard),
                write_zeroes: requests(Kind::WriteZeroes),
                unknown: requests(Kind::Unknown),
            },
            bytes_read: self.bytes_read.get(),
            bytes_written: self.bytes_written.get(),
            kicks: self.kicks.get(),
            turns_busy: self.turns_busy.get(),
            turns_idle: self.turns_idle.get(),
            sleeps: self.sleeps.get(),
            asleep_ns: self.asleep_ns.get(),
            calls_sent: self.calls_sent.get(),
            calls_suppressed: self.calls_suppressed.get(),
            chains_per_turn: self.chains_per_turn.snapshot(),
            completions_per_publish: self.completions_per_publish.snapshot(),
            peer_faults: self.peer_faults.get(),
            throttled: self.throttled.get(),
            throttled_ns: self.throttled_time.sum_ns(),
            disk_wait_ns: self.disk_wait.sum_ns(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_reader_sees_what_the_worker_counted() {
        let stats = Arc::new(QueueStats::default());
        let worker = Arc::clone(&stats);
        std::thread::spawn(move || {
            for _ in 0..1000 {
                worker.request(Kind::Read, Outcome::Ok);
                worker.bytes_read.add(4096);
            }
            worker.request(Kind::Unknown, Outcome::Unsupp);
            worker.chains_per_turn.record(5);
        })
        .join()
        .unwrap();
        let seen = stats.snapshot();
        assert_eq!(seen.requests.read.ok, 1000);
        assert_eq!(seen.requests.unknown.unsupp, 1);
        assert_eq!(seen.bytes_read, 4_096_000);
        assert_eq!(seen.chains_per_turn.count(), 1);
    }

    #[test]
    fn two_queues_share_no_cache_line() {
        assert_eq!(align_of::<QueueStats>(), 64);
        assert_eq!(size_of::<QueueStats>() % 64, 0);
    }
}
