//! A device that writes nonsense into its used ring. Our own never does, so the tests write in its place.

use std::path::Path;
use std::thread;

use pollux_disk::{Armed, Channel as _, Failure, Op, Queued, Request, Ticket};
use pollux_ring::PeerFault;

use crate::common::Served;
use crate::device::rings::Rings;
use crate::notify::call::EventFd as _;
use crate::{Channel, CompletionMode, Driver, Hybrid, Lost, Options, Waiter, Waiting};

/// A disk that has taken requests and answers none of them.
fn silent() -> Served {
    Served::disk("fault:hang=device,on=memory:size=1M", 1)
}

/// What is written, and whether that is what it is called.
type Forgery = (fn(&Rings), fn(&PeerFault) -> bool);

fn forgeries() -> Vec<Forgery> {
    vec![
        (
            |rings| rings.forge(9, &[]),
            |fault| matches!(fault, PeerFault::IndexJump { jump: 9, .. }),
        ),
        (
            |rings| rings.forge(1, &[(8, 0)]),
            |fault| matches!(fault, PeerFault::NotInFlight { id: 8 }),
        ),
        (
            |rings| rings.forge(1, &[(u32::MAX, 0)]),
            |fault| matches!(fault, PeerFault::NotInFlight { .. }),
        ),
        (
            |rings| rings.forge(2, &[(0, 0), (0, 0)]),
            |fault| matches!(fault, PeerFault::NotInFlight { id: 0 }),
        ),
        (
            |rings| rings.forge(1, &[(0, 2)]),
            |fault| matches!(fault, PeerFault::Overrun { written: 2, .. }),
        ),
    ]
}

const FLUSH: Op = Op::Flush;

fn flush(channel: &mut Channel, ticket: u64) {
    let ticket = Ticket(ticket);
    let request = Request { ticket, op: FLUSH };
    assert_eq!(
        channel.queue_as(request, CompletionMode::Polled),
        Queued::Pending
    );
    channel.submit();
}

fn connect(socket: &Path) -> Driver {
    let options = Options {
        queue_size: 8,
        ..Options::default()
    };
    Driver::connect(socket, &options).unwrap()
}

#[test]
fn the_owner_of_a_channel_is_told_and_so_are_those_of_other_queues() {
    for (forge, name) in forgeries() {
        let served = silent();
        let driver = connect(&served.socket());
        let mut waiters = [Waiting::Polled, Waiting::Call].map(|kind| Waiter::new(kind).unwrap());
        let [mut forging, mut other] =
            [0, 1].map(|at: usize| driver.channel(waiters[at].point()).unwrap());
        flush(&mut forging, 0);
        flush(&mut forging, 1);
        flush(&mut other, 0);
        forge(forging.rings());
        let mut told = Vec::new();
        let done = &mut |done: pollux_disk::Completion| told.push((done.ticket.0, done.result));
        while waiters[0].wait(&mut forging, None, done).unwrap() == 1 {}
        told.sort_by_key(|told| told.0);
        // What came back before the nonsense may count.
        assert!(
            matches!(told[..], [(0, Ok(()) | Err(_)), (1, Err(Failure::Lost))]),
            "{told:?}"
        );
        let lost = driver.lost();
        assert!(
            matches!(&lost, Some(Lost::Ring { queue: 0, fault }) if name(fault)),
            "{lost:?}"
        );
        // One that has nothing in flight may sleep, and is not woken by the ring that stays broken.
        assert_eq!(forging.arm(), Armed::Idle);
        let mut count = 0;
        let done = &mut |done: pollux_disk::Completion| {
            assert_eq!(done.result, Err(Failure::Lost));
            count += 1;
        };
        assert_eq!(waiters[1].wait(&mut other, None, done).unwrap(), 1);
        assert_eq!(count, 1);
    }
}

#[test]
fn sleepers_and_waiters_for_room_on_a_shared_queue_are_told() {
    for (forge, name) in forgeries() {
        let served = silent();
        let driver = connect(&served.socket());
        let queue = driver.queue(0).unwrap();
        thread::scope(|scope| {
            // More than there is room for.
            for _ in 0..10 {
                scope.spawn(|| {
                    // What came back before the nonsense has an answer: that nothing was written to it.
                    let flushed = queue.flush(CompletionMode::Call).wait();
                    assert!(flushed.is_err());
                });
            }
            let active = queue.0.board.transport().queue();
            let (_, rings) = driver.device().unwrap().claim(0);
            while queue.0.board.has_room() {
                thread::yield_now();
            }
            forge(&rings);
            // A liar calls as well.
            active.call().fd().signal();
        });
        let lost = driver.lost();
        assert!(
            matches!(&lost, Some(Lost::Ring { queue: 0, fault }) if name(fault)),
            "{lost:?}"
        );
        assert_eq!(
            queue
                .flush(CompletionMode::Polled)
                .wait()
                .map_err(Failure::from),
            Err(Failure::Lost),
            "and so is what comes later"
        );
    }
}
