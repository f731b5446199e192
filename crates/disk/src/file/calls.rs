//! System calls, repeated where they were interrupted or did only a part.

use std::fs;

use rustix::io::{Errno, retry_on_intr};

/// Repeats `call`, which is told how much it has moved so far, until that is `len`.
pub fn whole(len: usize, mut call: impl FnMut(usize) -> Result<usize, Errno>) -> Result<(), Errno> {
    let mut moved = 0;
    while moved < len {
        moved += some(retry_on_intr(|| call(moved))?)?;
    }
    Ok(())
}

/// Reads what there is at `at` of `file` into `bytes`, and says how much that is.
pub fn fill(file: &fs::File, bytes: &mut [u8], at: u64) -> Result<usize, Errno> {
    retry_on_intr(|| rustix::io::pread(file, &mut *bytes, at))
}

/// Nothing moved, although the disk should hold more: the file has been cut shorter meanwhile.
pub fn some(moved: usize) -> Result<usize, Errno> {
    if moved == 0 {
        return Err(Errno::NODATA);
    }
    Ok(moved)
}
