//! The cache mode outlives sessions, daemons and records that say nothing of it: a driver that has switched to
//! write-through never flushes again, and relies on it that each write that has completed is stable.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use pollux_tests::frontend::{
    Code, Driver, Frontend, Inflight, Queue, Status, TWO_QUEUES, feature,
};
use pollux_tests::peers;
use pollux_tests::server::{Ready, Server, pollux_command};
use rustix::process::Signal;
use tempfile::TempDir;

/// In the configuration space (VIRTIO 1.3, 5.2.4).
const WRITEBACK: u32 = 32;
const WRITES: usize = 20;

/// An image whose daemons are watched by `strace`.
struct Place {
    strace: PathBuf,
    folder: TempDir,
}

/// A daemon and what it has synced.
struct Traced {
    server: Server,
    trace: PathBuf,
    before: usize,
}

impl Place {
    fn new() -> Option<Self> {
        let strace = peers::installed("strace")?;
        let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        fs::write(folder.path().join("disk.img"), vec![7; 1 << 20]).unwrap();
        Some(Self { strace, folder })
    }

    fn serve(&self, name: &str) -> Traced {
        let image = self.folder.path().join("disk.img");
        self.serve_disk(name, &format!("file:path={}", image.display()))
    }

    fn serve_disk(&self, name: &str, spec: &str) -> Traced {
        let (socket, trace) = (
            self.folder.path().join("disk.sock"),
            self.folder.path().join(name),
        );
        let command = pollux_command(&socket, &["--disk", spec]);
        let mut traced = Command::new(&self.strace);
        traced.args(["-D", "-f", "-e", "trace=fdatasync", "-o"]);
        traced.arg(&trace).arg(command.get_program());
        traced.args(command.get_args());
        let server = Server::start(&mut traced, &socket, Ready::LogLine).unwrap();
        Traced {
            server,
            trace,
            before: 0,
        }
    }
}

impl Traced {
    fn connect(&self) -> Driver {
        Driver::connect(self.server.socket(), TWO_QUEUES).unwrap()
    }

    /// How many syncs some writes take, one after the other.
    fn syncs(&mut self, driver: &mut Driver) -> usize {
        self.syncs_of(driver, |queue, sector| queue.write(0, sector, 1))
    }

    /// The same of other requests than writes.
    fn syncs_of(&mut self, driver: &mut Driver, stage: impl Fn(&mut Queue, u64)) -> usize {
        let queue = &mut driver.queues[0];
        for page in 0..WRITES as u64 {
            stage(queue, page * 8);
            queue.publish_and_kick();
            queue.finish();
            assert_eq!(queue.status(0), Status::Ok);
        }
        let seen = fs::read_to_string(&self.trace).unwrap();
        let seen = seen.matches("fdatasync(").count();
        seen - std::mem::replace(&mut self.before, seen)
    }
}

/// What the configuration says of the mode, to a frontend that only looks.
fn shown(frontend: &Frontend) -> u8 {
    frontend.get_config(WRITEBACK, 1).unwrap()[0]
}

/// The frontend comes again, with the record that it keeps.
fn again(driver: &mut Driver, server: &Server, inflight: &Inflight) {
    driver.connect_again(server.socket(), inflight).unwrap();
}

#[test]
fn the_mode_outlives_sessions_and_daemons() {
    let Some(place) = Place::new() else { return };
    for (mode, expected) in [(0, WRITES), (1, 0)] {
        let mut first = place.serve("first");
        let mut driver = first.connect();
        let inflight = driver.keep_record().unwrap();
        driver.frontend.set_config(WRITEBACK, &[mode]).unwrap();
        assert_eq!(first.syncs(&mut driver), expected);
        again(&mut driver, &first.server, &inflight);
        assert_eq!(first.syncs(&mut driver), expected, "the next session");
        assert_eq!(shown(&driver.frontend), mode);
        let (status, log) = first.server.end_by(Signal::KILL).unwrap();
        assert!(!status.success(), "{log}");

        let mut second = place.serve("second");
        again(&mut driver, &second.server, &inflight);
        assert_eq!(second.syncs(&mut driver), expected, "the next daemon");
        second.server.terminate().unwrap();

        let mut third = place.serve("third");
        let mut other = third.connect();
        assert_eq!(third.syncs(&mut other), 0, "another guest begins anew");
        assert_eq!(shown(&other.frontend), 1);
    }
}

#[test]
fn what_a_write_through_driver_zeroes_or_writes_to_a_disk_of_disks_is_synced() {
    let Some(place) = Place::new() else { return };
    let path = |name: &str| place.folder.path().join(name).display().to_string();
    let (one, other) = (path("disk.img"), path("other.img"));
    fs::copy(&one, &other).unwrap();
    for spec in [
        format!("file:path={one}"),
        format!("linear:{one}+{other}"),
        format!("striped:chunk=4K:{one},{other}"),
    ] {
        let mut server = place.serve_disk("trace", &spec);
        let mut driver = server.connect();
        for (mode, expected) in [(1, 0), (0, WRITES)] {
            driver.frontend.set_config(WRITEBACK, &[mode]).unwrap();
            assert_eq!(server.syncs(&mut driver), expected, "{spec}: writes");
            let zeroes = server.syncs_of(&mut driver, |queue, sector| queue.zero(0, sector));
            assert_eq!(zeroes, expected, "{spec}: zeroes");
        }
        server.server.terminate().unwrap();
    }
}

/// A guest that has migrated brings rings that are in use, and a record that is blank.
#[test]
fn a_driver_that_goes_on_is_write_through_until_it_says_more() {
    let Some(place) = Place::new() else { return };
    let mut server = place.serve("trace");
    let mut driver = server.connect();
    assert_eq!(server.syncs(&mut driver), 0);
    let socket = server.server.socket().to_owned();
    let migrated = |driver: &mut Driver, reads: bool| {
        driver.dial_again(&socket).unwrap();
        if reads {
            // The frontend that receives a guest has read it before that came.
            assert_eq!(shown(&driver.frontend), 1);
        }
        let inflight = driver.keep_record().unwrap();
        driver.go_on(&inflight).unwrap();
    };
    for reads in [true, false] {
        migrated(&mut driver, reads);
        assert_eq!(server.syncs(&mut driver), WRITES, "{reads}");
        assert_eq!(shown(&driver.frontend), 0, "it is told the truth");
        driver.frontend.set_config(WRITEBACK, &[1]).unwrap();
        assert_eq!(server.syncs(&mut driver), 0, "{reads}");
    }
    assert!(
        server
            .server
            .log()
            .contains("write-through, until it switches")
    );
}

/// A frontend loads a snapshot of its virtual machine into a session in which another driver has begun.
#[test]
fn a_driver_of_a_snapshot_is_write_through_until_it_says_more() {
    let Some(place) = Place::new() else { return };
    let mut server = place.serve("trace");
    let mut driver = server.connect();
    assert_eq!(server.syncs(&mut driver), 0);
    let (start, end) = (driver.queues[0].descriptor(0), driver.queues[0].table(0));
    driver.stop(0).unwrap();
    let rings = driver.memory.get(start, end - start);
    let anew = driver.anew(0);
    let snapshot = std::mem::replace(&mut driver.queues[0], anew);
    driver.start(0).unwrap();
    assert_eq!(server.syncs(&mut driver), 0, "one that begins");
    driver.stop(0).unwrap();
    driver.start(0).unwrap();
    assert_eq!(server.syncs(&mut driver), 0, "one that was paused");

    driver.stop(0).unwrap();
    driver.memory.put(start, &rings);
    driver.queues[0] = snapshot;
    driver.start(0).unwrap();
    assert_eq!(server.syncs(&mut driver), WRITES);
}

/// A frontend that hears of a new size reads the configuration, and takes no more than the size from it. What its guest
/// was told of the mode, another daemon has told it.
#[test]
fn what_is_read_after_a_queue_has_run_tells_its_driver_nothing() {
    let Some(place) = Place::new() else { return };
    let mut server = place.serve("trace");
    let mut driver = server.connect();
    let socket = server.server.socket().to_owned();
    let begins = |driver: &mut Driver, features: u64| {
        let features = features.to_le_bytes();
        driver
            .frontend
            .tell(Code::SetFeatures, &features, &[])
            .unwrap();
        let inflight = driver.keep_record().unwrap();
        for index in 0..driver.queues.len() {
            driver.queues[index] = driver.anew(index);
        }
        driver.go_on(&inflight).unwrap();
    };
    let all = driver.features;
    driver.dial_again(&socket).unwrap();
    // Firmware, which knows nothing of modes.
    begins(&mut driver, all & !feature::CONFIG_WCE);
    assert_eq!(server.syncs(&mut driver), 0);
    for index in 0..driver.queues.len() {
        driver.stop(index).unwrap();
    }
    driver.frontend.get_config(0, 60).unwrap();
    begins(&mut driver, all);
    assert_eq!(server.syncs(&mut driver), WRITES);
}
