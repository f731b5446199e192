//! What goes over the control socket. It is an interface of its own: what the crates call things may change, and this
//! may only grow.

use pollux::stats::{self, Snapshot};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::limits::DiskLimits;
use crate::news::Happening;

mod name;
mod new_disk;
mod observed;
mod problem;

pub use name::{NAMES, is_name, name, unique};
pub use new_disk::NewDisk;
#[cfg(test)]
pub use observed::Bucket;
pub use observed::{
    Latency, TRACED_RECORDS, TRACED_SECONDS, TraceOrder, TraceState, TracedRequest, op,
};
pub use problem::{Problem, Refused};

/// All disks of a daemon.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
pub struct Disks {
    /// In the order of the configuration.
    pub disks: Vec<Disk>,
}

/// A disk as it is served.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "it is JSON, and each has a name there"
)]
pub struct Disk {
    /// What it is called here.
    pub name: String,
    /// Where frontends connect.
    pub socket: String,
    /// The serial number that the guest sees; may be empty.
    pub serial: String,
    /// Its size.
    pub bytes: u64,
    /// Its logical block size in bytes.
    pub block_size: u32,
    /// Its physical block size in bytes.
    pub physical_block_size: u32,
    /// Is everything refused that would change it?
    pub read_only: bool,
    /// How many queues are offered.
    pub queues: u16,
    /// The frontend that is connected, if one is.
    pub frontend: Option<Frontend>,
    /// How many requests and bytes a second it may have.
    #[serde(default)]
    pub limits: DiskLimits,
    /// The group of disks that share these limits, if it is in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_group: Option<String>,
    /// Are the times of its requests counted?
    #[serde(default)]
    pub latencies: bool,
    /// Was it added while the daemon ran?
    #[serde(default)]
    pub added: bool,
    /// Was it removed? It is here until all has ended that its frontend has asked for.
    #[serde(default)]
    pub leaving: bool,
}

/// What is to be changed of a disk.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiskChange {
    /// Its limits: what is absent stays, and null lifts one limit, or all.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<DiskLimits>)]
    pub limits: Option<Value>,
    /// Whether the times of its requests are counted, from now on and from zero.
    #[serde(default)]
    pub latencies: Option<bool>,
}

/// What is there, even if that is null.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}

/// What a disk is to become.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Resize {
    /// Its size. Without one, it is read anew from the disk's file or device.
    pub bytes: Option<u64>,
}

/// A process that is connected to a disk's socket, as the kernel knows it (`SO_PEERCRED`).
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct Frontend {
    /// Its number; none where it lives in another namespace of processes.
    pub pid: Option<u32>,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

/// What a disk has counted since the daemon was started, over all sessions.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct DiskStats {
    /// The disk.
    pub name: String,
    /// All queues together.
    pub total: Counters,
    /// Each queue that was ever used.
    pub queues: Vec<QueueCounters>,
    /// What the disk itself counts, such as the ways that requests went.
    pub disk: Vec<Count>,
    /// How long requests took, by what they asked for; null where that is not counted.
    #[serde(default)]
    pub latencies: Option<Vec<Latency>>,
}

/// The counters of one queue.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct QueueCounters {
    /// Its index.
    pub queue: usize,
    /// What it has counted.
    pub counters: Counters,
    /// How many of its requests are in flight.
    #[serde(default)]
    pub in_flight: u64,
    /// Does it wait for the disk's limits?
    #[serde(default)]
    pub is_throttled: bool,
    /// The number of the worker that serves it, or served it last.
    #[serde(default)]
    pub worker: u64,
}

/// One of the disk's own counters.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct Count {
    /// What is counted.
    pub name: String,
    /// How often.
    pub count: u64,
}

/// What is counted for each queue. Numbers only grow while the daemon runs.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, ToSchema)]
pub struct Counters {
    /// Requests that ended.
    pub requests: Requests,
    /// Bytes read by requests that succeeded.
    pub bytes_read: u64,
    /// Bytes written by requests that succeeded.
    pub bytes_written: u64,
    /// Kicks received from the driver.
    pub kicks: u64,
    /// Calls sent to the driver.
    pub calls_sent: u64,
    /// Calls that the driver did not ask for.
    pub calls_suppressed: u64,
    /// Turns of the worker that found something on the queue.
    pub turns_busy: u64,
    /// Turns that found nothing.
    pub turns_idle: u64,
    /// Sleeps of the worker while it served the queue.
    pub sleeps: u64,
    /// Time in those sleeps, in nanoseconds.
    pub asleep_ns: u64,
    /// Faults of the driver, each of which ended the queue.
    pub peer_faults: u64,
    /// Waits for the disk's limits.
    #[serde(default)]
    pub throttled: u64,
    /// Time in those waits, in nanoseconds.
    #[serde(default)]
    pub throttled_ns: u64,
    /// Time in which the worker had nothing to do while requests were in flight, in nanoseconds.
    #[serde(default)]
    pub disk_wait_ns: u64,
}

/// Requests by kind.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, ToSchema)]
pub struct Requests {
    /// Reads.
    pub read: Outcomes,
    /// Writes.
    pub write: Outcomes,
    /// Flushes.
    pub flush: Outcomes,
    /// Discards.
    pub discard: Outcomes,
    /// Ranges that were to be zeroed.
    pub write_zeroes: Outcomes,
    /// Questions for the serial number.
    pub get_id: Outcomes,
    /// What there is no name for.
    pub unknown: Outcomes,
}

/// Requests of one kind by how they ended.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, ToSchema)]
pub struct Outcomes {
    /// Done.
    pub ok: u64,
    /// Failed, or malformed.
    pub error: u64,
    /// There is no such request on this disk.
    pub unsupported: u64,
}

/// All workers of a daemon.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
pub struct Workers {
    /// In their order.
    pub workers: Vec<Worker>,
}

/// A thread that serves queues.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
pub struct Worker {
    /// Its number, from 0.
    pub number: usize,
    /// Its thread, as the kernel numbers it.
    pub thread: u32,
    /// The processor that it was given by `--cpus`.
    pub cpu: Option<usize>,
    /// The processor time that it has used, in nanoseconds: work and polling.
    pub cpu_ns: Option<u64>,
    /// For how long it has existed, in nanoseconds.
    #[serde(default)]
    pub age_ns: u64,
    /// Time asleep, in nanoseconds.
    #[serde(default)]
    pub asleep_ns: u64,
    /// Time of polls that found nothing, in nanoseconds.
    #[serde(default)]
    pub polling_ns: u64,
    /// Time that it worked, or waited for its processor, in nanoseconds.
    #[serde(default)]
    pub working_ns: u64,
    /// Sleeps.
    #[serde(default)]
    pub sleeps: u64,
    /// Turns of its loop.
    #[serde(default)]
    pub turns: u64,
}

/// Is the daemon well?
#[derive(Debug, Deserialize, Serialize, ToSchema)]
pub struct Health {
    /// What it does.
    pub status: Status,
    /// Which Pollux it is.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// For how long it has served, in seconds.
    pub uptime_seconds: u64,
    /// How many disks it serves.
    pub disks: usize,
    /// To how many of them a frontend is connected.
    pub connected: usize,
    /// The disks of the state file that are not served: they could not be opened when the daemon started, or it is
    /// ending and has closed them.
    #[serde(default)]
    pub missing: Vec<String>,
}

/// What has happened, as `GET /v1/events` tells it.
#[derive(Clone, Debug, Deserialize, Serialize, ToSchema)]
#[expect(clippy::struct_field_names, reason = "server-sent events call it that")]
pub struct Event {
    /// What kind of thing.
    pub event: Happening,
    /// The disk's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The disk as it is now, unless it has gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<Disk>,
    /// A warning or an error, in the words of the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// How much the client was too slow to be told of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<u64>,
}

/// What a daemon does.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It takes frontends.
    Serving,
    /// It was told to end, and finishes what is in flight.
    Ending,
}

impl Outcomes {
    /// However they ended.
    pub const fn total(&self) -> u64 {
        self.ok + self.error + self.unsupported
    }
}

impl Requests {
    /// Each kind by its name, with those first that a table has columns for.
    pub const fn by_name(&self) -> [(&'static str, Outcomes); 7] {
        [
            ("read", self.read),
            ("write", self.write),
            ("flush", self.flush),
            ("discard", self.discard),
            ("write_zeroes", self.write_zeroes),
            ("get_id", self.get_id),
            ("unknown", self.unknown),
        ]
    }

    /// All kinds, in that order.
    pub fn all(&self) -> [Outcomes; 7] {
        self.by_name().map(|(_, outcomes)| outcomes)
    }
}

impl From<stats::Outcomes> for Outcomes {
    fn from(of: stats::Outcomes) -> Self {
        Self {
            ok: of.ok,
            error: of.ioerr,
            unsupported: of.unsupp,
        }
    }
}

impl From<&Snapshot> for Counters {
    fn from(of: &Snapshot) -> Self {
        let requests = &of.requests;
        Self {
            requests: Requests {
                read: requests.read.into(),
                write: requests.write.into(),
                flush: requests.flush.into(),
                discard: requests.discard.into(),
                write_zeroes: requests.write_zeroes.into(),
                get_id: requests.get_id.into(),
                unknown: requests.unknown.into(),
            },
            bytes_read: of.bytes_read,
            bytes_written: of.bytes_written,
            kicks: of.kicks,
            calls_sent: of.calls_sent,
            calls_suppressed: of.calls_suppressed,
            turns_busy: of.turns_busy,
            turns_idle: of.turns_idle,
            sleeps: of.sleeps,
            asleep_ns: of.asleep_ns,
            peer_faults: of.peer_faults,
            throttled: of.throttled,
            throttled_ns: of.throttled_ns,
            disk_wait_ns: of.disk_wait_ns,
        }
    }
}
