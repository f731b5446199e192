//! How long a cache line takes from one processor to the other and back.
//!
//! A host may move the two processors of its guest: they share a cache for a while, and then they do not. Nothing else
//! shows it, and what is measured across the two changes several times over. So the round trip is measured before and
//! after each sample, and the sample is compared only with others of the same distance.

use std::hint::spin_loop;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::pairing::{Distance, Tagged};
use crate::pinned::Pinned;
use crate::statistics::median;

/// The processors that servers and clients run on.
#[derive(Clone, Copy, Debug)]
pub struct Processors {
    /// Of the thread that measures; in a comparison, the client's.
    pub own: usize,
    /// Of the other end; in a comparison, the server's.
    pub other: usize,
}

/// Whether it stays where it is, and which: what `measure` finds, with the distance before and after it.
pub fn tagged<T>(
    processors: Processors,
    measure: impl FnOnce() -> io::Result<T>,
) -> io::Result<Tagged<T>> {
    let before = distance(processors)?;
    let found = measure()?;
    let after = distance(processors)?;
    Ok(Tagged {
        distance: (before == after).then_some(after),
        found,
    })
}

fn distance(processors: Processors) -> io::Result<Distance> {
    /// Hundreds of batches where it is quiet: a few that were preempted do not move their median.
    const TIME: Duration = Duration::from_millis(2);
    let measured = round_trips(processors, TIME, 50)?;
    Ok(Distance::of(median(&measured)))
}

/// A word on a cache line of its own.
#[repr(align(128))] // a pair of lines: some processors fetch two
#[derive(Default)]
struct Line(AtomicU64);

/// There and back, in nanoseconds, again and again for `time`: one thread stores, the other sees it and answers on
/// another line. Each value is the mean of `batch` round trips; there are a few at least.
pub fn round_trips(processors: Processors, time: Duration, batch: u32) -> io::Result<Vec<f64>> {
    const FEWEST: usize = 16;
    const OVER: u64 = u64::MAX;
    if processors.own == processors.other {
        return Ok(vec![0.0]); // two threads that spin on one processor would wait for each other's time slice
    }
    let _pinned = Pinned::to(processors.own)?;
    let (there, back) = (Line::default(), Line::default());
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let _pinned = Pinned::to(processors.other)?;
            let mut seen = 0;
            while seen != OVER {
                let now = there.0.load(Ordering::Acquire);
                if now == seen {
                    spin_loop();
                } else {
                    seen = now;
                    back.0.store(seen, Ordering::Release);
                }
            }
            io::Result::Ok(())
        });
        let mut number = 0;
        let mut round = || {
            number += 1;
            there.0.store(number, Ordering::Release);
            while back.0.load(Ordering::Acquire) != number {
                // A thread that could not be bound to its processor does not answer.
                if other.is_finished() {
                    return;
                }
                spin_loop();
            }
        };
        round(); // the other thread runs once this has come back
        let mut measured = vec![];
        let start = Instant::now();
        while (start.elapsed() < time || measured.len() < FEWEST) && !other.is_finished() {
            let before = Instant::now();
            (0..batch).for_each(|_| round());
            measured.push(before.elapsed().as_secs_f64() * 1e9 / f64::from(batch));
        }
        there.0.store(OVER, Ordering::Release);
        other.join().expect("it does not panic")?;
        Ok(measured)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_processor_is_near_itself_and_takes_no_time() {
        let processors = Processors { own: 0, other: 0 };
        let tagged = tagged(processors, || Ok(7)).unwrap();
        assert_eq!(tagged.distance, Some(Distance::Near));
        assert_eq!(tagged.found, 7);
    }

    #[test]
    fn a_processor_that_is_not_there_is_an_error_and_no_wait() {
        let processors = Processors {
            own: 0,
            other: 1000,
        };
        assert!(round_trips(processors, Duration::from_millis(1), 10).is_err());
    }
}
