//! The daemon is killed in the middle of its work, and the next one goes on with it.
//!
//! Nothing is lost, nothing ends twice, and nothing is done again after its end was seen: the disk's own
//! log proves it (`executions`). The frontend is made by hand here, and QEMU's for a Linux guest.
//!
//! To see them fail: leave out a store of `device/inflight/record.rs`, or exchange two.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::fs::{self, File};
use std::path::PathBuf;
use std::time::Duration;

use fastrand::Rng;
use pollux_tests::executions::Executions;
use pollux_tests::frontend::{
    Driver, Inflight, PAGE, QUEUE_ENTRIES, SLOTS, Status, TWO_QUEUES, description,
};
use pollux_tests::guest::{Kernel, Lab, System, VhostUserBlk};
use pollux_tests::process::eventually;
use pollux_tests::random::seed;
use pollux_tests::records::{Expected, RECORD, Record};
use pollux_tests::server::Server;
use rustix::process::Signal;
use tempfile::TempDir;

const QUEUES: u16 = 2;
/// Each slot of each queue writes to a place of its own.
const PLACES: u64 = (QUEUES * SLOTS) as u64;
const SECTORS: u64 = RECORD as u64 / 512;

/// A disk whose daemons come and go.
struct Place {
    folder: TempDir,
    executions: Executions,
}

impl Place {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let image = File::create(folder.path().join("image")).unwrap();
        image.set_len(PLACES * RECORD as u64).unwrap();
        let executions = Executions::open(&folder.path().join("log")).unwrap();
        Self { folder, executions }
    }

    fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    fn serve(&self, rules: &str) -> Server {
        let image = format!("file:path={}", self.image().display());
        let spec = self.executions.spec(rules, &image);
        let socket = self.folder.path().join("disk.sock");
        Server::pollux(&socket, &["--disk", &spec, "--threads", "2"]).unwrap()
    }
}

fn kill(server: Server) {
    let (status, log) = server.end_by(Signal::KILL).unwrap();
    assert!(!status.success(), "{log}");
}

#[test]
fn what_a_hanging_disk_had_swallowed_is_done_by_the_next_daemon() {
    let mut place = Place::new();
    let record = |slot: u16| Record {
        seed: 1,
        place: slot.into(),
        sequence: 1,
    };
    let server = place.serve("hang=request,after=20,");
    let mut driver = Driver::connect(server.socket(), TWO_QUEUES).unwrap();
    let inflight = driver.keep_record().unwrap();
    let queue = &mut driver.queues[0];
    for slot in 0..SLOTS {
        queue.write_page(slot, u64::from(slot) * SECTORS, &record(slot).encode());
    }
    queue.publish_and_kick();
    let swallowed = usize::from(SLOTS) - 20;
    let told = || format!("{:?} are in flight", inflight.in_flight(0));
    let all = || queue.used() == 20 && inflight.in_flight(0).unwrap() == swallowed;
    eventually(all, told);
    let mut back = queue.take();
    for slot in &back {
        place.executions.seen(record(*slot)).unwrap();
    }
    kill(server);
    place.executions.killed().unwrap();

    let server = place.serve("");
    driver.connect_again(server.socket(), &inflight).unwrap();
    assert!(server.says("submitting again what was in flight"));
    back.extend(driver.queues[0].finish());
    assert_eq!(back.len(), usize::from(SLOTS), "each comes back once");
    for slot in 0..SLOTS {
        assert_eq!(driver.queues[0].status(slot), Status::Ok, "slot {slot}");
        assert!(back.contains(&slot));
    }
    let tally = place.executions.check(|record| record.place).unwrap();
    assert_eq!((tally.executed, tally.repeated), (usize::from(SLOTS), 0));
    let log = fs::read_to_string(place.folder.path().join("log")).unwrap();
    let (_, after) = log.split_once("killed\n").unwrap();
    let order: Vec<u64> = after
        .lines()
        .map(|line| address(line) / RECORD as u64)
        .collect();
    assert!(
        order.is_sorted(),
        "in the order in which they were taken: {order:?}"
    );

    // Nothing is left for a third one, after a polite end.
    assert_eq!(inflight.in_flight(0).unwrap(), 0);
    let base = driver.stop(0).unwrap();
    assert_eq!(base, SLOTS);
    server.terminate().unwrap();
    let server = place.serve("");
    driver.connect_again(server.socket(), &inflight).unwrap();
    driver.queues[0].round(7);
}

#[test]
fn what_was_in_flight_fails_once_where_the_next_disk_does() {
    let place = Place::new();
    let server = place.serve("hang=request,");
    let mut driver = Driver::connect(server.socket(), TWO_QUEUES).unwrap();
    let inflight = driver.keep_record().unwrap();
    for queue in &mut driver.queues {
        for slot in 0..SLOTS {
            queue.write(slot, u64::from(slot) * SECTORS, 1);
        }
        queue.publish_and_kick();
    }
    for queue in 0..QUEUES {
        let all = || inflight.in_flight(queue).unwrap() == usize::from(SLOTS);
        eventually(all, || format!("queue {queue} is not taken"));
    }
    kill(server);
    let server = place.serve("error=EIO,op=write,");
    driver.connect_again(server.socket(), &inflight).unwrap();
    for queue in &mut driver.queues {
        assert_eq!(queue.finish().len(), usize::from(SLOTS));
        for slot in 0..SLOTS {
            assert_eq!(queue.status(slot), Status::IoErr);
        }
    }
}

fn address(line: &str) -> u64 {
    let address = line.split(' ').nth(1).and_then(|text| text.parse().ok());
    address.unwrap_or_else(|| panic!("no address in {line:?}"))
}

#[derive(Clone, Copy)]
enum InFlight {
    Write(Record),
    Flush,
}

/// A user of two queues that has a request in each of their slots.
struct User {
    driver: Driver,
    executions: Executions,
    random: Rng,
    expected: Expected,
    /// What each slot has in flight.
    busy: Vec<Option<InFlight>>,
    sequences: Vec<u64>,
    seed: u64,
    completed: usize,
}

impl User {
    fn new(driver: Driver, executions: Executions, seed: u64) -> Self {
        let places = usize::try_from(PLACES).unwrap();
        Self {
            driver,
            executions,
            random: Rng::with_seed(seed),
            expected: Expected::new(seed),
            busy: vec![None; places],
            sequences: vec![0; places],
            seed,
            completed: 0,
        }
    }

    fn submit(&mut self) {
        for queue in 0..QUEUES {
            for slot in 0..SLOTS {
                let at = usize::from(queue * SLOTS + slot);
                if self.busy[at].is_none() {
                    self.busy[at] = Some(self.begin(queue, slot));
                }
            }
            self.driver.queues[usize::from(queue)].publish_and_kick();
        }
    }

    fn begin(&mut self, queue: u16, slot: u16) -> InFlight {
        let place = u64::from(queue * SLOTS + slot);
        let queue = &mut self.driver.queues[usize::from(queue)];
        if self.random.u64(..16) == 0 {
            queue.bare(slot, 4);
            return InFlight::Flush;
        }
        let sequence = &mut self.sequences[usize::try_from(place).unwrap()];
        *sequence += 1;
        let record = Record {
            seed: self.seed,
            place,
            sequence: *sequence,
        };
        queue.write_page(slot, place * SECTORS, &record.encode());
        InFlight::Write(record)
    }

    /// Looks at what has come back.
    fn look(&mut self) {
        for index in 0..QUEUES {
            let queue = &mut self.driver.queues[usize::from(index)];
            for slot in queue.take() {
                assert_eq!(queue.status(slot), Status::Ok, "slot {slot}");
                let ended = self.busy[usize::from(index * SLOTS + slot)].take();
                if let InFlight::Write(record) = ended.expect("nothing comes back twice") {
                    self.executions.seen(record).unwrap();
                    self.expected.cover(record);
                }
                self.completed += 1;
            }
        }
    }
}

/// How often a daemon is killed: `$POLLUX_TEST_KILLS`, or a few times.
fn kills(few: usize) -> usize {
    let chosen = std::env::var("POLLUX_TEST_KILLS").ok();
    chosen.map_or(few, |text| {
        text.parse().expect("POLLUX_TEST_KILLS is a number")
    })
}

#[test]
fn a_daemon_killed_at_any_moment_loses_and_repeats_nothing() {
    let place = Place::new();
    let seed = seed();
    let kills = kills(30);
    // Some are stored long before they are answered: those are done again.
    let rules = format!("seed={seed},delay=exp:300us,chance=50%,");
    let mut server = place.serve(&rules);
    let driver = Driver::connect(server.socket(), TWO_QUEUES).unwrap();
    let inflight = driver.keep_record().unwrap();
    let executions = Executions::open(&place.folder.path().join("log")).unwrap();
    let mut user = User::new(driver, executions, seed);
    for _ in 0..kills {
        let enough = user.completed + user.random.usize(1..1000);
        while user.completed < enough {
            user.submit();
            user.look();
        }
        for _ in 0..user.random.u64(..100) {
            user.submit();
            user.look();
        }
        kill(server);
        user.executions.killed().unwrap();
        server = place.serve(&rules);
        user.driver
            .connect_again(server.socket(), &inflight)
            .unwrap();
    }
    let end = || {
        user.look();
        user.busy.iter().all(Option::is_none)
    };
    eventually(end, || "some requests are lost".into());
    let tally = place.executions.check(|record| record.place).unwrap();
    println!("{} requests, {tally:?}", user.completed);
    assert_eq!(tally.kills, kills);
    assert!(tally.repeated > 0, "no daemon was killed at a bad moment");
    let image = fs::read(place.image()).unwrap();
    user.expected.check(&image).unwrap();
}

const JOBS: u64 = 4;
const PLACES_OF_A_JOB: u64 = 256;
const BYTES_OF_A_LINE: u64 = 90;

/// One disk of a guest whose daemon is killed again and again.
struct Disk {
    image: PathBuf,
    executions: Executions,
    spec: String,
    server: Option<Server>,
    socket: PathBuf,
}

impl Disk {
    fn new(lab: &Lab, name: &str, rules: &str) -> Self {
        let image = lab.path(&format!("{name}.image"));
        let bytes = JOBS * PLACES_OF_A_JOB * RECORD as u64;
        File::create(&image).unwrap().set_len(bytes).unwrap();
        let executions = Executions::open(&lab.path(&format!("{name}.log"))).unwrap();
        let spec = executions.spec(rules, &format!("file:path={}", image.display()));
        let socket = lab.path(&format!("{name}.sock"));
        let mut disk = Self {
            image,
            executions,
            spec,
            server: None,
            socket,
        };
        disk.serve();
        disk
    }

    fn serve(&mut self) {
        self.server = Some(Server::pollux(&self.socket, &["--disk", &self.spec]).unwrap());
    }

    fn device(&self) -> VhostUserBlk {
        VhostUserBlk::new(&self.socket)
            .reconnects()
            .with("num-queues=2")
    }

    /// Waits until there is something more in the log.
    fn goes_on(&self, random: &mut Rng) {
        let from = self.executions.size().unwrap();
        let enough = from + BYTES_OF_A_LINE * (1 + random.u64(..300));
        let missing = || self.server.as_ref().unwrap().log();
        eventually(|| self.executions.size().unwrap() >= enough, missing);
    }

    fn kill(&mut self) {
        kill(self.server.take().unwrap());
        self.executions.killed().unwrap();
    }
}

fn all_go_on(disks: &[Disk], random: &mut Rng) {
    for disk in disks {
        disk.goes_on(random);
    }
}

/// fio verifies what it writes to one disk, and numbered records go to another, past the page cache; the
/// daemons of both are killed at any moment, and QEMU connects to the next.
fn a_guest_goes_on(system: impl Into<System>, kills: usize) {
    let Some(lab) = Lab::open(system) else {
        return;
    };
    let seed = seed();
    let delay = format!("seed={seed},delay=exp:5ms,");
    let mut disks =
        [("vda", ""), ("vdb", &*delay)].map(|(name, rules)| Disk::new(&lab, name, rules));
    let guest = lab
        .guest(include_str!("../guest/cases/recovery.sh"))
        .program(env!("CARGO_BIN_EXE_records"))
        .disks(disks.iter().map(Disk::device))
        .set("SEED", &seed.to_string())
        .set("JOBS", &JOBS.to_string())
        .set("PLACES", &PLACES_OF_A_JOB.to_string())
        .patience(Duration::from_secs(180 + 6 * u64::try_from(kills).unwrap()));
    let mut guest = lab.starts(guest);
    lab.hears(&mut guest, "steady");
    let mut random = Rng::with_seed(seed);
    for _ in 0..kills {
        all_go_on(&disks, &mut random);
        disks.iter_mut().for_each(Disk::kill);
        disks.iter_mut().for_each(Disk::serve);
    }
    all_go_on(&disks, &mut random);
    lab.tells(&mut guest, "enough");
    let outcome = lab.ends_well(guest);

    let [_, records] = &disks;
    let job = |record: &Record| record.place / PLACES_OF_A_JOB;
    let tally = records.executions.check(job).unwrap();
    println!("{tally:?}");
    assert_eq!(tally.kills, kills);
    assert!(tally.repeated > 0, "no daemon was killed at a bad moment");
    let expected = Expected::told(&outcome.console, "vdb", seed, JOBS, PLACES_OF_A_JOB);
    assert!(expected.places() > 100, "{}", outcome.console);
    expected.check(&fs::read(&records.image).unwrap()).unwrap();
}

#[test]
fn a_guest_goes_on_while_its_daemons_are_killed() {
    a_guest_goes_on(Kernel::Linux61, kills(10));
}

#[test]
#[ignore = "the full set takes minutes: make test-full"]
fn a_guest_under_qemu_10_goes_on_while_its_daemons_are_killed() {
    a_guest_goes_on(Kernel::Linux612, kills(10));
}

#[test]
#[ignore = "the full set takes minutes: make test-full"]
fn a_guest_with_our_driver_goes_on_while_its_daemons_are_killed() {
    let ours = pollux_tests::guest::Driver::PolluxBlk;
    a_guest_goes_on(Kernel::Linux61.driven_by(ours), kills(10));
}

#[test]
fn a_record_that_cannot_be_is_refused_with_the_reason() {
    let place = Place::new();
    let server = place.serve("");
    let refused = |wrong: &dyn Fn(&mut Inflight), reason: &str| {
        let driver = Driver::connect(server.socket(), TWO_QUEUES).unwrap();
        let mut inflight = Inflight::get(&driver.frontend, 2, QUEUE_ENTRIES).unwrap();
        wrong(&mut inflight);
        inflight.set(&driver.frontend).unwrap_err();
        assert!(server.says(reason), "{}", server.log());
    };
    let short = |inflight: &mut Inflight| inflight.file = short_file(1000);
    refused(&short, "the file has only 0x3e8 bytes");
    let many = |inflight: &mut Inflight| {
        inflight.description = description(1 << 20, 0, 17, QUEUE_ENTRIES);
    };
    refused(
        &many,
        "it is for 17 queues of 256 entries; this device has 16",
    );
    let few = |inflight: &mut Inflight| {
        inflight.description = description(1 << 20, 0, 1, QUEUE_ENTRIES);
        inflight.file = short_file(1 << 20);
    };
    refused(&few, "queue 1 has 256 entries; it has room for 1 queues");
    let mut driver = Driver::connect(server.socket(), TWO_QUEUES).unwrap();
    driver.queues[0].round(1);
}

fn short_file(bytes: u64) -> File {
    let file = tempfile::tempfile_in("/dev/shm").unwrap();
    file.set_len(bytes).unwrap();
    file
}

const _: () = assert!(PAGE == RECORD, "a slot holds a record");
