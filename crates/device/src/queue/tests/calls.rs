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
        let rig = &mut self.rig;
        rig.next = BUFFERS;
        let header = RequestHeader {
            kind: Kind::In,
            sector: 0,
        };
        for _ in 0..RING / 2 {
            let header = rig.buffer(&header.to_bytes());
            let room = vec![0xff; usize::try_from(sectors * SECTOR).unwrap() + 1];
            let data_and_status = rig.buffer(&room);
            rig.driver.stage(&[header], &[data_and_status], 0).unwrap();
        }
        let _ = rig.driver.publish();
        assert_eq!(rig.driver.arm(), Ok(Armed::Idle));
    }

    /// The worker does what was sent, and calls; the driver wakes up and takes it.
    fn turn(&mut self) {
        assert_eq!(self.take(), RING / 2);
        self.rig.queue.publish();
        assert_eq!(self.calls(), 1);
        let driver = &mut self.rig.driver;
        assert_eq!(driver.look(), Ok(RING / 2));
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
