//! Sessions, one after the other, over connected sockets.

use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pollux_disk::Admitted;
use pollux_memory::Alarm;
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
    let mut conversation = Conversation {
        messages,
        answers: stream.try_clone()?,
        handler: BackendReqHandler::from_stream(stream, Arc::clone(&session)),
        session: &session,
        alarm: &alarm,
        device,
        is_told: false,
    };
    let ended = conversation.hold();
    session.lock().expect("a handler does not panic").end();
    if conversation.is_told {
        let after: Snapshot = device.snapshots().into_iter().sum();
        tell_of_the_end(device, started.elapsed(), &after.since(before));
    }
    if alarm.is_rung() {
        return Err(io::Error::other(Refusal::MemoryLost));
    }
    ended.map_err(|error| match error {
        // Only the cause: that it was refused, the caller says.
        ProtocolError::ReqHandlerError(refusal) => refusal,
        error => io::Error::other(error),
    })
}

/// What a frontend and this end say to each other.
struct Conversation<'a> {
    messages: Messages<'a>,
    answers: UnixStream,
    handler: BackendReqHandler<Mutex<Session>>,
    session: &'a Arc<Mutex<Session>>,
    alarm: &'a Alarm,
    device: &'a Device,
    /// Was the log told that it has begun? If not, it is not told of the end either.
    is_told: bool,
}

impl Conversation<'_> {
    /// Until it ends.
    fn hold(&mut self) -> Result<(), ProtocolError> {
        // A client that connects and says nothing only tests whether we are here.
        let mut talked = false;
        // What it has sent before it rang is not worth listening to.
        while !self.alarm.is_rung() {
            match self.answer() {
                Ok(()) if talked => {}
                Ok(()) => {
                    talked = true;
                    self.tell_of_the_start();
                }
                // `SocketRetry` among the errors: what was read of a message is lost, and with it where the next one
                // begins.
                Err(ProtocolError::Disconnected | ProtocolError::SocketBroken(_)) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits for the next message, and answers it.
    fn answer(&mut self) -> Result<(), ProtocolError> {
        let device = self.device;
        let next = self.messages.next(|| tell_of_another(device));
        if !next.map_err(ProtocolError::ReqHandlerError)? {
            return Err(ProtocolError::Disconnected);
        }
        let table = self.messages.long_mem_table();
        if let Some(table) = table.map_err(ProtocolError::ReqHandlerError)? {
            return table.carry_out(self.session, &self.answers);
        }
        if let Some(channel) = self.messages.backend_channel() {
            let session = self.session.lock().expect("a handler does not panic");
            session.offered(channel);
        }
        self.handler.handle_request()
    }

    fn tell_of_the_start(&mut self) {
        if let Some(Admitted { withheld }) = self.device.log_quotas().sessions.admits() {
            self.is_told = true;
            let disk = &self.device.options().name;
            tracing::info!(disk, withheld, "a frontend connected");
        }
    }
}

fn tell_of_the_end(device: &Device, after: Duration, counted: &Snapshot) {
    let disk = &device.options().name;
    if counted.requests.total() == 0 && counted.peer_faults == 0 {
        tracing::info!(disk, ?after, "the session ended without a request");
    } else {
        // They have many lines, so they come last.
        tracing::info!(disk, ?after, counters = %format_args!("\n{counted}"), "the session ended");
    }
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
