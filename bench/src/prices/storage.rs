//! What the kernel charges for 4 KiB of a file, by the calls that a server can choose from.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use io_uring::{IoUring, opcode, types};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::Price;
use crate::cell::{BLOCK, Disk};
use crate::images::{Images, open_directly};
use crate::pinned::Pinned;
use crate::round_trip::Processors;

/// A buffer that `O_DIRECT` takes.
#[repr(align(4096))]
struct Page([u8; BLOCK]);

pub fn prices(processors: Processors, images: &Images) -> io::Result<Vec<Price>> {
    for disk in [Disk::Tmpfs, Disk::Cached, Disk::Direct] {
        images.prepare(disk, 0)?;
    }
    let tmpfs = File::open(images.path(Disk::Tmpfs, 0))?;
    let cached = File::open(images.path(Disk::Cached, 0))?;
    let direct = open_directly(&images.path(Disk::Direct, 0))?;
    let _pinned = Pinned::to(processors.own)?;
    let mut prices = vec![
        pread("pread of 4 KiB, tmpfs", &tmpfs, Disk::Tmpfs)?,
        pread("pread of 4 KiB, page cache", &cached, Disk::Cached)?,
        pread_without_waiting("preadv2 with RWF_NOWAIT, page cache", &cached, Disk::Cached)?,
        pread("pread of 4 KiB, O_DIRECT", &direct, Disk::Direct)?,
    ];
    for (file, disk, names) in [
        (
            &tmpfs,
            Disk::Tmpfs,
            [
                "io_uring per read, tmpfs, 1 at once",
                "io_uring per read, tmpfs, 16 at once",
            ],
        ),
        (
            &cached,
            Disk::Cached,
            [
                "io_uring per read, page cache, 1 at once",
                "io_uring per read, page cache, 16 at once",
            ],
        ),
    ] {
        for (name, depth) in names.into_iter().zip([1, 16]) {
            match io_uring(name, file, disk, depth) {
                Ok(price) => prices.push(price),
                Err(error) => eprintln!("{name}: not to be had here: {error}"),
            }
        }
    }
    Ok(prices)
}

/// Random offsets within `disk`.
fn offsets(disk: Disk) -> impl FnMut() -> u64 {
    let mut random = fastrand::Rng::with_seed(1);
    move || random.u64(..disk.size() / BLOCK as u64) * BLOCK as u64
}

fn pread(name: &'static str, file: &File, disk: Disk) -> io::Result<Price> {
    let mut page = Box::new(Page([0; BLOCK]));
    let mut offset = offsets(disk);
    // The disk may take a thousand times as long as memory.
    let batch = if disk == Disk::Direct { 1 } else { 100 };
    Price::of_batches(name, batch, || file.read_exact_at(&mut page.0, offset()))
}

fn pread_without_waiting(name: &'static str, file: &File, disk: Disk) -> io::Result<Price> {
    let mut page = Box::new(Page([0; BLOCK]));
    let mut offset = offsets(disk);
    Price::of_batches(name, 100, || {
        let (into, at) = (&mut [IoSliceMut::new(&mut page.0)], offset());
        match preadv2(file, into, at, ReadWriteFlags::NOWAIT) {
            Ok(BLOCK) => Ok(()),
            Ok(short) => Err(io::Error::other(format!("{name}: only {short} bytes"))),
            // The machine has taken this page back since: the few such do not move a median.
            Err(Errno::AGAIN) => file.read_exact_at(&mut page.0, at),
            Err(error) => Err(error.into()),
        }
    })
}

/// `depth` reads submitted and waited for by one system call.
fn io_uring(name: &'static str, file: &File, disk: Disk, depth: u32) -> io::Result<Price> {
    let mut ring = IoUring::new(depth)?;
    // Never freed: should waiting fail, the kernel may write to them at any later time.
    let pages: Vec<Page> = (0..depth).map(|_| Page([0; BLOCK])).collect();
    let pages: &'static mut [Page] = pages.leak();
    let mut offset = offsets(disk);
    let length = u32::try_from(BLOCK).expect("4096 fits");
    let price = Price::of_batches(name, 32, || {
        for page in &mut *pages {
            let fd = types::Fd(file.as_raw_fd());
            let read = opcode::Read::new(fd, page.0.as_mut_ptr(), length).offset(offset());
            // SAFETY: the page is never freed, and nothing reads it but `submit_and_wait` below has
            // waited for every read; if that failed, nothing reads it any more.
            unsafe { ring.submission().push(&read.build()) }.map_err(io::Error::other)?;
        }
        ring.submit_and_wait(pages.len())?;
        for done in ring.completion() {
            if done.result() < 0 {
                return Err(io::Error::from_raw_os_error(-done.result()));
            }
        }
        Ok(())
    })?;
    Ok(price.divided_by(f64::from(depth)))
}
