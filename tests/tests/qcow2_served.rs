//! Images in QEMU's format that a daemon serves, to our driver and to Linux guests.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use pollux_disk::Durability;
use pollux_driver::{CompletionMode, Options};
use pollux_tests::frontend::{Driver, Plan};
use pollux_tests::guest::{Export, Kernel, Lab};
use pollux_tests::peers;
use pollux_tests::process::eventually;
use pollux_tests::server::Server;
use pollux_tests::storage::allocated;
use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};
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

/// The size of the clusters of an image that says nothing of it.
const CLUSTER: usize = 64 << 10;

fn connect(socket: &Path) -> pollux_driver::Driver {
    pollux_driver::Driver::connect(socket, &Options::default()).unwrap()
}

/// Where the image's first refcount block is.
fn first_block(image: &File) -> u64 {
    let number = |at| {
        let mut bytes = [0; 8];
        image.read_exact_at(&mut bytes, at).unwrap();
        u64::from_be_bytes(bytes)
    };
    number(number(48)) & !511
}

/// An image is let go of, and a write of its counts fails half-way. It is kept, and serves on: what is flushed then, a
/// kill does not lose.
#[test]
fn counts_that_are_lowered_by_half_lose_nothing() {
    let folder = TempDir::new().unwrap();
    let image = folder.path().join("disk.qcow2");
    // The counts of its clusters end within the first 4096 bytes of their block, and those that are reserved beyond.
    let create: Vec<_> = "create -q -f qcow2 -o preallocation=metadata"
        .split(' ')
        .collect();
    if img(&create, &image, &["119M"]).is_none() {
        return;
    }
    img(&["resize", "-q", "-f", "qcow2"], &image, &["200M"]).unwrap();
    let block = first_block(&File::open(&image).unwrap());
    let spec = format!("qcow2:path={},lock=running", image.display());
    let socket = folder.path().join("socket");
    let serve = || Server::pollux(&socket, &["--disk", &spec]).unwrap();
    let server = serve();
    let limit = |bytes| {
        let process = Pid::from_raw(server.pid().cast_signed());
        let limits = Rlimit {
            current: bytes,
            maximum: None,
        };
        prlimit(process, Resource::Fsize, limits).unwrap();
    };
    let write = |number: u64, byte| {
        let disk = connect(&socket);
        let queue = disk.queue(0).unwrap();
        let bytes = vec![byte; CLUSTER];
        let at = (119 << 20) + number * CLUSTER as u64;
        let written = queue.write(at, bytes, Durability::Volatile, CompletionMode::Call);
        written.wait().unwrap();
        queue.flush(CompletionMode::Call).wait().unwrap();
        // The image is let go of when its last queue stops.
        (disk, queue)
    };
    let counts = || {
        let mut pieces = [[0; 4096]; 2];
        let file = File::open(&image).unwrap();
        for (piece, at) in pieces.iter_mut().zip([block, block + 4096]) {
            file.read_exact_at(piece, at).unwrap();
        }
        pieces
    };
    let session = write(0, 2);
    let before = counts();
    limit(Some(block + 4096));
    drop(session);
    let is_told = || server.says("File too large");
    eventually(is_told, || format!("no write fails:\n{}", server.log()));
    let after = counts();
    assert!(
        after[0] != before[0] && after[1] == before[1],
        "not half of it"
    );
    limit(None);
    let session = write(1, 6);
    server.end_by(Signal::KILL).unwrap();
    drop(session);
    // Clusters that are counted and not used are all that it may complain of.
    let check = ["check", "-q", "-U", "-f", "qcow2"];
    let checked = Command::new(peers::installed("qemu-img").unwrap())
        .args(check)
        .arg(&image)
        .status()
        .unwrap();
    assert_eq!(checked.code(), Some(3), "{checked}");
    let _server = serve();
    let (_disk, queue) = write(2, 8);
    let at = (119 << 20) + CLUSTER as u64;
    let read = queue.read(at, vec![0; CLUSTER], CompletionMode::Call);
    assert!(read.wait().unwrap() == vec![6; CLUSTER]);
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
