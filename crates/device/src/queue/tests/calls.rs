//! When a driver that sleeps is called, and what one that looks is shown.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use pollux_memory::Alarm;
use rustix::event::{EventfdFlags, eventfd};

use super::*;

/// As many reads of `sectors` as the ring holds, and what they are called for by.
struct Batch {
    rig: Rig,
    calls: OwnedFd,
    _peer: UnixStream,
}

impl Batch {
    fn new(sectors: u64) -> Self {
        let mut rig = Rig::new();
        let (connection, peer) = UnixStream::pair().unwrap();
        let calls = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let call = File::from(calls.try_clone().unwrap());
        let alarm = Arc::new(Alarm::new(connection.into()));
        rig.queue.set_call(Some(Call::new(call, &alarm).unwrap()));
        let mut batch = Self {
            rig,
            calls,
            _peer: peer,
        };
        assert_eq!(batch.calls(), 1, "a new descriptor is called once");
        batch.send(sectors);
        batch
    }

    /// The driver sends as many as there is room for, and sleeps.
    fn send(&mut self, sectors: u64) {
        self.rig.next = BUFFERS;
        self.stage(RING / 2, sectors);
        let driver = &mut self.rig.driver;
        let _ = driver.publish();
        assert_eq!(driver.arm(), Ok(Armed::Idle));
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

    fn take(&mut self) -> u16 {
        let Rig { queue, channel, .. } = &mut self.rig;
        queue.take(0, BUDGET, &mut **channel)
    }

    /// As [`Batch::take`], while the driver makes available what it has staged.
    fn take_while_more_comes(&mut self) -> u16 {
        let Rig { queue, driver, .. } = &mut self.rig;
        let more = || {
            let _ = driver.publish();
        };
        queue.take(0, BUDGET, &mut Meanwhile(Some(more)))
    }

    /// So many calls have brought one request each.
    fn was_called_for_one(&mut self, calls: u8) {
        (0..calls).for_each(|_| {
            self.rig.queue.lead.brings(1);
            self.rig.queue.lead.call();
        });
    }

    /// So many of the last calls have woken nobody.
    fn was_awake(&mut self, calls: u8) {
        (0..calls).for_each(|_| self.rig.queue.lead.priced(false));
    }
}

/// A channel that ends all at once; something happens meanwhile, once.
struct Meanwhile<F>(Option<F>);

impl<F: FnOnce() + Send> Channel for Meanwhile<F> {
    fn queue(&mut self, _: Request) -> Queued {
        if let Some(happens) = self.0.take() {
            happens();
        }
        Queued::Done(Ok(()))
    }
    fn submit(&mut self) {}
    fn reap(&mut self, _: &mut dyn FnMut(pollux_disk::Completion)) {}
    fn arm(&mut self) -> pollux_disk::Armed {
        pollux_disk::Armed::Idle
    }
}

#[test]
fn a_small_batch_is_shown_and_called_for_as_soon_as_it_has_ended() {
    for sectors in [1, 32] {
        let mut batch = Batch::new(sectors);
        assert_eq!(batch.take(), RING / 2);
        assert_eq!(batch.rig.driver.look(), Ok(RING / 2), "who looks sees them");
        assert_eq!(batch.calls(), 1);
        batch.rig.queue.publish();
        assert_eq!(batch.calls(), 0, "there is nothing else");
    }
}

#[test]
fn what_ended_is_called_for_at_the_end_of_the_turn_at_the_latest() {
    let mut batch = Batch::new(1);
    let Rig { queue, channel, .. } = &mut batch.rig;
    assert_eq!(queue.take(0, 3, &mut **channel), 3);
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
        batch.rig.queue.lead.requests()
    };
    let at_first = Lead::default().requests();
    let later = lead(true);
    assert!(later < at_first, "{later} left, of {at_first}");
    let sooner = lead(false);
    assert!(sooner > at_first, "{sooner} left, of {at_first}");
}

#[test]
fn a_driver_that_is_awake_or_called_too_often_is_called_when_nothing_more_has_come() {
    for (cheap_calls, poor_calls, taken) in [(0, 0, 4), (7, 20, 4), (8, 0, 8), (0, 21, 8)] {
        let mut batch = Batch::new(1);
        batch.turn();
        batch.rig.next = BUFFERS;
        batch.stage(4, 1);
        let _ = batch.rig.driver.publish();
        assert_eq!(batch.rig.driver.arm(), Ok(Armed::Idle));
        batch.stage(4, 1);
        batch.was_awake(cheap_calls);
        batch.was_called_for_one(poor_calls);
        let calls = format!("{cheap_calls} that woke nobody, {poor_calls} for one request");
        assert_eq!(batch.take_while_more_comes(), taken, "{calls}");
        batch.rig.queue.publish();
        assert_eq!(batch.calls(), 1);
        batch.driver_takes(taken);
        assert_eq!(batch.rig.driver.arm(), Ok(Armed::Idle));
        let rest = batch.take();
        assert_eq!(rest, 8 - taken);
        batch.rig.queue.publish();
        assert_eq!(batch.calls(), u64::from(rest > 0));
    }
}

#[test]
fn a_ring_that_breaks_in_a_turn_ends_that_turn() {
    let mut batch = Batch::new(1);
    batch.was_awake(8);
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
