//! How chains come in.

use pollux_disk::Channel;

use super::{Queue, State};
use crate::inflight::Record;

impl Queue {
    /// Takes what the driver made available, `most` chains at most, and hands it to `channel` with tickets
    /// of `position`. Returns how many chains that were.
    pub fn take(&mut self, position: u16, most: u16, channel: &mut dyn Channel) -> u16 {
        if self.resumes() {
            return self.resume(position, most, channel);
        }
        if self.state != State::Running {
            return 0;
        }
        let mut taken = 0;
        loop {
            let batch = self.take_what_is_there(position, most - taken, channel);
            taken += batch;
            if batch == 0 || taken == most || !self.goes_on() {
                break;
            }
        }
        if taken > 0 {
            self.count_turn(taken);
        }
        taken
    }

    /// One look at the ring, and what it finds.
    fn take_what_is_there(&mut self, position: u16, most: u16, channel: &mut dyn Channel) -> u16 {
        let available = match self.setup.ring.look() {
            Ok(available) => available,
            Err(fault) => return self.broken(fault),
        };
        let room = u16::try_from(self.free.len()).unwrap_or(u16::MAX);
        let batch = available.min(most).min(room);
        if batch == 0 {
            self.found_none();
            return 0;
        }
        if self.armed {
            self.disarm();
        }
        for done in 0..batch {
            let Some(&at) = self.free.last() else { break };
            let slot = &mut self.slots[usize::from(at)];
            match self.setup.ring.take(&self.setup.memory, &mut slot.chain) {
                Ok(Some(head)) => slot.head = head,
                Ok(None) => break,
                Err(fault) => return done + self.broken(fault),
            }
            if let Some(record) = &mut self.setup.record {
                record.taken(slot.head);
            }
            self.free.pop();
            self.begin(at, position, channel);
            self.show_some(batch - done - 1);
        }
        batch
    }

    fn count_turn(&self, chains: u16) {
        self.setup.stats.turns_busy.add(1);
        self.setup.stats.chains_per_turn.record(u64::from(chains));
    }

    /// Is there anything left that somebody before us took and did not end?
    #[inline]
    pub(super) fn resumes(&self) -> bool {
        let record = self.setup.record.as_ref();
        record.is_some_and(|record| record.left() > 0)
    }

    /// As [`Queue::take`], with what somebody before us took and did not end. A queue that drains does it
    /// as well: whoever stops a queue is told that nothing is in flight.
    #[cold]
    fn resume(&mut self, position: u16, most: u16, channel: &mut dyn Channel) -> u16 {
        let mut batch = 0;
        while batch < most {
            let again = self.setup.record.as_mut().and_then(Record::again);
            let Some(head) = again else { break };
            let at = self
                .free
                .pop()
                .expect("no more are in flight than there are slots");
            let slot = &mut self.slots[usize::from(at)];
            slot.head = head;
            let walked = self
                .setup
                .ring
                .walk(head, &self.setup.memory, &mut slot.chain);
            if let Err(fault) = walked {
                self.free.push(at);
                batch += self.broken(fault);
                break;
            }
            self.begin(at, position, channel);
            batch += 1;
            self.show_some(most - batch);
        }
        self.count_turn(batch);
        batch
    }
}
