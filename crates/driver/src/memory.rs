//! Memory that is made to be shared with a server.

use std::fs::File;
use std::io;
use std::sync::Arc;

use pollux_memory::{Region, Span};
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

/// Where the parts of a ring lie in this process, which is where the device finds them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    pub(crate) descriptor: u64,
    pub(crate) driver: u64,
    pub(crate) device: u64,
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
}
