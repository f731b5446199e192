//! The archive a test appends to its kernel's base initrd: `/init`, `/test.sh`, and programs of its own.
//!
//! The kernel unpacks one cpio archive after another from an initrd, compressed or not; each plain
//! one must begin at a multiple of four bytes (Linux, init/initramfs.c).

use std::fmt::Write as _;

/// `base` followed by an archive of `files`, which all can be run: name without a leading slash, and
/// contents. The folders they lie in must be there.
pub fn append<'a>(base: &[u8], files: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Vec<u8> {
    let mut archive = base.to_vec();
    pad(&mut archive);
    for (name, contents) in files {
        const EXECUTABLE: u32 = 0o100_755; // a regular file
        entry(&mut archive, name, EXECUTABLE, contents);
    }
    entry(&mut archive, "TRAILER!!!", 0, b"");
    archive
}

/// One file in the "newc" format (Linux, Documentation/driver-api/early-userspace/buffer-format.rst).
fn entry(archive: &mut Vec<u8>, name: &str, mode: u32, contents: &[u8]) {
    let mut header = String::from("070701");
    let number = |header: &mut String, value: usize| {
        write!(header, "{value:08x}").expect("a String takes everything");
    };
    number(&mut header, 0); // inode
    write!(header, "{mode:08x}").expect("a String takes everything");
    for value in [0, 0, 1, 0, contents.len(), 0, 0, 0, 0, name.len() + 1, 0] {
        number(&mut header, value); // uid, gid, links, mtime, size, 4 device numbers, name's size, checksum
    }
    archive.extend_from_slice(header.as_bytes());
    archive.extend_from_slice(name.as_bytes());
    archive.push(0);
    pad(archive);
    archive.extend_from_slice(contents);
    pad(archive);
}

fn pad(archive: &mut Vec<u8>) {
    archive.resize(archive.len().next_multiple_of(4), 0);
}
