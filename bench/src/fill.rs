//! Filling a disk that its server keeps in memory.

use std::io;
use std::path::Path;

use pollux_disk::Durability;
use pollux_driver::{CompletionMode, Driver, Options};

use crate::cell::Disk;

/// Writes the whole of a memory disk once: memory that was never written would be read as zeroes
/// without being there. By our driver, which every server takes as a client.
pub fn fill(socket: &Path, disk: Disk) -> io::Result<()> {
    const STEP: usize = 1 << 20;
    let driver = Driver::connect(socket, &Options::default()).map_err(io::Error::other)?;
    let mut buffer = driver.allocate(STEP)?;
    let mut noise = vec![0; STEP];
    fastrand::Rng::with_seed(1).fill(&mut noise);
    buffer.write(0, &noise);
    let queue = driver.queue(0)?;
    for offset in (0..disk.size()).step_by(STEP) {
        let pending = queue.write(offset, buffer, Durability::Volatile, CompletionMode::Polled);
        buffer = pending.wait().map_err(io::Error::other)?;
    }
    Ok(())
}
