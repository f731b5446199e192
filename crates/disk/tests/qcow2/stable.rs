//! What was told to be durable is: whichever later write survives the power, and whichever process wrote before.

use std::fs;

use pollux_disk::file::Cache;
use pollux_disk::{Disk as _, Image, Op, Options, Unmap};
use pollux_disk_conformance::{Buffer, Client, write, zeroes};

use super::images::{Lab, open};
use super::recorder::Recorder;

const CLUSTER: usize = 64 << 10;

/// An image grows right after a cluster was freed, and of the writes that follow a single one survives.
pub fn growth_over_what_was_freed() {
    let Some(lab) = Lab::new() else { return };
    let path = lab.create("image.qcow2", "cluster_size=64k", 8 << 20);
    let Some(mut recorder) = Recorder::over(&lab, &path) else {
        return;
    };
    let image = open(&path);
    let mut client = Client::new(&image);
    let (old, other) = (
        Buffer::holding(&vec![7; CLUSTER]),
        Buffer::holding(&vec![9; CLUSTER]),
    );
    client.run(write(0, &old)).unwrap();
    client.run(write(CLUSTER as u64, &other)).unwrap();
    client.run(Op::Flush).unwrap();
    let flushed = recorder.count();
    client
        .run(zeroes(0, CLUSTER as u64, Unmap::Allowed))
        .unwrap();
    image.resize(Some(16 << 20)).unwrap();
    let count = recorder.count();
    assert!(count > flushed + 2);
    for alone in flushed..count {
        let left = lab.path("left.qcow2");
        fs::write(&left, recorder.with_one_alone(alone)).unwrap();
        let raw = lab.raw(&left);
        for (at, may) in [(0, [7, 0]), (CLUSTER, [9, 9])] {
            let byte = raw[at];
            let is_whole = raw[at..][..CLUSTER].iter().all(|other| *other == byte);
            assert!(
                is_whole && may.contains(&byte),
                "write {alone} of {flushed}..{count} alone: {byte} at {at:#x}"
            );
        }
    }
    drop((client, image));
}

/// A write-through image of two files, whose tables another process may have left in the page cache.
pub fn tables_of_another_process() {
    let Some(lab) = Lab::new() else { return };
    let path = lab.create(
        "image.qcow2",
        "data_file=data.raw,data_file_raw=off",
        8 << 20,
    );
    lab.io(&path, &[format!("write -P 7 0 {CLUSTER}")]);
    let Some(mut recorder) = Recorder::over(&lab, &path) else {
        return;
    };
    let some = Buffer::holding(&vec![7; CLUSTER]);
    let image = Image::open(&path, Cache::Writethrough, &Options::default()).unwrap();
    let mut client = Client::new(&image);
    let into = Buffer::holding(&vec![0; CLUSTER]);
    client.run(pollux_disk_conformance::read(0, &into)).unwrap();
    let before = recorder.syncs();
    client.run(write(0, &some)).unwrap();
    assert!(recorder.syncs() > before, "the tables were not synced");
    drop((client, image));
}
