use std::cell::RefCell;
use std::thread;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::time::timerfd_gettime;

use super::*;

#[test]
fn whoever_is_held_is_let_go_again_and_again() {
    start().unwrap();
    let (reader, _writer) = rustix::pipe::pipe().unwrap();
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..3 {
                    let read = watched(|| rustix::io::read(&reader, &mut [0; 1]));
                    assert_eq!(read, Err(Errno::INTR));
                }
            });
        }
    });
    // After a rest as well.
    while !RESTING.load(Ordering::SeqCst) {
        thread::yield_now();
    }
    let read = watched(|| rustix::io::read(&reader, &mut [0; 1]));
    assert_eq!(read, Err(Errno::INTR));
}

#[test]
fn a_caller_takes_nobodys_timer_away() {
    start().unwrap();
    watched(|| ());
    let (reader, _writer) = rustix::pipe::pipe().unwrap();
    let held = thread::spawn(move || watched(|| rustix::io::read(&reader, &mut [0; 1])));
    let patience = Instant::now() + Duration::from_secs(60);
    while !held.is_finished() {
        assert!(Instant::now() < patience, "it is held for ever");
        turn_off();
        // Calls meanwhile do not put it off for ever either.
        watched(|| ());
    }
    assert_eq!(held.join().unwrap(), Err(Errno::INTR));
}

#[test]
fn one_who_lets_go_before_a_tick_is_found_all_the_same() {
    start().unwrap();
    let (reader, _writer) = rustix::pipe::pipe().unwrap();
    let time = (TICK * 9 / 10).try_into().unwrap();
    let held = || {
        let mut fds = [PollFd::new(&reader, PollFlags::IN)];
        watched(|| poll(&mut fds, Some(&time)))
    };
    while !RESTING.load(Ordering::SeqCst) {
        thread::yield_now();
    }
    let is_found = (0..100).any(|_| {
        let end = held();
        thread::sleep(TICK);
        end == Err(Errno::INTR)
    });
    assert!(is_found);
}

#[test]
fn a_thread_that_ends_may_use_a_descriptor_once_more() {
    struct AtItsEnd(OwnedFd);
    impl Drop for AtItsEnd {
        fn drop(&mut self) {
            assert_eq!(write(&self.0, &[7]), Ok(1));
        }
    }
    thread_local! {
        static LAST: RefCell<Option<AtItsEnd>> = const { RefCell::new(None) };
    }
    start().unwrap();
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    let ends = thread::spawn(move || {
        // What was used first goes last.
        LAST.with(|last| *last.borrow_mut() = Some(AtItsEnd(writer)));
        watched(|| ());
    });
    ends.join().unwrap();
    let mut told = [0; 2];
    assert_eq!(rustix::io::read(&reader, &mut told), Ok(1));
}

/// Else it would end a system call of the program's own.
#[test]
fn an_interrupt_that_comes_late_is_taken_before_the_thread_goes_on() {
    start().unwrap();
    let (reader, _writer) = rustix::pipe::pipe().unwrap();
    let looks = AtomicBool::new(true);
    let own = Watched::new();
    let leaves = |own: &Watched| {
        own.state.swap(INSIDE, Ordering::SeqCst);
        while own.state.load(Ordering::SeqCst) != FOUND {
            thread::yield_now();
        }
        own.leave();
        // As long as the interrupt may be late.
        let time = Duration::from_millis(1).try_into().unwrap();
        poll(&mut [PollFd::new(&reader, PollFlags::IN)], Some(&time))
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            while looks.load(Ordering::SeqCst) {
                thread::yield_now();
                let _alone = all();
                let (set, unset) = (Ordering::SeqCst, Ordering::SeqCst);
                let before = own.state.compare_exchange(INSIDE, FOUND, set, unset);
                if before == Ok(INSIDE) {
                    // The thread leaves meanwhile, and waits for the lock.
                    thread::sleep(Duration::from_micros(100));
                    own.thread.interrupt();
                }
            }
        });
        for _ in 0..100 {
            let ended = leaves(&own);
            looks.store(ended == Ok(0), Ordering::SeqCst);
            assert_eq!(ended, Ok(0));
        }
        looks.store(false, Ordering::SeqCst);
    });
}

#[test]
fn a_call_that_is_seldom_wakes_no_watchdog() {
    start().unwrap();
    // Other tests call meanwhile.
    let is_off = (0..1000).any(|_| {
        thread::sleep(3 * SELDOM);
        let is_seldom = watched(|| all().set.is_some_and(|set| set.elapsed() < SELDOM));
        let _alone = all();
        let timer = timerfd_gettime(TIMER.get().unwrap()).unwrap().it_value;
        is_seldom && (timer.tv_sec, timer.tv_nsec) == (0, 0)
    });
    assert!(is_off);
}
