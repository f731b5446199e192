//! Memory that is made to be shared with a server.

use std::io;
use std::sync::Arc;

use pollux_memory::{Region, Span, memfd};

/// `bytes` zeroes (whole pages) in a memfd of their own, as [`memfd`] makes it.
///
/// # Errors
///
/// What the machine lacks: file descriptors, address space.
pub(crate) fn memfd_region(name: &str, bytes: usize) -> io::Result<Arc<Region>> {
    let file = memfd(name, bytes)?;
    let bytes = file.metadata()?.len();
    // Where the device sees it is decided when it is registered: where it then lies in this process.
    let lacks = |error| io::Error::new(io::ErrorKind::OutOfMemory, error);
    let region = Region::map(file, 0, 0, 0, bytes).map_err(lacks)?;
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
mod tests;
