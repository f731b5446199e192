//! How requests end: as they should, late, not at all, or by a lie.

use std::os::fd::AsFd;
use std::sync::Arc;

use super::disk::Status;
use super::plan::{Calls, Conduct, Lie};
use super::request::{Request, scatter};
use super::session::Session;
use super::shared::Held;

impl Session<'_> {
    /// Takes what is new in a queue, and ends what is to end.
    pub(super) fn turn(&mut self, index: usize) -> Result<(), String> {
        if !self.queues[index].is_live() {
            return Ok(());
        }
        let (count, wrong) = self.queues[index].take(&self.memory)?;
        // Who has hung up is not told of memory any more, and the driver stages for whoever comes next.
        if self.is_connected() {
            for complaint in wrong {
                self.shared.complain(&complaint);
            }
        }
        self.shared.tell(|seen| seen.requests += count);
        // After the look: whoever has said how requests are to end before it submitted one is heard.
        let shared = Arc::clone(self.shared);
        let mut conduct = shared.lock_conduct();
        let (ending, lie) = self.choose(index, *conduct);
        if ending.is_empty() {
            return Ok(());
        }
        if matches!(*conduct, Conduct::Lie(_) | Conduct::Next) {
            *conduct = Conduct::Held;
        }
        for request in ending {
            match lie {
                None => self.end(index, &request)?,
                Some(lie) => self.lie(index, request, lie)?,
            }
        }
        let asked = self.queues[index].publish(&self.memory)?;
        if asked || self.plan.calls != Calls::AsAsked {
            self.call(index);
        }
        Ok(())
    }

    /// Which of the requests in flight end now, and by which lie.
    fn choose(&mut self, index: usize, conduct: Conduct) -> (Vec<Request>, Option<Lie>) {
        let queue = &mut self.queues[index];
        match conduct {
            Conduct::Prompt => (queue.take_taken(), None),
            Conduct::Liar(lie) => (queue.take_taken(), Some(lie)),
            Conduct::Lie(lie) if !queue.taken.is_empty() => {
                (vec![queue.taken.remove(0)], Some(lie))
            }
            Conduct::Next if !queue.taken.is_empty() => (vec![queue.taken.remove(0)], None),
            Conduct::Held | Conduct::Lie(_) | Conduct::Next => (vec![], None),
            Conduct::Late { batch, patience } => {
                let waited = queue.left(patience).is_some_and(|left| left.is_zero());
                if queue.taken.len() < batch && !waited {
                    return (vec![], None);
                }
                let mut all = queue.take_taken();
                for last in (1..all.len()).rev() {
                    all.swap(last, self.random.usize(..=last));
                }
                (all, None)
            }
        }
    }

    /// Ends a request as it should end.
    fn end(&mut self, index: usize, request: &Request) -> Result<(), String> {
        let (status, written) = self.perform(request);
        request.end(&self.memory, status as u8)?;
        self.finish(index, request.head.into(), written)
    }

    fn perform(&mut self, request: &Request) -> (Status, u32) {
        let (status, written, complaint) =
            request.perform(&self.memory, &mut self.disk, self.features);
        if let Some(complaint) = complaint {
            self.shared.complain(&complaint);
        }
        (status, written)
    }

    fn finish(&mut self, index: usize, id: u32, written: u32) -> Result<(), String> {
        self.shared.tell(|seen| seen.ended += 1);
        self.queues[index].stage(&self.memory, id, written)
    }

    /// Ends a request, or nothing at all, as it should not.
    fn lie(&mut self, index: usize, request: Request, lie: Lie) -> Result<(), String> {
        let head = u32::from(request.head);
        match lie {
            Lie::IndexJump(by) => self.queues[index].jump(by),
            Lie::Id(id) => self.finish(index, id, 1)?,
            Lie::IdleHead => {
                let queue = &self.queues[index];
                let idle = |id: &u16| {
                    *id != request.head && queue.taken.iter().all(|other| other.head != *id)
                };
                let id = (0..queue.size).rev().find(idle);
                let id = id.ok_or("every head is in flight")?;
                self.finish(index, id.into(), 1)?;
            }
            Lie::Twice | Lie::Written(_) | Lie::NoStatus | Lie::Status(_) => {
                let (status, written) = self.perform(&request);
                match lie {
                    Lie::NoStatus => {}
                    Lie::Status(status) => request.end(&self.memory, status)?,
                    _ => request.end(&self.memory, status as u8)?,
                }
                let written = match lie {
                    Lie::Written(more) => {
                        let room = u32::try_from(request.room()).expect("less than 4 GiB");
                        room.saturating_add(more)
                    }
                    _ => written,
                };
                self.finish(index, head, written)?;
                if lie == Lie::Twice {
                    self.finish(index, head, written)?;
                }
                return Ok(());
            }
        }
        // The request itself has not ended: the device still has it.
        self.queues[index].taken.push(request);
        Ok(())
    }

    fn call(&self, index: usize) {
        if let Some(call) = &self.queues[index].call {
            self.shared.tell(|seen| seen.calls += 1);
            let _ = rustix::io::write(call.as_fd(), &1u64.to_ne_bytes());
        }
    }

    /// Writes where requests in flight allow it, though they have not ended.
    pub(super) fn scribble(&self) {
        let Some(byte) = self.scribble else { return };
        for request in self.queues.iter().flat_map(|queue| &queue.taken) {
            let (_, places) = request.data();
            let room: u64 = places.iter().map(|part| u64::from(part.len)).sum();
            let noise = vec![byte; usize::try_from(room).expect("it fits into memory")];
            if let Err(complaint) = scatter(&self.memory, &places, &noise) {
                self.shared.complain(&complaint);
            }
        }
        self.shared.tell(|seen| seen.scribbles += 1);
    }

    pub(super) fn report(&self) {
        let taken = self.queues.iter().flat_map(|queue| &queue.taken);
        let held = taken.map(|request| {
            let (to_device, to_driver) = request.data();
            Held {
                to_device,
                to_driver,
            }
        });
        let held: Vec<_> = held.collect();
        self.shared.tell(|seen| seen.held = held);
    }
}
