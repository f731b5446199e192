//! Sessions, one after the other, over connected sockets.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

use pollux_memory::{Alarm, Misdeed};
use pollux_stats::Snapshot;
use vhost::vhost_user::{BackendReqHandler, Error as ProtocolError};

use crate::arrival::{Arrivals, PATIENCE};
use crate::device::Device;
use crate::refusal::Refusal;
use crate::session::Session;
use crate::tuning::Tuning;
use crate::workers::Workers;

/// Serves one frontend on `stream` until it disconnects, breaks the protocol, or the stream is shut
/// down from this side. Everything it had in flight has ended when this returns.
///
/// # Errors
///
/// When the frontend was refused or broke the protocol. The device is ready for the next one all the
/// same.
pub fn serve(
    stream: UnixStream,
    device: &Arc<Device>,
    workers: &Arc<Workers>,
    tuning: Tuning,
) -> io::Result<()> {
    if device.is_shunned() {
        tracing::debug!(disk = device.options().name, "a frontend is turned away");
        return Ok(());
    }
    let started = Instant::now();
    let mut messages = Arrivals::new(stream.try_clone()?, PATIENCE)?;
    let before: Snapshot = device.snapshots().into_iter().sum();
    let alarm = Arc::new(Alarm::new(stream.try_clone()?.into()));
    let session = Arc::new(Session::new(
        Arc::clone(device),
        Arc::clone(workers),
        tuning.signal,
        Arc::clone(&alarm),
    ));
    let mut handler = BackendReqHandler::from_stream(stream, Arc::clone(&session));
    // Somebody who connects and says nothing only looks whether we are here.
    let mut talked = false;
    let ended = loop {
        // What it has sent before that is not worth listening to.
        if alarm.rung().is_some() {
            break Ok(());
        }
        let outcome = match messages.next() {
            Ok(()) => handler.handle_request(),
            Err(error) => Err(ProtocolError::ReqHandlerError(error)),
        };
        match outcome {
            Ok(()) if talked => {}
            Ok(()) => {
                talked = true;
                tracing::info!(disk = device.options().name, "a frontend connected");
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
    if talked {
        let (disk, after) = (&device.options().name, started.elapsed());
        tracing::info!(disk, ?after, "the session ended\n{counted}");
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
