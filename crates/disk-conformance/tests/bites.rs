//! What the checks are for, they find: each engine here has one fault.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use std::io;
use std::sync::Arc;

use pollux_disk::{
    Armed, Channel, Completion, Disk, Events, Failure, Geometry, Memory, Op, Queued, Request,
    Ticket, Unmap, WaitPoint,
};
use pollux_disk_conformance::{answers_like_a_disk, behaves_like_a_disk, changes_nothing};
use pollux_memory::Spans;

/// What is wrong with an engine.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wrong {
    Nothing,
    /// A write of more than one span keeps the first.
    LosesSpans,
    /// Zeroes reach one block too far.
    ZeroesTooMuch,
    /// The last block of a disk is beyond its end.
    EndsEarly,
    /// What lies beyond the end is read as nothing.
    ReadsBeyond,
    /// Parts of blocks are taken.
    TakesParts,
    /// A read fills what it was not asked for.
    ReadsBeside,
    /// Each request ends twice.
    EndsTwice,
    /// It makes tickets of its own.
    RenamesTickets,
    /// It says that it can discard, and cannot.
    Boasts,
    /// It is read-only, and is written all the same.
    Writable,
    /// It has two counters of one name.
    CountsTwice,
    /// A channel that is closed takes along what it wrote.
    Forgets,
}

struct Engine {
    memory: Memory,
    wrong: Wrong,
}

struct WrongChannel {
    /// To the memory below.
    channel: Box<dyn Channel>,
    geometry: Geometry,
    wrong: Wrong,
    ended: Vec<Completion>,
    /// Where it wrote last.
    wrote: Option<(u64, u64)>,
}

impl Disk for Engine {
    fn geometry(&self) -> Geometry {
        let mut geometry = self.memory.geometry();
        if self.wrong == Wrong::Writable {
            geometry.access = pollux_disk::Access::ReadOnly;
        }
        geometry
    }

    fn open_channel(&self, wait: &WaitPoint) -> io::Result<Box<dyn Channel>> {
        Ok(Box::new(WrongChannel {
            channel: self.memory.open_channel(wait)?,
            geometry: self.memory.geometry(),
            wrong: self.wrong,
            ended: Vec::new(),
            wrote: None,
        }))
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let count = if self.wrong == Wrong::CountsTwice {
            2
        } else {
            1
        };
        vec![("requests", 0); count]
    }

    fn events(&self) -> &Events {
        self.memory.events()
    }
}

/// The first span of a list that its owner keeps.
fn first(spans: Spans) -> Spans {
    let count = spans.len().min(1);
    // SAFETY: a part of a list that stays as it is until the request has ended.
    unsafe { Spans::new(&spans[..count]) }
}

/// Is there something between the first two spans?
fn apart(spans: Spans) -> bool {
    spans.len() > 1 && spans[0].as_ptr().wrapping_add(spans[0].len()) != spans[1].as_ptr()
}

impl WrongChannel {
    /// What is done of `op` instead of it.
    fn twisted(&self, op: Op) -> Op {
        let block = u64::from(self.geometry.block);
        match (self.wrong, op) {
            (
                Wrong::LosesSpans,
                Op::Write {
                    at,
                    from,
                    durability,
                },
            ) => Op::Write {
                at,
                from: if first(from).bytes().is_multiple_of(block) {
                    first(from)
                } else {
                    from
                },
                durability,
            },
            (
                Wrong::ZeroesTooMuch,
                Op::WriteZeroes {
                    at,
                    len,
                    unmap,
                    durability,
                },
            ) if self.geometry.holds(at, len + block) => {
                let len = len + block;
                Op::WriteZeroes {
                    at,
                    len,
                    unmap,
                    durability,
                }
            }
            (_, op) => op,
        }
    }

    /// Its answer, where it is another than that of the memory below.
    fn answer(&self, op: &Op) -> Option<Result<(), Failure>> {
        let block = u64::from(self.geometry.block);
        let (at, len) = match *op {
            Op::Read { at, into: spans }
            | Op::Write {
                at, from: spans, ..
            } => (at, spans.bytes()),
            Op::Discard { at, len } | Op::WriteZeroes { at, len, .. } => (at, len),
            Op::Flush => return None,
        };
        match (self.wrong, op) {
            (Wrong::EndsEarly, _) if at + len > self.geometry.bytes - block => {
                Some(Err(Failure::OutOfRange))
            }
            (Wrong::ReadsBeyond, Op::Read { .. }) if !self.geometry.holds(at, len) => Some(Ok(())),
            (Wrong::TakesParts, _) if !(at | len).is_multiple_of(block) => Some(Ok(())),
            (Wrong::Boasts, Op::Discard { .. }) => Some(Err(Failure::Unsupported)),
            _ => None,
        }
    }

    fn run(&mut self, op: Op) -> Result<(), Failure> {
        if let Some(answer) = self.answer(&op) {
            return answer;
        }
        let op = self.twisted(op);
        let ticket = Ticket(0);
        let Queued::Done(result) = self.channel.queue(Request { ticket, op }) else {
            panic!("memory is done at once")
        };
        match op {
            Op::Read { into, .. } if self.wrong == Wrong::ReadsBeside && apart(into) => {
                let beside = into[0].as_ptr().wrapping_add(into[0].len());
                // SAFETY: a byte of the region between two spans, which nothing else uses.
                unsafe { beside.write(0x5a) };
            }
            Op::Write { at, from, .. } => self.wrote = Some((at, from.bytes())),
            _ => {}
        }
        result
    }
}

// SAFETY: every request is done when it is queued, as by the memory below; but for the byte that is the point.
unsafe impl Channel for WrongChannel {
    fn queue(&mut self, request: Request) -> Queued {
        let result = self.run(request.op);
        let mut ticket = request.ticket;
        if self.wrong == Wrong::RenamesTickets {
            ticket.0 = u64::from(u32::try_from(ticket.0 & 0xffff_ffff).unwrap());
        }
        let done = Completion { ticket, result };
        self.ended.push(done);
        if self.wrong == Wrong::EndsTwice {
            self.ended.push(done);
        }
        Queued::Pending
    }

    fn submit(&mut self) {}

    fn reap(&mut self, done: &mut dyn FnMut(Completion)) {
        self.ended.drain(..).for_each(done);
    }

    fn arm(&mut self) -> Armed {
        if self.ended.is_empty() {
            Armed::Idle
        } else {
            Armed::Pending
        }
    }
}

impl Drop for WrongChannel {
    fn drop(&mut self) {
        if let (Wrong::Forgets, Some((at, len))) = (self.wrong, self.wrote) {
            let unmap = Unmap::Allowed;
            let durability = pollux_disk::Durability::Volatile;
            let zeroes = Op::WriteZeroes {
                at,
                len,
                unmap,
                durability,
            };
            let _ = self.run(zeroes);
        }
    }
}

fn engine(wrong: Wrong, bytes: u64) -> Arc<dyn Disk> {
    let memory = Memory::new(Geometry::plain(bytes)).unwrap();
    Arc::new(Engine { memory, wrong })
}

/// The suite fails for such an engine, and says this.
fn found(wrong: Wrong, says: &str) {
    let suite = move || match wrong {
        Wrong::Writable => changes_nothing(engine(wrong, 1 << 20)),
        _ => behaves_like_a_disk(&|bytes| engine(wrong, bytes)),
    };
    let panic = std::panic::catch_unwind(suite).expect_err(says);
    let said = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or(panic.downcast_ref::<&str>().copied());
    let said = said.unwrap();
    assert!(said.contains(says), "{says}: {said}");
}

#[test]
fn an_engine_without_a_fault_passes() {
    behaves_like_a_disk(&|bytes| engine(Wrong::Nothing, bytes));
    answers_like_a_disk(engine(Wrong::Nothing, 1 << 20));
}

#[test]
fn wrong_contents_are_found() {
    found(Wrong::LosesSpans, "Test failed");
    found(Wrong::ZeroesTooMuch, "Test failed");
    found(Wrong::Forgets, "block 62");
}

#[test]
fn wrong_bounds_are_found() {
    found(Wrong::EndsEarly, "Test failed");
    found(Wrong::ReadsBeyond, "Ok(())");
    found(Wrong::TakesParts, "is not of whole blocks");
}

#[test]
fn memory_that_is_misused_is_found() {
    found(Wrong::ReadsBeside, "beside its spans");
}

#[test]
fn wrong_ends_are_found() {
    found(Wrong::EndsTwice, "more requests ended than were queued");
    found(Wrong::RenamesTickets, "tickets come back as they were");
}

#[test]
fn wrong_promises_are_found() {
    found(Wrong::Boasts, "Unsupported");
    found(Wrong::Writable, "ReadOnly");
    found(Wrong::CountsTwice, "its own name");
}
