//! How chains come in.

use pollux_disk::Channel;

use super::budget::{Budget, SLICE};
use super::{Queue, State, slot_of};
use crate::inflight::Record;

impl Queue {
    /// Takes what the driver made available, as much as `budget` allows, and hands it to `channel` with tickets
    /// of `position`; goes on with large requests. Returns how many chains it took.
    pub fn take(&mut self, position: u16, budget: &mut Budget, channel: &mut dyn Channel) -> u16 {
        budget.is_limited = false;
        let taken = if self.setup.is_lost() {
            self.give_up()
        } else {
            self.take_chains(position, budget, channel)
        };
        budget.chains -= taken.min(budget.chains);
        if !self.ongoing.is_empty() {
            self.go_on(position, budget, channel);
        }
        if taken > 0 && !self.staged() {
            // What is published has its own look at a call that waits.
            self.call_in_time(true);
        }
        self.setup.stats.in_flight.set(self.in_flight().into());
        taken
    }

    fn take_chains(
        &mut self,
        position: u16,
        budget: &mut Budget,
        channel: &mut dyn Channel,
    ) -> u16 {
        // New chains neither wait for large requests to end nor keep them from going on.
        let reserve = if self.ongoing.is_empty() { 0 } else { SLICE };
        if !budget.takes(reserve) {
            // Whether the driver has sent any is not known.
            self.call_in_time(true);
            budget.is_short = true;
            return 0;
        }
        if self.resumes() {
            return self.resume(position, budget, channel);
        }
        if self.state != State::Running {
            self.release();
            return 0;
        }
        if self.waits_for_tokens() {
            self.release();
            return 0;
        }
        let most = budget.chains;
        let taken = self.take_what_is_there(position, most, reserve, budget, channel);
        if taken > 0 {
            self.count_turn(taken);
        }
        taken
    }

    /// One poll of the ring, and what it finds.
    fn take_what_is_there(
        &mut self,
        position: u16,
        most: u16,
        reserve: u64,
        budget: &mut Budget,
        channel: &mut dyn Channel,
    ) -> u16 {
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
        if self.setup.ring.is_armed() {
            self.disarm();
        }
        self.observer.found();
        for done in 0..batch {
            let Some(&at) = self.free.last() else { break };
            let slot = &mut self.slots[usize::from(at)];
            // SAFETY: the queue keeps the table, or one that holds all of its regions (`Queue::set_memory`), and
            // outlives the use of the chain's spans: they are lent to requests, and no queue goes while one is in
            // flight.
            match unsafe { self.setup.ring.take(&self.setup.memory, &mut slot.chain) } {
                Ok(Some(head)) => slot.head = head,
                Ok(None) => break,
                Err(fault) => return done + self.broken(fault),
            }
            let request = self.parse(at, budget);
            if self.setup.is_lost() {
                // The entry or the header may have been read from zeroes: no such chain was made available.
                break;
            }
            if self.throttle.is_limited() && self.must_wait(&request) {
                self.setup.ring.give_back();
                budget.is_limited = done > 0;
                return done;
            }
            if let Some(record) = &mut self.setup.record {
                record.taken(slot_of(&mut self.slots, at).head);
            }
            self.free.pop();
            self.begin(at, request, position, budget, channel);
            if !budget.takes(reserve) {
                return done + 1;
            }
            self.show_some(batch - done - 1);
        }
        batch
    }

    /// The session is lost: nothing is taken, not even what an earlier daemon took. In the record that stays in flight.
    #[cold]
    pub(super) fn give_up(&mut self) -> u16 {
        if let Some(record) = &mut self.setup.record {
            record.give_up();
        }
        0
    }

    fn count_turn(&self, chains: u16) {
        self.setup.stats.turns_busy.add(1);
        self.setup.stats.chains_per_turn.record(u64::from(chains));
    }

    /// Is there anything left that an earlier daemon took and did not end?
    #[inline]
    pub(super) fn resumes(&self) -> bool {
        let record = self.setup.record.as_ref();
        record.is_some_and(|record| record.left() > 0)
    }

    /// As [`Queue::take`], with what an earlier daemon took and did not end. A queue that drains does it
    /// as well: the frontend that stops a queue is told that nothing is in flight.
    #[cold]
    fn resume(&mut self, position: u16, budget: &mut Budget, channel: &mut dyn Channel) -> u16 {
        let (most, mut batch) = (budget.chains, 0);
        self.observer.found();
        while batch < most && budget.takes(0) {
            let again = self.setup.record.as_mut().and_then(Record::again);
            let Some(head) = again else { break };
            let at = self
                .free
                .pop()
                .expect("no more are in flight than there are slots");
            let slot = &mut self.slots[usize::from(at)];
            slot.head = head;
            let (ring, memory) = (&mut self.setup.ring, &self.setup.memory);
            // SAFETY: as in `take_what_is_there`.
            let walked = unsafe { ring.walk(head, memory, &mut slot.chain) };
            if let Err(fault) = walked {
                self.free.push(at);
                batch += self.broken(fault);
                break;
            }
            let request = self.parse(at, budget);
            if self.setup.is_lost() {
                // Nothing of it has begun, and in the record it stays in flight.
                self.free.push(at);
                break;
            }
            self.begin(at, request, position, budget, channel);
            batch += 1;
            self.show_some(most - batch);
        }
        self.count_turn(batch);
        batch
    }
}
