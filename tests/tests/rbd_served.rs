//! Images in a Ceph cluster that a daemon serves, to our driver and to Linux guests, while things go wrong.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

mod driver_cases;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use driver_cases::Case;
use pollux_disk::Disk;
use pollux_driver::Driver;
use pollux_tests::ceph::Ceph;
use pollux_tests::control::{Daemon, ask, change};
use pollux_tests::drive::SHARED_MODES;
use pollux_tests::frontend::{self, Plan, SLOTS, Status, feature};
use pollux_tests::guest::{Export, Kernel, Lab};
use pollux_tests::process::eventually;
use pollux_tests::records::{Expected, RECORD};
use pollux_tests::server::pollux_binary;
use rustix::process::Signal;
use serde_json::json;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
const ONE_QUEUE: Plan = Plan {
    queues: 1,
    without: 0,
};

/// A daemon that serves `spec`.
fn start(folder: &Path, name: &str, spec: &str) -> Daemon {
    Daemon::start(folder, name, spec, &[]).unwrap()
}

/// What the disk has counted.
fn counted(daemon: &Daemon, operation: &str) -> u64 {
    let metrics = daemon.text("/metrics");
    let sample = format!("operation=\"{operation}\"}} ");
    let line = metrics.lines().find_map(|line| line.split_once(&sample));
    let (_, count) = line.unwrap_or_else(|| panic!("no {sample}in {metrics}"));
    count.trim().parse().unwrap()
}

/// How many requests the cluster has not answered.
fn waiting(daemon: &Daemon) -> u64 {
    let ended = counted(daemon, "ended");
    counted(daemon, "librbd") - ended
}

fn ends_well(daemon: Daemon) {
    let said = daemon.ends_well();
    assert!(!said.contains("failed a request"), "{said}");
}

fn connect(daemon: &Daemon) -> Driver {
    Driver::connect(daemon.server.socket(), &pollux_driver::Options::default()).unwrap()
}

/// Writes and reads all over the disk, in every way of waiting, and verifies each answer, while `meanwhile` goes on.
fn under_load<T>(driver: &Driver, meanwhile: impl FnOnce() -> T) -> T {
    let load = Case {
        modes: SHARED_MODES.to_vec(),
        longest: 64 << 10,
        ..Case::new(Duration::ZERO)
    };
    load.run_while(driver, |_| meanwhile())
}

fn counter(driver: &Driver, wanted: &str) -> u64 {
    let all = Disk::counters(driver);
    all.iter().find(|(name, _)| *name == wanted).unwrap().1
}

/// Waits until the cluster has answered some more.
fn goes_on(daemon: &Daemon) {
    let until = counted(daemon, "ended") + 500;
    eventually(
        || counted(daemon, "ended") >= until,
        || "nothing goes on".into(),
    );
}

#[test]
fn a_cluster_that_stops_for_a_while_is_waited_for() {
    let Some(ceph) = Ceph::start() else { return };
    let folder = TempDir::new().unwrap();
    ceph.create("image", 16 * MIB);
    let daemon = start(folder.path(), "disk", &ceph.spec("image", ""));
    let driver = connect(&daemon);
    under_load(&driver, || {
        goes_on(&daemon);
        ceph.kill_osd();
        eventually(|| waiting(&daemon) > 0, || "nothing waits".into());
        ceph.start_osd();
        goes_on(&daemon);
    });
    drop(driver);
    ends_well(daemon);
}

#[test]
fn a_daemon_that_waits_for_the_cluster_ends_when_it_is_told_to() {
    let Some(ceph) = Ceph::start() else { return };
    let folder = TempDir::new().unwrap();
    ceph.create("image", 16 * MIB);
    let daemon = start(folder.path(), "disk", &ceph.spec("image", ""));
    // No frontend uses it: it is told once, and does not wait for the cluster.
    ceph.kill_osd();
    let (ended, said) = daemon.server.terminate().unwrap();
    assert_eq!(ended.code(), Some(0), "{said}");
    assert!(said.contains("is left to be closed by it"), "{said}");
    // With requests in flight it is told twice, as with any disk that does not answer.
    ceph.start_osd();
    let daemon = start(folder.path(), "disk", &ceph.spec("image", ""));
    let mut driver = frontend::Driver::connect(daemon.server.socket(), ONE_QUEUE).unwrap();
    ceph.kill_osd();
    driver.queues[0].write(0, 0, 1);
    driver.queues[0].publish_and_kick();
    eventually(|| waiting(&daemon) > 0, || "it is not handed over".into());
    daemon.server.signal(Signal::TERM).unwrap();
    assert!(daemon.server.says("finishing what is in flight"));
    let (ended, said) = daemon.server.end_by(Signal::INT).unwrap();
    assert_eq!(ended.code(), Some(1), "{said}");
}

/// The next daemon waits until the cluster takes the last one for dead, shuts it out, and only then does again what was
/// in flight: nothing that the last one sent arrives later.
#[test]
fn a_daemon_that_is_killed_under_load_is_followed_by_the_next() {
    let Some(ceph) = Ceph::start() else { return };
    let folder = TempDir::new().unwrap();
    ceph.create("image", 16 * MIB);
    let spec = ceph.spec("image", "");
    let mut daemon = start(folder.path(), "disk", &spec);
    let driver = connect(&daemon);
    let daemon = under_load(&driver, || {
        for _ in 0..2 {
            goes_on(&daemon);
            daemon.server.end_by(Signal::KILL).unwrap();
            daemon = start(folder.path(), "disk", &spec);
            assert!(daemon.server.says("waiting for the lock of rbd/image"));
        }
        goes_on(&daemon);
        daemon
    });
    assert_eq!(driver.reconnects(), 2);
    assert!(counter(&driver, "replayed") > 0, "nothing was in flight");
    let shut_out = ceph.run("ceph", &["osd", "blocklist", "ls"]);
    assert!(shut_out.contains("127.0.0.1:0/"), "{shut_out}");
    drop(driver);
    ends_well(daemon);
}

#[test]
fn a_lock_is_handed_over_from_session_to_session() {
    let Some(ceph) = Ceph::start() else { return };
    let folder = TempDir::new().unwrap();
    ceph.create("image", 16 * MIB);
    let spec = ceph.spec("image", ",lock=running,timeout=1s");
    let daemons = ["one", "other"].map(|name| start(folder.path(), name, &spec));
    for round in 1..4 {
        for daemon in &daemons {
            let mut driver = frontend::Driver::connect(daemon.server.socket(), ONE_QUEUE).unwrap();
            driver.queues[0].round(round);
            driver.stop(0).unwrap();
        }
    }
    // While one is used, the other is refused. The refusal says where the other is.
    let [one, other] = daemons;
    let mut used = frontend::Driver::connect(one.server.socket(), ONE_QUEUE).unwrap();
    used.queues[0].round(9);
    assert!(frontend::Driver::connect(other.server.socket(), ONE_QUEUE).is_err());
    let refusal = "rbd/image is in use: the client at 127.0.0.1:";
    assert!(other.server.says(refusal), "{}", other.server.log());
    used.queues[0].round(10);
    drop(used);
    ends_well(one);
}

/// Does `work` on an image whose writes stay in librbd's cache until they are flushed, and kills the daemon. What was
/// to be durable, and what has the cluster?
fn left_by_a_killed(
    ceph: &Ceph,
    image: &str,
    keys: &str,
    without: u64,
    work: fn(&mut frontend::Driver) -> Expected,
) -> (Expected, Vec<u8>) {
    let folder = TempDir::new().unwrap();
    ceph.create(image, u64::from(SLOTS) * RECORD as u64);
    let spec = ceph.spec(image, &format!(",cache=writeback{keys}"));
    let daemon = start(folder.path(), image, &spec);
    let plan = Plan { queues: 1, without };
    let mut driver = frontend::Driver::connect(daemon.server.socket(), plan).unwrap();
    let expected = work(&mut driver);
    daemon.server.end_by(Signal::KILL).unwrap();
    let left = folder.path().join("left");
    let to = left.to_str().unwrap();
    ceph.run("rbd", &["export", "--no-progress", image, to]);
    (expected, fs::read(left).unwrap())
}

#[test]
fn what_librbd_was_to_make_durable_survives_a_kill() {
    let Some(ceph) = Ceph::start() else { return };
    ceph.configure(
        "[client]\n\
         rbd cache policy = writeback\n\
         rbd cache writethrough until flush = false\n\
         rbd cache max dirty age = 3600\n",
    );
    // Without the switch of the cache, writes are volatile whatever a daemon finds out.
    let write_back = feature::CONFIG_WCE;
    let left = |image, keys, without, work| left_by_a_killed(&ceph, image, keys, without, work);
    let written = |driver: &mut frontend::Driver| driver.queues[0].write_records(1);
    let (expected, held) = left("written", "", write_back, written);
    // That those below can fail.
    expected.check(&held).expect_err("there is a cache");

    let (expected, held) = left("flushed", "", write_back, |driver| {
        let queue = &mut driver.queues[0];
        let expected = queue.write_records(1);
        queue.bare(0, 4);
        queue.publish_and_kick();
        assert_eq!((queue.finish(), queue.status(0)), (vec![0], Status::Ok));
        queue.write_records(2);
        expected
    });
    expected.check(&held).unwrap();
    let no_flush = write_back | feature::FLUSH;
    let (expected, held) = left("stable", "", no_flush, written);
    expected.check(&held).unwrap();
    let (expected, held) = left("let-go", ",lock=running", write_back, |driver| {
        let expected = driver.queues[0].write_records(1);
        driver.stop(0).unwrap();
        expected
    });
    expected.check(&held).unwrap();
}

#[test]
fn the_size_is_changed_over_the_control_socket() {
    let Some(ceph) = Ceph::start() else { return };
    let folder = TempDir::new().unwrap();
    ceph.create("image", MIB);
    let daemon = start(folder.path(), "disk", &ceph.spec("image", ""));
    let mut driver = frontend::Driver::connect(daemon.server.socket(), ONE_QUEUE).unwrap();
    let resize = "/v1/disks/disk/resize";
    let asked = json!({ "bytes": 2 * MIB });
    let (status, disk) = change(&daemon.control, "POST", resize, &asked).unwrap();
    assert_eq!((status, &disk["bytes"]), (200, &(2 * MIB).into()));
    driver.queues[0].write(0, (2 * MIB - 4096) / 512, 1);
    driver.queues[0].publish_and_kick();
    assert_eq!(driver.queues[0].finish(), [0]);
    assert_eq!(driver.queues[0].status(0), Status::Ok);
    drop(driver);
    ends_well(daemon);
}

/// It has failed by then, and the answer says that it may happen later. It does.
#[test]
fn a_resize_that_is_late_is_told_as_one_that_may_still_happen() {
    let Some(ceph) = Ceph::start() else { return };
    let folder = TempDir::new().unwrap();
    ceph.create("image", MIB);
    let daemon = start(folder.path(), "disk", &ceph.spec("image", ",timeout=1s"));
    ceph.kill_osd();
    let mut command = Command::new(pollux_binary());
    command.args(["disk", "resize", "disk", "2M", "--control"]);
    let output = command.arg(&daemon.control).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("may enlarge the image later"), "{said}");
    ceph.start_osd();
    let size = || ask(&daemon.control, "GET", "/v1/disks/disk").unwrap().1["bytes"].as_u64();
    eventually(|| size() == Some(2 * MIB), || "it has not grown".into());
    ends_well(daemon);
}

/// The resize is one whose answer is not waited for.
#[test]
fn a_resize_that_waits_for_the_cluster_holds_up_nothing_else() {
    let Some(ceph) = Ceph::start() else { return };
    let folder = TempDir::new().unwrap();
    ceph.create("image", MIB);
    let daemon = start(folder.path(), "disk", &ceph.spec("image", ""));
    let waits = |bytes: u64| {
        let resize = "/v1/disks/disk/resize";
        let asked = json!({ "bytes": bytes });
        let ask = || change(&daemon.control, "POST", resize, &asked);
        // The first waits, and is told after some seconds that it does.
        eventually(
            || ask().is_ok_and(|(status, _)| status == 409),
            || "it waits for nothing".into(),
        );
    };
    let size = || ask(&daemon.control, "GET", "/v1/disks/disk").unwrap().1["bytes"].as_u64();
    ceph.kill_osd();
    waits(2 * MIB);
    assert_eq!(size(), Some(MIB));
    assert_eq!(waiting(&daemon), 0, "it counts requests");
    ceph.start_osd();
    eventually(|| size() == Some(2 * MIB), || "it has not grown".into());
    ceph.kill_osd();
    waits(3 * MIB);
    let (ended, said) = daemon.server.terminate().unwrap();
    assert_eq!(ended.code(), Some(0), "{said}");
    assert!(said.contains("it is being resized"), "{said}");
}

#[test]
fn a_guest_keeps_its_files_in_an_image() {
    let Some(mut lab) = Lab::open(Kernel::Linux61) else {
        return;
    };
    let Some(ceph) = Ceph::start() else { return };
    ceph.create("image", 256 * MIB);
    let disk = lab.serve(&Export::spec(&ceph.spec("image", "")).queues(2));
    let script = include_str!("../guest/cases/filesystem.sh");
    let mut guest = lab.starts(lab.guest(script).set("DISKS", "vda").disk(disk));
    lab.hears(&mut guest, "full");
    let full = ceph.objects();
    lab.tells(&mut guest, "go on");
    lab.hears(&mut guest, "trimmed");
    let trimmed = ceph.objects();
    assert!(
        trimmed + 6 <= full,
        "{trimmed} of {full} objects are left of 24 MiB more"
    );
    lab.tells(&mut guest, "go on");
    lab.ends_well(guest);
    lab.end_servers();
}

#[test]
#[ignore = "it takes minutes: make test-full"]
fn a_guest_migrates_with_its_image() {
    let Some(mut lab) = Lab::open(Kernel::Linux612) else {
        return;
    };
    let Some(ceph) = Ceph::start() else { return };
    ceph.create("image", 64 * MIB);
    let export = Export::spec(&ceph.spec("image", ",lock=running")).queues(2);
    let devices = [lab.serve(&export), lab.serve(&export)];
    lab.migrates_to_and_fro(&devices, 2);
    lab.end_servers();
}
