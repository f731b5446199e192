//! A frontend leaves a descriptor behind whose close waits, and holds its own session by it, and no other disk.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::io::Write as _;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

use pollux_tests::frontend::{Code, Frontend, Raw};
use pollux_tests::hot::{Hot, use_it};
use pollux_tests::process::{Process, eventually};
use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, splice};
use rustix::process::Signal;

/// Has the kernel hold the lock of a pipe, as a thread moves bytes out of it to where there is no room.
struct Lock {
    full: Option<UnixStream>,
    mover: Option<JoinHandle<()>>,
}

impl Lock {
    /// The lock, and the end of its pipe that is for writing.
    fn hold() -> (Self, OwnedFd) {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        rustix::io::write(&writer, b"some").unwrap();
        let (full, mut into) = UnixStream::pair().unwrap();
        into.set_nonblocking(true).unwrap();
        while into.write(&[0; 4096]).is_ok() {}
        into.set_nonblocking(false).unwrap();
        let (named, name) = channel();
        let mover = std::thread::spawn(move || {
            named.send(rustix::thread::gettid()).unwrap();
            // It fails once the other end has gone.
            let _ = splice(&reader, None, &into, None, 4, SpliceFlags::empty());
        });
        let mover_id = name.recv().unwrap().as_raw_nonzero().get().unsigned_abs();
        let process = Process::new(std::process::id());
        let is_held = || process.is_thread_asleep(mover_id).unwrap();
        eventually(is_held, || "nothing is moved".into());
        let lock = Self {
            full: Some(full),
            mover: Some(mover),
        };
        (lock, writer)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        drop(self.full.take());
        let _ = self.mover.take().unwrap().join();
    }
}

/// The last of what the daemon closes of the connection frees what was left unread in it.
#[test]
fn a_session_that_cannot_be_closed_holds_no_other_disk() {
    let hot = Hot::start().unwrap();
    for name in ["held", "other"] {
        assert_eq!(hot.add(name, "memory:size=1M").unwrap().0, 201);
    }
    let (lock, writer) = Lock::hold();
    let frontend = Frontend::connect(&hot.socket("held")).unwrap();
    frontend.number(Code::GetFeatures).unwrap();
    // Both are there before the first is read.
    hot.server().signal(Signal::STOP).unwrap();
    let is_stopped = || hot.process().is_stopped().unwrap();
    eventually(is_stopped, || "it goes on".into());
    let bad = Raw::new(Code::SetFeatures, u64::MAX.to_le_bytes().to_vec());
    frontend.send_raw(&bad).unwrap();
    let unread = Raw::new(Code::SetVringCall, vec![0; 8]).with(vec![writer.as_fd()]);
    frontend.send_raw(&unread).unwrap();
    drop(writer);
    hot.server().signal(Signal::CONT).unwrap();
    // Others may wait like that for a moment.
    let stuck = || {
        let is_stuck = |id: &u32| hot.process().is_thread_stuck(*id).unwrap();
        hot.process().threads().unwrap().into_iter().find(is_stuck)
    };
    let is_held = || {
        let first = stuck();
        first.is_some() && (0..1000).all(|_| stuck() == first)
    };
    eventually(is_held, || "no thread waits for the pipe".into());
    assert_eq!(hot.names().unwrap(), ["held", "other"]);
    use_it(&hot.socket("other"));
    assert_eq!(hot.remove("other", "?force=true").unwrap().0, 204);
    drop(lock);
    let is_gone = || hot.remove("held", "").unwrap().0 == 204;
    eventually(is_gone, || "its session does not end".into());
    hot.ends_well();
}
