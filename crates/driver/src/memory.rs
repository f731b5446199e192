//! Memory that is made to be shared with a server.

use std::fs::File;
use std::io;
use std::sync::Arc;

use pollux_memory::{Region, Span};
use pollux_ring::{AreaError, Areas, Layout};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

/// `bytes` zeroes (whole pages) in a memfd of their own. It takes up what is written, and nothing before.
///
/// The file can neither shrink nor grow: a server that holds it could else make every look of ours at
/// what is gone a `SIGBUS`.
///
/// # Errors
///
/// What the machine lacks: file descriptors, address space.
pub(crate) fn memfd_region(name: &str, bytes: usize) -> io::Result<Arc<Region>> {
    let bytes = bytes
        .checked_next_multiple_of(rustix::param::page_size())
        .ok_or(io::ErrorKind::OutOfMemory)? as u64;
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let memfd = memfd_create(name, flags)?;
    ftruncate(&memfd, bytes)?;
    fcntl_add_seals(
        &memfd,
        SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL,
    )?;
    // Where the device sees it is decided when it is registered: where it then lies in this process.
    let region = Region::map(File::from(memfd), 0, 0, 0, bytes).map_err(io::Error::other)?;
    Ok(Arc::new(region))
}

/// The memory of one queue: a region of its own, which goes with the queue.
#[derive(Debug)]
pub(crate) struct RingMemory {
    /// All of it, to be registered before the queue is started, and kept until it has stopped.
    pub(crate) region: Arc<Region>,
    /// The ring.
    pub(crate) areas: Areas,
    /// Where its parts lie.
    pub(crate) addresses: Addresses,
    /// What follows the ring, from the next page on: for request headers and indirect tables.
    pub(crate) rest: Span,
}

/// Where the parts of a ring lie in this process, which is where the device finds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Addresses {
    pub(crate) descriptor: u64,
    pub(crate) driver: u64,
    pub(crate) device: u64,
}

/// Memory for a ring of `size` entries and `rest` bytes more. What the device writes begins at a cache
/// line that the driver does not write, and the other way round.
///
/// # Errors
///
/// When the size is no power of two, or the machine lacks what [`memfd_region`] needs.
pub(crate) fn ring_memory(size: u16, rest: usize) -> io::Result<RingMemory> {
    let layout = Layout::of(size);
    // Two lines: processors fetch them in pairs.
    let apart = |bytes: usize| bytes.next_multiple_of(128);
    let driver = apart(layout.descriptor);
    let device = driver + apart(layout.driver);
    let behind = (device + layout.device).next_multiple_of(rustix::param::page_size());
    let region = memfd_region("pollux-ring", behind + rest)?;
    let (ring, rest) = region.span().split_at(behind);
    let (descriptor, others) = ring.split_at(driver);
    let (driver, device) = others.split_at(device - driver);
    let areas = Areas::new(u32::from(size), descriptor, driver, device)
        .map_err(|error: AreaError| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    Ok(RingMemory {
        areas,
        addresses: Addresses {
            descriptor: address(descriptor),
            driver: address(driver),
            device: address(device),
        },
        rest,
        region,
    })
}

/// Where the device finds `span`.
pub(crate) fn address(span: Span) -> u64 {
    span.as_ptr().addr() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_can_cut_the_memory_off() {
        let region = memfd_region("test", 5000).unwrap();
        assert_eq!(region.len() % rustix::param::page_size() as u64, 0);
        let (file, offset) = region.file();
        assert_eq!(offset, 0);
        file.set_len(0).unwrap_err();
        region.span().write(&vec![7; region.span().len()]);
        fcntl_add_seals(file, SealFlags::FUTURE_WRITE).unwrap_err();
    }

    #[test]
    fn rings_of_every_size_fit_their_memory() {
        for exponent in 0..=15 {
            let size = 1 << exponent;
            let memory = ring_memory(size, 100).unwrap();
            let Addresses {
                descriptor,
                driver,
                device,
            } = memory.addresses;
            assert_eq!(descriptor, address(memory.region.span()));
            assert!(driver - descriptor >= Layout::of(size).descriptor as u64);
            assert!(device - driver >= Layout::of(size).driver as u64);
            assert!(address(memory.rest) - device >= Layout::of(size).device as u64);
            assert!(memory.rest.len() >= 100);
        }
        let refused = ring_memory(3, 0).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }
}
