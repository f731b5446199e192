//! Stacked disks over servers in processes of their own. Whatever the depth, be it many times the length of a leg's
//! ring, every request ends once and the data is right; and what a guest shares with one daemon is used in place by the
//! daemon of the leg.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

mod driver_cases;

use std::sync::Arc;
use std::time::Duration;

use driver_cases::patiently;
use fastrand::Rng;
use pollux_disk::{Disk, Durability, Op, PollScope, Queued, Request, Ticket, striped};
use pollux_driver::{CompletionMode, Driver, Options, Waiter, Waiting};
use pollux_memory::{Loan, Region};
use pollux_tests::backend::{Backend, Conduct, Plan, Silence, code};
use pollux_tests::frontend::{self, PAGE, Status, TWO_QUEUES};
use pollux_tests::hostile::Target;
use pollux_tests::random::seed;
use pollux_tests::server::Server;
use pollux_tests::subject::{self, Subject};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::process::Signal;
use tempfile::TempDir;

const CHUNK: usize = 4096;
const LEGS: usize = 3;
/// A request has a part on every leg.
const BYTES: usize = LEGS * CHUNK;
/// Requests of each thread: at the greatest depth all of them are in flight.
const REQUESTS: usize = 4096;
const DEPTHS: [usize; 5] = [1, 16, 128, 1024, REQUESTS];
/// How long an answer may take before it counts as lost.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy)]
enum What {
    Read,
    Write,
}

/// A thread's requests, on a part of the disk of its own.
struct Load {
    start: u64,
    waiting: Waiting,
    memory: Arc<Region>,
    loans: Vec<Loan>,
}

impl Load {
    fn new(thread: u64, waiting: Waiting) -> Self {
        let bytes = (REQUESTS * BYTES) as u64;
        let memfd = memfd_create("stacked", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&memfd, bytes).unwrap();
        let memory = Arc::new(Region::map(memfd.into(), 0, 0, 0, bytes).unwrap());
        let loan = |number| {
            // SAFETY: the load has the memory, and no run of it returns before all of its requests have ended.
            let span = unsafe { memory.span() };
            let span = span.slice(number * BYTES, BYTES).unwrap();
            Loan::first(&[span], u64::MAX)
        };
        Self {
            start: thread * bytes,
            waiting,
            loans: (0..REQUESTS).map(loan).collect(),
            memory,
        }
    }

    fn request(&self, number: usize, what: What) -> Request {
        let ticket = Ticket(number as u64);
        // SAFETY: no loan is ever ended.
        let spans = unsafe { self.loans[number].spans() };
        let at = self.start + (number * BYTES) as u64;
        let op = match what {
            What::Read => Op::Read { at, into: spans },
            What::Write => Op::Write {
                at,
                from: spans,
                durability: Durability::Volatile,
            },
        };
        Request { ticket, op }
    }

    /// Every request once, `depth` of them in flight.
    fn run(&self, disk: &dyn Disk, depth: usize, what: What) {
        let mut waiter = Waiter::new(self.waiting).unwrap();
        let mut channel = disk.open_channel(waiter.point()).unwrap();
        let mut has_ended = [false; REQUESTS];
        let (mut begun, mut ended) = (0, 0);
        while ended < REQUESTS {
            while begun < REQUESTS.min(ended + depth) {
                let queued = channel.queue(self.request(begun, what));
                assert_eq!(queued, Queued::Pending);
                begun += 1;
            }
            channel.submit();
            let mut done = |one: pollux_disk::Completion| {
                assert_eq!(one.result, Ok(()));
                let has_ended = &mut has_ended[usize::try_from(one.ticket.0).unwrap()];
                assert!(!std::mem::replace(has_ended, true), "{one:?} again");
            };
            let count = waiter.wait(&mut *channel, Some(PATIENCE), &mut done);
            let count = count.unwrap();
            assert!(count > 0, "{} requests never end", begun - ended);
            ended += count;
        }
    }

    /// What is written at one depth is read at another.
    fn check(&self, disk: &dyn Disk, mut random: Rng) {
        let len = self.memory.addresses().len();
        let (mut noise, mut seen) = (vec![0; len], vec![0; len]);
        for (written, read) in DEPTHS.into_iter().zip(DEPTHS.into_iter().rev()) {
            random.fill(&mut noise);
            self.memory.write(0, &noise);
            self.run(disk, written, What::Write);
            self.memory.write(0, &vec![0; len]);
            self.run(disk, read, What::Read);
            self.memory.read(0, &mut seen);
            assert!(seen == noise, "written at depth {written}, read at {read}");
        }
    }
}

/// Three threads: whoever comes first has a leg's first queue to itself; the others share the second, where either
/// reaps for both. The servers know the memory of one of them; what the others send is copied.
fn at_every_depth(queue_size: u16, waiting: [Waiting; 3]) {
    let bytes = (waiting.len() * REQUESTS * BYTES / LEGS) as u64;
    let leg = |_| Subject::start(subject::Disk::memory(bytes, 2), &[]).unwrap();
    let servers: Vec<Subject> = (0..LEGS).map(leg).collect();
    patiently(move || {
        let options = Options::default().queue_size(queue_size);
        let connect = |server: &Subject| -> Arc<dyn Disk> {
            Arc::new(Driver::connect(server.socket(), &options).unwrap())
        };
        let legs = servers.iter().map(connect).collect();
        let disk = striped(CHUNK as u64, legs, PollScope::default()).unwrap();
        let loads = (0..).zip(waiting);
        let loads: Vec<_> = loads.map(|(thread, how)| Load::new(thread, how)).collect();
        disk.map(&loads[0].memory).unwrap();
        std::thread::scope(|scope| {
            for (load, seed) in loads.iter().zip(seed()..) {
                let disk = &disk;
                scope.spawn(move || load.check(disk, Rng::with_seed(seed)));
            }
        });
        disk.unmap(&loads[0].memory);
        for load in loads {
            load.loans.into_iter().for_each(|loan| drop(loan.end()));
        }
    });
}

#[test]
fn a_ring_of_16_carries_every_depth() {
    at_every_depth(16, [Waiting::Polled, Waiting::Call, Waiting::Adaptive]);
}

#[test]
fn a_ring_of_256_carries_every_depth() {
    at_every_depth(256, [Waiting::Call, Waiting::Adaptive, Waiting::Polled]);
}

/// The daemon of the leg writes, and the guest sees it before its request has ended.
#[test]
fn guest_memory_is_passed_on_to_a_leg_without_a_copy() {
    let backend = Backend::start(Plan::default()).unwrap();
    backend.conduct(Conduct::Held);
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("disk.sock");
    let spec = format!("linear:vhost-user:path={}", backend.socket().display());
    let args = ["--disk", &spec, "--num-queues", "2"];
    let server = Server::pollux(&socket, &args).unwrap();
    let mut guest = frontend::Driver::connect(&socket, TWO_QUEUES).unwrap();
    let queue = &mut guest.queues[0];
    queue.read(0, 0);
    queue.publish_and_kick();
    backend.wait_for_held(1);
    backend.scribble(Some(0x77));
    assert_eq!(queue.page(0), [0x77; PAGE]);
    backend.scribble(None);
    backend.conduct(Conduct::Prompt);
    queue.finish();
    assert_eq!(queue.status(0), Status::Ok);
    drop((guest, server));
    backend.end();
}

/// To end the session, the leg's server is asked, and does not answer. Another disk of the same worker goes on.
#[test]
fn a_leg_that_does_not_answer_holds_no_other_disk() {
    let backend = Backend::start(Plan::default()).unwrap();
    let leg = backend.socket().display();
    let target = Target::start(1, &format!("disk = \"vhost-user:path={leg}\""));
    let (mut guest, mut other) = (target.driver(), target.other());
    guest.queues[0].read(0, 0);
    guest.queues[0].publish_and_kick();
    assert_eq!(guest.queues[0].finish(), [0]);
    backend.fall_silent(code::GET_VRING_BASE, Silence::Mute);
    drop(guest);
    backend.wait_until(|seen| seen.silences == 1);
    other.queues[0].round(0x77);
    // Had it waited until the server's time was up, the log would say so before.
    backend.hang_up();
    drop(other);
    let (_, log) = target.server.end_by(Signal::TERM).unwrap();
    assert!(!log.contains("did not answer"), "{log}");
}

/// A daemon of a disk with two legs, of which the first is at a server that has gone away with a write of the guest.
struct Forsaken {
    below: Backend,
    server: Server,
    guest: frontend::Driver,
    _folder: TempDir,
}

impl Forsaken {
    fn by(options: &str) -> Self {
        let below = Backend::start(Plan::default()).unwrap();
        below.conduct(Conduct::Held);
        let folder = TempDir::new().unwrap();
        let socket = folder.path().join("disk.sock");
        let leg = below.socket().display();
        let spec = format!("linear:[vhost-user:path={leg}{options}]+memory:size=1M");
        let args = ["--disk", &spec, "--num-queues", "2"];
        let server = Server::pollux(&socket, &args).unwrap();
        let mut guest = frontend::Driver::connect(&socket, TWO_QUEUES).unwrap();
        let queue = &mut guest.queues[0];
        queue.write(0, 0, 0x77);
        queue.publish_and_kick();
        below.wait_for_held(1);
        below.hang_up();
        Self {
            below,
            server,
            guest,
            _folder: folder,
        }
    }
}

#[test]
fn a_request_waits_for_a_server_that_is_away_unless_a_time_is_set() {
    let mut waits = Forsaken::by("");
    let log = "reconnect=Always";
    assert!(waits.server.says(log), "{}", waits.server.log());
    let mut ends = Forsaken::by(",reconnect=300ms");
    let queue = &mut ends.guest.queues[0];
    queue.finish();
    assert_eq!(queue.status(0), Status::IoErr);
    let log = "was not back within 300ms";
    assert!(ends.server.says(log), "{}", ends.server.log());
    let other = &mut waits.guest.queues[1];
    other.read(0, Plan::default().sectors);
    other.publish_and_kick();
    assert_eq!(other.finish(), [0]);
    assert_eq!(other.status(0), Status::Ok);
    assert_eq!(waits.guest.queues[0].take(), [0u16; 0]);
    waits.below.let_go();
    // The next server has the request, and its disk what was written there.
    waits
        .below
        .wait_until(|seen| seen.sessions > 1 && seen.held.len() == 1);
    waits.below.conduct(Conduct::Prompt);
    let queue = &mut waits.guest.queues[0];
    queue.finish();
    assert_eq!(queue.status(0), Status::Ok);
    queue.read(1, 0);
    queue.publish_and_kick();
    queue.finish();
    assert!(queue.page(1) == [0x77; PAGE]);
    drop(waits.guest);
    let (status, log) = waits.server.terminate().unwrap();
    assert_eq!(status.code(), Some(0), "{log}");
    waits.below.end();
}

/// As with any disk that does not answer.
#[test]
fn the_second_signal_does_not_wait_for_a_server_that_is_away() {
    let forsaken = Forsaken::by("");
    let (server, below) = (forsaken.server, &forsaken.below);
    server.signal(Signal::TERM).unwrap();
    assert!(server.says("told to end"), "{}", server.log());
    // The daemon still waits for it.
    below.let_go();
    below.wait_until(|seen| seen.sessions > 1 && seen.held.len() == 1);
    below.hang_up();
    let (status, log) = server.end_by(Signal::INT).unwrap();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("told to end once more"), "{log}");
}

/// The server has the eventfd by which it is kicked as well.
#[test]
fn a_leg_whose_server_blocks_kicks_holds_no_other_disk() {
    let backend = Backend::start(Plan::default()).unwrap();
    let leg = backend.socket().display();
    let target = Target::start(1, &format!("disk = \"vhost-user:path={leg}\""));
    let (mut guest, mut other) = (target.driver(), target.other());
    let queue = &mut guest.queues[0];
    queue.round(0);
    backend.block_kicks();
    queue.read(0, 0);
    queue.publish_and_kick();
    other.queues[0].round(0x77);
    // This server does not hear the kick; the next one does the request.
    backend.hang_up();
    backend.let_go();
    queue.finish();
    assert_eq!(queue.status(0), Status::Ok);
    drop((guest, other));
    let (status, log) = target.server.terminate().unwrap();
    assert_eq!(status.code(), Some(0), "{log}");
}

/// A table in a file, as `dmsetup table` prints it.
#[test]
fn a_table_is_served_from_a_file() {
    let folder = TempDir::new().unwrap();
    let [a, b, table] = ["a.img", "b.img", "table"].map(|name| folder.path().join(name));
    for leg in [&a, &b] {
        std::fs::write(leg, vec![0; 1 << 20]).unwrap();
    }
    let (one, other) = (a.display(), b.display());
    let lines =
        format!("data: 0 2048 striped 2 8 {one} 0 {other} 0\ndata: 2048 512 linear {one} 1536\n");
    std::fs::write(&table, lines).unwrap();
    let socket = folder.path().join("disk.sock");
    let table = table.to_str().unwrap();
    let args = ["--table", table, "--poll-scope", "every-queue"];
    let _server = Server::pollux(&socket, &args).unwrap();
    let driver = Driver::connect(&socket, &Options::default()).unwrap();
    assert_eq!(driver.geometry().bytes, 2560 * 512);
    let mut noise = vec![0; BYTES];
    Rng::with_seed(seed()).fill(&mut noise);
    let queue = driver.queue(0).unwrap();
    // Three chunks by turns, the last of them in the other target.
    let at = 2048 * 512 - 2 * CHUNK as u64;
    let write = queue.write(at, noise.clone(), Durability::Stable, CompletionMode::Call);
    write.wait().unwrap();
    let legs = [a, b].map(|leg| std::fs::read(leg).unwrap());
    let chunk = |leg: usize, at: usize| &legs[leg][at..at + CHUNK];
    assert_eq!(chunk(0, 1024 * 512 - CHUNK), &noise[..CHUNK]);
    assert_eq!(chunk(1, 1024 * 512 - CHUNK), &noise[CHUNK..2 * CHUNK]);
    assert_eq!(chunk(0, 1536 * 512), &noise[2 * CHUNK..]);
}
