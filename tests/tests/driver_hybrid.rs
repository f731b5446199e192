//! Polled and call-driven requests on one queue: whoever looks is not called, whoever sleeps is, and
//! nobody waits for a poller that has stopped.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

mod driver_cases;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use driver_cases::asleep::{Asleep, asleep};
use driver_cases::patiently;
use pollux_disk::{Channel as _, Completion, Op, Queued, Request, Ticket};
use pollux_driver::{
    Buffer, CompletionMode, Driver, Experiment, Hybrid, Mixed, Options, Pending, Queue, Reconnect,
    Waiter, Waiting,
};
use pollux_memory::Spans;
use pollux_tests::backend::{Backend, Conduct, Plan, feature};
use pollux_tests::drive;
use pollux_tests::server::{Ready, Server, pollux_command};

const BLOCK: usize = 4096;
/// Long enough for a poller to be missed, and for the test to see who waits for it.
const BOUND: Mixed = Mixed::SuspendedFor(Duration::from_millis(20));
/// So long that nobody waits for its end: in effect the rule of the Linux RFC of 2021.
const FOR_EVER: Mixed = Mixed::SuspendedFor(Duration::from_secs(24 * 3600));

/// A device that ends nothing yet, and our driver on its only queue.
struct Stage {
    backend: Backend,
    driver: Driver,
    queue: Queue,
}

impl Stage {
    fn new(mixed: Mixed, without: u64, queue_size: u16) -> Self {
        let backend = Backend::start(Plan {
            without,
            ..Plan::default()
        })
        .unwrap();
        backend.conduct(Conduct::Held);
        let options = Options::default()
            .queue_size(queue_size)
            .experiment(Experiment {
                mixed,
                ..Experiment::default()
            });
        let driver = Driver::connect(backend.socket(), &options).unwrap();
        let queue = driver.queue(0).unwrap();
        Self {
            backend,
            driver,
            queue,
        }
    }

    fn read(&self, completion: CompletionMode) -> Pending<Buffer> {
        let buffer = self.driver.allocate(BLOCK).unwrap();
        self.queue.read(0, buffer, completion)
    }

    /// A thread that sleeps until its own request has ended.
    fn sleeper(&self, completion: CompletionMode) -> Asleep {
        let (driver, queue) = (self.driver.clone(), self.queue.clone());
        asleep(move || {
            let buffer = driver.allocate(BLOCK).unwrap();
            queue.read(0, buffer, completion).wait().unwrap();
        })
    }

    /// Everybody's requests have ended as they should.
    fn end(self, polled: Vec<Pending<Buffer>>) {
        for pending in polled {
            pending.wait().unwrap();
        }
        self.backend.end();
    }
}

/// A poller has three requests in flight and stops looking; somebody else sleeps over a fourth, which
/// then ends.
fn park(mixed: Mixed, without: u64) -> (Stage, Vec<Pending<Buffer>>, Asleep) {
    let stage = Stage::new(mixed, without, 64);
    let polled = (0..3).map(|_| stage.read(CompletionMode::Polled)).collect();
    let sleeper = stage.sleeper(CompletionMode::Call);
    stage.backend.wait_for_held(4);
    stage.backend.conduct(Conduct::Prompt);
    (stage, polled, sleeper)
}

#[test]
fn a_poller_that_has_stopped_holds_up_nobody() {
    for mixed in [Mixed::WhileNeeded, BOUND] {
        for without in [0, feature::EVENT_IDX] {
            let begin = Instant::now();
            let (stage, polled, sleeper) = park(mixed, without);
            sleeper.end();
            println!("{mixed:?}: after {:?}", begin.elapsed());
            stage.end(polled);
        }
    }
}

/// That the tests around it can fail: under the rule of the RFC of 2021 a poller that has stopped holds
/// up everybody, until it looks again.
#[test]
fn under_the_rule_of_the_rfc_it_holds_up_everybody() {
    for without in [0, feature::EVENT_IDX] {
        let (stage, polled, sleeper) = park(FOR_EVER, without);
        stage.backend.wait_until(|seen| seen.ended == 4);
        let seen = stage.backend.settle();
        assert_eq!(seen.calls, 0, "it was not asked for");
        sleeper.sleeps_on();
        assert_eq!(stage.queue.poll(), 4);
        sleeper.end();
        stage.end(polled);
    }
}

/// The queue has room for one request, and that is the poller's.
#[test]
fn who_waits_for_room_is_woken_though_the_poller_has_stopped() {
    for mixed in [Mixed::WhileNeeded, BOUND] {
        for kind in [CompletionMode::Polled, CompletionMode::Call] {
            let stage = Stage::new(mixed, feature::INDIRECT_DESC, 4);
            let polled = stage.read(CompletionMode::Polled);
            stage.backend.wait_for_held(1);
            let sleepers = [kind, CompletionMode::Call].map(|kind| stage.sleeper(kind));
            assert_eq!(
                stage.backend.settle().requests,
                1,
                "there is no room for more"
            );
            stage.backend.conduct(Conduct::Prompt);
            sleepers.into_iter().for_each(Asleep::end);
            stage.end(vec![polled]);
        }
    }
}

#[test]
fn whoever_reaps_for_a_sleeper_wakes_it() {
    let (stage, polled, sleeper) = park(FOR_EVER, 0);
    stage.backend.wait_until(|seen| seen.ended == 4);
    assert_eq!(stage.backend.settle().calls, 0, "there is a poller");
    sleeper.sleeps_on();
    assert_eq!(stage.queue.poll(), 4);
    sleeper.end();
    stage.end(polled);
}

/// The one with the call descriptor leaves first, and the others are still called.
#[test]
fn a_sleeper_that_leaves_hands_the_call_descriptor_on() {
    for mixed in [Mixed::WhileNeeded, BOUND] {
        for kind in [CompletionMode::Polled, CompletionMode::Call] {
            let stage = Stage::new(mixed, 0, 64);
            let sleepers = [(); 4].map(|()| stage.sleeper(kind));
            stage.backend.wait_for_held(4);
            for left in (0..4).rev() {
                stage.backend.conduct(Conduct::Next);
                let seen = stage.backend.wait_until(|seen| seen.ended == 4 - left);
                assert_eq!(seen.requests, 4);
                let over = || sleepers.iter().filter(|sleeper| sleeper.is_over()).count();
                let told = || format!("{} are over, and {left} should be left", over());
                pollux_tests::process::eventually(|| over() == 4 - left, told);
            }
            stage.end(vec![]);
        }
    }
}

/// A request that was to be polled, over which its owner goes to sleep.
#[test]
fn who_goes_to_sleep_over_a_polled_request_is_called() {
    for mixed in [Mixed::WhileNeeded, BOUND, FOR_EVER] {
        let stage = Stage::new(mixed, 0, 64);
        let sleeper = stage.sleeper(CompletionMode::Polled);
        stage.backend.wait_for_held(1);
        stage.backend.conduct(Conduct::Prompt);
        sleeper.end();
        stage.end(vec![]);
    }
}

#[test]
fn tasks_and_channels_are_not_held_up_either() {
    for mixed in [Mixed::WhileNeeded, BOUND] {
        for kind in [CompletionMode::Polled, CompletionMode::Call] {
            let stage = Stage::new(mixed, 0, 64);
            let polled: Vec<_> = (0..3).map(|_| stage.read(CompletionMode::Polled)).collect();
            let (driver, queue) = (stage.driver.clone(), stage.queue.clone());
            let task = asleep(move || {
                let buffer = driver.allocate(BLOCK).unwrap();
                let read = queue.read(0, buffer, kind);
                drive::run_tasks(&queue, [async { drop(read.await.unwrap()) }]).unwrap();
            });
            let (driver, queue) = (stage.driver.clone(), stage.queue.clone());
            let owner = asleep(move || {
                let mut waiter = Waiter::new(Waiting::Call).unwrap();
                let mut channel = queue.channel(waiter.point()).unwrap();
                one_by(&driver, &mut channel, &mut waiter, kind);
            });
            stage.backend.wait_for_held(5);
            stage.backend.conduct(Conduct::Prompt);
            task.end();
            owner.end();
            stage.end(polled);
        }
    }
}

/// Reads a block by a channel, and waits for it.
fn one_by(driver: &Driver, channel: &mut impl Hybrid, waiter: &mut Waiter, kind: CompletionMode) {
    let buffer = driver.allocate(BLOCK).unwrap();
    // SAFETY: the buffer is kept until the request has ended, below.
    let list = [unsafe { buffer.span() }];
    // SAFETY: the list stays until the request has ended, below.
    let into = unsafe { Spans::new(&list) };
    let request = Request {
        ticket: Ticket(7),
        op: Op::Read { at: 0, into },
    };
    assert_eq!(channel.queue_as(request, kind), Queued::Pending);
    channel.submit();
    let mut done = vec![];
    let count = waiter.wait(channel, Some(drive::PATIENCE), &mut |one| done.push(one));
    assert_eq!(count.unwrap(), 1);
    let expected = Completion {
        ticket: Ticket(7),
        result: Ok(()),
    };
    assert_eq!(done, [expected]);
}

/// A channel of its own has the same rule: its owner sleeps over polled requests and is called.
#[test]
fn the_owner_of_a_queue_is_called_when_it_sleeps() {
    for mixed in [Mixed::WhileNeeded, BOUND, FOR_EVER] {
        for kind in [CompletionMode::Polled, CompletionMode::Call] {
            let backend = Backend::start(Plan::default()).unwrap();
            backend.conduct(Conduct::Held);
            let options = Options::default().experiment(Experiment {
                mixed,
                ..Experiment::default()
            });
            let driver = Driver::connect(backend.socket(), &options).unwrap();
            let owner = asleep(move || {
                let mut waiter = Waiter::new(Waiting::Adaptive).unwrap();
                let mut channel = driver.channel(waiter.point()).unwrap();
                one_by(&driver, &mut channel, &mut waiter, kind);
            });
            backend.wait_for_held(1);
            backend.conduct(Conduct::Prompt);
            owner.end();
            backend.end();
        }
    }
}

/// A disk that ends each request so late that nobody finds it ended at once; those that lie from
/// [`NEVER`] on it never ends.
const SLOW: &str = "fault:delay=1ms,range=0-32M,hang=request,range=32M-64M,on=null:size=64M";
const NEVER: u64 = 32 << 20;
/// For how long at least a poller is parked,
const PARKED: Duration = Duration::from_secs(2);
/// and how many requests each of the others makes meanwhile.
const MEANWHILE: usize = 100;
/// How long one of these may take, beyond the bound: for a machine with other things to do. What is caught
/// is one that does not end for as long as the poller is parked, which is for ever; it takes 1 ms else.
const GRACE: Duration = Duration::from_secs(5);

/// Does a request that is waited for end while the poller is parked?
#[derive(Debug, PartialEq, Eq)]
enum Meanwhile {
    Ends,
    Hangs,
}

/// A thread with polled requests on a shared queue that looks when it is told to, and is parked else.
struct Poller {
    look: Sender<()>,
    looked: Receiver<()>,
    thread: Asleep,
}

impl Poller {
    /// Parks it with `many` requests that do not end, and as many that do.
    fn park(driver: &Driver, queue: &Queue, many: usize) -> Self {
        let (look, looks) = channel();
        let (tell, looked) = channel();
        let (driver, queue) = (driver.clone(), queue.clone());
        let thread = asleep(move || {
            let read = |at| queue.read(at, driver.allocate(BLOCK).unwrap(), CompletionMode::Polled);
            let endless: Vec<_> = (0..many).map(|_| read(NEVER)).collect();
            let mut unseen: Vec<_> = (0..many).map(|_| read(0)).collect();
            while looks.recv() == Ok(()) {
                while !unseen.iter_mut().all(Pending::is_done) {
                    std::hint::spin_loop();
                }
                unseen = (0..many).map(|_| read(0)).collect();
                tell.send(()).unwrap();
            }
            drop(endless);
        });
        Self {
            look,
            looked,
            thread,
        }
    }

    /// It goes on until what it has in flight has ended, and is parked again over the next.
    fn look(&self) {
        self.look.send(()).unwrap();
        self.looked.recv_timeout(drive::PATIENCE).unwrap();
    }
}

/// A thread that makes call-driven requests, one after the other.
struct Caller {
    ended: Receiver<()>,
    enough: Arc<AtomicBool>,
}

impl Caller {
    /// It goes on for [`PARKED`] and [`MEANWHILE`], or until it is enough.
    fn start(driver: &Driver, queue: &Queue) -> Self {
        let (tell, ended) = channel();
        let enough = Arc::new(AtomicBool::new(false));
        let (driver, queue, stop) = (driver.clone(), queue.clone(), Arc::clone(&enough));
        std::thread::spawn(move || {
            let end = Instant::now() + PARKED;
            let mut count = 0;
            while (count < MEANWHILE || Instant::now() < end) && !stop.load(Ordering::Relaxed) {
                let buffer = driver.allocate(BLOCK).unwrap();
                queue.read(0, buffer, CompletionMode::Call).wait().unwrap();
                count += 1;
                let _ = tell.send(());
            }
        });
        Self { ended, enough }
    }

    /// Does each of its requests end within `patience`?
    fn meanwhile(&self, patience: Duration) -> Meanwhile {
        loop {
            match self.ended.recv_timeout(patience) {
                Ok(()) => {}
                Err(RecvTimeoutError::Disconnected) => return Meanwhile::Ends,
                Err(RecvTimeoutError::Timeout) => return Meanwhile::Hangs,
            }
        }
    }

    /// The poller goes on, and so does this, to its end.
    fn let_end(&self, poller: &Poller) {
        self.enough.store(true, Ordering::Relaxed);
        let end = Instant::now() + drive::PATIENCE;
        while self.ended.recv_timeout(Duration::ZERO) != Err(RecvTimeoutError::Disconnected) {
            poller.look();
            assert!(Instant::now() < end, "it does not end though it is polled");
        }
    }
}

/// Who waits, beside a poller that is parked.
#[derive(Clone, Copy, Debug)]
enum Beside {
    /// One that sleeps over its request.
    Sleeper,
    /// Two on a queue with room for one request beside the poller's: each waits for room, at first for
    /// room that the poller would make.
    WaitersForRoom,
}

/// A poller is parked twice, over requests in flight and over requests that have ended, on a queue of
/// `pollux serve`; others make requests that they wait for. `bound` is what the policy allows one to take.
fn parked(mixed: Mixed, bound: Duration, beside: Beside) -> Meanwhile {
    patiently(move || {
        let folder = tempfile::TempDir::new().unwrap();
        let socket = folder.path().join("disk.sock");
        let server = pollux(&socket, SLOW);
        let (many, callers, queue_size, without) = match beside {
            Beside::Sleeper => (3, 1, 64, 0),
            // A chain is three entries: there is room for two.
            Beside::WaitersForRoom => (1, 2, 8, feature::INDIRECT_DESC),
        };
        let options = Options::default()
            .queue_size(queue_size)
            .reconnect(Reconnect::Never)
            .experiment(Experiment {
                mixed,
                without,
                ..Experiment::default()
            });
        let driver = Driver::connect(&socket, &options).unwrap();
        let queue = driver.queue(0).unwrap();
        let poller = Poller::park(&driver, &queue, many);
        let mut outcome = Meanwhile::Ends;
        for _ in 0..2 {
            poller.thread.sleeps_on();
            let begin = Instant::now();
            let callers: Vec<_> = (0..callers)
                .map(|_| Caller::start(&driver, &queue))
                .collect();
            let hangs = |caller: &Caller| caller.meanwhile(bound + GRACE) == Meanwhile::Hangs;
            let hanging = callers.iter().any(hangs);
            poller.thread.sleeps_on();
            println!("{mixed:?}, {beside:?}: parked for {:?}", begin.elapsed());
            if hanging {
                for caller in &callers {
                    caller.let_end(&poller);
                }
                outcome = Meanwhile::Hangs;
                break;
            }
            poller.look();
        }
        println!("{:?}", queue.counters());
        // It would wait for ever for what the disk does not end.
        drop(server);
        drop(poller.look);
        poller.thread.end();
        outcome
    })
}

#[test]
fn a_parked_poller_holds_up_nobody_on_a_queue_of_pollux() {
    let Mixed::SuspendedFor(bound) = BOUND else {
        unreachable!("it is a bound");
    };
    for beside in [Beside::Sleeper, Beside::WaitersForRoom] {
        for (mixed, bound) in [(Mixed::WhileNeeded, Duration::ZERO), (BOUND, bound)] {
            assert_eq!(parked(mixed, bound, beside), Meanwhile::Ends, "{mixed:?}");
        }
    }
}

/// That the test above can fail: a bound that is none is caught by it, so where calls are suspended it is the
/// bound that ends the wait.
#[test]
fn a_parked_poller_holds_up_everybody_under_the_rule_of_the_rfc() {
    for beside in [Beside::Sleeper, Beside::WaitersForRoom] {
        let outcome = parked(FOR_EVER, Duration::ZERO, beside);
        assert_eq!(outcome, Meanwhile::Hangs);
    }
}

/// Requests of the tests that count calls.
const MANY: u64 = 300_000;
/// In flight together.
const DEPTH: usize = 16;

fn pollux(socket: &Path, disk: &str) -> Server {
    let args = ["--disk", disk, "--log-format", "json"];
    Server::start(&mut pollux_command(socket, &args), socket, Ready::JsonLine).unwrap()
}

/// With polled requests alone there are next to no calls: one in 10,000 requests at most, by what either
/// side has counted.
fn calls_stop(drive: impl FnOnce(&Driver) -> u64 + Send + 'static) {
    patiently(move || {
        let folder = tempfile::TempDir::new().unwrap();
        let socket = folder.path().join("disk.sock");
        let server = pollux(&socket, "null:size=64M");
        let driver = Driver::connect(&socket, &Options::default()).unwrap();
        let ours = drive(&driver);
        let theirs = server.counters().unwrap()["calls_sent"].as_u64().unwrap();
        println!("calls: {ours} by our count, {theirs} by the server's");
        assert!(ours.max(theirs) <= MANY / 10_000);
    });
}

#[test]
fn calls_stop_on_a_shared_queue_that_is_polled() {
    calls_stop(|driver| {
        let queue = driver.queue(0).unwrap();
        let start = || {
            let buffer = driver.allocate(BLOCK).unwrap();
            queue.read(0, buffer, CompletionMode::Polled)
        };
        let mut pending: Vec<_> = (0..DEPTH).map(|_| start()).collect();
        let mut ended = 0;
        while ended < MANY {
            queue.poll();
            for one in &mut pending {
                if one.is_done() {
                    let buffer = std::mem::replace(one, start()).wait().unwrap();
                    drop(buffer);
                    ended += 1;
                }
            }
        }
        for mut one in pending {
            while !one.is_done() {
                queue.poll();
            }
        }
        queue.counters().calls
    });
}

#[test]
fn calls_stop_on_a_queue_of_its_own_that_is_polled() {
    calls_stop(|driver| {
        let mut waiter = Waiter::new(Waiting::Polled).unwrap();
        let mut channel = driver.channel(waiter.point()).unwrap();
        let buffer = driver.allocate(BLOCK).unwrap();
        // SAFETY: the buffer is kept until all requests have ended, below.
        let list = [unsafe { buffer.span() }];
        let read = |ticket| Request {
            ticket: Ticket(ticket),
            op: Op::Read {
                at: 0,
                // SAFETY: the list stays until all requests have ended, below.
                into: unsafe { Spans::new(&list) },
            },
        };
        let mut free: Vec<u64> = (0..DEPTH as u64).collect();
        let (mut begun, mut ended) = (0, 0);
        while ended < MANY {
            while begun < MANY
                && let Some(ticket) = free.pop()
            {
                assert_eq!(channel.queue(read(ticket)), Queued::Pending);
                begun += 1;
            }
            channel.submit();
            let mut done = |one: Completion| {
                assert_eq!(one.result, Ok(()));
                free.push(one.ticket.0);
            };
            ended += waiter.wait(&mut channel, None, &mut done).unwrap() as u64;
        }
        channel.counters().calls
    });
}
