//! Messages to the server, each with its answer, and the socket that carries them.

use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;
use std::time::Duration;

use vhost::VhostBackend as _;
use vhost::vhost_user::{Error as Fault, Frontend};

use crate::connection::deadline::{Ended, bounded};
use crate::error::{Lost, Refusal};

/// All that is said to the server is said through this.
pub(crate) struct Line {
    pub(crate) frontend: Frontend,
    /// Does every message have an answer, even if it asks nothing?
    acknowledged: bool,
}

/// The socket.
pub(crate) struct Wire {
    socket: UnixStream,
    patience: Duration,
    lost: OnceLock<Lost>,
}

impl Line {
    pub(crate) fn new(frontend: Frontend, acknowledged: bool) -> Self {
        Self {
            frontend,
            acknowledged,
        }
    }

    /// Returns once the server has acted on what it was told before. One that acknowledges nothing is
    /// asked something that it has to answer: messages are taken in order.
    pub(crate) fn settle(&mut self) -> vhost::Result<()> {
        if self.acknowledged {
            return Ok(());
        }
        self.frontend.get_features().map(drop)
    }
}

impl Wire {
    /// A session's, on which no answer is waited for longer than `patience`.
    pub(crate) fn new(socket: UnixStream, patience: Duration) -> Self {
        Self {
            socket,
            patience,
            lost: OnceLock::new(),
        }
    }

    /// No answer is waited for longer than that from now on.
    pub(crate) fn have_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// To be watched for its end.
    pub(crate) fn socket(&self) -> &UnixStream {
        &self.socket
    }

    /// Sends messages and waits for their answers, but not for ever.
    pub(crate) fn exchange<T>(
        &self,
        message: &'static str,
        exchange: impl FnOnce() -> vhost::Result<T>,
    ) -> Result<T, Refusal> {
        if let Some(lost) = self.lost.get() {
            return Err(lost.clone().into());
        }
        let patience = self.patience;
        // The reason before the shutdown, which others see as well, and take for the server's.
        let shut_down = || drop(self.lose(Lost::Silent { message, patience }));
        let (answer, ended) = bounded(patience, shut_down, exchange)
            .map_err(|source| Refusal::System { message, source })?;
        if let (Ended::TooLate, Some(lost)) = (ended, self.lost.get()) {
            return Err(lost.clone().into());
        }
        answer.map_err(|error| self.failure(message, error))
    }

    fn failure(&self, message: &'static str, error: vhost::Error) -> Refusal {
        let lost = match error {
            // The server said so itself, in a proper answer.
            vhost::Error::VhostUserProtocol(Fault::BackendInternalError) => {
                return Refusal::Refused { message };
            }
            vhost::Error::VhostUserProtocol(
                Fault::PartialMessage | Fault::Disconnected | Fault::SocketBroken(_),
            ) => Lost::Closed,
            vhost::Error::VhostUserProtocol(
                Fault::SocketError(source) | Fault::SocketConnect(source),
            ) => {
                // Neither side's message has gone through whole: neither knows where the other stands.
                self.lose(Lost::Closed);
                return Refusal::System { message, source };
            }
            error => Lost::Protocol {
                message,
                fault: error.to_string(),
            },
        };
        self.lose(lost).into()
    }

    /// Why it is closed, if it is.
    pub(crate) fn lost(&self) -> Option<Lost> {
        self.lost.get().cloned()
    }

    /// Closes the connection, for the reason that is given first; returns that.
    pub(crate) fn lose(&self, lost: Lost) -> Lost {
        let lost = self.lost.get_or_init(|| lost).clone();
        self.shut_down();
        lost
    }

    /// Closes the connection, for all holders of a copy of the descriptor.
    pub(crate) fn shut_down(&self) {
        // It fails when the server was faster.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}
