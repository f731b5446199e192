//! An image with `lock=running` is let go of without a flush, and then the power fails: the next daemon, on another
//! machine perhaps, reads what the storage holds, so all that was written is there.
//!
//! To see them fail: leave out the sync of `Backing::release`.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::fs;

use pollux_tests::frontend::{Driver, Plan, SLOTS, feature};
use pollux_tests::qcow2::QemuImg;
use pollux_tests::records::{Expected, RECORD};
use pollux_tests::server::Server;
use pollux_tests::storage::{Medium, Storage};
use pollux_tests::subject::file_spec;
use rustix::process::Signal;
use tempfile::TempDir;

/// Each slot writes to a place of its own.
const DISK: u64 = SLOTS as u64 * RECORD as u64;
/// Without the switch of the cache, writes are volatile whatever a daemon finds out.
const WRITE_BACK: Plan = Plan {
    queues: 1,
    without: feature::CONFIG_WCE,
};

/// Serves `spec`, fills the disk, stops the last queue, and kills the daemon.
fn fill_and_let_go(spec: &str) -> Expected {
    let folder = TempDir::new().unwrap();
    let server = Server::pollux(&folder.path().join("disk.sock"), &["--disk", spec]).unwrap();
    let mut driver = Driver::connect(server.socket(), WRITE_BACK).unwrap();
    let expected = driver.queues[0].write_records(1);
    // The answer says that the disk was let go of.
    driver.stop(0).unwrap();
    let (status, log) = server.end_by(Signal::KILL).unwrap();
    assert!(!status.success(), "{log}");
    expected
}

/// The ways in which a file is written.
fn ways() -> impl Iterator<Item = String> {
    let engines = ["io_uring", "threads"].into_iter();
    engines.flat_map(|engine| {
        ["writeback", "none"].map(|cache| format!("lock=running,cache={cache},engine={engine}"))
    })
}

#[test]
fn what_was_written_to_a_file_is_on_stable_storage_when_it_is_let_go() {
    for keys in ways() {
        let Some(storage) = Storage::new(Medium::FileOnExt4, DISK) else {
            return;
        };
        let expected = fill_and_let_go(&file_spec(storage.disk(), &keys));
        if let Err(lost) = expected.check(&storage.cut_power().unwrap()) {
            panic!("{keys}: {lost}");
        }
    }
}

#[test]
fn what_was_written_to_an_image_is_on_stable_storage_when_it_is_let_go() {
    const TABLES: u64 = 16 << 20;
    let Some(img) = QemuImg::find() else {
        return;
    };
    for keys in ways() {
        let Some(storage) = Storage::new(Medium::FileOnExt4, DISK + TABLES) else {
            return;
        };
        img.create(storage.disk(), "cluster_size=64k", DISK)
            .unwrap();
        storage.sync().unwrap();
        let spec = format!("qcow2:path={},{keys}", storage.disk().display());
        let expected = fill_and_let_go(&spec);
        let folder = TempDir::new().unwrap();
        let left = folder.path().join("left.qcow2");
        fs::write(&left, storage.cut_power().unwrap()).unwrap();
        let check = img.check(&left).unwrap();
        assert_eq!(check.status.code(), Some(0), "{keys}");
        if let Err(lost) = expected.check(&img.contents(&left).unwrap()) {
            panic!("{keys}: {lost}");
        }
    }
}
