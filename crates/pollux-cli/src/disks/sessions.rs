//! Serves one disk: frontends one after the other, or the one that is connected.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use pollux::device::{Device, Workers};
use pollux::disk::Admitted;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::stop::Stop;
use super::wanted::Export;
use crate::log::chain;
use crate::news::{Happening, tell};
use crate::socket::{Listener, Socket};

/// Serves a disk until it is told to end, or its only frontend has gone.
pub fn serve(export: Export, workers: &Arc<Workers>) {
    let Export {
        name,
        endpoint,
        socket,
        device,
        stop,
        ..
    } = export;
    let geometry = device.disk().geometry();
    tracing::info!(
        disk = endpoint.name(),
        bytes = geometry.bytes,
        block = geometry.block,
        access = ?geometry.access,
        queues = device.options().num_queues,
        "serving"
    );
    let session = |stream, listener: Option<BorrowedFd<'_>>| {
        session(stream, listener, &device, workers, &stop, &name);
    };
    match socket {
        Socket::Connected(stream) => session(stream, None),
        Socket::Listening(listener) => {
            while let Some(stream) = next_frontend(&listener, &stop) {
                session(stream, Some(listener.as_fd()));
            }
        }
    }
}

fn session(
    stream: UnixStream,
    listener: Option<BorrowedFd<'_>>,
    device: &Arc<Device>,
    workers: &Arc<Workers>,
    stop: &Stop,
    name: &str,
) {
    match stream.try_clone() {
        Ok(clone) => stop.set(Some(clone)),
        Err(error) => {
            return tracing::error!(%error, "a frontend is turned away: out of descriptors");
        }
    }
    tell(Happening::Connected, name);
    let served = pollux::device::serve(stream, listener, device, workers);
    if let Err(error) = served
        && let Some(Admitted { withheld }) = device.refusals().admits()
    {
        tracing::warn!(
            disk = device.options().name,
            error = chain(&error),
            withheld,
            "a frontend was disconnected"
        );
    }
    stop.set(None);
    tell(Happening::Disconnected, name);
}

/// Waits for the next frontend. `None`: told to end.
fn next_frontend(listener: &Listener, stop: &Stop) -> Option<UnixStream> {
    loop {
        let mut fds = [
            PollFd::new(listener, PollFlags::IN),
            PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN),
        ];
        let polled = poll(&mut fds, None);
        if stop.stopping() {
            return None;
        }
        if polled.is_err() {
            continue;
        }
        match listener.accept() {
            Ok(Some(stream)) => return Some(stream),
            // Another process has taken it.
            Ok(None) => {}
            Err(error) => {
                tracing::error!(%error, "cannot accept a frontend; trying again in a second");
                let second = Timespec::try_from(Duration::from_secs(1)).expect("a second fits");
                let mut fds = [PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN)];
                // Told to end or not: the loop decides.
                let _ = poll(&mut fds, Some(&second));
            }
        }
    }
}
