//! Ours, with a record of what is in flight.

use pollux_device::{Inflight, Options, Record};
use pollux_memory::Span;
use pollux_ring::Notify;
use vhost::vhost_user::message::VhostUserInflight;

use crate::guest::{Guest, RING, WRITTEN};
use crate::{Device, Pollux};

/// [`Pollux`], which notes what it takes and hands back, as a queue of the device does for a frontend that
/// keeps a record.
pub struct Recorded {
    plain: Pollux,
    record: Record,
}

impl Device for Recorded {
    const NAME: &'static str = "pollux_recorded";
    type Part = Span;

    fn open(guest: &Guest) -> Self {
        let mut plain = Pollux::open(guest);
        let options = Options::new("").num_queues(1).queue_size(RING);
        let wanted = VhostUserInflight::new(0, 0, 1, RING);
        let (made, file) = Inflight::create(&wanted, &options).expect("there is memory");
        let inflight = Inflight::map(&made, file, &options).expect("it was made for this");
        let record = inflight.record(0, &mut plain.device);
        let record = record.expect("nothing is in flight");
        Self { plain, record }
    }

    #[inline]
    fn turn(&mut self, batch: u16, mut each: impl FnMut(u16, &[Span], &[Span])) -> bool {
        let Pollux {
            device,
            memory,
            chain,
        } = &mut self.plain;
        device.look().expect("the index is right");
        for _ in 0..batch {
            // SAFETY: the memory is kept beside the chain.
            let head = unsafe { device.take(memory, chain) };
            let head = head.expect("the chain is right");
            let head = head.expect("the driver offered it");
            self.record.taken(head);
            each(head.0, chain.readable(), chain.writable());
            self.record.staged(head);
            device.stage(head, WRITTEN);
        }
        let notify = self
            .record
            .publish(|| (device.publish(), Some(device.used())));
        notify == Notify::Needed
    }
}
