//! Writes in slices whose server is replaced, and may have lost the first of them.

use super::*;

/// As [`Slow`], at the server of that number.
#[derive(Default)]
struct Replaced {
    slow: Slow,
    server: u64,
}

// SAFETY: it touches no memory.
unsafe impl Channel for Replaced {
    fn queue(&mut self, request: Request) -> Queued {
        self.slow.queue(request)
    }
    fn submit(&mut self) {}
    fn reap(&mut self, _: &mut dyn FnMut(pollux_disk::Completion)) {}
    fn arm(&mut self) -> pollux_disk::Armed {
        pollux_disk::Armed::Idle
    }
    fn replacements(&self) -> Option<u64> {
        Some(self.server)
    }
}

/// What is done, slice by slice, before the request is back; the server is replaced after `before` of them.
fn steps(rig: &mut Rig, status: Buffer, before: usize) -> Vec<Op> {
    let (mut channel, mut done) = (Replaced::default(), Vec::new());
    while rig.bytes(status) == [0xff] {
        let _ = rig.queue.take(0, &mut Budget::default(), &mut channel);
        for Request { ticket, op } in given(&mut channel.slow) {
            done.push(op);
            rig.queue.complete(Queue::of_ticket(ticket).1, Ok(()));
            channel.server += u64::from(done.len() == before);
        }
    }
    assert_eq!(rig.bytes(status), [OK]);
    done
}

/// Where each begins; a flush is at the end of the disk.
fn begins(ops: &[Op]) -> Vec<u64> {
    let place = |op: &Op| match op {
        Op::Read { at, .. }
        | Op::Write { at, .. }
        | Op::Discard { at, .. }
        | Op::WriteZeroes { at, .. } => *at / SLICE,
        Op::Flush => 99,
    };
    ops.iter().map(place).collect()
}

#[test]
fn a_write_begins_anew_if_its_server_was_replaced_before_its_end() {
    for (before, expected) in [
        (0, vec![0, 1, 2]),
        (1, vec![0, 1, 2, 0, 1, 2]),
        (3, vec![0, 1, 2, 0, 1, 2]),
    ] {
        let mut rig = rig();
        let data = rig.buffer(&zeroes(3 * SLICE));
        let status = offer(&mut rig, Kind::Out, 0, &[data]);
        let ops = steps(&mut rig, status, before);
        assert_eq!(begins(&ops), expected, "after {before}");
    }
}

/// A server behind that one may have been replaced as well, of which nothing is heard here.
#[test]
fn a_stable_write_is_stable_slice_by_slice_and_does_not_begin_anew() {
    let mut rig = rig();
    rig.queue.setup.flush = false;
    let data = rig.buffer(&zeroes(2 * SLICE));
    let status = offer(&mut rig, Kind::Out, 0, &[data]);
    let ops = steps(&mut rig, status, 1);
    assert_eq!(begins(&ops), [0, 1]);
    let is_stable =
        |op: &Op| matches!(op, Op::Write { durability, .. } if *durability == Durability::Stable);
    assert!(ops.iter().all(is_stable), "{ops:?}");
}

#[test]
fn what_changes_nothing_does_not_begin_anew() {
    for kind in [Kind::In, Kind::Discard] {
        let mut rig = rig();
        let data = if kind == Kind::In {
            rig.buffer(&zeroes(2 * SLICE))
        } else {
            let sectors = u32::try_from(2 * SLICE / SECTOR).unwrap();
            rig.buffer(&ranges(&[(0, sectors, false)]))
        };
        let status = offer(&mut rig, kind, 0, &[data]);
        assert_eq!(begins(&steps(&mut rig, status, 1)), [0, 1], "{kind:?}");
    }
}

#[test]
fn ranges_that_are_zeroed_are_all_zeroed_anew() {
    for effort in [Effort::HandOver, Effort::Everything] {
        let mut rig = rig();
        rig.queue.setup.rules.pace = Pace::of(effort);
        let out = ranges(&[(0, 1, false), (4 * SLICE / SECTOR, 1, false)]);
        let data = rig.buffer(&out);
        let status = offer(&mut rig, Kind::WriteZeroes, 0, &[data]);
        assert_eq!(begins(&steps(&mut rig, status, 1)), [0, 4, 0, 4]);
    }
}

/// However much of it is no work.
#[test]
fn a_slice_has_bytes() {
    for effort in [
        Effort::Nothing,
        Effort::HandOver,
        Effort::Kernel,
        Effort::Copy,
        Effort::Everything,
    ] {
        let pace = Pace::of(effort);
        for kind in [Kind::In, Kind::Out, Kind::Discard, Kind::WriteZeroes] {
            assert!(pace.slice(kind) >= SLICE, "{effort:?} {kind:?}");
            let most = u64::from(u32::MAX) * SECTOR;
            let is_work = pace.work(kind, most) > 0;
            assert_eq!(pace.slice(kind) < most, is_work, "{effort:?} {kind:?}");
        }
    }
}
