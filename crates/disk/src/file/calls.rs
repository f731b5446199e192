//! System calls, repeated where they were interrupted or did only a part.

use std::fs;

use rustix::io::Errno;

/// Repeats `call`, which is told how much it has moved so far, until that is `len`.
pub fn whole(len: usize, mut call: impl FnMut(usize) -> Result<usize, Errno>) -> Result<(), Errno> {
    let mut moved = 0;
    while moved < len {
        match call(moved) {
            Err(Errno::INTR) => {}
            more => moved += some(more?)?,
        }
    }
    Ok(())
}

/// Reads what there is at `at` of `file` into `bytes`, and says how much that is.
pub fn fill(file: &fs::File, bytes: &mut [u8], at: u64) -> Result<usize, Errno> {
    loop {
        match rustix::io::pread(file, &mut *bytes, at) {
            Err(Errno::INTR) => {}
            read => return read,
        }
    }
}

/// Nothing moved, although the disk should hold more: the file has been cut shorter meanwhile.
pub fn some(moved: usize) -> Result<usize, Errno> {
    if moved == 0 {
        return Err(Errno::NODATA);
    }
    Ok(moved)
}

/// Repeats `call` until no signal interrupts it.
pub fn uninterrupted(mut call: impl FnMut() -> Result<(), Errno>) -> Result<(), Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}
