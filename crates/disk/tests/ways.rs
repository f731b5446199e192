//! Which way requests to a file go: at once, through `io_uring`, by a thread.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::{engines, skip, tmpfs};
use pollux_disk::file::{Cache, Engine, Inline, Settings};
use pollux_disk::wait::Sleeper;
use pollux_disk::{Disk, File, Op, Options, Queued, Request, Ticket, Unmap};
use pollux_disk_conformance::{Buffer, Client, pattern, read, write, zeroes};
use rustix::fs::Advice;
use tempfile::TempDir;

fn image(folder: &TempDir, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join("disk.img");
    fs::write(&path, bytes).unwrap();
    path
}

fn open(path: &Path, settings: Settings) -> File {
    File::open(path, settings, &Options::default()).unwrap()
}

/// How often requests went the way of that name.
fn went(disk: &File, way: &str) -> u64 {
    let counters = disk.counters();
    counters.iter().find(|(name, _)| *name == way).unwrap().1
}

/// A folder whose file system tells what it has in the page cache.
fn telling() -> Option<TempDir> {
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let disk = open(&image(&folder, &[7; 4096]), Settings::default());
    Client::new(&disk).read_bytes(0, 4096);
    if went(&disk, "inline") == 1 {
        return Some(folder);
    }
    skip("this file system does not know RWF_NOWAIT");
    None
}

/// For how long the kernel may go on as if nothing had been forgotten.
const PATIENCE: Duration = Duration::from_secs(30);

/// Lets the page cache forget the `len` bytes at `at` of a file that is on its disk already.
fn forget(path: &Path, at: u64, len: u64) {
    let file = fs::File::open(path).unwrap();
    file.sync_all().unwrap();
    let len = std::num::NonZeroU64::new(len);
    rustix::fs::fadvise(&file, at, len, Advice::DontNeed).unwrap();
}

#[test]
fn cached_data_is_read_at_once_and_cold_data_by_the_engine() {
    let Some(folder) = telling() else { return };
    for engine in engines() {
        let bytes = pattern(1, 64 << 10);
        let path = image(&folder, &bytes);
        let settings = Settings {
            engine,
            ..Settings::default()
        };
        let disk = open(&path, settings);
        let mut client = Client::new(&disk);
        assert!(client.read_bytes(0, 64 << 10) == bytes);
        let elsewhere = || went(&disk, "io_uring") + went(&disk, "threads");
        assert_eq!(
            (went(&disk, "inline"), elsewhere()),
            (1, 0),
            "it was just written"
        );

        // All of it is cold; then the first half is there, and the second is not. The kernel forgets nothing that
        // its journal still holds, and may have fetched all by the time it is asked twice: then once more.
        for cold_from in [0, 32 << 10] {
            let began = Instant::now();
            loop {
                client.read_bytes(0, 64 << 10);
                forget(&path, cold_from, (64 << 10) - cold_from);
                let before = elsewhere();
                assert!(client.read_bytes(0, 64 << 10) == bytes);
                if elsewhere() > before {
                    break;
                }
                assert!(
                    began.elapsed() < PATIENCE,
                    "what is cold from {cold_from} on never went to the engine"
                );
            }
        }
    }
}

#[test]
fn a_file_in_memory_is_used_at_once_and_has_nothing_to_flush() {
    let Some(folder) = tmpfs() else { return };
    for cache in [Cache::Writeback, Cache::Writethrough] {
        let disk = open(&image(&folder, &[0; 12288]), cache.into());
        let mut client = Client::new(&disk);
        assert_eq!(client.write_bytes(4096, &pattern(1, 4096)), Ok(()));
        assert_eq!(client.run(Op::Flush), Ok(()));
        assert!(client.read_bytes(4096, 4096) == pattern(1, 4096));
        assert_eq!(client.sleeps(), 0);
        assert_eq!(went(&disk, "inline"), 2);
    }
}

/// How many system calls start 100 transfers that are queued together.
fn starts(disk: &File) -> u64 {
    let sleeper = Sleeper::new().unwrap();
    let mut channel = disk.open_channel(sleeper.point()).unwrap();
    let buffers: Vec<_> = (0..100).map(|_| Buffer::new(4096)).collect();
    for (n, buffer) in (0..).zip(&buffers) {
        let ticket = Ticket(n);
        let op = read(4096 * n, buffer);
        assert_eq!(channel.queue(Request { ticket, op }), Queued::Pending);
    }
    channel.submit();
    assert_eq!(went(disk, "io_uring"), 100);
    let starts = went(disk, "io_uring_enter");
    let mut left = 100;
    while left > 0 {
        channel.reap(&mut |_| left -= 1);
        channel.submit();
    }
    starts
}

#[test]
fn all_that_is_queued_is_one_system_call() {
    if engines()[0] != Engine::IoUring {
        return; // and it was said
    }
    let folder = TempDir::new().unwrap();
    let settings = Settings {
        inline: Inline::Off,
        ..Settings::default()
    };
    let disk = open(&image(&folder, &vec![0; 1 << 20]), settings);
    assert_eq!(starts(&disk), 1);
}

/// The disk need not wait for the last of them.
#[test]
fn past_the_page_cache_four_are_started_at_a_time() {
    if engines()[0] != Engine::IoUring {
        return; // and it was said
    }
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = image(&folder, &vec![0; 1 << 20]);
    match File::open(&path, Cache::None, &Options::default()) {
        Ok(disk) => assert_eq!(starts(&disk), 25),
        Err(error) => skip(&error.to_string()),
    }
}

#[test]
fn what_direct_io_cannot_use_is_bounced_and_counted() {
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = image(&folder, &vec![0; 1 << 20]);
    let disk = match File::open(&path, Cache::None, &Options::default()) {
        Ok(disk) => disk,
        Err(error) => return skip(&error.to_string()),
    };
    let mut client = Client::new(&disk);
    let (straight, odd) = (Buffer::holding(&pattern(1, 8192)), Buffer::cut(8192, &[33]));
    assert_eq!(client.run(write(0, &straight)), Ok(()));
    assert_eq!(went(&disk, "bounced"), 0);
    assert_eq!(client.run(read(0, &odd)), Ok(()));
    assert!(odd.bytes() == pattern(1, 8192));
    odd.fill(&pattern(2, 8192));
    assert_eq!(client.run(write(4096, &odd)), Ok(()));
    assert_eq!(went(&disk, "bounced"), 2);
    assert!(client.read_bytes(4096, 8192) == pattern(2, 8192));
}

#[test]
fn more_than_a_ring_holds_all_ends() {
    let folder = TempDir::new().unwrap();
    for engine in engines() {
        let settings = Settings {
            engine,
            inline: Inline::Off,
            ..Settings::default()
        };
        let disk = open(&image(&folder, &vec![0; 16 << 20]), settings);
        let mut client = Client::new(&disk);
        let buffers: Vec<_> = (0..4096)
            .map(|n| Buffer::holding(&pattern(n + 1, 4096)))
            .collect();
        let each = |op: fn(u64, &Buffer) -> Op| -> Vec<Op> {
            (0..)
                .zip(&buffers)
                .map(|(n, buffer)| op(n * 4096, buffer))
                .collect()
        };
        assert_eq!(client.run_all(&each(write)), vec![Ok(()); 4096]);
        for buffer in &buffers {
            buffer.fill(&[0; 4096]);
        }
        assert_eq!(client.run_all(&each(read)), vec![Ok(()); 4096]);
        for (n, buffer) in (0..).zip(&buffers) {
            assert!(buffer.bytes() == pattern(n + 1, 4096), "request {n}");
        }
    }
}

#[test]
fn ranges_go_to_the_threads() {
    let folder = TempDir::new().unwrap();
    let disk = open(&image(&folder, &vec![7; 1 << 20]), Settings::default());
    let mut client = Client::new(&disk);
    assert_eq!(client.run(zeroes(0, 4096, Unmap::Forbidden)), Ok(()));
    assert_eq!(went(&disk, "threads"), 1);
    assert_eq!(client.read_bytes(0, 8192)[4095..4097], [0, 7]);
}
