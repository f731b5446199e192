//! A disk shared by tasks: each reads blocks at random, all on one queue, driven by one descriptor.
//!
//! ```text
//! pollux serve --socket-path disk.sock --disk memory:size=1G &
//! cargo run --release -p pollux --features tokio --example tokio -- disk.sock
//! ```

use std::error::Error;
use std::io;
use std::time::Instant;

use pollux::disk::Disk;
use pollux::driver::{CompletionMode, Driver, Queue};
use tokio::task::JoinSet;

const TASKS: u64 = 32;
const READS: u64 = 1000;
const BLOCK: u64 = 4096;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let socket = std::env::args().nth(1);
    let socket = socket.ok_or("which disk? give the path of its socket")?;
    let driver = Driver::builder(socket).connect()?;
    let queue = driver.queue(0)?;
    // Completes requests, and wakes the tasks that await them, each time that the device calls.
    let _driving = queue.drive_in_tokio()?;

    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        tasks.spawn(read_some(driver.clone(), queue.clone(), task));
    }
    while let Some(task) = tasks.join_next().await {
        task??;
    }
    let took = start.elapsed();
    println!("{} reads by {TASKS} tasks in {took:?}", TASKS * READS);
    println!("{:?}", queue.counters());
    Ok(())
}

async fn read_some(driver: Driver, queue: Queue, task: u64) -> io::Result<()> {
    let blocks = driver.geometry().bytes / BLOCK;
    let mut buffer = driver.allocate(4096)?;
    for read in 0..READS {
        // Scattered well enough for an example.
        let block = (task * READS + read).wrapping_mul(0x9e37_79b9_7f4a_7c15) % blocks;
        buffer = queue
            .read(block * BLOCK, buffer, CompletionMode::Call)
            .await?;
    }
    Ok(())
}
