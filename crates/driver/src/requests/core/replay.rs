//! Another server has taken the place of one that is gone: it is handed what that one has not ended.

use pollux_disk::{Admitted, Op};

use super::Core;
use crate::requests::command::{Command, all};
use crate::requests::flight::{Flight, Job, Whose};

impl<T> Core<T> {
    /// Another server has come back, and runs the queue on fresh rings: it is handed what the one before has
    /// not ended, all of it: flushes last, then what has waited for room.
    ///
    /// Of a request of several chains that changes the disk, that is every chain: those that had ended may have been in
    /// a cache of that server, and the request is not complete. So it is with a flush that is to follow them.
    ///
    /// Nothing depends on the order beside that: no request in flight may rely on another one (VIRTIO 1.3,
    /// 5.2.6.2: a flush covers writes that were completed before it was submitted). The requests are as they
    /// were asked for, never as the device may have left them in the rings.
    #[cold]
    pub(super) fn follow(&mut self) {
        let (epoch, rings) = self.device.claim(self.index);
        if epoch == self.epoch {
            // Lost since then, and that for good.
            return;
        }
        let mut again = self.unstage();
        let undone = self.undo(&mut again);
        again.sort_by_key(|job| matches!(job.command, Command::Op(Op::Flush)));
        let count = again.len();
        self.device.counts(self.index).restarted(count, undone);
        if count > 0
            && let Some(Admitted { withheld }) = self.device.handed().admits()
        {
            let queue = self.index;
            tracing::info!(
                queue,
                chains = count,
                withheld,
                "handed to the server that is back"
            );
        }
        self.ring = rings.driver_end();
        let old = std::mem::replace(&mut self.rings, rings);
        self.device.keep(self.epoch, old);
        self.epoch = epoch;
        again.extend(self.backlog.drain(..));
        // It may not take memory that the one before took.
        let known = self.view.of(self.device.known());
        for job in &mut again {
            job.keeps_to(known);
        }
        self.backlog = again.into();
        self.refill();
    }

    /// Adds what has ended of requests that have not to the `jobs` in flight, and takes the flushes that are to follow
    /// it out, there and of what has waited for room. Returns how much had ended.
    fn undo(&mut self, jobs: &mut Vec<Job<T>>) -> usize {
        let wholes = &mut self.wholes;
        let mut stays = |job: &Job<T>| match (&job.command, &job.whose) {
            (Command::Op(Op::Flush), Whose::Part(key)) => {
                wholes[*key].undo_flush();
                false
            }
            _ => true,
        };
        jobs.retain(&mut stays);
        self.backlog.retain(stays);
        let before = jobs.len();
        for (key, whole) in &mut self.wholes {
            let command = whole.command;
            jobs.extend(whole.undo().into_iter().map(|part| Job {
                command,
                part,
                whose: Whose::Part(key),
                bounce: None,
            }));
        }
        jobs.len() - before
    }

    /// Everything that is in flight, as it was before it was staged.
    fn unstage(&mut self) -> Vec<Job<T>> {
        let flights = self.flights.iter_mut().zip(&self.commands);
        let flying = flights.filter_map(|(flight, command)| Some((flight.take()?, *command)));
        flying
            .map(|(Flight { whose, cut }, command)| {
                let (part, bounce) = match cut {
                    Some(cut) => (cut.part, cut.bounce),
                    None => (all(&command), None),
                };
                Job {
                    command,
                    part,
                    whose,
                    bounce,
                }
            })
            .collect()
    }
}
