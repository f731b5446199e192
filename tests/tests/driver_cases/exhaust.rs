//! All the memory that a driver has to give.

use std::io;

use pollux_driver::{Buffer, Driver};
use pollux_tests::backend::Held;

/// Buffers, large ones first, until there is not a page left; and what was said then.
pub fn exhaust(driver: &Driver) -> (Vec<Buffer>, io::Error) {
    let mut all = vec![];
    let mut len = 32 << 20;
    loop {
        match driver.allocate(len) {
            Ok(buffer) => all.push(buffer),
            Err(error) if len == 4096 => return (all, error),
            Err(_) => len /= 2,
        }
    }
}

/// The first of `buffers` that shares memory with what the device has.
pub fn overlap(held: &[Held], buffers: &[Buffer]) -> Option<String> {
    let places = held
        .iter()
        .flat_map(|held| held.to_device.iter().chain(&held.to_driver));
    let places: Vec<_> = places
        .map(|part| part.address..part.address + u64::from(part.len))
        .collect();
    assert!(!places.is_empty(), "the device has nothing");
    let shared = buffers.iter().find(|buffer| {
        let addresses = buffer.addresses();
        let (start, end) = (addresses.start as u64, addresses.end as u64);
        places
            .iter()
            .any(|place| place.start < end && start < place.end)
    });
    shared.map(|buffer| format!("{buffer:?}"))
}
