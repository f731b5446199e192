//! As `power_cut`, of images in QEMU's format: what the power leaves has no error, and holds what was promised.
//!
//! To see them fail: let `qcow2/work.rs` never sync, or flush the first file alone in `qcow2/channel.rs`.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::fs;

use fastrand::Rng;
use pollux_tests::frontend::{Driver, Queue, Status, TWO_QUEUES};
use pollux_tests::qcow2::QemuImg;
use pollux_tests::random::seed;
use pollux_tests::records::RECORD;
use pollux_tests::server::Server;
use pollux_tests::storage::{Medium, Storage};
use pollux_tests::storm::{DISK, Promise, Storm};
use rustix::process::Signal;
use tempfile::TempDir;

/// An image whose data lies in a file of its own, which holds something else where nothing was written.
const TWO_FILES: &str = "cluster_size=64k,data_file=data.raw";

/// An image on storage that can lose its power.
struct Image {
    img: QemuImg,
    storage: Storage,
    folder: TempDir,
    spec: String,
}

impl Image {
    /// One that is made with `options`, and served with `keys`.
    fn make(options: &str, keys: &str) -> Option<Self> {
        const TABLES: u64 = 16 << 20;
        let img = QemuImg::find()?;
        let storage = Storage::new(Medium::FileOnExt4, 2 * DISK + TABLES)?;
        let path = storage.disk();
        let spec = format!("qcow2:path={},{keys}", path.display());
        img.create(path, options, DISK).unwrap();
        if options == TWO_FILES {
            let bytes = usize::try_from(DISK).unwrap();
            fs::write(path.with_file_name("data.raw"), vec![0xee; bytes]).unwrap();
        }
        storage.sync().unwrap();
        Some(Self {
            img,
            folder: TempDir::new().unwrap(),
            storage,
            spec,
        })
    }

    fn serve(&self) -> Server {
        let socket = self.folder.path().join("disk.sock");
        Server::pollux(&socket, &["--disk", &self.spec]).unwrap()
    }

    /// What the disk holds when `server` was killed and the power is back, and whether clusters leak.
    fn left(self, server: Server) -> (Vec<u8>, bool) {
        let Self {
            img,
            storage,
            folder,
            ..
        } = self;
        let (status, log) = server.end_by(Signal::KILL).unwrap();
        assert!(!status.success(), "{log}");
        let left = folder.path().join(storage.disk().file_name().unwrap());
        storage.cut_power_to(folder.path()).unwrap();
        let check = img.check(&left).unwrap();
        assert!(matches!(check.status.code(), Some(0 | 3)), "{check:?}");
        let survived = img.contents(&left).unwrap();
        (survived, check.status.code() == Some(3))
    }
}

/// Serves an image that is made with `options` in the mode `cache`, from either engine, and cuts the power `times`
/// times.
fn survives(options: &str, cache: &str, times: usize) {
    let seed = seed();
    let mut random = Rng::with_seed(seed);
    let mut leaking = 0;
    for engine in ["io_uring", "threads"].into_iter().cycle().take(times) {
        let keys = format!("cache={cache},engine={engine}");
        let Some(image) = Image::make(options, &keys) else {
            return;
        };
        let server = image.serve();
        let mut storm = Storm::start(&server, random.u64(..), Promise::of(cache), 0);
        storm.rage(&mut random, 300);
        let (survived, with_leaks) = image.left(server);
        leaking += u32::from(with_leaks);
        if let Err(lost) = storm.ends(survived) {
            panic!("{options}, {keys}: {lost}");
        }
    }
    println!("{options}: of {times} images, {leaking} leak clusters");
}

#[test]
fn flushed_writes_survive_and_leave_an_image_without_an_error() {
    survives("cluster_size=4k", "writeback", 8);
    survives("cluster_size=64k", "none", 4);
    survives("cluster_size=512,lazy_refcounts=on", "writeback", 4);
}

#[test]
fn flushed_writes_to_an_image_of_two_files_survive() {
    survives(TWO_FILES, "writeback", 8);
}

#[test]
fn writes_through_the_cache_survive_without_a_flush() {
    survives("cluster_size=64k", "writethrough", 8);
    survives(TWO_FILES, "writethrough", 8);
}

/// A driver waits for each of its requests, all in a few clusters, so that most of its writes go straight to the file.
/// It flushes at last, or has switched the cache to write-through.
fn survives_exactly(promise: Promise) {
    /// In the configuration space (VIRTIO 1.3, 5.2.4).
    const WRITEBACK: u32 = 32;
    /// `VIRTIO_BLK_T_FLUSH`
    const FLUSH: u32 = 4;
    const PLACES: usize = 32;
    let seed = seed();
    let mut random = Rng::with_seed(seed);
    let options = ["cluster_size=64k", TWO_FILES].into_iter().cycle();
    // The last request of some is a write to a place that was written before, and of others one that makes zeroes.
    for (requests, options) in (20..32).zip(options) {
        let Some(image) = Image::make(options, "cache=writeback") else {
            return;
        };
        let server = image.serve();
        let mut driver = Driver::connect(server.socket(), TWO_QUEUES).unwrap();
        if promise == Promise::Write {
            driver.frontend.set_config(WRITEBACK, &[0]).unwrap();
        }
        let queue = &mut driver.queues[0];
        let succeed = |queue: &mut Queue| {
            queue.publish_and_kick();
            queue.finish();
            assert_eq!(queue.status(0), Status::Ok);
        };
        let mut expected = vec![0; usize::try_from(DISK).unwrap()];
        for number in 0..requests {
            let at = random.usize(..PLACES) * RECORD;
            let (sector, page) = (at as u64 / 512, &mut expected[at..at + RECORD]);
            if number % 3 == 2 {
                queue.zero(0, sector);
                page.fill(0);
            } else {
                queue.write(0, sector, number + 1);
                page.fill(number + 1);
            }
            succeed(queue);
        }
        if promise == Promise::Flush {
            queue.bare(0, FLUSH);
            succeed(queue);
        }
        let (survived, _) = image.left(server);
        let mut bytes = survived.iter().zip(&expected);
        let lost = bytes.position(|(is, was)| is != was);
        assert_eq!(lost, None, "{options}, {requests} requests, {promise:?}");
    }
}

#[test]
fn all_that_a_driver_has_flushed_survives() {
    survives_exactly(Promise::Flush);
}

/// It never flushes, and the image's own setting is another.
#[test]
fn all_that_a_driver_has_written_survives_where_it_has_switched_the_cache() {
    survives_exactly(Promise::Write);
}
