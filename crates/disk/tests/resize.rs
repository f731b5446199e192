//! Files that grow while they are used.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use common::{set_len, sparse};
use pollux_disk::{Disk, Event, Failure, Options, ResizeError, Spec};
use pollux_disk_conformance::{Client, pattern};
use tempfile::TempDir;

const SIZE: u64 = 1 << 20;

struct Image {
    /// Goes with it.
    _folder: TempDir,
    path: PathBuf,
}

impl Image {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        Self {
            path: sparse(&folder, SIZE),
            _folder: folder,
        }
    }

    fn truncate(&self, bytes: u64) {
        set_len(&self.path, bytes);
    }

    fn len(&self) -> u64 {
        fs::metadata(&self.path).unwrap().len()
    }
}

fn open(spec: &str, path: &Path, options: &Options) -> Arc<dyn Disk> {
    let spec = spec.replace("PATH", path.to_str().unwrap());
    spec.parse::<Spec>().unwrap().open(options).unwrap()
}

#[test]
fn a_file_grows_under_its_channels_and_says_so() {
    for spec in [
        "file:path=PATH",
        "file:path=PATH,engine=threads",
        "fault:delay=1us,on=file:path=PATH",
    ] {
        let image = Image::new();
        let disk = open(spec, &image.path, &Options::default());
        let told = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&told);
        let _subscription = disk.events().subscribe(move |event| {
            assert_eq!(event, Event::Changed);
            count.fetch_add(1, Ordering::Relaxed);
        });
        let mut client = Client::new(&*disk);
        let last = pattern(1, 4096);
        let beyond = client.write_bytes(2 * SIZE - 4096, &last);
        assert_eq!(beyond, Err(Failure::OutOfRange), "{spec}");
        disk.resize(Some(2 * SIZE)).unwrap();
        assert_eq!((disk.geometry().bytes, image.len()), (2 * SIZE, 2 * SIZE));
        assert_eq!(client.write_bytes(2 * SIZE - 4096, &last), Ok(()), "{spec}");
        assert_eq!(client.read_bytes(2 * SIZE - 4096, 4096), last);
        image.truncate(3 * SIZE);
        assert_eq!(disk.geometry().bytes, 2 * SIZE, "nobody has looked");
        disk.resize(None).unwrap();
        assert_eq!(disk.geometry().bytes, 3 * SIZE);
        assert_eq!(client.write_bytes(3 * SIZE - 4096, &last), Ok(()), "{spec}");
        // The same once more changes nothing, and is not told.
        disk.resize(None).unwrap();
        disk.resize(Some(3 * SIZE)).unwrap();
        assert_eq!(told.load(Ordering::Relaxed), 2, "{spec}");
    }
}

#[test]
fn what_a_guest_may_use_is_never_taken_away() {
    let image = Image::new();
    let disk = open("file:path=PATH", &image.path, &Options::default());
    let refused = disk.resize(Some(SIZE - 512)).unwrap_err();
    assert!(
        matches!(refused, ResizeError::Smaller { .. }),
        "{refused:?}"
    );
    let refused = disk.resize(Some(SIZE + 1)).unwrap_err().to_string();
    assert!(refused.ends_with("take 1049088"), "{refused}");
    image.truncate(SIZE / 2);
    let refused = disk.resize(None).unwrap_err().to_string();
    assert!(refused.contains("truncate --size=1048576"), "{refused}");
    assert_eq!(disk.geometry().bytes, SIZE);
    // What another process has added is not cut off again, though not all of it was asked for.
    image.truncate(3 * SIZE + 100);
    disk.resize(Some(2 * SIZE)).unwrap();
    assert_eq!(image.len(), 3 * SIZE + 100);
    assert_eq!(disk.geometry().bytes, 3 * SIZE, "whole blocks");
}

#[test]
fn what_cannot_grow_says_what_to_do() {
    let image = Image::new();
    let read_only = Options::default().read_only(true);
    let path = &image.path;
    for (spec, options, asked, words) in [
        ("memory:size=1M", Options::default(), None, "use a file, an"),
        ("null:size=1M", Options::default(), None, "use a file, an"),
        ("file:path=PATH", read_only, Some(2 * SIZE), "`truncate`"),
        (
            "linear:PATH",
            Options::default(),
            Some(2 * SIZE),
            "without a size",
        ),
        (
            "file:path=PATH,lock=running",
            Options::default(),
            None,
            "read anew when one starts",
        ),
    ] {
        let disk = open(spec, path, &options);
        let refused = disk.resize(asked).unwrap_err().to_string();
        assert!(refused.contains(words), "{spec}: {refused}");
        assert_eq!(image.len(), SIZE, "{spec}");
    }
    let running = open("file:path=PATH,lock=running", path, &Options::default());
    running.acquire().unwrap();
    running.resize(Some(2 * SIZE)).unwrap();
    assert_eq!(running.geometry().bytes, 2 * SIZE);
}

#[test]
fn a_stack_looks_at_its_legs() {
    let image = Image::new();
    let stack = open(
        "linear:memory:size=1M+PATH",
        &image.path,
        &Options::default(),
    );
    image.truncate(2 * SIZE);
    stack.resize(None).unwrap();
    assert_eq!(stack.geometry().bytes, 3 * SIZE);
    let mut client = Client::new(&*stack);
    let last = pattern(1, 4096);
    assert_eq!(client.write_bytes(3 * SIZE - 4096, &last), Ok(()));
}

#[test]
fn what_would_move_the_rest_of_a_linear_disk_is_told() {
    let image = Image::new();
    let spec = "linear:PATH+memory:size=1M";
    let stack = open(spec, &image.path, &Options::default());
    let mut client = Client::new(&*stack);
    client.write_bytes(SIZE, &[7; 4096]).unwrap();
    stack.resize(None).unwrap();
    image.truncate(2 * SIZE);
    let told = stack.resize(None).unwrap_err().to_string();
    assert!(
        told.starts_with("leg 1 of this linear disk has grown from 1048576 bytes to 2097152"),
        "{told}"
    );
    // Until it is opened again all stays where it is.
    assert_eq!(stack.geometry().bytes, 2 * SIZE);
    assert_eq!(client.read_bytes(SIZE, 4096), [7; 4096]);
}

/// Each has looked how long it is before the other enlarges it.
#[test]
fn of_two_that_enlarge_a_file_neither_cuts_it() {
    const BLOCK: u64 = 512;
    const TIMES: u64 = 20_000;
    let image = Image::new();
    let disk = open("file:path=PATH", &image.path, &Options::default());
    let blocks = AtomicU64::new(SIZE / BLOCK);
    let enlarge = || {
        for _ in 0..TIMES {
            let asked = (blocks.fetch_add(1, Ordering::Relaxed) + 1) * BLOCK;
            match disk.resize(Some(asked)) {
                // The other was faster, with more.
                Ok(()) | Err(ResizeError::Smaller { .. }) => {}
                Err(error) => panic!("{error}"),
            }
            let told = disk.geometry().bytes;
            assert!((asked..=image.len()).contains(&told), "{told}");
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(enlarge);
        scope.spawn(enlarge);
    });
}
