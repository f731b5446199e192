//! Images in QEMU's format that a daemon serves, to our driver and to Linux guests.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::path::Path;
use std::process::Command;

use pollux_tests::frontend::{Driver, Plan};
use pollux_tests::guest::{Export, Kernel, Lab};
use pollux_tests::peers;
use pollux_tests::server::Server;
use pollux_tests::storage::allocated;
use tempfile::TempDir;

const ONE_QUEUE: Plan = Plan {
    queues: 1,
    without: 0,
};

/// `qemu-img` with these arguments, then the image's path; what it says. `None` where there is none.
fn img(arguments: &[&str], image: &Path, rest: &[&str]) -> Option<String> {
    let img = peers::installed("qemu-img")?;
    let output = Command::new(img)
        .args(arguments)
        .arg(image)
        .args(rest)
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    Some(String::from_utf8(output.stdout).unwrap())
}

fn create(image: &Path, size: &str) -> Option<()> {
    img(&["create", "-q", "-f", "qcow2"], image, &[size]).map(drop)
}

/// Neither an error nor a leak.
fn is_sound(image: &Path) {
    img(&["check", "-f", "qcow2"], image, &[]).unwrap();
}

#[test]
fn an_image_is_handed_over_from_session_to_session() {
    let folder = TempDir::new().unwrap();
    let image = folder.path().join("disk.qcow2");
    if create(&image, "16M").is_none() {
        return;
    }
    let spec = format!("qcow2:path={},lock=running", image.display());
    let daemons = ["one", "other"].map(|name| {
        let socket = folder.path().join(name);
        Server::pollux(&socket, &["--disk", &spec, "--sandbox", "require"]).unwrap()
    });
    for round in 1..4 {
        for daemon in &daemons {
            let mut driver = Driver::connect(daemon.socket(), ONE_QUEUE).unwrap();
            driver.queues[0].round(round);
            driver.stop(0).unwrap();
            is_sound(&image);
        }
    }
    // While one is used, the other is refused.
    let [one, other] = daemons;
    let mut used = Driver::connect(one.socket(), ONE_QUEUE).unwrap();
    used.queues[0].round(9);
    assert!(Driver::connect(other.socket(), ONE_QUEUE).is_err());
    assert!(other.says("is in use"), "{}", other.log());
    used.queues[0].round(10);
    drop(used);
    for daemon in [one, other] {
        let (status, log) = daemon.terminate().unwrap();
        assert!(status.success(), "{status}: {log}");
    }
    is_sound(&image);
}

#[test]
fn a_guest_keeps_its_files_in_an_image() {
    let Some(lab) = Lab::open(Kernel::Linux61) else {
        return;
    };
    let image = lab.path_in_memory("disk.qcow2");
    if create(&image, "256M").is_none() {
        return;
    }
    let export = Export::spec(&format!("qcow2:path={}", image.display())).queues(2);
    let (server, disk) = lab.serve_apart(&export, "image");
    let script = include_str!("../guest/cases/filesystem.sh");
    let mut guest = lab.starts(lab.guest(script).set("DISKS", "vda").disk(disk));
    lab.hears(&mut guest, "full");
    let full = allocated(&image).unwrap();
    lab.tells(&mut guest, "go on");
    lab.hears(&mut guest, "trimmed");
    let trimmed = allocated(&image).unwrap();
    assert!(
        trimmed + (20 << 20) <= full,
        "{trimmed} of {full} bytes are left of 24 MiB more"
    );
    lab.tells(&mut guest, "go on");
    lab.ends_well(guest);
    let (status, log) = server.terminate().unwrap();
    assert!(status.success(), "{status}: {log}");
    is_sound(&image);
}

#[test]
#[ignore = "it takes minutes: make test-full"]
fn a_guest_migrates_with_its_image() {
    let Some(lab) = Lab::open(Kernel::Linux612) else {
        return;
    };
    let image = lab.path_in_memory("disk.qcow2");
    if create(&image, "64M").is_none() {
        return;
    }
    let spec = format!("qcow2:path={},lock=running", image.display());
    let export = Export::spec(&spec).queues(2);
    let [(one, here), (other, there)] = ["one", "other"].map(|name| lab.serve_apart(&export, name));
    lab.migrates_to_and_fro(&[here, there], 2);
    for server in [one, other] {
        let (status, log) = server.terminate().unwrap();
        assert!(status.success(), "{status}: {log}");
    }
    is_sound(&image);
}
