//! Images in a Ceph cluster: a real one, of one node, for each test.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::cell::Cell;
use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use pollux_disk::{Disk, Event, Op, Options, Spec};
use pollux_disk_conformance::{Client, behaves_like_a_disk, changes_nothing, pattern};
use pollux_tests::ceph::Ceph;
use pollux_tests::server::pollux_binary;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

fn opened(spec: &str, read_only: bool) -> Result<Arc<dyn Disk>, String> {
    let options = Options::default().read_only(read_only);
    let spec: Spec = spec.parse().unwrap();
    spec.open_with(&options, &pollux::Drivers)
        .map_err(|error| told(&error))
}

/// What is said of an error, with its causes.
fn told(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let causes: Vec<_> = causes.map(ToString::to_string).collect();
    causes.join(": ")
}

#[test]
fn an_image_behaves_like_a_disk_whatever_is_cached() {
    let Some(ceph) = Ceph::start() else { return };
    let number = Cell::new(0);
    for keys in ["", ",cache=writeback", ",cache=writethrough,lock=running"] {
        behaves_like_a_disk(&|bytes| {
            number.set(number.get() + 1);
            let name = format!("image{}", number.get());
            ceph.create(&name, bytes);
            opened(&ceph.spec(&name, keys), false).unwrap()
        });
    }
}

#[test]
fn a_snapshot_is_read_while_its_image_is_written() {
    let Some(ceph) = Ceph::start() else { return };
    ceph.create("image", 8 * MIB);
    let image = opened(&ceph.spec("image", ""), false).unwrap();
    let mut client = Client::new(&*image);
    client.write_bytes(0, &pattern(1, 65536)).unwrap();
    client.run(Op::Flush).unwrap();
    ceph.run("rbd", &["snap", "create", "image@first"]);
    client.write_bytes(0, &pattern(2, 65536)).unwrap();
    let snapshot = opened(&ceph.spec("image", ",snapshot=first"), false).unwrap();
    assert!(Client::new(&*snapshot).read_bytes(0, 65536) == pattern(1, 65536));
    changes_nothing(snapshot);
    let reader = opened(&ceph.spec("image", ""), true).unwrap();
    assert!(Client::new(&*reader).read_bytes(0, 65536) == pattern(2, 65536));
    changes_nothing(reader);
}

#[test]
fn what_cannot_be_opened_is_named_with_its_remedy() {
    let Some(ceph) = Ceph::start() else { return };
    ceph.create("image", MIB);
    ceph.run(
        "rbd",
        &[
            "create",
            "bare",
            "--size",
            "1M",
            "--image-feature",
            "layering",
        ],
    );
    let refused = |spec: &str| opened(spec, false).err().unwrap();
    let nowhere = "rbd:pool=rbd,image=i,conf=/nowhere/ceph.conf";
    let other_pool = ceph.spec("image", "").replace("pool=rbd", "pool=none");
    for (spec, says) in [
        (&*ceph.spec("none", ""), "`rbd ls --long rbd`"),
        (
            &ceph.spec("image", ",snapshot=none"),
            "no image rbd/image@none",
        ),
        (&ceph.spec("image", ",namespace=none"), "rbd/none/image"),
        (&other_pool, "there is no pool `none`"),
        (nowhere, "configuration /nowhere/ceph.conf"),
        (
            &ceph.spec("bare", ""),
            "rbd feature enable rbd/bare exclusive-lock",
        ),
    ] {
        let refusal = refused(spec);
        assert!(refusal.contains(says), "{spec}: {refusal}");
    }
    opened(&ceph.spec("bare", ""), true).unwrap();
    let first = opened(&ceph.spec("image", ""), false).unwrap();
    let in_use = refused(&ceph.spec("image", ",id=admin,timeout=1s"));
    assert!(
        in_use.contains("is in use: the client at 127.0.0.1:"),
        "{in_use}"
    );
    assert!(in_use.contains(" at 127.0.0.1:"), "{in_use}");
    drop(first);
    opened(&ceph.spec("image", ",id=admin,timeout=1s"), false).unwrap();
}

#[test]
fn without_ceph_everything_else_works_and_the_package_is_named() {
    let folder = TempDir::new().unwrap();
    // What is found before the library of the system, and is none.
    fs::write(folder.path().join("librados.so.2"), "").unwrap();
    let bench = |disk: &str| {
        let mut command = Command::new(pollux_binary());
        command.args(["bench", "--rw", "read", "--runtime", "10ms", "--disk", disk]);
        command
            .env("LD_LIBRARY_PATH", folder.path())
            .output()
            .unwrap()
    };
    assert!(bench("null:size=1M").status.success());
    let refused = bench("rbd:pool=rbd,image=image");
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success());
    assert!(
        said.contains("install Debian's package `librados2`"),
        "{said}"
    );
}

#[test]
fn an_image_that_grows_is_told_and_discards_give_its_objects_back() {
    let Some(ceph) = Ceph::start() else { return };
    ceph.create("image", 16 * MIB);
    let disk = opened(&ceph.spec("image", ""), false).unwrap();
    let (told, changes) = channel();
    let _subscription = disk
        .events()
        .subscribe(move |event| told.send(event).unwrap());
    let mut client = Client::new(&*disk);
    client.write_bytes(17 * MIB - 4096, &[7; 4096]).unwrap_err();
    // By others, and by ourselves.
    ceph.run("rbd", &["resize", "image", "--size", "32M"]);
    assert_eq!(
        changes.recv_timeout(Duration::from_secs(60)),
        Ok(Event::Changed)
    );
    assert_eq!(disk.geometry().bytes, 32 * MIB);
    disk.resize(Some(64 * MIB)).unwrap();
    assert_eq!(disk.geometry().bytes, 64 * MIB);
    assert!(ceph.run("rbd", &["info", "image"]).contains("64 MiB"));
    disk.resize(Some(32 * MIB)).unwrap_err();
    let before = ceph.objects();
    client.write_bytes(0, &pattern(1, 64 << 20)).unwrap();
    assert!(ceph.objects() >= before + 16);
    let (at, len) = (0, 64 * MIB);
    client.run(Op::Discard { at, len }).unwrap();
    assert!(ceph.objects() <= before + 1, "the objects are gone");
}

#[test]
fn a_cluster_that_cannot_be_reached_is_an_error_in_time() {
    let Some(ceph) = Ceph::start() else { return };
    ceph.create("image", MIB);
    // The monitor answers, and the OSD does not; then neither does.
    ceph.kill_osd();
    let spec = ceph.spec("image", ",timeout=1s");
    let no_osd = opened(&spec, false).err().unwrap();
    assert!(no_osd.contains("did not answer within 1s"), "{no_osd}");
    ceph.stop();
    let other = ceph.spec("image", ",timeout=1s,id=admin");
    let no_monitor = opened(&other, false).err().unwrap();
    assert!(
        no_monitor.contains("did not answer within 1s"),
        "{no_monitor}"
    );
}
