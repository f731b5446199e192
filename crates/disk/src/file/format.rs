//! Formats of images by their signatures, those that QEMU probes for among them: what begins like this is no raw
//! disk, unless it is said to be one.
//!
//! A guest could make such an image of its raw disk, and with it keep the daemon from starting again, or mislead a
//! program that probes for signatures itself. So where a format is probed for, the guest cannot write the signature
//! (as QEMU's guests cannot): it learns at once what would otherwise show at the next start.
//!
//! LUKS is probed for in files only. A block device with a LUKS header is commonly the disk of a guest that has
//! encrypted it; a host that uses one itself does that through dm-crypt, which keeps the device busy. An ISO image is a
//! raw disk.

use std::fs::File;
use std::io;

use super::bounce::Buffer;
use super::calls::fill;
use super::system::Kind;

/// All signatures lie in so many bytes, at the start or the end.
pub const SIGNED: u64 = 512;
const FOOTER: usize = 512;

/// What direct I/O reads on any storage.
const READ: u64 = 4096;

const LUKS: &str = "LUKS";

/// What stands where in the first bytes.
const HEADERS: [(usize, &[u8], &str); 16] = [
    (0, b"QFI\xfb\0\0\0\x01", "qcow"),
    (0, b"QFI\xfb", "qcow2"),
    (0, b"QED\0", "qed"),
    (0, b"KDMV", "VMDK"),
    (0, b"COWD", "VMDK"),
    (0, b"# Disk DescriptorFile", "VMDK"),
    (0, b"conectix", "VHD"),
    (0, b"vhdxfile", "VHDX"),
    (64, b"\x7f\x10\xda\xbe", "VDI"),
    (0, b"LUKS\xba\xbe", LUKS),
    (0, b"WithoutFreeSpace", "Parallels"),
    (0, b"WithouFreSpacExt", "Parallels"),
    (0, b"Bochs Virtual HD Image", "Bochs"),
    (0, b"#!/bin/sh\n#V2.0 Format", "cloop"),
    (0, b"OOOM", "UML COW"),
    (0, b"MOOO", "UML COW"),
];

/// What the last bytes begin with.
const FOOTERS: [(&[u8], &str); 2] = [(b"conectix", "VHD"), (b"koly", "DMG")];

/// The format that `file`, of `size` bytes, is in, if it is not a raw disk.
///
/// # Errors
///
/// Where it cannot be read.
pub fn probe(file: &File, kind: Kind, size: u64) -> io::Result<Option<&'static str>> {
    let mut buffer = Buffer::new(READ);
    // Signatures lie in whole sectors, as writes do: a guest must not make one that `within` does not see.
    let end = match size - size % SIGNED {
        0 => size,
        end => end,
    };
    let last = end.saturating_sub(1) / READ * READ;
    for at in [0, last] {
        let there = usize::try_from(end - at).unwrap_or(usize::MAX);
        let read = fill(file, &mut buffer, at)?.min(there);
        if let Some(format) = within(&buffer[..read], at, end, kind) {
            return Ok(Some(format));
        }
    }
    Ok(None)
}

/// The format of a disk of `end` bytes that holds `bytes` at `at`, as far as they tell.
pub fn within(bytes: &[u8], at: u64, end: u64, kind: Kind) -> Option<&'static str> {
    let head = (at == 0).then(|| header(bytes)).flatten();
    let last = at + bytes.len() as u64 == end;
    let tail = bytes.len().checked_sub(FOOTER).filter(|_| last);
    let format = head.or_else(|| footer(&bytes[tail?..]))?;
    (kind == Kind::Regular || format != LUKS).then_some(format)
}

fn header(bytes: &[u8]) -> Option<&'static str> {
    let signed = |(at, signature, _): &&(usize, &[u8], &str)| {
        bytes
            .get(*at..)
            .is_some_and(|bytes| bytes.starts_with(signature))
    };
    HEADERS.iter().find(signed).map(|(_, _, format)| *format)
}

fn footer(bytes: &[u8]) -> Option<&'static str> {
    let signed = |(signature, _): &&(&[u8], &str)| bytes.starts_with(signature);
    FOOTERS.iter().find(signed).map(|(_, format)| *format)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_found_where_they_belong_and_nowhere_else() {
        let disk = |at: usize, signature: &[u8]| {
            let mut bytes = vec![0; 8192];
            bytes[at..][..signature.len()].copy_from_slice(signature);
            bytes
        };
        let found = |bytes: &[u8], at, kind| within(bytes, at, 1 << 20, kind);
        let end = (1 << 20) - 8192;
        for (offset, signature, format) in HEADERS {
            let header = disk(offset, signature);
            assert_eq!(found(&header, 0, Kind::Regular), Some(format));
            let luks = format == LUKS;
            let on_device = found(&header, 0, Kind::BlockDevice);
            assert_eq!(on_device, (!luks).then_some(format));
            assert_eq!(found(&header, 512, Kind::Regular), None);
            let elsewhere = disk(offset + 512, signature);
            assert_eq!(found(&elsewhere, 0, Kind::Regular), None);
        }
        for (signature, format) in FOOTERS {
            let footer = disk(8192 - 512, signature);
            assert_eq!(found(&footer, end, Kind::Regular), Some(format));
            assert_eq!(found(&footer, 0, Kind::Regular), None);
            assert_eq!(found(&footer, end - 512, Kind::Regular), None);
        }
        // A disk of a single block begins and ends in it; what is no block has neither.
        assert_eq!(within(b"koly", 0, 4, Kind::Regular), None);
        let only = [b"koly".as_slice(), &[0; 508]].concat();
        assert_eq!(within(&only, 0, 512, Kind::Regular), Some("DMG"));
    }
}
