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
    let Some(recorder) = Recorder::over(&path) else {
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
    let Some(recorder) = Recorder::over(&path) else {
        return;
    };
    let some = Buffer::holding(&vec![7; CLUSTER]);
    let image = Image::open(&path, Cache::Writethrough, &Options::default()).unwrap();
    let mut client = Client::new(&image);
    let into = Buffer::holding(&vec![0; CLUSTER]);
    client.run(pollux_disk_conformance::read(0, &into)).unwrap();
    let before = recorder.count();
    client.run(write(0, &some)).unwrap();
    assert!(recorder.has_sync(before), "the tables were not synced");
    drop((client, image));
}

/// What lies in another file, where it is no hole, is synced before the image says that it is the disk's.
pub fn entry_of_what_lies_in_another_file() {
    let Some(lab) = Lab::new() else { return };
    let options = "data_file=data.raw,data_file_raw=off";
    let path = lab.create("image.qcow2", options, 8 << 20);
    let Some(recorder) = Recorder::over(&path) else {
        return;
    };
    let image = open(&path);
    let mut client = Client::new(&image);
    let some = Buffer::holding(&[7; 512]);
    // The first makes the table.
    for number in 0..3 {
        let before = recorder.count();
        client.run(write(number * CLUSTER as u64, &some)).unwrap();
        let count = recorder.count();
        if number > 0 {
            assert!(recorder.has_sync(before), "an entry came before its data");
            assert!(count > before + 1, "no entry was written");
        }
    }
    drop((client, image));
}

/// Two clusters of the disk share one of the file, which no snapshot keeps, and of the writes that follow a single one
/// survives.
pub fn cluster_that_two_share() {
    let Some(lab) = Lab::new() else { return };
    let path = lab.create("image.qcow2", "cluster_size=64k", 8 << 20);
    lab.io(&path, &[format!("write -P 7 0 {CLUSTER}")]);
    share_the_first_cluster(&path);
    assert_eq!(lab.check(&path), 0);
    let Some(recorder) = Recorder::over(&path) else {
        return;
    };
    let image = open(&path);
    let mut client = Client::new(&image);
    let (some, other) = (
        Buffer::holding(&[8; 512]),
        Buffer::holding(&vec![9; CLUSTER]),
    );
    client.run(write(0, &some)).unwrap();
    client.run(Op::Flush).unwrap();
    let flushed = recorder.count();
    client.run(write(CLUSTER as u64, &some)).unwrap();
    client.run(write(2 * CLUSTER as u64, &other)).unwrap();
    let count = recorder.count();
    assert!(count > flushed);
    for alone in flushed..count {
        let left = lab.path("left.qcow2");
        fs::write(&left, recorder.with_one_alone(alone)).unwrap();
        let raw = lab.raw(&left);
        let kept = raw[CLUSTER + 512..2 * CLUSTER]
            .iter()
            .all(|byte| *byte == 7);
        assert!(kept, "write {alone} of {flushed}..{count} alone");
    }
    drop((client, image));
}

/// As above, where one of the two was made zero, and is kept allocated.
pub fn cluster_that_two_share_and_one_hides() {
    let Some(lab) = Lab::new() else { return };
    let path = lab.create("image.qcow2", "cluster_size=64k", 8 << 20);
    lab.io(&path, &[format!("write -P 7 0 {CLUSTER}")]);
    share_the_first_cluster(&path);
    let Some(recorder) = Recorder::over(&path) else {
        return;
    };
    let image = open(&path);
    let mut client = Client::new(&image);
    let some = Buffer::holding(&vec![8; CLUSTER]);
    let zeroes = zeroes(0, CLUSTER as u64, Unmap::Forbidden);
    client.run(zeroes).unwrap();
    client.run(write(CLUSTER as u64, &some)).unwrap();
    client.run(Op::Flush).unwrap();
    let flushed = recorder.count();
    client.run(write(0, &some)).unwrap();
    client.run(write(2 * CLUSTER as u64, &some)).unwrap();
    let count = recorder.count();
    assert!(count > flushed);
    for alone in flushed..count {
        let left = lab.path("left.qcow2");
        fs::write(&left, recorder.with_one_alone(alone)).unwrap();
        lab.check(&left);
    }
    drop((client, image));
}

/// The second cluster of the disk is the first one as well, as after a removal of duplicates.
fn share_the_first_cluster(path: &std::path::Path) {
    let mut image = fs::read(path).unwrap();
    let field = |image: &[u8], at: usize| u64::from_be_bytes(image[at..][..8].try_into().unwrap());
    let place = |entry: u64| usize::try_from(entry & 0x00ff_ffff_ffff_fe00).unwrap();
    let l2 = place(field(&image, place(field(&image, 40))));
    let there = place(field(&image, l2));
    for entry in 0..2 {
        image[l2 + 8 * entry..][..8].copy_from_slice(&(there as u64).to_be_bytes());
    }
    let counts = place(field(&image, place(field(&image, 48))));
    image[counts + 2 * (there / CLUSTER)..][..2].copy_from_slice(&2u16.to_be_bytes());
    fs::write(path, image).unwrap();
}
