//! What a request costs a thread that sleeps, by when it is called: a processor that is just going to rest may take
//! longer to come back than one that rests.

use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

use super::{Price, TIME, nanoseconds};
use crate::pinned::Pinned;
use crate::round_trip::Processors;

/// So many microseconds after a request the call is made.
const CALLS: [(u64, &str); 5] = [
    (0, "a request of a sleeper, called at once"),
    (1, "the same, called after 1 µs"),
    (2, "the same, called after 2 µs"),
    (3, "the same, called after 3 µs"),
    (6, "the same, called after 6 µs"),
];

const ONE: [u8; 8] = 1u64.to_ne_bytes();

/// What the sleeper asks for last.
const THE_END: u64 = u64::MAX;

pub fn prices(processors: Processors) -> io::Result<Vec<Price>> {
    let _pinned = Pinned::to(processors.own)?;
    let price = |(after, name)| {
        let took = requests(processors, Duration::from_micros(after))?;
        Ok(Price::of(name, &took))
    };
    CALLS.into_iter().map(price).collect()
}

/// Requests, one after the other, to a thread that polls for them and calls `after` so long; what each took.
fn requests(processors: Processors, after: Duration) -> io::Result<Vec<f64>> {
    let calls = File::from(eventfd(0, EventfdFlags::CLOEXEC)?);
    let (asked, over) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let answers = scope.spawn(|| {
            let pinned = Pinned::to(processors.other);
            let ended = pinned.and_then(|_pinned| answer(&asked, &calls, after));
            // One that cannot answer must not leave the other asleep.
            over.store(true, Ordering::Relaxed);
            let told = (&calls).write_all(&ONE);
            ended.and(told)
        });
        let took = ask(&asked, &calls, &over);
        asked.store(THE_END, Ordering::Release);
        answers.join().expect("it does not panic")?;
        took
    })
}

fn ask(asked: &AtomicU64, mut calls: &File, over: &AtomicBool) -> io::Result<Vec<f64>> {
    let mut took = vec![];
    let start = Instant::now();
    while start.elapsed() < TIME && !over.load(Ordering::Relaxed) {
        let before = Instant::now();
        asked.fetch_add(1, Ordering::Release);
        calls.read_exact(&mut [0; 8])?;
        took.push(nanoseconds(before.elapsed()));
    }
    Ok(took)
}

fn answer(asked: &AtomicU64, mut calls: &File, after: Duration) -> io::Result<()> {
    let mut answered = 0;
    loop {
        let now = asked.load(Ordering::Acquire);
        if now == THE_END {
            return Ok(());
        }
        if now == answered {
            std::hint::spin_loop();
            continue;
        }
        answered = now;
        let came = Instant::now();
        while came.elapsed() < after {
            std::hint::spin_loop();
        }
        calls.write_all(&ONE)?;
    }
}
