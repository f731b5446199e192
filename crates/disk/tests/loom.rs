//! The handshake of a sleep, in every interleaving and reordering that the memory model allows.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p pollux-disk --test loom --release
//! ```
//! Proof that it bites: with `WITHOUT_FENCE=reader` or `WITHOUT_FENCE=writer` in the environment, one fence is
//! gone, and every test of a sleeper fails.
#![cfg(loom)]

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use pollux_disk::wait::{Flag, Sleeper};
use pollux_disk::{
    Armed, Channel, Completion, Disk, Events, Failure, Geometry, Op, PollScope, Queued, Request,
    Ticket, WaitPoint, striped,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::time::Duration;

/// What a sleeper and its wakers share: the flag, what is published, and the event that ends a sleep.
#[derive(Default)]
struct Shared {
    flag: Flag,
    published: AtomicUsize,
    woken: AtomicUsize,
}

impl Shared {
    fn publish(&self) {
        self.published.fetch_add(1, Ordering::Relaxed);
        if self.flag.take() {
            self.woken.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn nobody_sleeps_on_what_was_published() {
    loom::model(|| {
        let shared = Arc::new(Shared::default());
        let waker = Arc::clone(&shared);
        let waker = thread::spawn(move || waker.publish());
        shared.flag.arm();
        let sleeps = shared.published.load(Ordering::Relaxed) == 0;
        waker.join().unwrap();
        let woken = shared.woken.load(Ordering::Relaxed);
        assert!(!sleeps || woken == 1, "a lost wake-up");
    });
}

#[test]
fn of_two_wakers_at_most_one_wakes() {
    loom::model(|| {
        let shared = Arc::new(Shared::default());
        let wakers: Vec<_> = (0..2)
            .map(|_| {
                let waker = Arc::clone(&shared);
                thread::spawn(move || waker.publish())
            })
            .collect();
        shared.flag.arm();
        let sleeps = shared.published.load(Ordering::Relaxed) < 2;
        for waker in wakers {
            waker.join().unwrap();
        }
        let woken = shared.woken.load(Ordering::Relaxed);
        assert!(
            woken <= 1,
            "an event was written for an owner that is awake"
        );
        assert!(!sleeps || woken == 1, "a lost wake-up");
    });
}

/// A sleep that really blocks, so that a lost wake-up is a deadlock, over several rounds.
#[test]
fn a_sleeper_sees_everything_and_is_never_stuck() {
    const ROUNDS: usize = 2;
    struct Event {
        written: Mutex<bool>,
        changed: Condvar,
    }
    loom::model(|| {
        let event = Event {
            written: Mutex::new(false),
            changed: Condvar::new(),
        };
        let shared = Arc::new((Flag::default(), AtomicUsize::new(0), event));
        let waker = Arc::clone(&shared);
        let waker = thread::spawn(move || {
            let (flag, published, event) = &*waker;
            for _ in 0..ROUNDS {
                published.fetch_add(1, Ordering::Relaxed);
                if flag.take() {
                    *event.written.lock().unwrap() = true;
                    event.changed.notify_one();
                }
            }
        });
        let (flag, published, event) = &*shared;
        let mut seen = 0;
        while seen < ROUNDS {
            flag.arm();
            let now = published.load(Ordering::Relaxed);
            if now == seen {
                let mut written = event.written.lock().unwrap();
                while !*written {
                    written = event.changed.wait(written).unwrap();
                }
                *written = false;
            } else {
                seen = now;
            }
            flag.disarm();
        }
        waker.join().unwrap();
    });
}

/// A leg whose requests end on another thread, which delivers them as an inbox is delivered to.
#[derive(Default)]
struct Leg {
    asked: std::sync::Mutex<Vec<Ticket>>,
    sleeper: std::sync::OnceLock<WaitPoint>,
    arrived: Mutex<Vec<Completion>>,
    count: AtomicUsize,
}

/// The leg's disk, and its one channel.
struct LegDisk(std::sync::Arc<Leg>, Events);
struct LegChannel(std::sync::Arc<Leg>);

impl Disk for LegDisk {
    fn geometry(&self) -> Geometry {
        Geometry::plain(1 << 20)
    }

    fn events(&self) -> &Events {
        &self.1
    }

    fn open_channel(&self, wait: &WaitPoint) -> std::io::Result<Box<dyn Channel>> {
        assert!(self.0.sleeper.set(wait.clone()).is_ok(), "one channel");
        Ok(Box::new(LegChannel(self.0.clone())))
    }
}

// SAFETY: it touches no memory.
unsafe impl Channel for LegChannel {
    fn queue(&mut self, request: Request) -> Queued {
        self.0.asked.lock().unwrap().push(request.ticket);
        Queued::Pending
    }

    fn submit(&mut self) {}

    fn reap(&mut self, done: &mut dyn FnMut(Completion)) {
        if self.0.count.load(Ordering::Relaxed) > 0 {
            let mut arrived = self.0.arrived.lock().unwrap();
            self.0.count.store(0, Ordering::Relaxed);
            arrived.drain(..).for_each(done);
        }
    }

    fn arm(&mut self) -> Armed {
        match self.0.count.load(Ordering::Relaxed) {
            0 => Armed::Idle,
            _ => Armed::Pending,
        }
    }
}

/// A request with a part on each leg ends once, after the last of its parts, with what any of them failed by; and
/// the owner that slept over it is woken.
#[test]
fn a_parent_ends_once_with_the_last_of_its_parts() {
    const FAILED: Result<(), Failure> = Err(Failure::Lost);
    for results in [[Ok(()), Ok(())], [FAILED, Ok(())], [Ok(()), FAILED]] {
        loom::model(move || {
            let mut sleeper = Sleeper::new().unwrap();
            let legs = [(); 2].map(|()| std::sync::Arc::<Leg>::default());
            let disks = legs.clone().map(|leg| {
                std::sync::Arc::new(LegDisk(leg, Events::default())) as std::sync::Arc<dyn Disk>
            });
            let stack = striped(4096, disks.into(), PollScope::OwnInFlight).unwrap();
            let mut channel = stack.open_channel(sleeper.point()).unwrap();
            let (ticket, op) = (Ticket(7), Op::Flush);
            assert_eq!(channel.queue(Request { ticket, op }), Queued::Pending);
            channel.submit();

            let delivered = Arc::new(AtomicUsize::new(0));
            let threads: Vec<_> = legs
                .into_iter()
                .zip(results)
                .map(|(leg, result)| {
                    let delivered = Arc::clone(&delivered);
                    thread::spawn(move || {
                        let ticket = leg.asked.lock().unwrap().pop().unwrap();
                        delivered.fetch_add(1, Ordering::Relaxed);
                        let mut arrived = leg.arrived.lock().unwrap();
                        arrived.push(Completion { ticket, result });
                        leg.count.store(1, Ordering::Relaxed);
                        drop(arrived);
                        leg.sleeper.get().unwrap().wake();
                    })
                })
                .collect();

            sleeper.arm();
            let sleeps = channel.arm() == Armed::Idle;
            let mut ended = Vec::new();
            let mut reap = |channel: &mut Box<dyn Channel>| {
                channel.reap(&mut |done| {
                    assert_eq!(delivered.load(Ordering::Relaxed), 2, "before its last part");
                    ended.push(done);
                });
            };
            reap(&mut channel);
            for thread in threads {
                thread.join().unwrap();
            }
            if sleeps {
                let awoken = poll(
                    &mut [PollFd::new(sleeper.point(), PollFlags::IN)],
                    Some(&Timespec::default()),
                );
                assert_eq!(awoken, Ok(1), "a lost wake-up");
                sleeper.sleep(Some(Duration::ZERO), |_| ()).unwrap();
            }
            reap(&mut channel);
            reap(&mut channel);
            let result = results[0].and(results[1]);
            assert_eq!(ended, [Completion { ticket, result }]);
        });
    }
}

/// Without a part in the proof that the fences matter.
mod apart {
    use super::*;

    /// What was stored before the flag was taken is there after the look that found it.
    /// No fence is behind this: it holds without either.
    #[test]
    fn an_awake_owner_is_left_alone() {
        loom::model(|| {
            let shared = Arc::new((Flag::default(), loom::sync::atomic::AtomicBool::new(false)));
            let waker = Arc::clone(&shared);
            let waker = thread::spawn(move || {
                if waker.0.take() {
                    waker.1.store(true, Ordering::Relaxed);
                }
            });
            waker.join().unwrap();
            assert!(!shared.1.load(Ordering::Relaxed));
        });
    }
}
