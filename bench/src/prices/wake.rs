//! What waking somebody costs: the writer, and the sleeper.

use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use pollux_tests::process::Process;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::thread::gettid;
use rustix::time::{ClockId, clock_gettime};

use super::{Price, TIME, nanoseconds};
use crate::pinned::Pinned;
use crate::round_trip::Processors;

const ONE: [u8; 8] = 1u64.to_ne_bytes();

/// Longer than any sleep that is measured, so it is the timer that costs and not its end.
const AT_MOST: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000,
};

pub fn prices(processors: Processors) -> io::Result<Vec<Price>> {
    let _pinned = Pinned::to(processors.own)?;
    let mut prices = vec![nobody_asleep()?];
    prices.extend(somebody_asleep(processors)?);
    let name = "a request between two that sleep: processor time of one";
    prices.push(both_asleep(name, None, processors)?);
    let name = "the same, where it sleeps for 100 µs at most";
    prices.push(both_asleep(name, Some(AT_MOST), processors)?);
    Ok(prices)
}

fn new_eventfd() -> io::Result<File> {
    Ok(File::from(eventfd(0, EventfdFlags::CLOEXEC)?))
}

fn nobody_asleep() -> io::Result<Price> {
    let mut event = new_eventfd()?;
    Price::of_batches("an eventfd write, nobody asleep", 1000, || {
        event.write_all(&ONE)
    })
}

/// The write with a sleeper, and how long after its beginning the sleeper runs.
fn somebody_asleep(processors: Processors) -> io::Result<[Price; 2]> {
    let event = new_eventfd()?;
    let over = AtomicBool::new(false);
    let (woken, when) = mpsc::channel();
    let (introduction, who) = mpsc::channel();
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            let _pinned = Pinned::to(processors.other)?;
            let _ = introduction.send(gettid().as_raw_nonzero().get().cast_unsigned());
            drop(introduction);
            sleep_again_and_again(&event, &over, &woken)
        });
        let outcome = match who.recv() {
            Ok(sleeper) => wake_again_and_again(&event, sleeper, &when),
            Err(_) => Ok((vec![], vec![])), // its error is told below
        };
        over.store(true, Ordering::Relaxed);
        (&event).write_all(&ONE)?;
        sleeper.join().expect("it does not panic")?;
        let (writes, wakes) = outcome?;
        Ok([
            Price::of("an eventfd write that wakes a sleeper", &writes),
            Price::of("from that write until the sleeper runs", &wakes),
        ])
    })
}

fn sleep_again_and_again(
    mut event: &File,
    over: &AtomicBool,
    woken: &Sender<Instant>,
) -> io::Result<()> {
    let mut count = [0; 8];
    while !over.load(Ordering::Relaxed) {
        event.read_exact(&mut count)?;
        // Fails only at the end, when nobody listens any more.
        let _ = woken.send(Instant::now());
    }
    Ok(())
}

fn wake_again_and_again(
    mut event: &File,
    sleeper: u32,
    woken: &Receiver<Instant>,
) -> io::Result<(Vec<f64>, Vec<f64>)> {
    /// A processor takes a while to become idle after its last thread went to sleep.
    const SETTLING: Duration = Duration::from_micros(100);
    let own = Process::new(std::process::id());
    let (mut writes, mut wakes) = (vec![], vec![]);
    let start = Instant::now();
    while start.elapsed() < TIME {
        while !own.is_thread_asleep(sleeper)? {
            std::hint::spin_loop();
        }
        let asleep = Instant::now();
        while asleep.elapsed() < SETTLING {
            std::hint::spin_loop();
        }
        let before = Instant::now();
        event.write_all(&ONE)?;
        let after = Instant::now();
        let ran = woken.recv().map_err(io::Error::other)?;
        writes.push(nanoseconds(after - before));
        wakes.push(nanoseconds(ran.saturating_duration_since(before)));
    }
    Ok((writes, wakes))
}

/// Processor time of one of two that wake each other in turn and sleep meanwhile, by the two system calls
/// that this takes at the least: of a client that sleeps over one request to a server that sleeps, the part
/// that no client can do without. And by three, where it sleeps for `at_most` so long: what it would have to do
/// that asks to be called late, lest it sleep over what has ended.
fn both_asleep(
    name: &'static str,
    at_most: Option<Timespec>,
    processors: Processors,
) -> io::Result<Price> {
    let (there, back) = (new_eventfd()?, new_eventfd()?);
    let over = AtomicBool::new(false);
    let (introduction, who) = mpsc::channel();
    thread::scope(|scope| {
        let echo = scope.spawn(|| {
            let _pinned = Pinned::to(processors.other)?;
            let _ = introduction.send(());
            drop(introduction);
            while !over.load(Ordering::Relaxed) {
                (&there).read_exact(&mut [0; 8])?;
                (&back).write_all(&ONE)?;
            }
            io::Result::Ok(())
        });
        let rounds = match who.recv() {
            Ok(()) => round_after_round(&there, &back, at_most.as_ref()),
            Err(_) => Ok(vec![]), // its error is told below
        };
        over.store(true, Ordering::Relaxed);
        (&there).write_all(&ONE)?;
        echo.join().expect("it does not panic")?;
        Ok(Price::of(name, &rounds?))
    })
}

fn round_after_round(
    mut there: &File,
    mut back: &File,
    at_most: Option<&Timespec>,
) -> io::Result<Vec<f64>> {
    const ROUNDS: u32 = 100;
    let mut measured = vec![];
    let start = Instant::now();
    while start.elapsed() < TIME {
        let before = processor_time();
        for _ in 0..ROUNDS {
            there.write_all(&ONE)?;
            if at_most.is_some() {
                let mut answer = [PollFd::new(back, PollFlags::IN)];
                poll(&mut answer, at_most)?;
            }
            back.read_exact(&mut [0; 8])?;
        }
        let took = processor_time().saturating_sub(before);
        measured.push(nanoseconds(took) / f64::from(ROUNDS));
    }
    Ok(measured)
}

/// Of this thread, so far.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("it is not negative")
}
