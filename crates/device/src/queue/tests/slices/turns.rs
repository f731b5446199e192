//! What a turn does of large requests, beside a neighbour.

use std::sync::atomic::AtomicU64;

use crossbeam_channel::unbounded;
use pollux_disk::Completion;

use super::*;
use crate::worker::{Command, Worker};

/// Counts the bytes that go through a channel.
struct Counting(Box<dyn Channel>, Arc<AtomicU64>);

// SAFETY: the channel below, to which everything is passed on, makes the same promise.
unsafe impl Channel for Counting {
    fn queue(&mut self, request: Request) -> Queued {
        let bytes = match request.op {
            Op::Read { into: spans, .. } | Op::Write { from: spans, .. } => spans.bytes(),
            Op::Discard { len, .. } | Op::WriteZeroes { len, .. } => len,
            Op::Flush => 0,
        };
        self.1.fetch_add(bytes, Ordering::Relaxed);
        self.0.queue(request)
    }
    fn submit(&mut self) {
        self.0.submit();
    }
    fn reap(&mut self, done: &mut dyn FnMut(Completion)) {
        self.0.reap(done);
    }
    fn arm(&mut self) -> pollux_disk::Armed {
        self.0.arm()
    }
}

/// A worker with the queue of `large` in one session and that of `small` in another; what goes through the disk of
/// the first.
fn neighbours(large: Vec<(Queue, Box<dyn Channel>)>, small: Queue) -> (Worker, Arc<AtomicU64>) {
    let (commands, receiver) = unbounded();
    let mut worker = Worker::new(receiver, Tuning::default()).unwrap();
    let moved = Arc::<AtomicU64>::default();
    let session = SessionId(0);
    let mut queues = vec![];
    let mut channels = vec![];
    for (queue, channel) in large {
        queues.push(queue);
        channels.push(channel);
    }
    let inner = channels.pop().unwrap();
    let channel = Box::new(Counting(inner, Arc::clone(&moved)));
    commands.send(Command::Open { session, channel }).unwrap();
    for queue in queues.into_iter().map(Box::new) {
        commands.send(Command::Start { session, queue }).unwrap();
    }
    let session = SessionId(1);
    let disk = pollux_disk::Memory::new(Geometry::plain(DISK)).unwrap();
    let channel = disk.open_channel(worker.point()).unwrap();
    commands.send(Command::Open { session, channel }).unwrap();
    let queue = Box::new(small);
    commands.send(Command::Start { session, queue }).unwrap();
    assert!(worker.turn().commands);
    (worker, moved)
}

/// Turns while there is anything to do. The neighbour's request comes back in each of them, and none does too much.
fn turns_beside_a_neighbour(mut rigs: Vec<Rig>, offered: u64) {
    let mut small = Rig::new();
    let flush = header(&mut small, Kind::Flush, 0);
    let mut parts = vec![];
    let mut drivers = vec![];
    for rig in rigs.drain(..) {
        let Rig {
            driver,
            queue,
            channel,
            ..
        } = rig;
        drivers.push(driver);
        parts.push((queue, channel));
    }
    let Rig {
        mut driver, queue, ..
    } = small;
    let (mut worker, moved) = neighbours(parts, queue);
    let mut turns = 0;
    while moved.load(Ordering::Relaxed) < offered {
        driver.stage(&[flush], &[], 0).unwrap();
        let _ = driver.publish();
        let before = moved.load(Ordering::Relaxed);
        assert!(worker.turn().any());
        let now = moved.load(Ordering::Relaxed) - before;
        assert!(now <= MOST, "{now} bytes in a turn");
        assert_eq!(driver.look(), Ok(1), "the neighbour is served in each turn");
        let _ = driver.take().unwrap();
        turns += 1;
    }
    assert!(turns >= offered / MOST);
    for driver in &mut drivers {
        assert!(driver.look().unwrap() > 0, "each queue has its share");
    }
}

#[test]
fn a_turn_is_bounded_however_large_the_requests_are() {
    for kind in [Kind::In, Kind::Out] {
        let mut rig = rig();
        let data = rig.buffer(&vec![0; 768 << 10]);
        for _ in 0..64 {
            offer(&mut rig, kind, 0, &[data]);
        }
        turns_beside_a_neighbour(vec![rig], 48 * MIB);
    }
}

#[test]
fn ranges_are_bounded_as_transfers_are() {
    for kind in [Kind::Discard, Kind::WriteZeroes] {
        let mut rig = rig();
        let all: Vec<_> = (0..16).map(|at| (at * 0x800 + 1, 0x700, false)).collect();
        let list = rig.buffer(&ranges(&all));
        for _ in 0..8 {
            offer(&mut rig, kind, 0, &[list]);
        }
        turns_beside_a_neighbour(vec![rig], 8 * 16 * 0x700 * SECTOR);
    }
}

#[test]
fn queues_of_a_session_share_what_a_turn_does() {
    let rigs = (0..3).map(|_| {
        let mut rig = rig();
        let data = rig.buffer(&zeroes(MIB));
        for _ in 0..8 {
            offer(&mut rig, Kind::Out, 0, &[data]);
        }
        rig
    });
    // Well before all is done, each has something back.
    turns_beside_a_neighbour(rigs.collect(), 12 * MIB);
}
