//! The long way of a request: what is not staged at once as it is (cut, copied, flushed, or waiting for room).

use pollux_blk::Kind;
use pollux_disk::{Durability, Failure, Op};
use pollux_memory::Span;
use rustix::io::Errno;

use super::{Core, buffer};
use crate::device::limits::within;
use crate::requests::bounce::Bounce;
use crate::requests::command::{Command, count, data_of, parts, wire};
use crate::requests::flight::{Cut, Flight, Job, Whole, Whose};

/// What became of a job.
enum Staging<T> {
    Staged,
    NoRoom(Job<T>),
    Failed(Whose<T>, Failure),
}

impl<T> Core<T> {
    /// Is it known how `command` ends before the device is asked?
    fn foresee(&mut self, command: &Command) -> Option<Result<(), Failure>> {
        if self.device.generation() != self.facts.generation {
            self.facts = self.device.facts();
        }
        if self.device.is_lost() {
            return Some(Err(Failure::Lost));
        }
        let Command::Op(op) = command else {
            return None;
        };
        if let Err(failure) = self.facts.geometry.check(op) {
            return Some(Err(failure));
        }
        let nothing = match op {
            Op::Read { into: spans, .. } | Op::Write { from: spans, .. } => spans.bytes() == 0,
            Op::Discard { len, .. } | Op::WriteZeroes { len, .. } => *len == 0,
            // Without the feature every completed write is stable (5.2.6.2).
            Op::Flush => !self.facts.has_flush,
        };
        nothing.then_some(Ok(()))
    }

    #[cold]
    pub(super) fn accept_any(
        &mut self,
        command: Command,
        owner: T,
    ) -> Result<(), (T, Result<(), Failure>)> {
        if let Some(result) = self.foresee(&command) {
            return Err((owner, result));
        }
        self.plan(command, owner);
        self.refill();
        Ok(())
    }

    /// Cuts a request into chains, and stages those for which there is room.
    #[cold]
    fn plan(&mut self, command: Command, owner: T) {
        let parts = parts(
            &command,
            &self.facts.limits,
            self.view.of(self.device.known()),
        );
        let stable = matches!(
            command,
            Command::Op(
                Op::Write {
                    durability: Durability::Stable,
                    ..
                } | Op::WriteZeroes {
                    durability: Durability::Stable,
                    ..
                }
            )
        );
        let flush = stable && self.facts.has_flush;
        if let ([part], false) = (&parts[..], flush) {
            self.backlog.push_back(Job {
                command,
                part: *part,
                whose: Whose::Sole(owner),
                bounce: None,
            });
        } else {
            let whole = Whole::new(command, parts.len(), flush, owner);
            let key = self.wholes.insert(whole);
            let jobs = parts.into_iter().map(|part| Job {
                command,
                part,
                whose: Whose::Part(key),
                bounce: None,
            });
            self.backlog.extend(jobs);
        }
    }

    /// Stages what waits, in order, for as long as there is room.
    pub(super) fn refill(&mut self) {
        while let Some(job) = self.backlog.pop_front() {
            match self.try_stage(job) {
                Staging::Staged => {}
                Staging::NoRoom(job) => {
                    self.backlog.push_front(job);
                    break;
                }
                Staging::Failed(whose, failure) => self.failed.push((whose, failure)),
            }
        }
    }

    fn try_stage(&mut self, mut job: Job<T>) -> Staging<T> {
        let limits = self.facts.limits;
        let buffers = count(&job.command, job.part, &limits);
        let Some(head) = self.head_for(buffers) else {
            return Staging::NoRoom(job);
        };
        let bounce = match job.bounce.take() {
            Some(bounce) => Ok(Some(bounce)),
            None => Bounce::new(self.device.pool(), &job.command, job.part),
        };
        let bounce = match bounce {
            Ok(bounce) => bounce,
            // Those that are in flight give theirs back.
            Err(_) if self.ring.room() < self.rings.size() => return Staging::NoRoom(job),
            Err(_) => return Staging::Failed(job.whose, Failure::Io(Errno::NOMEM)),
        };
        let (header, range) = wire(&job.command, job.part);
        let frame = self.rings.open(head, header);
        self.readable.clear();
        self.writable.clear();
        self.readable.push(frame.header);
        if let Some(range) = range {
            self.rings.set_range(head, range);
            self.readable.push(frame.range);
        }
        if let Some(spans) = data_of(&job.command) {
            let side = match header.kind {
                Kind::Out => &mut self.readable,
                _ => &mut self.writable,
            };
            match &bounce {
                // SAFETY: the flight, below, keeps it until the device has handed the chain back.
                Some(bounce) => push(side, unsafe { bounce.span() }, limits.buffer),
                None => within(&spans, job.part.skip, job.part.len)
                    .for_each(|span| push(side, span, limits.buffer)),
            }
        }
        self.writable.push(frame.status);
        let staged = self
            .ring
            .stage(&self.readable, &self.writable, u64::from(head));
        staged.expect("pieces are cut so that they fit, and there was room");
        let Job {
            command,
            part,
            whose,
            ..
        } = job;
        let is_all = matches!(whose, Whose::Sole(_)) && bounce.is_none();
        let cut = (!is_all).then(|| Box::new(Cut { part, bounce }));
        self.commands[usize::from(head)] = command;
        self.flights[usize::from(head)] = Some(Flight { whose, cut });
        Staging::Staged
    }
}

/// Adds `span` in buffers of at most `most` bytes.
fn push(side: &mut Vec<pollux_ring::Buffer>, span: Span, most: u32) {
    let mut rest = span;
    while rest.len() > most as usize {
        let (here, after) = rest.split_at(most as usize);
        side.push(buffer(here));
        rest = after;
    }
    side.push(buffer(rest));
}
