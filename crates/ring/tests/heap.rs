//! Both ends on a thread each, over memory that an interpreter can follow (Miri: `make miri`): bounds, provenance, and
//! that each end reads a descriptor or an entry only once the other has let go of it.

#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use std::ptr::NonNull;
use std::thread;

use pollux_memory::{Memory, Span};
use pollux_ring::{Areas, Buffer, Chain, DeviceEnd, DriverEnd, Layout, RingIndex, Suppression};

const SIZE: u16 = 4;
/// More than the index holds would take an interpreter hours: enough to use each place many times.
const CHAINS: u64 = if cfg!(miri) { 40 } else { 20_000 };

/// Buffers without bytes: a chain of them is walked, and needs no region behind it.
const NOTHING: Buffer = Buffer { address: 0, len: 0 };

#[test]
fn what_one_thread_stages_the_other_takes() {
    for suppression in [Suppression::Flags, Suppression::EventIdx] {
        let layout = Layout::of(SIZE);
        let lens = [layout.descriptor, layout.driver, layout.device];
        let mut parts = lens.map(|len| vec![0u128; len.div_ceil(16)]);
        let [descriptors, driver, device] = parts.each_mut().map(|part| {
            let start = NonNull::new(part.as_mut_ptr().cast()).unwrap();
            // SAFETY: both ends are gone when the parts go, and until then nobody names those.
            unsafe { Span::new(start, 16 * part.len()) }
        });
        let areas = Areas::new(u32::from(SIZE), descriptors, driver, device).unwrap();
        let mut device = DeviceEnd::new(&areas, RingIndex(0), suppression, false);
        let mut driver = DriverEnd::new(&areas, suppression, None);
        let view = driver.index_view();
        thread::scope(|scope| {
            scope.spawn(move || {
                let (memory, mut chain) = (Memory::default(), Chain::default());
                let mut taken = 0;
                while taken < CHAINS {
                    device.look().unwrap();
                    // SAFETY: a table without regions has no spans.
                    while let Some(head) = unsafe { device.take(&memory, &mut chain) }.unwrap() {
                        device.stage(head, 0);
                        taken += 1;
                    }
                    let _ = device.publish();
                    thread::yield_now();
                }
            });
            let (mut staged, mut ended) = (0, 0);
            while ended < CHAINS {
                while staged < CHAINS && driver.stage(&[NOTHING], &[NOTHING], staged).is_ok() {
                    staged += 1;
                }
                let _ = driver.publish();
                if view.sees_more_than(driver.next()) {
                    driver.look().unwrap();
                }
                while let Some(completion) = driver.take().unwrap() {
                    assert_eq!(completion.token, ended);
                    ended += 1;
                }
                thread::yield_now();
            }
        });
        drop(parts);
    }
}
