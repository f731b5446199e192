//! Nobody sleeps through the end of a request: loom runs the real `Switchboard`, over the real lanes, in
//! every interleaving and with every value that the memory model lets a load return.
//!
//! `make loom` runs this (`loom.sh`), and once more with either full fence of the lanes removed
//! (`WITHOUT_FENCE=…`): each of these tests must end in a deadlock.
#![cfg(loom)]
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod model;

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use loom::thread;
use model::{
    Board, Channel, Device, Request, go_off, queue, submit, submit_as_task, submit_blocking, wait,
};
use pollux_driver::model::{EventFd, Owner, Transport};
use pollux_driver::{CompletionMode, KickLock, Mixed};
use pollux_ring::Suppression;

use CompletionMode::{Call, Polled};

/// Runs `case` in both modes of suppression, with at most so many interruptions of a thread by another.
fn explore(
    interruptions: Option<usize>,
    case: impl Fn(Suppression) + Copy + Send + Sync + 'static,
) {
    for suppression in [Suppression::Flags, Suppression::EventIdx] {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = interruptions;
        model.check(move || case(suppression));
    }
}

/// A queue in its usual way, with room for so many requests.
fn usual(room: usize, suppression: Suppression) -> (Arc<Board>, Device) {
    queue(room, suppression, Mixed::WhileNeeded, KickLock::Released)
}

/// Runs `case` on a queue with room for so many requests, in front of a device that serves so many.
fn serving(interruptions: Option<usize>, room: usize, requests: u32, case: fn(&Arc<Board>)) {
    explore(interruptions, move |suppression| {
        let (board, device) = usual(room, suppression);
        let device = thread::spawn(move || device.serve(requests));
        case(&board);
        device.join().unwrap();
    });
}

/// A request that is in flight.
fn flying(board: &Board, completion: CompletionMode) -> Request {
    let request = Request::new(completion);
    assert!(submit(board, &mut None, &request), "there is room");
    request
}

#[test]
fn a_polled_request_whose_owner_goes_to_sleep() {
    serving(None, 1, 1, |board| {
        let request = flying(board, Polled);
        board.poll();
        wait(board, &request);
    });
}

#[test]
fn a_kick_under_the_lock_wakes_the_device_as_well() {
    explore(None, |suppression| {
        let (board, device) = queue(1, suppression, Mixed::WhileNeeded, KickLock::Held);
        let device = thread::spawn(move || device.serve(1));
        wait(&board, &flying(&board, Call));
        device.join().unwrap();
    });
}

#[test]
fn one_request_after_another_while_either_side_may_sleep() {
    serving(Some(4), 1, 2, |board| {
        wait(board, &flying(board, Call));
        wait(board, &flying(board, Polled));
    });
}

#[test]
fn entries_that_nobody_has_reaped_when_a_sleeper_arms() {
    serving(Some(4), 2, 2, |board| {
        let _unwatched = flying(board, Polled);
        wait(board, &flying(board, Call));
    });
}

#[test]
fn a_sleeper_that_waits_for_a_slot() {
    serving(Some(4), 1, 2, |board| {
        let _unwatched = flying(board, Polled);
        let request = Request::new(Polled);
        submit_blocking(board, &request);
        wait(board, &request);
    });
}

#[test]
fn a_waiter_woken_for_room_that_comes_too_late_gets_in_all_the_same() {
    serving(Some(4), 1, 3, |board| {
        let first = flying(board, Call);
        let mut turn = None;
        let _ = board.poll_room(&mut turn, Waker::noop());
        wait(board, &first);
        // A thread that is awake is faster.
        let _unwatched = flying(board, Polled);
        let late = Request::new(Polled);
        if turn.is_none() {
            submit_blocking(board, &late);
        } else {
            assert!(submit(board, &mut turn, &late), "it would starve");
        }
        wait(board, &late);
    });
}

#[test]
fn what_a_reap_hands_over_wakes_the_device() {
    serving(Some(4), 1, 2, |board| {
        let [first, second] = [Call, Polled].map(Request::new);
        board.submit_all(|ends, policy| {
            for request in [&first, &second] {
                policy.begin(request.completion());
                ends.accept(request.clone());
            }
        });
        wait(board, &second);
        assert!(first.0.has_ended());
    });
}

#[test]
fn an_owner_asleep_whose_request_another_thread_reaps() {
    serving(Some(2), 2, 2, |board| {
        let other = Arc::clone(board);
        let sleeper = thread::spawn(move || wait(&other, &flying(&other, Call)));
        // It looks, and is then stopped for ever.
        let _unwatched = flying(board, Polled);
        board.poll();
        board.poll();
        sleeper.join().unwrap();
    });
}

#[test]
fn the_sleeper_that_holds_the_call_leaves() {
    serving(Some(2), 2, 2, |board| {
        let other = Arc::clone(board);
        let sleeper = thread::spawn(move || wait(&other, &flying(&other, Call)));
        wait(board, &flying(board, Polled));
        sleeper.join().unwrap();
    });
}

#[test]
fn a_waiter_for_room_that_leaves_passes_the_room_on() {
    // One interruption is enough: of the one that leaves, after it has lined up. The others block by themselves.
    serving(Some(1), 1, 2, |board| {
        let first = flying(board, Call);
        let other = Arc::clone(board);
        let leaver = thread::spawn(move || {
            let mut turn = None;
            let _ = other.poll_room(&mut turn, Waker::noop());
            if let Some(turn) = turn {
                other.leave_room(turn);
            }
        });
        // A task, which hears no calls: others reap for it, and wake it.
        let other = Arc::clone(board);
        let task = thread::spawn(move || {
            let request = Request::new(Call);
            submit_as_task(&other, &request);
            wait(&other, &request);
        });
        wait(board, &first);
        leaver.join().unwrap();
        task.join().unwrap();
    });
}

#[test]
fn a_call_driven_request_calls_the_thread_that_hears_calls() {
    explore(None, |suppression| {
        let (board, device) = usual(1, suppression);
        let sleeper = Arc::clone(device.sleeper());
        let device = thread::spawn(move || device.serve(1));
        let request = flying(&board, Call);
        // An event loop: it has not asked for anything but this.
        while !request.0.has_ended() {
            sleeper.hear();
            board.woken();
        }
        device.join().unwrap();
    });
}

#[test]
fn a_request_that_is_forsaken_leaves_the_others_their_calls() {
    serving(Some(2), 2, 2, |board| {
        let other = Arc::clone(board);
        let leaver = thread::spawn(move || {
            let request = flying(&other, Polled);
            if other.poll_end(&request.0, Waker::noop()).is_pending() {
                other.forsake(&request.0);
            }
        });
        wait(board, &flying(board, Call));
        leaver.join().unwrap();
    });
}

/// For how long may calls be off, over a polled request in flight?
#[derive(Clone, Copy, PartialEq, Eq)]
enum Bound {
    /// Until the clock goes off.
    Clock,
    /// For ever: the rule of the Linux RFC of 2021.
    Never,
}

/// A poller that is stopped with a request in flight, and a sleeper.
fn a_poller_stops(bound: Bound, suppression: Suppression) {
    let mixed = Mixed::SuspendedFor(Duration::from_millis(1));
    let (board, device) = queue(2, suppression, mixed, KickLock::Released);
    let (timer, sleeper) = (
        Arc::clone(&board.transport().timer),
        Arc::clone(device.sleeper()),
    );
    let clock = (bound == Bound::Clock).then(|| thread::spawn(move || go_off(&timer, &sleeper)));
    let device = thread::spawn(move || device.serve(2));
    let _unwatched = flying(&board, Polled);
    wait(&board, &flying(&board, Call));
    board.transport().timer.set.signal();
    if let Some(clock) = clock {
        clock.join().unwrap();
    }
    device.join().unwrap();
}

#[test]
fn a_call_that_is_suspended_comes_back() {
    explore(Some(2), |suppression| {
        a_poller_stops(Bound::Clock, suppression);
    });
}

#[test]
fn a_server_that_comes_back_is_handed_what_the_one_before_has_not_ended() {
    explore(Some(3), |suppression| {
        let (board, device) = usual(2, suppression);
        let device = thread::spawn(move || device.restart().serve(2));
        let _unwatched = flying(&board, Polled);
        wait(&board, &flying(&board, Call));
        device.join().unwrap();
    });
}

#[test]
fn a_channel_that_opens_takes_no_wake_up_from_a_sleeper() {
    serving(Some(3), 1, 1, |board| {
        let request = flying(board, Call);
        let other = Arc::clone(board);
        // It stays: one that goes looks at the ring.
        let opener = thread::spawn(move || std::mem::forget(Channel::open(&other)));
        wait(board, &request);
        opener.join().unwrap();
    });
}

#[test]
fn the_channel_that_holds_the_call_goes() {
    serving(Some(2), 2, 2, |board| {
        let other = Arc::clone(board);
        let channel = thread::spawn(move || {
            let channel = Channel::open(&other);
            channel.wait(&channel.flying(Polled));
        });
        let holder = Channel::open(board);
        holder.wait(&holder.flying(Polled));
        drop(holder);
        channel.join().unwrap();
    });
}

#[test]
fn a_channel_and_a_thread_sleep_over_one_queue() {
    serving(Some(2), 2, 2, |board| {
        let other = Arc::clone(board);
        let sleeper = thread::spawn(move || wait(&other, &flying(&other, Call)));
        let channel = Channel::open(board);
        channel.wait(&channel.flying(Polled));
        sleeper.join().unwrap();
    });
}

/// Without a part in the proof that the fences matter.
mod apart {
    use super::*;

    /// A channel that opened did this once: it read the calls to count them, and did not look at the ring.
    #[test]
    #[should_panic(expected = "deadlock")]
    fn a_call_that_is_read_without_a_look_hangs() {
        serving(Some(2), 1, 1, |board| {
            let request = flying(board, Call);
            let other = Arc::clone(board);
            let reader = thread::spawn(move || other.transport().call().fd().read());
            wait(board, &request);
            reader.join().unwrap();
        });
    }

    /// To forget the look is not enough to do that: the calls come again.
    #[test]
    fn calls_that_are_heard_without_a_look_come_again() {
        serving(Some(2), 1, 1, |board| {
            let request = flying(board, Call);
            let other = Arc::clone(board);
            let reader = thread::spawn(move || drop(other.transport().call().hear()));
            wait(board, &request);
            reader.join().unwrap();
        });
    }

    /// The rule that was not merged, caught. It hangs with all fences.
    #[test]
    #[should_panic(expected = "deadlock")]
    fn the_rule_of_the_rfc_hangs() {
        explore(Some(2), |suppression| {
            a_poller_stops(Bound::Never, suppression)
        });
    }

    /// It never sleeps, and would look for ever rather than end in a deadlock.
    #[test]
    fn a_poller_finds_the_server_that_has_come_back() {
        explore(Some(3), |suppression| {
            let (board, device) = usual(1, suppression);
            let device = thread::spawn(move || device.restart().serve(1));
            let request = flying(&board, Polled);
            while !request.0.has_ended() {
                board.poll();
                thread::yield_now();
            }
            device.join().unwrap();
        });
    }
}
