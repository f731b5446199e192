//! Sessions, one after the other, over connected sockets.

use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

use pollux_disk::Admitted;
use pollux_memory::{Alarm, Misdeed};
use pollux_stats::Snapshot;
use vhost::vhost_user::{BackendReqHandler, Error as ProtocolError};

use super::Session;
use super::framing::{Messages, PATIENCE};
use super::refusal::Refusal;
use crate::device::Device;
use crate::worker::Workers;

/// Serves one frontend on `stream` until it disconnects, breaks the protocol, or the stream is shut
/// down from this side. Everything it had in flight has ended when this returns.
///
/// Others that connect to `listener` meanwhile have to wait: the first of them is logged.
///
/// # Errors
///
/// When the frontend was refused or broke the protocol. The device is ready for the next one all the
/// same.
pub fn serve(
    stream: UnixStream,
    listener: Option<BorrowedFd<'_>>,
    device: &Arc<Device>,
    workers: &Arc<Workers>,
) -> io::Result<()> {
    if device.is_shunned() {
        tracing::debug!(disk = device.options().name, "a frontend is turned away");
        return Ok(());
    }
    let started = Instant::now();
    let mut messages = Messages::new(stream.try_clone()?, PATIENCE)?;
    if let Some(listener) = listener {
        messages.notice_others(listener)?;
    }
    let before: Snapshot = device.snapshots().into_iter().sum();
    let alarm = Arc::new(Alarm::new(stream.try_clone()?.into()));
    let session = Arc::new(Session::new(
        Arc::clone(device),
        Arc::clone(workers),
        Arc::clone(&alarm),
    ));
    let answers = stream.try_clone()?;
    let mut handler = BackendReqHandler::from_stream(stream, Arc::clone(&session));
    // A client that connects and says nothing only tests whether we are here.
    let mut talked = false;
    // Of one that began unsaid, the end is not told either.
    let mut told = false;
    let ended = loop {
        // What it has sent before that is not worth listening to.
        if alarm.rung().is_some() {
            break Ok(());
        }
        let outcome = match messages
            .next(|| tell_of_another(device))
            .and_then(|()| messages.long_mem_table())
        {
            Ok(None) => {
                if let Some(channel) = messages.backend_channel() {
                    let session = session.lock().expect("a handler does not panic");
                    session.offered(channel);
                }
                handler.handle_request()
            }
            Ok(Some(table)) => table.carry_out(&session, &answers),
            Err(error) => Err(ProtocolError::ReqHandlerError(error)),
        };
        match outcome {
            Ok(()) if talked => {}
            Ok(()) => {
                talked = true;
                if let Some(Admitted { withheld }) = device.log_quotas().sessions.admits() {
                    told = true;
                    let disk = &device.options().name;
                    tracing::info!(disk, withheld, "a frontend connected");
                }
            }
            // `SocketRetry` among the errors: what was read of a message is lost, and with it where the
            // next one begins.
            Err(ProtocolError::Disconnected | ProtocolError::SocketBroken(_)) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    session.lock().expect("a handler does not panic").end();
    let counted = device
        .snapshots()
        .into_iter()
        .sum::<Snapshot>()
        .since(before);
    if told {
        let (disk, after) = (&device.options().name, started.elapsed());
        if counted.requests.total() == 0 && counted.peer_faults == 0 {
            tracing::info!(disk, ?after, "the session ended without a request");
        } else {
            // They have many lines, so they come last.
            tracing::info!(disk, ?after, counters = %format_args!("\n{counted}"), "the session ended");
        }
    }
    if let Some(misdeed) = alarm.rung() {
        if misdeed == Misdeed::DescriptorBlocks {
            device.shun();
        }
        return Err(io::Error::other(Refusal::Misdeed(misdeed)));
    }
    ended.map_err(|error| match error {
        // Only the cause: that it was refused, the caller says.
        ProtocolError::ReqHandlerError(refusal) => refusal,
        error => io::Error::other(error),
    })
}

fn tell_of_another(device: &Device) {
    if let Some(Admitted { withheld }) = device.log_quotas().waiting.admits() {
        let disk = &device.options().name;
        tracing::warn!(
            disk,
            withheld,
            "another frontend waits on this socket: it is served once this session has ended"
        );
    }
}
