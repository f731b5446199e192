//! Kick and call descriptors as a frontend may treat them: leave them out, exchange them under load,
//! use other kinds of files. The frontend is made by hand: libblkio does none of it.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use pollux_tests::busy::while_busy;
use pollux_tests::frontend::{
    Code, Driver, Frontend, PAGE, TWO_QUEUES, add_one, count, new_eventfd,
};
use pollux_tests::process::{Process, assert_idle, eventually};
use pollux_tests::server::{Ready, Server, pollux_binary};
use pollux_tests::subject::{Disk, Program, Subject};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

fn memory_disk() -> Subject {
    Subject::start(Disk::memory(16 << 20, 2), &[]).unwrap()
}

#[test]
fn without_a_call_fd_requests_complete_silently() {
    if Program::chosen() == Program::QemuStorageDaemon {
        return println!("SKIP qemu-storage-daemon stops serving a queue that has no call fd");
    }
    let subject = memory_disk();
    let mut driver = Driver::connect(subject.socket(), TWO_QUEUES).unwrap();
    driver
        .frontend
        .vring_fd(Code::SetVringCall, 0, None)
        .unwrap();
    driver.queues[0].ask_for_call();
    driver.queues[0].round(1); // a call that was on its way may still come
    driver.queues[0].calls();
    driver.queues[0].round(2);
    driver.queues[1].round(3);
    assert_eq!(
        driver.queues[0].calls(),
        0,
        "the fd that was taken away is called"
    );
}

#[test]
fn a_call_fd_may_be_a_pipe() {
    let subject = memory_disk();
    let mut driver = Driver::connect(subject.socket(), TWO_QUEUES).unwrap();
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    driver
        .frontend
        .vring_fd(Code::SetVringCall, 0, Some(writer.as_fd()))
        .unwrap();
    for _ in 0..100 {
        driver.queues[0].ask_for_call();
        driver.queues[0].bare(0, 4);
        driver.queues[0].publish_and_kick();
        assert!(rustix::io::read(&reader, &mut [0; 4096]).unwrap() > 0);
        driver.queues[0].finish();
    }
}

/// The ends of a pipe that has no room.
fn full_pipe() -> (OwnedFd, OwnedFd) {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let room = fcntl_setpipe_size(&writer, PAGE).unwrap();
    assert_eq!(rustix::io::write(&writer, &vec![0; room]), Ok(room));
    (reader, writer)
}

/// Calls into a pipe that is full are lost; requests are not, on this queue or another.
fn calls_into_a_full_pipe(driver: &mut Driver) {
    for _ in 0..100 {
        driver.queues[0].ask_for_call();
        driver.queues[0].bare(0, 4);
        driver.queues[0].publish_and_kick();
        driver.queues[0].finish();
    }
    driver.queues[1].round(3);
}

#[test]
fn a_full_pipe_as_call_fd_stops_nobody() {
    if Program::chosen() == Program::QemuStorageDaemon {
        return println!("SKIP qemu-storage-daemon waits for the pipe for ever");
    }
    let subject = memory_disk();
    let mut driver = Driver::connect(subject.socket(), TWO_QUEUES).unwrap();
    let (_reader, writer) = full_pipe();
    driver
        .frontend
        .vring_fd(Code::SetVringCall, 0, Some(writer.as_fd()))
        .unwrap();
    driver
        .frontend
        .vring_fd(Code::SetVringErr, 0, Some(writer.as_fd()))
        .unwrap();
    calls_into_a_full_pipe(&mut driver);
}

/// What completed between the old fd's last call and the new fd's arrival may have called nobody.
#[test]
fn a_new_call_fd_is_called_once() {
    let subject = memory_disk();
    let mut driver = Driver::connect(subject.socket(), TWO_QUEUES).unwrap();
    driver.queues[0].round(1); // a device may call for the first completions in any case
    driver.queues[0].ask_for_no_call();
    for _ in 0..10 {
        let call = new_eventfd().unwrap();
        driver
            .frontend
            .vring_fd(Code::SetVringCall, 0, Some(call.as_fd()))
            .unwrap();
        let mut calls = 0;
        eventually(
            || {
                calls += count(&call);
                calls > 0
            },
            || "the new fd is not called".into(),
        );
        driver.queues[0].bare(0, 4);
        driver.queues[0].publish_and_kick();
        driver.queues[0].finish();
        assert_eq!(calls + count(&call), 1, "nothing else asked for a call");
    }
}

/// An error fd may come while its queue runs, before the ring breaks or after, and the last one counts.
#[test]
fn an_error_fd_is_told_of_a_broken_ring_whenever_it_came() {
    if Program::chosen() == Program::QemuStorageDaemon {
        return println!("SKIP qemu-storage-daemon tells nobody of a broken ring");
    }
    let subject = memory_disk();
    let mut driver = Driver::connect(subject.socket(), TWO_QUEUES).unwrap();
    let [replaced, before, after] = [(); 3].map(|()| new_eventfd().unwrap());
    driver.queues[0].round(1);
    for fd in [&replaced, &before] {
        let fd = Some(fd.as_fd());
        driver.frontend.vring_fd(Code::SetVringErr, 0, fd).unwrap();
    }
    driver.queues[0].jump(u16::MAX / 2);
    driver.queues[0].publish_and_kick();
    eventually(|| count(&before) > 0, || "the error fd is not told".into());
    let fd = Some(after.as_fd());
    driver.frontend.vring_fd(Code::SetVringErr, 0, fd).unwrap();
    eventually(
        || count(&after) > 0,
        || "the later error fd is not told".into(),
    );
    assert_eq!(count(&replaced), 0, "the fd that was replaced is told");
    driver.queues[1].round(2);
}

/// A driver that sleeps on its call fd, while that is exchanged all the time, misses nothing.
#[test]
fn a_call_fd_is_replaced_under_load() {
    let subject = memory_disk();
    let Driver {
        frontend,
        mut queues,
        memory,
        ..
    } = Driver::connect(subject.socket(), TWO_QUEUES).unwrap();
    let second = new_eventfd().unwrap();
    let first = queues[0].call.try_clone().unwrap();
    let exchange = || {
        for call in [&second, &first] {
            frontend
                .vring_fd(Code::SetVringCall, 0, Some(call.as_fd()))
                .unwrap();
        }
    };
    let queue = &mut queues[0];
    let (exchanged, ()) = while_busy(exchange, || {
        for _ in 0..2000 {
            queue.ask_for_call();
            queue.bare(0, 4);
            queue.publish_and_kick();
            let called = || count(&second) + count(&first) > 0;
            while queue.used() != queue.published() {
                eventually(called, || "neither fd is called for a completion".into());
            }
            queue.take();
        }
    });
    assert!(exchanged > 0, "they were exchanged meanwhile");
    drop(memory);
}

#[test]
fn a_kick_fd_is_replaced() {
    let subject = memory_disk();
    let mut driver = Driver::connect(subject.socket(), TWO_QUEUES).unwrap();
    for byte in 0..20 {
        let kick = new_eventfd().unwrap();
        driver
            .frontend
            .vring_fd(Code::SetVringKick, 0, Some(kick.as_fd()))
            .unwrap();
        driver.queues[0].kick = kick;
        driver.queues[0].round(byte);
    }
}

/// Queues of two workers that are kicked through one eventfd: a kick ends the sleep of both.
#[test]
fn queues_of_several_workers_may_share_a_kick_fd() {
    let subject = Subject::start(
        Disk::memory(16 << 20, 2),
        &["--threads", "2", "--poll", "never"],
    );
    let subject = subject.unwrap();
    let mut driver = Driver::connect(subject.socket(), TWO_QUEUES).unwrap();
    let kick = driver.queues[0].kick.try_clone().unwrap();
    driver
        .frontend
        .vring_fd(Code::SetVringKick, 1, Some(kick.as_fd()))
        .unwrap();
    for _ in 0..3000 {
        for queue in &mut driver.queues {
            queue.bare(0, 4);
            queue.publish();
        }
        add_one(&kick);
        for queue in &mut driver.queues {
            queue.finish();
        }
    }
    // To stop one of them takes no kick away from the other.
    for _ in 0..300 {
        driver.queues[0].bare(0, 4);
        driver.queues[0].publish();
        add_one(&kick);
        driver.queues[1].kick = kick.try_clone().unwrap();
        driver.stop(1).unwrap();
        driver.queues[0].finish();
        driver.start(1).unwrap();
    }
}

/// A driver may kick at any time, and one that does so through a pipe never has to wait, be the worker asleep or awake.
#[test]
fn a_kick_pipe_does_not_fill_up() {
    if Program::chosen() == Program::QemuStorageDaemon {
        return println!("SKIP qemu-storage-daemon reads eight bytes at a time");
    }
    for poll in ["never", "always"] {
        let subject = Subject::start(Disk::memory(16 << 20, 2), &["--poll", poll]).unwrap();
        let mut driver = Driver::connect(subject.socket(), TWO_QUEUES).unwrap();
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
        fcntl_setpipe_size(&writer, PAGE).unwrap();
        driver
            .frontend
            .vring_fd(Code::SetVringKick, 0, Some(reader.as_fd()))
            .unwrap();
        for _ in 0..2000 {
            let queue = &mut driver.queues[0];
            queue.bare(0, 4);
            queue.publish();
            let kicked = || rustix::io::write(&writer, &[1; 16]) == Ok(16);
            eventually(kicked, || format!("the pipe stays full: {poll}"));
            queue.finish();
        }
    }
}

/// Started, a queue is looked at once without a kick; what comes later may never be seen.
#[test]
fn a_kick_pipe_that_is_never_filled_harms_nobody() {
    let subject = memory_disk();
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    for end in [&reader, &writer] {
        let mut driver = Driver::connect(subject.socket(), TWO_QUEUES).unwrap();
        driver
            .frontend
            .vring_fd(Code::SetVringKick, 0, Some(end.as_fd()))
            .unwrap();
        driver.queues[0].bare(0, 4);
        driver.queues[0].publish();
        driver.queues[1].round(1);
        driver.stop(0).unwrap();
    }
    Driver::connect(subject.socket(), TWO_QUEUES)
        .unwrap()
        .queues[0]
        .round(2);
}

/// Nobody can write to it any more, so it says without end that it can be read.
#[test]
fn a_kick_pipe_that_has_ended_keeps_no_worker_awake() {
    let folder = tempfile::TempDir::new().unwrap();
    let socket = folder.path().join("disk.sock");
    let server = Server::pollux(&socket, &["--disk", "memory:size=16M"]).unwrap();
    let (reader, writer) = full_pipe();
    drop(writer);
    let mut driver = Driver::connect(&socket, TWO_QUEUES).unwrap();
    driver
        .frontend
        .vring_fd(Code::SetVringKick, 0, Some(reader.as_fd()))
        .unwrap();
    driver.queues[1].round(1);
    assert_idle(Process::new(server.pid()), Duration::from_millis(100));
}

#[test]
fn a_call_pipe_that_nobody_reads_any_more_stops_nobody() {
    if Program::chosen() == Program::QemuStorageDaemon {
        return println!("SKIP qemu-storage-daemon ends such a session");
    }
    let subject = memory_disk();
    let mut driver = Driver::connect(subject.socket(), TWO_QUEUES).unwrap();
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    driver
        .frontend
        .vring_fd(Code::SetVringCall, 0, Some(writer.as_fd()))
        .unwrap();
    drop(reader);
    calls_into_a_full_pipe(&mut driver);
}

/// The kernel locks a pipe while bytes are moved out of it to where there is no room, and a thread that writes to it
/// waits.
#[test]
fn a_pipe_is_refused_where_there_may_be_other_disks() {
    let folder = tempfile::TempDir::new().unwrap();
    let socket = folder.path().join("disk.sock");
    let at = folder.path().to_str().unwrap();
    let words = ["--disk", "memory:size=16M", "--disk-folder", at];
    let control = socket.with_extension("control");
    let control = ["--control", control.to_str().unwrap()];
    let server = Server::pollux(&socket, &[&words[..], &control[..]].concat()).unwrap();
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    for (code, end, what) in [
        (Code::SetVringKick, &reader, "kick"),
        (Code::SetVringCall, &writer, "call"),
        (Code::SetVringErr, &writer, "error"),
    ] {
        let driver = Driver::connect(&socket, TWO_QUEUES).unwrap();
        driver
            .frontend
            .vring_fd(code, 0, Some(end.as_fd()))
            .unwrap_err();
        let why = format!(
            "the {what} descriptor of queue 0 is a pipe, through which a frontend could hold other disks"
        );
        assert!(server.says(&why), "{}", server.log());
    }
}

#[test]
fn one_pipe_for_two_queues_is_refused() {
    let folder = tempfile::TempDir::new().unwrap();
    let socket = folder.path().join("disk.sock");
    let server = Server::pollux(&socket, &["--disk", "memory:size=16M"]).unwrap();
    let driver = Driver::connect(&socket, TWO_QUEUES).unwrap();
    let (reader, _writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let kick = |queue| {
        let fd = Some(reader.as_fd());
        driver.frontend.vring_fd(Code::SetVringKick, queue, fd)
    };
    kick(0).unwrap();
    kick(0).unwrap();
    kick(1).unwrap_err();
    let why = "queues 0 and 1 are kicked through the same pipe";
    assert!(server.says(why), "{}", server.log());
}

/// User-Mode Linux passes one end of a pair of sockets.
#[test]
fn a_call_fd_may_be_one_of_a_pair_of_sockets() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let subject = memory_disk();
    let mut driver = Driver::connect(subject.socket(), TWO_QUEUES).unwrap();
    driver
        .frontend
        .vring_fd(Code::SetVringCall, 0, Some(theirs.as_fd()))
        .unwrap();
    for _ in 0..100 {
        driver.queues[0].ask_for_call();
        driver.queues[0].bare(0, 4);
        driver.queues[0].publish_and_kick();
        assert_eq!(rustix::io::read(&ours, &mut [0; 8]), Ok(8));
        driver.queues[0].finish();
    }
    if Program::chosen() == Program::QemuStorageDaemon {
        return println!("SKIP qemu-storage-daemon waits for the socket for ever");
    }
    // Full, and blocking: `theirs` shares its flags with the server.
    fcntl_setfl(&theirs, OFlags::NONBLOCK).unwrap();
    while rustix::io::write(&theirs, &[0; 4096]).is_ok() {}
    fcntl_setfl(&theirs, OFlags::empty()).unwrap();
    calls_into_a_full_pipe(&mut driver);
}

/// `--fd N`: a connection that somebody else has made.
#[test]
fn a_connection_may_be_inherited() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    fcntl_setfd(&theirs, FdFlags::empty()).unwrap(); // no close-on-exec
    let number = theirs.as_raw_fd().to_string();
    let mut command = Command::new(pollux_binary());
    command.args([
        "serve",
        "--disk",
        "memory:size=16M",
        "--num-queues",
        "2",
        "--fd",
        &number,
        "--show-attach",
    ]);
    let server = Server::start(&mut command, Path::new(""), Ready::LogLine).unwrap();
    drop(theirs);
    let mut driver = Driver::over(Frontend::over(ours).unwrap(), TWO_QUEUES).unwrap();
    driver.queues[1].round(9);
    let (status, log) = server.terminate().unwrap();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(log.contains("not of those that were passed"), "{log}");
}
