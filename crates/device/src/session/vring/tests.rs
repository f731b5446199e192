use std::os::unix::net::UnixStream;

use pollux_disk::{Geometry, Null};
use pollux_memory::Region;

use super::*;
use crate::device::Options;
use crate::tuning::Tuning;
use crate::worker::Workers;

const ADDRESSES: Addresses = Addresses {
    descriptors: 0,
    driver: 0x4000,
    device: 0x8000,
    log: None,
};

/// Memory with room for a ring of 16 entries there.
fn memory() -> (Arc<Region>, Memory) {
    let file = tempfile::tempfile_in("/dev/shm").unwrap();
    file.set_len(0x1_0000).unwrap();
    let region = Arc::new(Region::map(file, 0, 0, 0, 0x1_0000).unwrap());
    let memory = Memory::default().with(Arc::clone(&region)).unwrap();
    (region, memory)
}

#[test]
fn a_queue_whose_kicks_nobody_hears_is_refused() {
    let options = Options::new("test").num_queues(1).queue_size(16);
    let device = Device::new(Arc::new(Null::new(Geometry::plain(1 << 20))), options);
    let workers = Workers::start(1, &[], Tuning::default()).unwrap();
    let (_, memory) = memory();
    let memory = Arc::new(memory);
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let alarm = Arc::new(Alarm::new(ours.into()));
    let mut vring = Vring::new(0, &alarm);
    vring.size = Some(16);
    vring.addresses = Some(ADDRESSES);
    // Of a file `epoll` says what it says of too many watches: no.
    vring.kick = Some(Kick::new(Some(tempfile::tempfile_in("/dev/shm").unwrap())).unwrap());
    let context = Context {
        session: SessionId(0),
        device: &device,
        memory: &memory,
        features: 0,
        cache: &CacheMode::default(),
        log: None,
        inflight: None,
    };
    let refusal = vring.start(workers.get(0), &context).unwrap_err();
    assert!(
        matches!(refusal, Refusal::Kicks { index: 0, .. }),
        "{refusal}"
    );
    assert!(!vring.running());
}

#[test]
fn an_index_that_has_wrapped_is_not_where_a_driver_begins() {
    let (region, memory) = memory();
    let alarm = Arc::new(Alarm::silent());
    let mut vring = Vring::new(0, &alarm);
    assert!(vring.begins(&memory), "as far as is known");
    vring.size = Some(16);
    vring.addresses = Some(ADDRESSES);
    // The back end before has armed it.
    for at in [0x8000, 0x8000 + 4 + 16 * 8] {
        region.write(at, &[1]);
    }
    assert!(vring.begins(&memory));
    // The last of its elements.
    region.write(0x8000 + 4 + 15 * 8 + 4, &[1]);
    assert!(!vring.begins(&memory));
    vring.left_at = Some(0);
    assert!(vring.begins(&memory), "the driver that was here before");
    vring.base = 7;
    assert!(!vring.begins(&memory), "a driver of a snapshot");
    vring.left_at = Some(7);
    assert!(vring.begins(&memory));
}
