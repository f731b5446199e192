//! Which disk SPDK's vhost target makes of a cell's.

use std::path::Path;

pub use pollux_tests::spdk::{command, program};

use crate::cell::Disk;

/// What stands for `disk`, or its `file`.
pub fn disk(disk: Disk, file: &Path) -> pollux_tests::spdk::Disk {
    use pollux_tests::spdk::Disk as Spdk;
    match disk {
        Disk::Null => Spdk::of_size("bdev_null_create", disk.size()),
        Disk::Memory | Disk::Delayed(_) => Spdk::of_size("bdev_malloc_create", disk.size()),
        // It has no images: `Contender::check`.
        Disk::Tmpfs | Disk::Cached | Disk::Image | Disk::Fresh | Disk::Rbd => {
            Spdk::of_file("bdev_aio_create", file)
        }
        Disk::Direct => Spdk::of_file("bdev_uring_create", file),
    }
}
