//! Images in QEMU's format: what Pollux writes QEMU reads, and the reverse; what is in the file while one is open is an
//! image without an error.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

#[path = "qcow2/clusters.rs"]
mod clusters;
mod common;
#[path = "qcow2/fuse.rs"]
mod fuse;
#[path = "qcow2/images.rs"]
mod images;
#[path = "qcow2/power.rs"]
mod power;
#[path = "qcow2/recorder.rs"]
mod recorder;
#[path = "qcow2/refusals.rs"]
mod refusals;
#[path = "qcow2/rounds.rs"]
mod rounds;
#[path = "qcow2/running.rs"]
mod running;
#[path = "qcow2/slow.rs"]
mod slow;
#[path = "qcow2/stable.rs"]
mod stable;

use std::sync::Arc;

use common::skip;
use images::{Lab, open};
use pollux_disk::{Disk, Event, Options, ResizeError, Spec};
use pollux_disk_conformance::{Client, behaves_like_a_disk, keeps_its_contents, pattern};
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
fn an_image_is_a_leg_and_a_bad_disk_as_any_other_is() {
    let Some(lab) = Lab::new() else { return };
    let leg = |name: &str| {
        let path = lab.create(name, "", 4 << 20);
        format!("qcow2:path={}", path.display())
    };
    let disk = |spec: &str| {
        let spec: Spec = spec.parse().unwrap();
        spec.open(&Options::default()).unwrap()
    };
    let (one, other) = (leg("one.qcow2"), leg("other.qcow2"));
    keeps_its_contents(disk(&format!("striped:chunk=16K:[{one}],[{other}]")));
    keeps_its_contents(disk(&format!("linear:[{one}]+[{other}]")));
    keeps_its_contents(disk(&format!("fault:delay=10us,on={one}")));
    let bad = disk(&format!("fault:error=EIO,op=write,every=3,on={one}"));
    let mut client = Client::new(&*bad);
    for number in 1..=30u64 {
        let wrote = client.write_bytes(number * 65536, &pattern(number, 4096));
        assert_eq!(wrote.is_err(), number.is_multiple_of(3), "{number}");
    }
    for number in (1..=30u64).filter(|number| !number.is_multiple_of(3)) {
        assert!(client.read_bytes(number * 65536, 4096) == pattern(number, 4096));
    }
    drop((client, bad));
    for name in ["one.qcow2", "other.qcow2"] {
        assert_eq!(lab.check(&lab.path(name)), 0, "{name}");
    }
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
fn what_was_flushed_survives_the_power_and_the_image_is_sound() {
    power::stories(4, 1);
    // These need the entry of a first write in its place, and after the data of the cluster.
    for seed in [27, 31] {
        power::stories(1, seed);
    }
    // Of these, some requests are stable, as of the second.
    for seed in [5, 8] {
        power::stories(1, seed);
    }
    // It makes room for a table in the middle of a discard. Where writes end in another order it takes no harm.
    (0..4).for_each(|_| power::stories(1, 1_000_312));
}

#[test]
fn an_image_that_grows_over_what_was_freed_keeps_what_was_flushed() {
    stable::growth_over_what_was_freed();
}

#[test]
fn a_write_through_image_of_two_files_syncs_the_tables_that_another_process_has_left() {
    stable::tables_of_another_process();
}

#[test]
fn data_in_a_file_of_its_own_is_synced_before_the_image_refers_to_it() {
    stable::entry_of_what_lies_in_another_file();
}

#[test]
fn a_cluster_that_two_shared_is_not_used_anew_before_that_is_durable() {
    stable::cluster_that_two_share();
}

#[test]
fn a_cluster_that_two_shared_is_not_kept_under_zeroes() {
    stable::cluster_that_two_share_and_one_hides();
}

#[test]
#[ignore = "a thousand stories take minutes"]
fn what_was_flushed_survives_the_power_a_thousand_times() {
    power::stories(1000, 1_000_000);
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

#[test]
fn an_image_that_is_not_in_use_keeps_its_size() {
    let Some(lab) = Lab::new() else { return };
    let path = lab.create("elsewhere.qcow2", "", 1 << 20);
    let spec = format!("qcow2:path={},lock=running", path.display());
    let image = spec.parse::<Spec>().unwrap();
    let image = image.open(&Options::default()).unwrap();
    let error = image.resize(Some(2 << 20)).unwrap_err();
    assert!(matches!(error, ResizeError::NotHeld { .. }), "{error}");
    assert_eq!(image.geometry().bytes, 1 << 20);
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
        assert!(client.read_bytes(0, bytes.len()) == vec![0; bytes.len()]);
    }
    drop((client, image));
    assert_eq!(lab.check(&path), 0);
    assert!(std::fs::metadata(&path).unwrap().len() < 40 << 20);
}
