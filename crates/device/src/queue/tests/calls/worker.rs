//! Calls that wait, where a worker has more to do than one queue, or gives way.

use super::*;
use crate::worker::SessionQueues;
use crate::worker::{Command, SessionId, Worker};

#[test]
fn a_call_that_waits_is_made_before_the_worker_sleeps_however_long_the_disk_took() {
    for signal in [Signal::CompletionsFirst, Signal::AfterSubmissions] {
        let Batch {
            rig: Rig { mut queue, .. },
            calls,
            ..
        } = Batch::new(1);
        let kicks = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        let kick = KickFd::new(kicks).unwrap();
        queue.setup.kick = Some(Arc::new(kick));
        queue.calls = Calls::WhenQuiet;
        // Its block does not end.
        queue.deferral = Deferral::waiting();
        let ends = Arc::<AtomicBool>::default();
        let disk = Later {
            given: vec![],
            ends: Arc::clone(&ends),
        };
        let mut session = SessionQueues::new(SessionId(0), Box::new(disk));
        session.start(Box::new(queue));
        let tuning = Tuning {
            signal,
            ..Tuning::default()
        };
        assert_eq!(session.turn(tuning).chains, RING / 2);
        // The worker has other queues, and sleeps now and then while the disk is slow.
        for _ in 0..16 {
            assert!(session.arm());
            session.slept();
            assert!(!session.turn(tuning).any());
        }
        assert_eq!(
            session.active_queues().count(),
            1,
            "its requests are in flight"
        );
        ends.store(true, Ordering::Relaxed);
        assert_eq!(session.turn(tuning).completions, RING / 2);
        assert!(!session.turn(tuning).any());
        assert!(session.arm(), "the worker sleeps");
        let mut count = [0; 8];
        rustix::io::read(&calls, &mut count).expect("the driver was called");
    }
}

#[test]
fn a_call_that_waits_is_made_before_the_worker_gives_way() {
    let Batch {
        rig: Rig { mut queue, .. },
        calls,
        ..
    } = Batch::new(1);
    queue.calls = Calls::WhenQuiet;
    // Neither does its block end, nor is it quiet before that.
    queue.deferral = Deferral::waiting();
    let (commands, receiver) = crossbeam_channel::unbounded();
    let mut worker = Worker::new(receiver, Tuning::default()).unwrap();
    let session = SessionId(0);
    let disk = pollux_disk::Memory::new(Geometry::plain(DISK)).unwrap();
    let channel = disk.open_channel(worker.point()).unwrap();
    commands.send(Command::Open { session, channel }).unwrap();
    let queue = Box::new(queue);
    commands.send(Command::Start { session, queue }).unwrap();
    assert!(worker.turn().commands);
    assert_eq!(worker.turn().chains, RING / 2);
    let mut count = [0; 8];
    rustix::io::read(&calls, &mut count).expect_err("the call waits");
    worker.give_way();
    rustix::io::read(&calls, &mut count).expect("the driver was called");
}
