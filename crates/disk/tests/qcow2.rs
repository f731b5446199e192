//! Images in QEMU's format: what Pollux writes QEMU reads, and the reverse; what is in the file while one is open is an
//! image without an error.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;
#[path = "qcow2/images.rs"]
mod images;
#[path = "qcow2/refusals.rs"]
mod refusals;
#[path = "qcow2/rounds.rs"]
mod rounds;

use std::sync::Arc;

use common::skip;
use images::{Lab, open};
use pollux_disk::{Disk, Event};
use pollux_disk_conformance::{Client, behaves_like_a_disk, pattern};
use rounds::sequences;

#[test]
fn an_image_behaves_like_a_disk() {
    let Some(lab) = Lab::new() else { return };
    // As small as a block, so that a discard of any has an effect.
    behaves_like_a_disk(&|size| {
        let name = format!("{size}-{}.qcow2", fastrand::u64(..));
        Arc::new(open(&lab.create(&name, "cluster_size=512", size)))
    });
}

#[test]
fn what_either_writes_the_other_reads() {
    sequences(15, 1);
}

#[test]
#[ignore = "a thousand sequences take minutes"]
fn what_either_writes_the_other_reads_a_thousand_times() {
    sequences(1000, 1_000_000);
}

#[test]
fn an_image_grows_while_it_is_open() {
    let Some(lab) = Lab::new() else { return };
    let path = lab.create("grows.qcow2", "cluster_size=4k", 1 << 20);
    let image = open(&path);
    let mut client = Client::new(&image);
    client.write_bytes(0, &pattern(1, 4096)).unwrap();
    let (told, heard) = std::sync::mpsc::channel();
    let _subscription = image
        .events()
        .subscribe(move |event| told.send(event).unwrap());
    image.resize(Some(512 << 20)).unwrap();
    assert_eq!(heard.try_recv(), Ok(Event::Changed));
    assert_eq!(image.geometry().bytes, 512 << 20);
    client.write_bytes(500 << 20, &pattern(2, 8192)).unwrap();
    assert_eq!(client.read_bytes(400 << 20, 4096), [0; 4096]);
    image.resize(Some(1 << 20)).unwrap_err();
    drop((client, image));
    assert_eq!(lab.check(&path), 0);
    let raw = lab.raw(&path);
    assert_eq!(raw.len(), 512 << 20);
    assert!(raw[500 << 20..][..8192] == pattern(2, 8192));
    assert!(raw[..4096] == pattern(1, 4096));
}

/// All of a disk is discarded: of its file, next to nothing is left.
#[test]
fn discarded_clusters_are_given_back_and_used_anew() {
    let Some(lab) = Lab::new() else { return };
    let path = lab.create("discards.qcow2", "", 16 << 20);
    let image = open(&path);
    let mut client = Client::new(&image);
    let bytes = pattern(7, 16 << 20);
    let blocks =
        || std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&path).unwrap()) * 512;
    for _ in 0..3 {
        client.write_bytes(0, &bytes).unwrap();
        assert!(client.read_bytes(0, bytes.len()) == bytes);
        assert!(blocks() >= 16 << 20);
        let (at, len) = (0, 16 << 20);
        client.run(pollux_disk::Op::Discard { at, len }).unwrap();
        assert!(blocks() < 1 << 20, "{} bytes are left", blocks());
        assert!(
            client
                .read_bytes(0, bytes.len())
                .iter()
                .all(|byte| *byte == 0)
        );
    }
    drop((client, image));
    assert_eq!(lab.check(&path), 0);
    assert!(std::fs::metadata(&path).unwrap().len() < 40 << 20);
}
