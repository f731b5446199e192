//! Clients that send each request when it is due, at a rate, whatever became of those before. Latencies count from the
//! time that a request was due, so a stall counts for all requests that came due in it.

use std::io;
use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use pollux_driver::{Channel, Waiter, Waiting};
use pollux_load::{Client, Idle, Own, Plan};

use crate::cell::{BLOCK, Disk, Work};
use crate::client::Job;

/// What such a client is to prepare: the most requests in flight, beyond which what is due waits.
pub const JOB: Job = Job {
    work: Work::RandRead,
    block: BLOCK,
    depth: 64,
};

/// Our driver on `socket`, where `disk` is, so many requests a second.
pub fn connect(
    socket: &Path,
    disk: Disk,
    waiting: Waiting,
    rate: u32,
    awake: Duration,
) -> io::Result<pollux_load::Job<Own<Channel>>> {
    let client = JOB.connect(socket, Waiter::new(waiting)?)?;
    at_rate(client, JOB, disk, rate, awake)
}

/// `client` on `disk`, so many requests a second; with none in flight it is awake for so long before one is due.
pub fn at_rate<R: Client>(
    client: R,
    job: Job,
    disk: Disk,
    rate: u32,
    awake: Duration,
) -> io::Result<pollux_load::Job<R>> {
    let plan = Plan {
        rate: NonZeroU32::new(rate),
        idle: Idle::Sleep(awake),
        ..Plan::new(job.pattern(disk, 1), job.depth.into(), job.block)
    };
    pollux_load::Job::new(plan, client)
}
