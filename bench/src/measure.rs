//! One measurement: a client that keeps a queue full of 4 KiB random reads.
//!
//! The client limits what can be seen of a server, so its loop does nothing that it need not: no
//! allocation, no clock but once in 64 reads, a generator of a few instructions, buffers made before.

use std::io;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use blkio::ReqFlags;
use pollux_tests::client::{Client, Memory, Queue, Shape, Waiting};
use pollux_tests::process::Process;
use pollux_tests::random::Random;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::cell::{BLOCK, Cell, Disk};
use crate::pinned::Pinned;
use crate::quiet::{Disturbance, Usage};

/// How long to measure, and where the client runs.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Reads that do not count yet.
    pub warm_up: Duration,
    /// Reads that do.
    pub runtime: Duration,
    /// The processor of the client.
    pub client_cpu: usize,
}

/// What a measurement found.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sample {
    /// Reads a second.
    pub iops: f64,
    /// Processor time of the server for one of them, in microseconds.
    pub server_us: f64,
    /// Processor time of the client for one of them, in microseconds.
    pub client_us: f64,
    /// What others did meanwhile.
    pub disturbance: Disturbance,
}

/// Measures `cell` on the server `process` behind `socket`.
///
/// # Errors
/// Also when the client has not come back half a minute after it should have: a read was lost.
pub fn measure(socket: &Path, process: Process, cell: Cell, plan: Plan) -> io::Result<Sample> {
    let socket = socket.to_owned();
    let (finished, outcome) = mpsc::channel();
    std::thread::spawn(move || {
        let _ = finished.send(run(&socket, process, cell, plan));
    });
    let longest = plan.warm_up + plan.runtime + Duration::from_secs(30);
    outcome.recv_timeout(longest).unwrap_or_else(|_| {
        Err(io::Error::other(format!(
            "the client on {cell} hangs: a read was not answered, or a call is missing"
        )))
    })
}

fn run(socket: &Path, process: Process, cell: Cell, plan: Plan) -> io::Result<Sample> {
    let _pinned = Pinned::to(plan.client_cpu)?;
    let shape = Shape {
        waiting: cell.client,
        ..Shape::blocking(1, queue_size(cell.depth))
    };
    let (client, mut queues) = Client::connect(socket, shape)?;
    let queue = queues.pop().expect("one queue was asked for");
    let memory = client.memory(usize::from(cell.depth) * BLOCK)?;
    memory.fill(0..memory.len(), 0xee); // so that no page is new to either side
    let blocks = cell.disk.size() / BLOCK as u64;
    let mut reads = Reads {
        queue,
        memory,
        blocks,
        random: Random::new(1),
    };
    for token in 0..usize::from(cell.depth) {
        reads.submit(token);
    }
    reads.run_for(plan.warm_up)?;

    let everyone = [process, Process::new(std::process::id())];
    let usage = Usage::now(&everyone)?;
    let server = process.cpu_ns()?;
    let own = thread_cpu();
    let start = Instant::now();
    let count = reads.run_for(plan.runtime)?;
    let elapsed = start.elapsed();
    let own = thread_cpu().saturating_sub(own);
    let server = process.cpu_ns()?.saturating_sub(server);
    let disturbance = usage.others_until(&Usage::now(&everyone)?);
    reads.memory.abandon();

    Ok(Sample {
        iops: count / elapsed.as_secs_f64(),
        server_us: Duration::from_nanos(server).as_secs_f64() * 1e6 / count,
        client_us: own.as_secs_f64() * 1e6 / count,
        disturbance,
    })
}

/// Room for every request's three descriptors (header, data, status), and the 128 that guests use.
fn queue_size(depth: u16) -> u16 {
    (3 * depth).next_power_of_two().max(128)
}

fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("a thread's time is not negative")
}

struct Reads {
    queue: Queue,
    memory: Memory,
    blocks: u64,
    random: Random,
}

impl Reads {
    fn submit(&mut self, token: usize) {
        let offset = self.random.below(self.blocks) * BLOCK as u64;
        let at = token * BLOCK;
        self.queue.read(offset, &self.memory, at..at + BLOCK, token);
    }

    /// Replaces every read that comes back by another, and counts them.
    fn run_for(&mut self, time: Duration) -> io::Result<f64> {
        let end = Instant::now() + time;
        let mut count = 0u32;
        let mut look_at_clock = 0;
        loop {
            self.queue.wait_for_ever(1)?;
            while let Some(done) = self.queue.take() {
                done.result?;
                self.submit(done.token);
                count += 1;
            }
            if count >= look_at_clock {
                look_at_clock = count + 64;
                if Instant::now() >= end {
                    return Ok(f64::from(count));
                }
            }
        }
    }
}

/// Writes the whole of a memory disk once: memory that was never written would be read as zeroes
/// without being there.
pub fn fill(socket: &Path, disk: Disk) -> io::Result<()> {
    const STEP: usize = 1 << 20;
    if disk == Disk::Null {
        return Ok(());
    }
    let shape = Shape {
        waiting: Waiting::Blocking,
        ..Shape::blocking(1, 128)
    };
    let (client, mut queues) = Client::connect(socket, shape)?;
    let memory = client.memory(STEP)?;
    let mut noise = vec![0; STEP];
    Random::new(1).fill(&mut noise);
    memory.put(0, &noise);
    for offset in (0..disk.size()).step_by(STEP) {
        queues[0].write(offset, &memory, 0..STEP, 0, ReqFlags::empty());
        queues[0].finish()??;
    }
    Ok(())
}
