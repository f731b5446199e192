//! Memory of our own that is made to be shared with another process.

use std::fs::File;
use std::io;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

/// `bytes` zeroes, rounded up to whole pages, in a memfd of their own called `name`. It takes up what is
/// written, and nothing before.
///
/// The file can neither shrink nor grow: another process that holds it could else make every access of ours to
/// what is gone a `SIGBUS`.
///
/// # Errors
///
/// What the machine lacks: file descriptors, address space.
pub fn memfd(name: &str, bytes: usize) -> io::Result<File> {
    let bytes = bytes
        .checked_next_multiple_of(rustix::param::page_size())
        .ok_or(io::ErrorKind::OutOfMemory)? as u64;
    let memfd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&memfd, bytes)?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(&memfd, seals)?;
    Ok(File::from(memfd))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_can_cut_the_memory_off() {
        let file = memfd("test", 5000).unwrap();
        assert_eq!(
            file.metadata().unwrap().len() % rustix::param::page_size() as u64,
            0
        );
        file.set_len(0).unwrap_err();
        file.set_len(1 << 20).unwrap_err();
        fcntl_add_seals(&file, SealFlags::FUTURE_WRITE).unwrap_err();
    }
}
