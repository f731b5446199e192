//! Memory of the frontend's is lost in the middle of a turn: from then on nothing is begun, published or recorded, and
//! the next session finds in the record what it does again.

use super::resume::{Kept, Silent};
use super::*;

const PAGE: u64 = 0x1000;
/// Where the guest has two pages, of which it can lose the second one.
const FRAGILE: u64 = 0x20_0000;
const LOST: u64 = FRAGILE + PAGE;

/// The two pages: their file, and their region in the queue's memory.
struct Fragile(std::fs::File);

impl Fragile {
    fn new() -> Self {
        let file = tempfile::tempfile_in("/dev/shm").unwrap();
        file.set_len(2 * PAGE).unwrap();
        Self(file)
    }

    /// Adds them to what the queue of `rig` sees; returns that.
    fn share(&self, rig: &mut Rig) -> Memory {
        let file = self.0.try_clone().unwrap();
        let region = Region::map(file, 0, FRAGILE, FRAGILE, 2 * PAGE).unwrap();
        let region = region.with_alarm(Arc::clone(&rig.queue.setup.alarm));
        let table = rig.table.with(Arc::new(region)).unwrap();
        rig.queue.set_memory(Arc::new(table.clone()));
        table
    }

    fn put(&self, address: u64, bytes: &[u8]) -> Buffer {
        self.0.write_all_at(bytes, address - FRAGILE).unwrap();
        Buffer {
            address,
            len: u32::try_from(bytes.len()).unwrap(),
        }
    }

    fn lose(&self) {
        self.0.set_len(PAGE).unwrap();
    }
}

/// A read of the serial number into the page that is lost, and a write from the one that is not, in one turn.
fn offer(kept: &mut Kept, fragile: &Fragile) {
    let rig = &mut kept.rig;
    let [id, write] = [(Kind::GetId, 0), (Kind::Out, 5)]
        .map(|(kind, sector)| rig.buffer(&RequestHeader { kind, sector }.to_bytes()));
    let (lost, data) = (fragile.put(LOST, &[0; 20]), fragile.put(FRAGILE, &[7; 512]));
    let status = [0; 2].map(|_| rig.buffer(&[0xff]));
    rig.driver.stage(&[id], &[lost, status[0]], 1).unwrap();
    rig.driver.stage(&[write, data], &[status[1]], 2).unwrap();
    let _ = rig.driver.publish();
}

#[test]
fn nothing_is_acknowledged_and_all_of_it_is_done_again() {
    let (mut kept, fragile) = (Kept::new(), Fragile::new());
    fragile.share(&mut kept.rig);
    offer(&mut kept, &fragile);
    fragile.lose();
    kept.turn();
    assert_eq!(kept.back(), [0; 0], "the write may have stored zeroes");
    assert_eq!(kept.in_flight().len(), 1, "the write was not even begun");
    assert_eq!(kept.turn(), 0, "nothing more is taken");
    assert_eq!(kept.rig.queue.arm(), Armed::Idle);
    kept.rig.queue.drain();
    assert!(kept.rig.queue.drained().is_some(), "the session can end");

    // The host has mended it: the next session has all of the guest's memory.
    fragile.0.set_len(2 * PAGE).unwrap();
    kept.restart(0);
    fragile.share(&mut kept.rig);
    // First what is done again, then what was not taken.
    assert_eq!((kept.turn(), kept.turn()), (1, 1));
    assert_eq!(kept.back(), [1, 2]);
    assert_eq!(kept.in_flight(), [0; 0]);
    assert_eq!(kept.rig.request(Kind::In, 5, &[], 512), (OK, vec![7; 512]));
}

#[test]
fn what_a_slow_disk_ends_after_the_loss_stays_in_flight() {
    let mut kept = Kept::new();
    kept.offer(0, 7, 1);
    assert!(kept.rig.queue.take(0, &mut Budget::default(), &mut Silent) > 0);
    kept.rig.queue.setup.alarm.ring();
    kept.rig.queue.complete(0, Ok(()));
    kept.rig.queue.publish();
    assert_eq!((kept.back(), kept.in_flight().len()), (vec![], 1));
    kept.rig.queue.drain();
    assert!(kept.rig.queue.drained().is_some(), "the session can end");
}

#[test]
fn what_was_to_be_done_again_stays_to_be_done() {
    let (mut kept, fragile) = (Kept::new(), Fragile::new());
    fragile.share(&mut kept.rig);
    offer(&mut kept, &fragile);
    fragile.lose();
    kept.turn();
    kept.restart(0);
    fragile.0.set_len(2 * PAGE).unwrap();
    fragile.share(&mut kept.rig);
    fragile.lose();
    kept.turn();
    assert_eq!((kept.back(), kept.in_flight().len()), (vec![], 1));
    kept.rig.queue.drain();
    kept.turn();
    assert!(kept.rig.queue.drained().is_some(), "the session can end");
}

#[test]
fn a_header_that_is_half_lost_writes_nowhere() {
    let mut rig = Rig::new();
    assert_eq!(rig.request(Kind::Out, 0, &[3; 512], 0).0, OK);
    let fragile = Fragile::new();
    fragile.share(&mut rig);
    let header = RequestHeader {
        kind: Kind::Out,
        sector: 9,
    };
    let bytes = header.to_bytes();
    let (kind, sector) = bytes.split_at(8);
    let header = [rig.buffer(kind), fragile.put(LOST, sector)];
    let (data, status) = (rig.buffer(&[4; 512]), rig.buffer(&[0xff]));
    let readable = [header[0], header[1], data];
    rig.driver.stage(&readable, &[status], 1).unwrap();
    let _ = rig.driver.publish();
    fragile.lose();
    rig.queue.take(0, &mut Budget::default(), &mut *rig.channel);
    rig.queue.publish();
    assert_eq!(rig.driver.look(), Ok(0));

    // Another session looks at the disk.
    rig.queue.setup.alarm = alarm();
    rig.queue.set_memory(Arc::new(rig.table.clone()));
    let (header, data) = (
        RequestHeader {
            kind: Kind::In,
            sector: 0,
        },
        rig.buffer(&[0; 512]),
    );
    let (header, status) = (rig.buffer(&header.to_bytes()), rig.buffer(&[0xff]));
    rig.driver.stage(&[header], &[data, status], 2).unwrap();
    let _ = rig.driver.publish();
    rig.queue.take(0, &mut Budget::default(), &mut *rig.channel);
    assert_eq!(rig.bytes(data), [3; 512], "sector 0 was written");
}

#[test]
fn an_available_ring_that_is_lost_makes_no_chain_in_flight() {
    let (mut kept, fragile) = (Kept::new(), Fragile::new());
    let table = fragile.share(&mut kept.rig);
    let rig = &mut kept.rig;
    let layout = Layout::of(RING);
    // SAFETY: the table outlives every use of its spans, at the end of this test.
    let span = |at, len: usize| unsafe { table.span(at, len as u64) }.unwrap();
    // Its index before the entries, on the page that stays.
    rig.areas = Areas::new(
        u32::from(RING),
        span(0, layout.descriptor),
        span(LOST - 4, layout.driver),
        span(0x8000, layout.device),
    )
    .unwrap();
    rig.driver = DriverEnd::new(&rig.areas, Suppression::EventIdx, None);
    let alarm = Arc::clone(&rig.queue.setup.alarm);
    kept.restart(0);
    kept.rig.queue.setup.alarm = alarm;
    for token in 0..2 {
        kept.offer(token, 7, token);
    }
    fragile.lose();
    kept.turn();
    assert_eq!(
        kept.in_flight(),
        [0; 0],
        "the driver made no such chain available"
    );
}
