//! A disk shared by tasks: each reads blocks at random, all on one queue, driven by one descriptor.
//!
//! ```text
//! pollux serve --socket-path disk.sock --disk memory:size=1G &
//! cargo run --release -p pollux --example tokio -- disk.sock
//! ```

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use pollux::disk::{Disk, Failure};
use pollux::driver::{Completion, Driver, Options, Queue};
use tokio::io::unix::AsyncFd;
use tokio::task::JoinSet;

const TASKS: u64 = 32;
const READS: u64 = 1000;
const BLOCK: u64 = 4096;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let socket = std::env::args().nth(1);
    let socket = socket.ok_or("which disk? give the path of its socket")?;
    let driver = Driver::connect(Path::new(&socket), &Options::default())?;
    let queue = driver.queue(0)?;
    // Whoever awaits a request sleeps until the device has called and this task has seen it.
    let driving = tokio::spawn(drive(queue.clone()));

    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        tasks.spawn(read_some(driver.clone(), queue.clone(), task));
    }
    while let Some(task) = tasks.join_next().await {
        task??;
    }
    let took = start.elapsed();
    driving.abort();
    println!("{} reads by {TASKS} tasks in {took:?}", TASKS * READS);
    println!("{:?}", queue.counters());
    Ok(())
}

/// Completes requests for everybody, each time that the device calls.
async fn drive(queue: Queue) -> std::io::Result<()> {
    #[allow(
        deprecated,
        reason = "its descriptor never changes, which is all that the function in its stead asks for"
    )]
    let readiness = queue.readiness()?;
    // SAFETY: the descriptor of a `Readiness` is open, and the same, for as long as it lives.
    let readiness = unsafe { AsyncFd::register(readiness) }?;
    loop {
        let mut ready = readiness.readable().await?;
        ready.clear_ready();
        readiness.get_ref().drive();
    }
}

async fn read_some(driver: Driver, queue: Queue, task: u64) -> Result<(), Failure> {
    let blocks = driver.geometry().bytes / BLOCK;
    let mut buffer = driver.allocate(4096).map_err(|_| Failure::Lost)?;
    for read in 0..READS {
        // Scattered well enough for an example.
        let block = (task * READS + read).wrapping_mul(0x9e37_79b9_7f4a_7c15) % blocks;
        buffer = queue.read(block * BLOCK, buffer, Completion::Call).await?;
    }
    Ok(())
}
