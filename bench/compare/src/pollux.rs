//! Ours.

use std::sync::Arc;

use pollux_memory::{Memory, Region, Span};
use pollux_ring::{Areas, Chain, DeviceEnd, Layout, Notify, RingIndex, Suppression};

use crate::guest::{Guest, RING, WRITTEN};
use crate::{Device, Part};

/// `pollux_ring::DeviceEnd` over `pollux_memory::Memory`.
pub struct Pollux {
    pub(crate) device: DeviceEnd,
    pub(crate) memory: Memory,
    pub(crate) chain: Chain,
}

impl Part for Span {
    fn place(&self) -> (*mut u8, usize) {
        (self.as_ptr(), self.len())
    }
}

impl Device for Pollux {
    const NAME: &'static str = "pollux";
    type Part = Span;

    fn open(guest: &Guest) -> Self {
        let memory = guest
            .regions()
            .fold(Memory::default(), |memory, (file, start, len)| {
                let region = Region::map(file, 0, start, start, len).expect("the region exists");
                memory.with(Arc::new(region)).expect("no regions overlap")
            });
        let layout = Layout::of(RING);
        let [descriptors, driver, device] = Guest::ring();
        let span = |address, len: usize| -> Span {
            // SAFETY: the memory is kept beside the device's end.
            unsafe { memory.span(address, len as u64) }.expect("the ring is in memory")
        };
        let areas = Areas::new(
            u32::from(RING),
            span(descriptors, layout.descriptor),
            span(driver, layout.driver),
            span(device, layout.device),
        );
        let areas = areas.expect("the ring is well formed");
        Self {
            device: DeviceEnd::new(&areas, RingIndex(0), Suppression::EventIdx, true),
            memory,
            chain: Chain::default(),
        }
    }

    #[inline]
    fn turn(&mut self, batch: u16, mut each: impl FnMut(u16, &[Span], &[Span])) -> bool {
        self.device.look().expect("the index is right");
        for _ in 0..batch {
            // SAFETY: the memory is kept beside the chain.
            let head = unsafe { self.device.take(&self.memory, &mut self.chain) }
                .expect("the chain is right")
                .expect("the driver offered it");
            each(head.0, self.chain.readable(), self.chain.writable());
            self.device.stage(head, WRITTEN);
        }
        self.device.publish() == Notify::Needed
    }
}
