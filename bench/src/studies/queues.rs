//! Several queues of crate `blkio` that one client keeps full: how many requests each makes, and how long they take.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use pollux_load::{Closed, Histogram, histogram};
use pollux_tests::client::Waiting;

use crate::client::Blkio;

/// The queues, and how their owner waits.
///
/// A polling owner polls all of them in turn, from one thread. A blocking one sleeps over one queue: that takes a
/// thread for each, all on the processor of the client.
pub struct Queues {
    loads: Vec<Closed<Blkio>>,
    waiting: Waiting,
}

impl Queues {
    /// Of `loads`, whose first requests are queued.
    pub const fn new(loads: Vec<Closed<Blkio>>, waiting: Waiting) -> Self {
        Self { loads, waiting }
    }

    /// Keeps all of them full for `time`: how many requests each has made.
    pub fn run_for(&mut self, time: Duration) -> io::Result<Vec<u32>> {
        match self.waiting {
            Waiting::Polling => self.poll_for(time),
            Waiting::Blocking => self.each(|load| load.run_for(time)),
        }
    }

    /// The same, all together.
    pub fn run_all_for(&mut self, time: Duration) -> io::Result<f64> {
        Ok(self.run_for(time)?.into_iter().map(f64::from).sum())
    }

    fn poll_for(&mut self, time: Duration) -> io::Result<Vec<u32>> {
        let mut counts = vec![0; self.loads.len()];
        let end = Instant::now() + time;
        while Instant::now() < end {
            for _ in 0..64 {
                for (load, count) in self.loads.iter_mut().zip(&mut counts) {
                    *count += load.turn(0)?;
                }
            }
        }
        Ok(counts)
    }

    /// The same as [`Queues::run_for`], and records how long requests of each queue took.
    pub fn run_timed(&mut self, time: Duration) -> io::Result<Vec<Histogram>> {
        match self.waiting {
            Waiting::Polling => self.poll_timed(time),
            Waiting::Blocking => self.each(|load| load.run_timed(time)),
        }
    }

    fn poll_timed(&mut self, time: Duration) -> io::Result<Vec<Histogram>> {
        let timers = self.loads.iter_mut().map(|load| (load.timer(), load));
        let mut timed: Vec<_> = timers.collect();
        let end = Instant::now() + time;
        loop {
            for (timer, load) in &mut timed {
                if load.turn_timed(0, timer)? >= end {
                    return Ok(timed
                        .into_iter()
                        .map(|(timer, _)| timer.latencies)
                        .collect());
                }
            }
        }
    }

    /// What `run` does with each, on threads of their own.
    fn each<T: Send>(
        &mut self,
        run: impl Fn(&mut Closed<Blkio>) -> io::Result<T> + Sync,
    ) -> io::Result<Vec<T>> {
        let run = &run;
        thread::scope(|scope| {
            let loads = self.loads.iter_mut();
            let threads: Vec<_> = loads.map(|load| scope.spawn(move || run(load))).collect();
            let ended = threads.into_iter();
            let ended = ended.map(|thread| thread.join().expect("a client does not panic"));
            ended.collect()
        })
    }

    /// Ends the connections with their requests in flight.
    pub fn end(self) -> io::Result<()> {
        self.loads.into_iter().try_for_each(Closed::end)
    }
}

/// Those of all queues.
pub fn together(each: &[Histogram]) -> Histogram {
    let mut all = histogram();
    for one in each {
        all.add(one).expect("all are as wide");
    }
    all
}
