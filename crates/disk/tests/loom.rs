//! The handshake of a sleep, in every interleaving and reordering that the memory model allows.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p pollux-disk --test loom --release
//! ```
//! Proof that it bites: with `--cfg 'without_fence="reader"'` or `--cfg 'without_fence="writer"'`
//! besides, one fence is gone, and every test of a sleeper fails.
#![cfg(loom)]

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use pollux_disk::wait::Flag;

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
        assert!(woken <= 1, "an event was written for somebody awake");
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

/// What was stored before the flag was taken is there after the look that found it.
/// No fence is behind this: it holds without either, so it has no part in the proof that the others
/// bite.
#[cfg(not(any(without_fence = "writer", without_fence = "reader")))]
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
