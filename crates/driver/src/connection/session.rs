//! One session with a server: it lasts as long as its socket, and a connection may see several.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pollux_blk::Config;
use pollux_memory::Peer;
use vhost::vhost_user::Frontend;
use vhost::vhost_user::message::VhostUserProtocolFeatures as Protocol;

use crate::Options;
use crate::connection::dial::dial;
use crate::connection::negotiate::{self, Agreed};
use crate::connection::wire::{Line, Wire};
use crate::error::ConnectError;

/// A session, as far as it takes no turn at asking.
pub(crate) struct Session {
    pub(crate) wire: Wire,
    pub(crate) agreed: Agreed,
    /// The process that listened on the socket, if it has a number here.
    pub(crate) server: Option<u32>,
}

/// A session that is not in use yet.
pub(crate) struct Opened {
    pub(crate) session: Arc<Session>,
    pub(crate) line: Line,
    /// What the device tells of itself.
    pub(crate) config: Config,
}

impl Session {
    /// Connects to the server that listens on `path`, and agrees with it on features. No answer is waited
    /// for longer than `patience` meanwhile; later, as `options` say. Shutting down the socket that
    /// `dialled` is shown ends it sooner.
    ///
    /// # Errors
    ///
    /// When no server is there, it does not answer, or it is not a server of vhost-user disks.
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
        let server = Peer::of(&socket).map_err(system)?.pid;
        if options.elsewhere && server == Some(std::process::id()) {
            return Err(ConnectError::Here {
                path: path.to_owned(),
            });
        }
        // One queue, until the server tells how many it has.
        let mut frontend = Frontend::from_stream(socket.try_clone().map_err(system)?, 1);
        let mut wire = Wire::new(socket, patience);
        let (agreed, config) = negotiate::negotiate(&wire, &mut frontend, options)
            .map_err(|failure| failure.at(path))?;
        wire.have_patience(options.patience);
        let line = Line::new(frontend, agreed.has(Protocol::REPLY_ACK));
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
        // Another process that holds a copy of the descriptor, as a child that was forked off would, must not
        // keep the session up.
        self.wire.shut_down();
    }
}
