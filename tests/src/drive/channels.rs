//! The load of an owner of a channel.

use std::io;

use pollux_disk::{Completion, Op as DiskOp, Queued, Request, Ticket};
use pollux_driver::{Driver, Hybrid, Waiter};
use pollux_memory::{Span, Spans};

use super::window::Window;
use super::work::{Job, Op, Work};
use super::{End, Kinds, PATIENCE};

/// Room of all requests, and of one that is longer.
const SHORT: usize = 1 << 20;
/// What gaps and alignment take besides the data.
const GAPS: usize = 64 << 10;

struct Slot {
    window: Window,
    room: usize,
    /// A copy of the window's pieces, lent with the request.
    lent: Vec<Span>,
    busy: Option<(Job, Vec<u8>)>,
}

/// What the requests in flight are made of.
struct Slots(Vec<Slot>);

impl Drop for Slots {
    /// A load that fails ends here with requests in flight: what was lent to them is kept for ever.
    fn drop(&mut self) {
        if self.0.iter().any(|slot| slot.busy.is_some()) {
            std::mem::forget(std::mem::take(&mut self.0));
        }
    }
}

/// Keeps `depth` requests in flight until `end`, then reads everything.
pub(super) fn run(
    driver: &Driver,
    channel: &mut impl Hybrid,
    waiter: &mut Waiter,
    kinds: Kinds,
    work: &mut Work,
    depth: usize,
    end: &End,
) -> io::Result<()> {
    let mut all = Slots(vec![]);
    let slots = &mut all.0;
    for index in 0..depth {
        let room = if index == 0 {
            work.longest()
        } else {
            SHORT.min(work.longest())
        };
        slots.push(Slot {
            window: Window::new(driver, room + GAPS, &mut work.random)?,
            room,
            lent: vec![],
            busy: None,
        });
    }
    loop {
        fill(channel, kinds, work, slots, end.has_come());
        channel.submit();
        if work.in_flight() == 0 {
            return Ok(());
        }
        let mut done = vec![];
        let count = waiter.wait(channel, Some(PATIENCE), &mut |one| done.push(one))?;
        assert!(count > 0, "{} requests never end", work.in_flight());
        assert_eq!(count, done.len());
        for one in done {
            end_one(work, slots, one);
        }
    }
}

/// Queues a request for every slot that is free, or for some of them.
fn fill(channel: &mut impl Hybrid, kinds: Kinds, work: &mut Work, slots: &mut [Slot], last: bool) {
    let count = slots.len();
    for index in 0..count {
        if slots[index].busy.is_some() || (work.in_flight() > 0 && work.random.u64(..4) == 0) {
            continue;
        }
        let job = if last {
            work.next_to_verify(slots[index].room)
        } else {
            Some(work.next(slots[index].room))
        };
        let Some(job) = job else { continue };
        let slot = &mut slots[index];
        let ticket = Ticket(index as u64);
        let op = prepare(work, slot, job);
        let completion = kinds.choose(&mut work.random);
        match channel.queue_as(Request { ticket, op }, completion) {
            Queued::Pending => {}
            Queued::Done(result) => end_one(work, slots, Completion { ticket, result }),
        }
    }
}

fn prepare(work: &mut Work, slot: &mut Slot, job: Job) -> DiskOp {
    let mut data = vec![];
    if job.has_data() {
        let pieces = work.pieces(job.len, 40);
        slot.window.lay_out(&pieces, &mut work.random);
        if job.op != Op::Read {
            data = work.noise(job.len);
            slot.window.fill(&data);
        }
        slot.lent = slot.window.pieces().to_vec();
    }
    slot.busy = Some((job, data));
    // SAFETY: the list stays as it is until the request has ended: the slot is busy until then, and
    // neither is let go before (`Slots`).
    let spans = unsafe { Spans::new(&slot.lent) };
    let (at, len) = (job.at, job.len as u64);
    match job.op {
        Op::Read => DiskOp::Read { at, into: spans },
        Op::Write(durability) => DiskOp::Write {
            at,
            from: spans,
            durability,
        },
        Op::Flush => DiskOp::Flush,
        Op::Discard => DiskOp::Discard { at, len },
        Op::WriteZeroes(unmap, durability) => DiskOp::WriteZeroes {
            at,
            len,
            unmap,
            durability,
        },
    }
}

fn end_one(work: &mut Work, slots: &mut [Slot], done: Completion) {
    let index = usize::try_from(done.ticket.0).expect("an index");
    let slot = &mut slots[index];
    let (job, written) = slot.busy.take().expect("each request ends once");
    assert_eq!(done.result, Ok(()), "{job:x?}");
    if !job.has_data() {
        return work.ended(&job, &[]);
    }
    let found = slot.window.data();
    if job.op == Op::Read {
        return work.ended(&job, &found);
    }
    assert!(
        found == written,
        "{job:x?} has changed what it was to write"
    );
    work.ended(&job, &written);
}
