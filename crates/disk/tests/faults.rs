//! What happens when the machine says no: the request fails, nothing is acknowledged that is lost, and
//! the disk goes on.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use common::loops::Loop;
use common::tiny::Tiny;
use common::{engines, set_len, skip, sparse};
use pollux_disk::file::{Cache, Engine, Settings};
use pollux_disk::{Disk, Durability, Failure, File, Op, OpenError, Options, Unmap};
use pollux_disk_conformance::{Buffer, Client, keeps_its_contents, pattern, read, write, zeroes};
use rustix::io::Errno;
use tempfile::TempDir;

fn open(path: &Path, cache: Cache, engine: Engine) -> File {
    let settings = Settings {
        engine,
        ..cache.into()
    };
    File::open(path, settings, &Options::default()).unwrap()
}

/// Runs `test` on every engine there is.
fn on_every_engine(test: fn(Engine)) {
    for engine in engines() {
        println!("engine: {engine:?}");
        test(engine);
    }
}

#[test]
fn a_full_file_system_fails_the_write_and_nothing_else() {
    on_every_engine(|engine| {
        let Some(tiny) = Tiny::mount() else { return };
        let disk = open(&tiny.file(), Cache::Writeback, engine);
        let mut client = Client::new(&disk);
        let bytes = pattern(1, 512 << 10);
        assert_eq!(client.write_bytes(0, &bytes), Ok(()));
        let full = client.write_bytes(1 << 20, &pattern(2, 4 << 20));
        assert_eq!(full, Err(Failure::Io(Errno::NOSPC)));
        assert!(client.read_bytes(0, 512 << 10) == bytes);
        let (at, len) = (0, 8 << 20);
        assert_eq!(client.run(Op::Discard { at, len }), Ok(()));
        assert_eq!(
            client.write_bytes(1 << 20, &bytes),
            Ok(()),
            "there is room again"
        );
    });
}

#[test]
fn a_flush_that_failed_once_fails_until_the_disk_is_opened_anew() {
    on_every_engine(|engine| {
        let Some(tiny) = Tiny::mount() else { return };
        let Some(device) = Loop::over(&tiny.file()) else {
            return;
        };
        let disk = open(Path::new(&device.0), Cache::Writeback, engine);
        let mut client = Client::new(&disk);
        assert_eq!(client.run(Op::Flush), Ok(()));
        // The page cache takes it; the storage, which is full, cannot.
        assert_eq!(client.write_bytes(0, &pattern(1, 4 << 20)), Ok(()));
        let failed = client.run(Op::Flush);
        assert!(matches!(failed, Err(Failure::Io(_))), "{failed:?}");
        for _ in 0..3 {
            assert_eq!(
                client.run(Op::Flush),
                failed,
                "the kernel has forgotten, we have not"
            );
        }
        let buffer = Buffer::new(512);
        let (at, from, durability) = (0, buffer.spans(), Durability::Stable);
        let stable = Op::Write {
            at,
            from,
            durability,
        };
        assert_eq!(client.run(stable), failed);
        assert_eq!(
            Client::new(&disk).run(Op::Flush),
            failed,
            "on every channel"
        );
        drop(client);
        drop(disk);
        let disk = open(Path::new(&device.0), Cache::Writeback, engine);
        assert_eq!(Client::new(&disk).run(Op::Flush), Ok(()));
    });
}

#[test]
fn a_write_through_that_cannot_be_stable_fails() {
    on_every_engine(|engine| {
        let Some(tiny) = Tiny::mount() else { return };
        let Some(device) = Loop::over(&tiny.file()) else {
            return;
        };
        let disk = open(Path::new(&device.0), Cache::Writethrough, engine);
        let mut client = Client::new(&disk);
        assert_eq!(client.write_bytes(0, &pattern(1, 64 << 10)), Ok(()));
        let failed = client.write_bytes(1 << 20, &pattern(2, 4 << 20));
        assert!(matches!(failed, Err(Failure::Io(_))), "{failed:?}");
    });
}

#[test]
fn a_block_device_is_a_disk_and_written_by_one_only() {
    on_every_engine(|engine| {
        let folder = TempDir::new().unwrap();
        let Some(device) = Loop::in_folder(&folder) else {
            return;
        };
        for cache in [Cache::Writeback, Cache::Writethrough, Cache::None] {
            let disk = open(Path::new(&device.0), cache, engine);
            // A loop device punches holes where it discards, so its discarded ranges read as zeroes.
            keeps_its_contents(Arc::new(disk));
        }
        let again = |read_only| {
            let options = Options::default().read_only(read_only);
            File::open(&device.0, Cache::Writeback, &options)
        };
        let first = open(Path::new(&device.0), Cache::Writeback, engine);
        for read_only in [false, true] {
            let in_use = again(read_only).unwrap_err();
            assert!(matches!(in_use, OpenError::InUse { .. }), "{in_use}");
        }
        drop(first);
        let _reader = again(true).unwrap();
        assert!(again(true).is_ok(), "readers share it");
        let in_use = again(false).unwrap_err();
        assert!(matches!(in_use, OpenError::InUse { .. }), "{in_use}");
    });
}

#[test]
fn a_block_device_tells_its_limits_and_gives_blocks_back() {
    let folder = TempDir::new().unwrap();
    let Some(device) = Loop::in_folder(&folder) else {
        return;
    };
    let told = |name: &str| -> u64 {
        let queue = format!("/sys/block/{}/queue", device.0.trim_start_matches("/dev/"));
        let text = fs::read_to_string(Path::new(&queue).join(name)).unwrap();
        text.trim().parse().unwrap()
    };
    let disk = File::open(&device.0, Cache::Writeback, &Options::default()).unwrap();
    let geometry = disk.geometry();
    assert_eq!(u64::from(geometry.min_io), told("minimum_io_size"));
    assert_eq!(u64::from(geometry.optimal_io), told("optimal_io_size"));
    assert_eq!(u64::from(geometry.block), told("logical_block_size"));
    assert_eq!(
        u64::from(geometry.physical_block),
        told("physical_block_size")
    );
    let Some(limits) = geometry.discard else {
        assert_eq!(told("discard_max_bytes"), 0);
        return skip("loop devices do not discard here");
    };
    assert!(limits.max_bytes <= told("discard_max_bytes"));
    assert_eq!(u64::from(limits.alignment), told("discard_granularity"));
    let mut client = Client::new(&disk);
    let bytes = pattern(1, 8 << 20);
    assert_eq!(client.write_bytes(0, &bytes), Ok(()));
    assert_eq!(client.run(Op::Flush), Ok(()));
    let blocks = || {
        fs::metadata(folder.path().join("disk.img"))
            .unwrap()
            .blocks()
            * 512
    };
    let full = blocks();
    let (at, len) = (1 << 20, 2 << 20);
    assert_eq!(client.run(Op::Discard { at, len }), Ok(()));
    assert!(blocks() <= full - len, "discard gives blocks back");
    let at = 4 << 20;
    assert_eq!(client.run(zeroes(at, len, Unmap::Allowed)), Ok(()));
    assert!(blocks() <= full - 2 * len, "so does unmap");
    let seen = client.read_bytes(0, 8 << 20);
    assert!(seen[4 << 20..6 << 20].iter().all(|&byte| byte == 0));
    // What was discarded may read as anything; what lies around it is as it was.
    for kept in [0..1 << 20, 3 << 20..4 << 20, 6 << 20..8 << 20] {
        assert!(seen[kept.clone()] == bytes[kept.clone()], "{kept:?}");
    }
}

#[test]
fn a_block_device_that_refuses_writes_is_opened_for_reading_only() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("disk.img");
    fs::write(&path, pattern(1, 1 << 20)).unwrap();
    let Some(device) = Loop::with(&["--find", "--show", "--read-only"], &path) else {
        return;
    };
    let open = |read_only| {
        let options = Options::default().read_only(read_only);
        File::open(&device.0, Cache::Writeback, &options)
    };
    let refused = open(false).unwrap_err();
    assert!(matches!(refused, OpenError::Permission { .. }), "{refused}");
    let disk = open(true).unwrap();
    let geometry = disk.geometry();
    assert_eq!((geometry.discard, geometry.write_zeroes), (None, None));
    assert!(Client::new(&disk).read_bytes(0, 1 << 20) == pattern(1, 1 << 20));
}

#[test]
fn a_mounted_block_device_is_busy() {
    let folder = TempDir::new().unwrap();
    let Some(device) = Loop::in_folder(&folder) else {
        return;
    };
    // As mounted as the kernel knows: opened for exclusive use.
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::EXCL;
    let mounted = rustix::fs::open(&*device.0, flags, rustix::fs::Mode::empty()).unwrap();
    let open = || File::open(&device.0, Cache::Writeback, &Options::default());
    let busy = open().unwrap_err();
    assert!(matches!(busy, OpenError::Busy { .. }), "{busy}");
    drop(mounted);
    assert!(open().is_ok());
}

#[test]
fn a_file_that_was_cut_short_fails_the_read_instead_of_inventing_data() {
    on_every_engine(|engine| {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("disk.img");
        fs::write(&path, pattern(1, 1 << 20)).unwrap();
        let disk = open(&path, Cache::Writeback, engine);
        let mut client = Client::new(&disk);
        set_len(&path, 1 << 19);
        let buffer = Buffer::new(4096);
        let lost = Err(Failure::Io(Errno::NODATA));
        assert_eq!(client.run(read(1 << 19, &buffer)), lost);
        assert_eq!(
            client.run(read((1 << 19) - 2048, &buffer)),
            lost,
            "half of it is there"
        );
        assert_eq!(client.run(read((1 << 19) - 4096, &buffer)), Ok(()));
    });
}

#[test]
fn a_file_that_refuses_writes_can_still_be_read() {
    on_every_engine(|engine| {
        let folder = TempDir::new().unwrap();
        let sealed =
            rustix::fs::memfd_create("sealed", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&sealed, 1 << 20).unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&sealed);
        let path = folder.path().join("sealed.img");
        std::os::unix::fs::symlink(format!("/proc/self/fd/{number}"), &path).unwrap();
        let disk = open(&path, Cache::Writeback, engine);
        rustix::fs::fcntl_add_seals(&sealed, rustix::fs::SealFlags::WRITE).unwrap();
        let mut client = Client::new(&disk);
        let buffer = Buffer::new(4096);
        assert_eq!(client.run(write(0, &buffer)), Err(Failure::Io(Errno::PERM)));
        assert_eq!(client.run(read(0, &buffer)), Ok(()));
    });
}

#[test]
fn a_spanning_request_of_more_spans_than_the_kernel_takes_is_whole() {
    on_every_engine(|engine| {
        let folder = TempDir::new().unwrap();
        let path = sparse(&folder, 4 << 20);
        let disk = open(&path, Cache::Writeback, engine);
        let mut client = Client::new(&disk);
        let cuts: Vec<_> = (1..3000).map(|n| n * 512).collect();
        let bytes = pattern(1, 3000 * 512);
        let buffer = Buffer::cut(bytes.len(), &cuts);
        buffer.fill(&bytes);
        assert_eq!(client.run(write(512, &buffer)), Ok(()));
        buffer.fill(&vec![0; bytes.len()]);
        assert_eq!(client.run(read(512, &buffer)), Ok(()));
        assert!(buffer.bytes() == bytes);
    });
}

#[test]
fn a_device_of_larger_blocks_is_refused_as_one_of_smaller_when_it_is_opened() {
    let folder = TempDir::new().unwrap();
    let path = sparse(&folder, 8 << 20);
    let options = ["--find", "--show", "--sector-size", "4096"];
    let Some(device) = Loop::with(&options, &path) else {
        return;
    };
    let with = |block_size| {
        let options = Options::default().block_size(block_size);
        File::open(&device.0, Cache::None, &options)
    };
    let refusal = with(Some(512)).unwrap_err().to_string();
    assert!(refusal.contains("use blocks of 4096"), "{refusal}");
    for block_size in [None, Some(4096)] {
        let disk = with(block_size).unwrap();
        assert_eq!(disk.geometry().block, 4096);
        let mut client = Client::new(&disk);
        assert_eq!(client.write_bytes(4096, &pattern(1, 4096)), Ok(()));
        assert!(client.read_bytes(4096, 4096) == pattern(1, 4096));
    }
}
