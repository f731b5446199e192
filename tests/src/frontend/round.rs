//! A round: every slot of a queue at once, written, read and compared; or written alone, for a look at what survives.

use super::{PAGE, Queue, SLOTS, Status};
use crate::records::{Expected, Record};

impl Queue {
    /// Writes a page of each slot, made from `byte`, reads it back, and compares.
    ///
    /// # Panics
    /// When a request fails, or a page is not what was written.
    pub fn round(&mut self, byte: u8) {
        for (slot, content) in pages(byte) {
            self.write(slot, sector(slot), content);
        }
        self.publish_and_kick();
        self.finish_all_ok();
        for (slot, _) in pages(byte) {
            self.read(slot, sector(slot));
        }
        self.publish_and_kick();
        self.finish_all_ok();
        for (slot, content) in pages(byte) {
            assert_eq!(self.page(slot), [content; PAGE], "slot {slot}");
        }
    }

    /// Writes a record of this number to the place of each slot. What must be on the disk once they are durable?
    ///
    /// # Panics
    /// When a request fails.
    pub fn write_records(&mut self, sequence: u64) -> Expected {
        const SEED: u64 = 1;
        let mut expected = Expected::new(SEED);
        for slot in 0..SLOTS {
            let record = Record {
                seed: SEED,
                place: slot.into(),
                sequence,
            };
            self.write_page(slot, sector(slot), &record.encode());
            expected.cover(record);
        }
        self.publish_and_kick();
        self.finish_all_ok();
        expected
    }

    /// Waits for a request in each slot, and that all of them succeed.
    ///
    /// # Panics
    /// When one fails, or comes back twice.
    pub fn finish_all_ok(&mut self) {
        let mut slots = self.finish();
        slots.sort_unstable();
        assert_eq!(slots, (0..SLOTS).collect::<Vec<_>>());
        for slot in slots {
            assert_eq!(self.status(slot), Status::Ok, "slot {slot}");
        }
    }
}

fn pages(byte: u8) -> impl Iterator<Item = (u16, u8)> {
    (0..SLOTS).map(move |slot| (slot, byte ^ slot.to_le_bytes()[0]))
}

fn sector(slot: u16) -> u64 {
    u64::from(slot) * (PAGE as u64 / 512)
}
