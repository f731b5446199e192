//! How often a driver has to kick, by its own count, and how often it is called, by the server's.
//!
//! A worker whose processor somebody else wants does not look, and is kicked. So that nobody does, whatever else this
//! machine works on, both sides run before all others here, each on a processor.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

mod driver_cases;

use std::path::Path;
use std::process::Command;

use driver_cases::patiently;
use pollux_disk::{Channel as _, Completion, Op, Queued, Request, Ticket};
use pollux_driver::{Driver, Hybrid as _, Options, Waiter, Waiting};
use pollux_memory::Spans;
use pollux_tests::client::{Client, Shape};
use pollux_tests::server::{Ready, Server, pollux_command};
use pollux_tests::subject::{Disk, Program, Subject};
use rustix::thread::gettid;

const BLOCK: usize = 4096;
/// Requests of a driver that polls.
#[derive(Clone, Copy, Debug)]
struct Load {
    requests: u64,
    /// In flight together.
    depth: u64,
    /// What the driver does with each completion: so many times nothing.
    work: u32,
}

/// How many kicks `load` takes at a server with `options`.
fn kicks(options: &'static [&str], load: Load) -> u64 {
    let subject = Subject::start(Disk::memory(64 << 20, 1), options).unwrap();
    let kicks = patiently(move || {
        let driver = Driver::connect(subject.socket(), &Options::default()).unwrap();
        let mut waiter = Waiter::new(Waiting::Polled).unwrap();
        let mut channel = driver.channel(waiter.point()).unwrap();
        let buffer = driver.allocate(BLOCK).unwrap();
        // SAFETY: the buffer is kept until all requests have ended, below.
        let list = [unsafe { buffer.span() }];
        run_before_others(subject.server.pid());
        run_before_others(gettid().as_raw_nonzero().get().unsigned_abs());
        let mut free: Vec<u64> = (0..load.depth).collect();
        let (mut begun, mut ended) = (0, 0);
        while ended < load.requests {
            while begun < load.requests
                && let Some(ticket) = free.pop()
            {
                // SAFETY: the list stays until all requests have ended, below.
                let into = unsafe { Spans::new(&list) };
                let request = Request {
                    ticket: Ticket(ticket),
                    op: Op::Read { at: 0, into },
                };
                assert_eq!(channel.queue(request), Queued::Pending);
                begun += 1;
            }
            channel.submit();
            let mut done = |one: Completion| {
                assert_eq!(one.result, Ok(()));
                free.push(one.ticket.0);
                (0..load.work).for_each(|_| std::hint::spin_loop());
            };
            ended += waiter.wait(&mut channel, None, &mut done).unwrap() as u64;
        }
        channel.counters().kicks
    });
    println!("{options:?}, {load:?}: {kicks} kicks");
    kicks
}

/// Has a thread, or all of a process, run before those of other tests and compilers (as root).
fn run_before_others(id: u32) {
    let mut chrt = Command::new("chrt");
    let chrt = chrt.args(["--rr", "--all-tasks", "--pid", "1", &id.to_string()]);
    assert!(chrt.status().unwrap().success(), "{chrt:?}");
}

fn is_pollux() -> bool {
    let is_pollux = Program::chosen() == Program::Pollux;
    if !is_pollux {
        println!("SKIP it is Pollux that promises to look");
    }
    is_pollux
}

/// A worker that is kept busy does not sleep: what kicks there are, are for its start.
#[test]
fn a_steady_load_takes_next_to_no_kicks() {
    if !is_pollux() {
        return;
    }
    let load = Load {
        requests: 100_000,
        depth: 4,
        work: 0,
    };
    assert!(kicks(&[], load) < load.requests / 100);
    // That this can fail: a worker that does not poll is kicked for each request of a driver that pauses between them.
    let paused = Load {
        requests: 10_000,
        depth: 1,
        work: 500,
    };
    assert!(kicks(&["--poll", "never"], paused) > paused.requests / 2);
}

/// One that may not look, by either bound, sleeps between requests that come one at a time.
#[test]
fn the_bounds_on_looking_reach_the_worker() {
    if !is_pollux() {
        return;
    }
    let load = Load {
        requests: 10_000,
        depth: 1,
        work: 500,
    };
    for bound in [&["--poll-max-us", "0"], &["--poll-cpu", "0%"]] {
        assert!(kicks(bound, load) > load.requests / 2);
    }
    assert!(kicks(&[], load) < load.requests / 10);
}

/// How many calls the server at `socket` makes for `requests` of libblkio, which sleeps, `depth` in flight.
fn calls(socket: &Path, depth: usize, requests: u64) -> u64 {
    let args = ["--disk", "null:size=64M", "--log-format", "json"];
    let mut command = pollux_command(socket, &args);
    let server = Server::start(&mut command, socket, Ready::JsonLine).unwrap();
    let (client, mut queues) = Client::connect(socket, Shape::blocking(1, 64)).unwrap();
    run_before_others(server.pid());
    run_before_others(gettid().as_raw_nonzero().get().unsigned_abs());
    let memory = client.memory(BLOCK).unwrap();
    let queue = &mut queues[0];
    (0..depth).for_each(|token| queue.read(0, &memory, 0..BLOCK, token));
    let mut ended = 0;
    while ended < requests {
        queue.wait(1).unwrap();
        while let Some(done) = queue.take() {
            assert_eq!(done.result, Ok(()));
            queue.read(0, &memory, 0..BLOCK, done.token);
            ended += 1;
        }
    }
    queue.wait(depth).unwrap();
    server.counters().unwrap()["calls_sent"].as_u64().unwrap()
}

/// With four requests in flight one call brings back several of them, however little each of them takes: four where the
/// worker is as fast as the driver; one each is what a worker makes that calls for each completion.
#[test]
fn a_driver_that_sleeps_is_called_once_for_what_it_has_in_flight() {
    const REQUESTS: u64 = 300_000;
    if !is_pollux() {
        return;
    }
    let calls = patiently(|| {
        let folder = tempfile::TempDir::new().unwrap();
        calls(&folder.path().join("disk.sock"), 4, REQUESTS)
    });
    println!("{calls} calls for {REQUESTS} requests");
    assert!(calls * 2 <= REQUESTS, "{calls} calls");
}
