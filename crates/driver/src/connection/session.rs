//! One session with a server: it lasts as long as its socket, and a connection may see several.

use std::io;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use pollux_blk::Config;
use vhost::VhostBackend as _;
use vhost::vhost_user::message::VhostUserProtocolFeatures as Protocol;
use vhost::vhost_user::{Error as Fault, Frontend};

use crate::Options;
use crate::connection::deadline::{Ended, bounded};
use crate::connection::dial::dial;
use crate::connection::fd;
use crate::connection::negotiate::{self, Agreed};
use crate::error::{ConnectError, Lost, Refusal};

/// A session, as far as it takes no turn at asking.
pub(crate) struct Session {
    pub(crate) wire: Wire,
    pub(crate) agreed: Agreed,
    /// The process that listened on the socket, if it has a number here.
    pub(crate) server: Option<u32>,
}

/// A session that nobody uses yet.
pub(crate) struct Opened {
    pub(crate) session: Arc<Session>,
    pub(crate) line: Line,
    /// What the device tells of itself.
    pub(crate) config: Config,
}

/// Whoever speaks to the server speaks through this.
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

impl Session {
    /// Connects to the server that listens on `path`, and agrees with it on features. No answer is waited
    /// for longer than `patience` meanwhile; later, as `options` say. Whoever shuts the socket down that
    /// `dialled` is shown ends it sooner.
    ///
    /// # Errors
    ///
    /// When nobody is there, it does not answer, or it is not a server of vhost-user disks.
    pub(crate) fn open(
        path: &Path,
        options: &Options,
        patience: Duration,
        dialled: impl FnOnce(&UnixStream) -> io::Result<()>,
    ) -> Result<Opened, ConnectError> {
        let system = |source| ConnectError::System {
            path: path.to_owned(),
            source,
        };
        let socket = dial(path, patience)?;
        dialled(&socket).map_err(system)?;
        let server = fd::listener(socket.as_fd()).map_err(system)?;
        // One queue, until the server tells how many it has.
        let mut frontend = Frontend::from_stream(socket.try_clone().map_err(system)?, 1);
        let mut wire = Wire {
            socket,
            patience,
            lost: OnceLock::new(),
        };
        let (agreed, config) = negotiate::negotiate(&wire, &mut frontend, options)
            .map_err(|failure| failure.at(path))?;
        wire.patience = options.patience;
        let line = Line {
            frontend,
            acknowledged: agreed.has(Protocol::REPLY_ACK),
        };
        let session = Arc::new(Self {
            wire,
            agreed,
            server,
        });
        Ok(Opened {
            session,
            line,
            config,
        })
    }

    /// Where the server's own messages arrive, if it sends any.
    pub(crate) fn notices(&self) -> Option<&UnixStream> {
        self.agreed.notices.as_ref()
    }

    /// Will the server wait for the answers to its own messages?
    pub(crate) fn answers_notices(&self) -> bool {
        self.agreed.has(Protocol::REPLY_ACK)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // Whoever else holds a copy of the descriptor, as a child that was forked off would, must not
        // keep the session up.
        let _ = self.wire.socket.shutdown(Shutdown::Both);
    }
}

impl Line {
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
    /// To be watched for its end.
    pub(crate) fn socket(&self) -> &UnixStream {
        &self.socket
    }

    /// Sends messages and waits for their answers, but not for ever.
    pub(crate) fn ask<T>(
        &self,
        message: &'static str,
        ask: impl FnOnce() -> vhost::Result<T>,
    ) -> Result<T, Refusal> {
        if let Some(lost) = self.lost.get() {
            return Err(lost.clone().into());
        }
        let patience = self.patience;
        // The reason before the shutdown, which others see as well, and take for the server's.
        let shut_down = || drop(self.lose(Lost::Silent { message, patience }));
        let (answer, ended) = bounded(patience, shut_down, ask)
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
                // Neither side's message has gone through whole: nobody knows where the other stands.
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

    /// Closes the connection, for the reason that is given first; returns that.
    pub(crate) fn lose(&self, lost: Lost) -> Lost {
        let lost = self.lost.get_or_init(|| lost).clone();
        // It fails when the server was faster.
        let _ = self.socket.shutdown(Shutdown::Both);
        lost
    }
}
