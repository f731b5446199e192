//! An image that two hosts use one after the other, as when a guest migrates, and what else may be done to an image
//! behind a disk's back. Two loop devices over one file are one LUN as two hosts see it: each has a page cache of its
//! own.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use common::loops::Loop;
use common::set_len;
use pollux_disk::file::{Cache, Locked, Settings};
use pollux_disk::{Disk, Event, File, Op, OpenError, Options, Spec};
use pollux_disk_conformance::{Client, pattern};
use tempfile::TempDir;

const SIZE: u64 = 8 << 20;

fn image(folder: &TempDir, name: &str) -> PathBuf {
    let path = folder.path().join(name);
    fs::File::create(&path).unwrap().set_len(SIZE).unwrap();
    path
}

fn open(path: &Path, cache: Cache) -> Result<File, OpenError> {
    let settings = Settings {
        cache,
        lock: Locked::Running,
        ..Settings::default()
    };
    File::open(path, settings, &Options::default())
}

/// The host's own programs (udev, blkid) have read the device, and something keeps its page cache.
fn looked_at(path: &str) -> fs::File {
    let mut device = fs::File::open(path).unwrap();
    device.read_exact(&mut vec![0; 1 << 20]).unwrap();
    device
}

#[test]
fn a_guest_that_comes_back_reads_what_it_wrote_elsewhere() {
    let folder = TempDir::new().unwrap();
    let Some(hosts) = Loop::two_hosts(&image(&folder, "lun")) else {
        return;
    };
    let _caches = [looked_at(&hosts[0].0), looked_at(&hosts[1].0)];
    let mut served = 0;
    for cache in [Cache::Writeback, Cache::Writethrough, Cache::None] {
        let disks = hosts.each_ref().map(|host| open(Path::new(&host.0), cache));
        let [Ok(a), Ok(b)] = disks else {
            let refusal = disks.into_iter().find_map(Result::err).unwrap().to_string();
            assert!(refusal.contains("add `cache=none`"), "{cache:?}: {refusal}");
            continue;
        };
        served += 1;
        for round in 0..3 {
            for (number, disk) in (0..).zip([&a, &b]) {
                disk.acquire().unwrap();
                let mut client = Client::new(disk);
                let turn = round * 2 + number;
                if turn > 0 {
                    let seen = client.read_bytes(4096, 65536);
                    assert!(
                        seen == pattern(turn - 1, 65536),
                        "{cache:?}: stale, turn {turn}"
                    );
                }
                assert_eq!(client.write_bytes(4096, &pattern(turn, 65536)), Ok(()));
                assert_eq!(client.run(Op::Flush), Ok(()));
                drop(client);
                disk.release().unwrap();
            }
        }
    }
    assert!(served > 0, "no cache will do");
}

#[test]
fn an_image_that_grew_elsewhere_is_as_large_here() {
    let folder = TempDir::new().unwrap();
    let image = image(&folder, "disk.img");
    let disk = open(&image, Cache::Writeback).unwrap();
    let told = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&told);
    let _subscription = disk.events().subscribe(move |event| {
        assert_eq!(event, Event::Changed);
        count.fetch_add(1, Ordering::Relaxed);
    });
    let acquired = |size: u64| {
        set_len(&image, size);
        disk.acquire().unwrap();
        let seen = (disk.geometry().bytes, told.load(Ordering::Relaxed));
        let mut client = Client::new(&disk);
        let beyond = client.write_bytes(size - 4096, &pattern(1, 4096));
        assert_eq!(beyond, Ok(()), "all of it can be written");
        let beyond = client.write_bytes(size, &pattern(1, 4096));
        assert!(beyond.is_err(), "and no more");
        drop(client);
        disk.release().unwrap();
        seen
    };
    assert_eq!(acquired(SIZE), (SIZE, 0));
    assert_eq!(acquired(2 * SIZE), (2 * SIZE, 1));
    assert_eq!(acquired(SIZE), (SIZE, 2));
    // What holds nothing any more is refused, and left to others.
    fs::File::create(&image).unwrap();
    disk.acquire().unwrap_err();
    set_len(&image, SIZE);
    let other = open(&image, Cache::Writeback).unwrap();
    other.acquire().unwrap();
}

/// A second daemon, started by mistake and refused, must not be in the way of the first one's next start.
#[test]
fn a_stack_that_is_refused_a_leg_holds_none() {
    let folder = TempDir::new().unwrap();
    let [one, other] = ["one", "other"].map(|name| image(&folder, name));
    let leg = |path: &Path| format!("[file:path={},lock=running]", path.display());
    let spec: Spec = format!("linear:{}+{}", leg(&one), leg(&other))
        .parse()
        .unwrap();
    let stack = spec.open(&Options::default()).unwrap();
    let always = |path: &Path| File::open(path, Cache::Writeback, &Options::default());
    let first = always(&other).unwrap();
    stack.acquire().unwrap_err();
    drop(first);
    let _legs = [always(&one).unwrap(), always(&other).unwrap()];
}

#[test]
fn an_image_behind_a_loop_device_is_refused_by_name() {
    let folder = TempDir::new().unwrap();
    let image = image(&folder, "disk.img");
    let with = |read_only| {
        let options = Options::default().read_only(read_only);
        File::open(&image, Cache::Writeback, &options)
    };
    let Some(device) = Loop::over(&image) else {
        return;
    };
    for read_only in [false, true] {
        let refusal = with(read_only).unwrap_err().to_string();
        let remedy = format!("losetup --detach {}", device.0);
        assert!(refusal.contains(&remedy), "{refusal}");
    }
    drop(device);
    with(false).unwrap();
    let Some(_device) = Loop::with(&["--find", "--show", "--read-only"], &image) else {
        return;
    };
    with(false).unwrap_err();
    with(true).unwrap();
}
