//! When a driver that sleeps is called, and what one that looks is shown.

mod worker;

use std::fs::File;
use std::os::fd::OwnedFd;

use pollux_disk::Completion;
use pollux_disk::wait::Window;
use rustix::event::{EventfdFlags, eventfd};

use super::*;

/// As many reads of `sectors` as the ring holds, and what they are called for by.
struct Batch {
    rig: Rig,
    calls: OwnedFd,
}

impl Batch {
    fn new(sectors: u64) -> Self {
        let mut rig = Rig::new();
        let calls = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let call = File::from(calls.try_clone().unwrap());
        rig.queue.set_call(Some(Call::new(call).unwrap()));
        let mut batch = Self { rig, calls };
        assert_eq!(batch.calls(), 1, "a new descriptor is called once");
        batch.send(sectors);
        batch
    }

    /// The driver sends as many as there is room for, and sleeps.
    fn send(&mut self, sectors: u64) {
        self.send_awake(sectors);
        assert_eq!(self.rig.driver.arm(), Ok(Armed::Idle));
    }

    /// The driver sends as many as there is room for, and polls.
    fn send_awake(&mut self, sectors: u64) {
        self.rig.next = BUFFERS;
        self.stage(RING / 2, sectors);
        let _ = self.rig.driver.publish();
    }

    /// The driver prepares reads that the worker does not see yet.
    fn stage(&mut self, requests: u16, sectors: u64) {
        let rig = &mut self.rig;
        let header = RequestHeader {
            kind: Kind::In,
            sector: 0,
        };
        for _ in 0..requests {
            let header = rig.buffer(&header.to_bytes());
            let room = vec![0xff; usize::try_from(sectors * SECTOR).unwrap() + 1];
            let data_and_status = rig.buffer(&room);
            rig.driver.stage(&[header], &[data_and_status], 0).unwrap();
        }
    }

    /// The worker does what was sent, and calls; the driver wakes up and takes it.
    fn turn(&mut self) {
        assert_eq!(self.take(), RING / 2);
        self.rig.queue.publish();
        assert_eq!(self.calls(), 1);
        self.driver_takes(RING / 2);
    }

    fn driver_takes(&mut self, requests: u16) {
        let driver = &mut self.rig.driver;
        assert_eq!(driver.look(), Ok(requests));
        while driver.take().unwrap().is_some() {}
    }

    /// How many calls have come since the last time.
    fn calls(&mut self) -> u64 {
        let mut count = [0; 8];
        rustix::io::read(&self.calls, &mut count).map_or(0, |_| u64::from_ne_bytes(count))
    }

    /// The driver sends nothing more, and is called: at once, or when its wait ends.
    fn wait_ends(&mut self) {
        while self.rig.queue.deferral.defers() {
            assert_eq!(self.take(), 0);
        }
        assert_eq!(self.calls(), 1);
    }

    fn take(&mut self) -> u16 {
        self.take_at_most(Budget::default().chains)
    }

    fn take_at_most(&mut self, chains: u16) -> u16 {
        let Rig { queue, channel, .. } = &mut self.rig;
        let mut budget = Budget {
            chains,
            ..Budget::default()
        };
        queue.take(0, &mut budget, &mut **channel)
    }
}

#[test]
fn a_small_batch_is_shown_and_called_for_as_soon_as_it_has_ended() {
    for sectors in [1, 32] {
        let mut batch = Batch::new(sectors);
        assert_eq!(batch.take(), RING / 2);
        assert_eq!(
            batch.rig.driver.look(),
            Ok(RING / 2),
            "a driver that polls sees them"
        );
        assert_eq!(batch.calls(), 1);
        batch.rig.queue.publish();
        assert_eq!(batch.calls(), 0, "there is nothing else");
    }
}

#[test]
fn what_ended_is_called_for_at_the_end_of_the_turn_at_the_latest() {
    let mut batch = Batch::new(1);
    assert_eq!(batch.take_at_most(3), 3);
    assert_eq!(batch.calls(), 0);
    assert_eq!(batch.rig.driver.look(), Ok(0));
    batch.rig.queue.publish();
    assert_eq!(batch.calls(), 1);
    assert_eq!(batch.rig.driver.look(), Ok(3));
}

#[test]
fn a_driver_that_was_back_in_time_is_called_later_and_one_that_was_not_sooner() {
    let mut batch = Batch::new(1);
    let mut lead = |in_time: bool| {
        (0..20).for_each(|_| {
            batch.turn();
            if !in_time {
                assert_eq!(batch.take(), 0);
            }
            batch.send(1);
        });
        batch.rig.queue.lead_time.requests()
    };
    let at_first = LeadTime::default().requests();
    let later = lead(true);
    assert!(later < at_first, "{later} left, of {at_first}");
    let sooner = lead(false);
    assert!(sooner > at_first, "{sooner} left, of {at_first}");
}

/// A batch whose call waits.
fn held() -> Batch {
    let mut batch = Batch::new(1);
    batch.rig.queue.calls = Calls::WhenQuiet;
    batch.rig.queue.deferral = Deferral::waiting();
    assert_eq!(batch.take(), RING / 2);
    batch.rig.queue.publish();
    assert_eq!(batch.rig.driver.look(), Ok(RING / 2), "a poll sees them");
    assert_eq!(batch.calls(), 0, "the call waits");
    batch
}

#[test]
fn a_call_that_waits_is_made_once_the_driver_sends_nothing_more() {
    held().wait_ends();
}

#[test]
fn a_call_waits_only_until_as_many_have_ended_as_usual() {
    let mut batch = held();
    let mut waited = 0;
    for _ in 0..16 {
        waited += u32::from(batch.rig.queue.deferral.defers());
        batch.wait_ends();
        batch.driver_takes(RING / 2);
        batch.send(1);
        batch.take();
        batch.rig.queue.publish();
    }
    assert_eq!(waited, 8 + 1, "the first eight, and then the last of eight");
    assert_eq!(batch.calls(), 1);
    batch.driver_takes(RING / 2);
    // What the driver takes without a call is not what the next one is for.
    batch.send_awake(1);
    assert_eq!(batch.take(), RING / 2);
    batch.rig.queue.publish();
    batch.driver_takes(RING / 2);
    batch.send(1);
    for (taken, calls) in [(RING / 2 - 1, 0), (1, 1)] {
        assert_eq!(batch.take_at_most(taken), taken);
        batch.rig.queue.publish();
        assert_eq!(batch.calls(), calls, "{taken} more have ended");
    }
}

#[test]
fn what_a_new_descriptor_is_called_for_counts_no_more() {
    let mut batch = held();
    let old = batch.rig.queue.setup.call.take();
    batch.rig.queue.set_call(old);
    assert_eq!(batch.calls(), 1);
    assert!(!batch.rig.queue.deferral.defers());
    batch.driver_takes(RING / 2);
    for _ in 0..8 {
        batch.send(1);
        batch.take();
        batch.rig.queue.publish();
        batch.wait_ends();
        batch.driver_takes(RING / 2);
    }
    // Had it counted, so many would not be usual yet.
    batch.send(1);
    batch.take();
    batch.rig.queue.publish();
    assert_eq!(batch.calls(), 1);
}

#[test]
fn a_call_that_waits_is_made_before_the_worker_sleeps() {
    let mut batch = held();
    let _ = batch.rig.queue.arm();
    assert_eq!(batch.calls(), 1);
}

#[test]
fn a_call_that_waits_is_made_by_a_queue_that_stops_or_breaks() {
    for state in [State::Draining, State::Broken] {
        let mut batch = held();
        batch.rig.queue.state = state;
        assert_eq!(batch.take(), 0);
        assert_eq!(batch.calls(), 1, "{state:?}");
    }
}

#[test]
fn the_call_of_a_queue_that_sleeps_leave_alone_does_not_wait() {
    let mut batch = Batch::new(1);
    batch.rig.queue.calls = Calls::WhenQuiet;
    batch.rig.queue.deferral = Deferral::waiting();
    // Nothing is shown, and no call decided, before it is armed.
    batch.rig.queue.shows = false;
    assert_eq!(batch.take(), RING / 2);
    // As a dormant one, whose disk takes its time.
    assert_eq!(batch.rig.queue.setup.ring.arm(), Ok(Armed::Idle));
    batch.rig.queue.publish();
    assert_eq!(batch.calls(), 1);
}

#[test]
fn a_call_that_waits_for_a_driver_that_goes_on_is_made_once_much_has_ended() {
    let mut batch = held();
    batch.rig.queue.deferral.wait_on();
    let mut ended = u64::from(RING / 2);
    while batch.rig.queue.deferral.defers() && ended < 1000 {
        batch.driver_takes(RING / 2);
        batch.send(1);
        ended += u64::from(batch.take());
        batch.rig.queue.publish();
    }
    let enough = 128..=128 + u64::from(RING / 2);
    assert!(enough.contains(&ended), "{ended}");
    assert_eq!(batch.calls(), 1);
}

#[test]
fn a_call_for_much_that_has_ended_does_not_wait() {
    for (worth, calls) in [(127, 0), (128, 1)] {
        let mut batch = Batch::new(1);
        batch.rig.queue.calls = Calls::WhenQuiet;
        batch.rig.queue.deferral = Deferral::waiting();
        batch.rig.queue.shows = false;
        assert_eq!(batch.take(), RING / 2);
        // As if they were larger.
        batch.rig.queue.unpublished.worth = worth;
        batch.rig.queue.publish();
        assert_eq!(batch.calls(), calls, "{worth} blocks of 4 KiB");
    }
}

#[test]
fn a_call_that_waits_is_made_though_a_disk_that_ends_nothing_is_sent_more() {
    let mut batch = held();
    batch.driver_takes(RING / 2);
    let mut disk = Later {
        given: vec![],
        ends: Arc::default(),
    };
    batch.rig.next = BUFFERS;
    for _ in 0..RING / 2 {
        batch.stage(1, 1);
        let _ = batch.rig.driver.publish();
        let queue = &mut batch.rig.queue;
        assert_eq!(queue.take(0, &mut Budget::default(), &mut disk), 1);
        batch.rig.queue.publish();
        let began = Instant::now();
        while began.elapsed() < Window::MOST / 2 {}
    }
    assert_eq!(batch.calls(), 1);
}

#[test]
fn a_ring_that_breaks_in_a_turn_ends_that_turn() {
    let mut batch = Batch::new(1);
    // The third of eight chains starts at a descriptor that there is not.
    batch
        .rig
        .memory
        .write_all_at(&RING.to_le_bytes(), 0x4000 + 4 + 2 * 2)
        .unwrap();
    batch.take();
    batch.rig.queue.publish();
    assert_eq!(batch.rig.driver.look(), Ok(2));
    assert_eq!(batch.rig.queue.stats().snapshot().peer_faults, 1);
}

/// A disk that ends all it was given once it is told to.
struct Later {
    given: Vec<Ticket>,
    ends: Arc<AtomicBool>,
}

// SAFETY: it touches no memory.
unsafe impl Channel for Later {
    fn queue(&mut self, request: Request) -> Queued {
        self.given.push(request.ticket);
        Queued::Pending
    }
    fn submit(&mut self) {}
    fn reap(&mut self, done: &mut dyn FnMut(Completion)) {
        if self.ends.load(Ordering::Relaxed) {
            let result = Ok(());
            self.given
                .drain(..)
                .for_each(|ticket| done(Completion { ticket, result }));
        }
    }
    fn arm(&mut self) -> pollux_disk::Armed {
        pollux_disk::Armed::Idle
    }
}
