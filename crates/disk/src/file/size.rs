//! How large a file is, and how much of it a disk.

use std::fs;
use std::io;
use std::path::Path;

use rustix::fs::SeekFrom;
use tracing::warn;

use crate::OpenError;

/// How many bytes it has now.
pub fn size(file: &fs::File) -> io::Result<u64> {
    Ok(rustix::fs::seek(file, SeekFrom::End(0))?)
}

/// Of `size` bytes those that fill blocks.
///
/// # Errors
///
/// Where there is not even one block.
pub fn whole_blocks(path: &Path, size: u64, block: u32) -> Result<u64, OpenError> {
    let bytes = size - size % u64::from(block);
    if bytes == 0 {
        return Err(OpenError::Empty {
            path: path.to_owned(),
            bytes: size,
        });
    }
    Ok(bytes)
}

/// Tells of what is no whole block at the end of a disk of `size` bytes.
pub fn warn_of_rest(path: &Path, size: u64, block: u32) {
    let beyond = size % u64::from(block);
    if beyond > 0 {
        let path = path.display();
        warn!(
            %path, size, block,
            "the size is not a whole number of blocks; the last {beyond} bytes are out of reach"
        );
    }
}
