//! A device as it is brought up over vhost-user, and the memory it is told of.
//!
//! Messages go through one lock, one at a time, each with its answer: the server may be asked from any
//! thread, and never stands between two questions. None is sent while requests are on their way: only
//! when queues start and stop, and memory or the configuration change.

use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use pollux_blk::Config;
use pollux_memory::Region;
use vhost::vhost_user::message::VhostUserProtocolFeatures as Protocol;
use vhost::vhost_user::{Error as Fault, Frontend, VhostUserFrontend as _};
use vhost::{VhostBackend as _, VringConfigData};

use crate::Options;
use crate::dial::dial;
use crate::error::{ConnectError, Lost, Refusal};
use crate::fd;
use crate::memory::Addresses;
use crate::negotiate::{self, Agreed};
use crate::patience::{Ended, bounded};
use crate::regions::Regions;
use crate::table::Known;

/// What a queue and its device wake each other by: two eventfds.
#[derive(Debug)]
pub(crate) struct QueueFds {
    /// Driver to device.
    pub(crate) kick: OwnedFd,
    /// Device to driver.
    pub(crate) call: OwnedFd,
}

/// A connection to a server. Dropping it ends the session.
pub(crate) struct Connection {
    asked: Mutex<Asked>,
    wire: Wire,
    agreed: Agreed,
    server: Option<u32>,
    known: Known,
}

/// What only one thread at a time may use.
struct Asked {
    line: Line,
    regions: Regions,
    config: Config,
}

/// Whoever speaks to the server speaks through this.
pub(crate) struct Line {
    pub(crate) frontend: Frontend,
    /// Does every message have an answer, even if it asks nothing?
    acknowledged: bool,
}

/// The socket, as far as it takes no turn at asking.
pub(crate) struct Wire {
    socket: UnixStream,
    patience: Duration,
    lost: OnceLock<Lost>,
}

impl Connection {
    /// Connects to the server that listens on `path`, and agrees with it on features.
    ///
    /// # Errors
    ///
    /// When nobody is there, or it is not a server of vhost-user disks; after `options.patience` if it
    /// does not answer.
    pub(crate) fn open(path: &Path, options: &Options) -> Result<Self, ConnectError> {
        let system = |source| ConnectError::System {
            path: path.to_owned(),
            source,
        };
        let socket = dial(path, options.patience)?;
        let server = fd::listener(socket.as_fd()).map_err(system)?;
        // One queue, until the server tells how many it has.
        let mut frontend = Frontend::from_stream(socket.try_clone().map_err(system)?, 1);
        let wire = Wire {
            socket,
            patience: options.patience,
            lost: OnceLock::new(),
        };
        let (agreed, config) = negotiate::negotiate(&wire, &mut frontend, options)
            .map_err(|failure| failure.at(path))?;
        let regions = Regions::new(agreed.memory);
        Ok(Self {
            asked: Mutex::new(Asked {
                line: Line {
                    frontend,
                    acknowledged: agreed.has(Protocol::REPLY_ACK),
                },
                regions,
                config,
            }),
            wire,
            agreed,
            server,
            known: Known::default(),
        })
    }

    /// The features of virtio that both sides agreed on.
    pub(crate) fn features(&self) -> u64 {
        self.agreed.features
    }

    /// What the device told of itself when it was last asked.
    pub(crate) fn config(&self) -> Config {
        self.lock().config
    }

    /// Asks the device again what it tells of itself.
    pub(crate) fn reread_config(&self) -> Result<Config, Refusal> {
        let mut asked = self.lock();
        let config = negotiate::read_config(&self.wire, &mut asked.line.frontend)?;
        asked.config = config;
        Ok(config)
    }

    /// How many queues may be used.
    pub(crate) fn queues(&self) -> u16 {
        self.agreed.queues
    }

    /// The process that listened on the socket, if it has a number here.
    pub(crate) fn server(&self) -> Option<u32> {
        self.server
    }

    /// Why the device is gone, once a message has shown it.
    pub(crate) fn lost(&self) -> Option<Lost> {
        self.wire.lost.get().cloned()
    }

    /// Ends the connection for `lost`: for whoever finds that out elsewhere. The first reason stays.
    pub(crate) fn lose(&self, lost: Lost) {
        self.wire.lose(lost);
    }

    /// The memory that the device knows.
    pub(crate) fn known(&self) -> &Known {
        &self.known
    }

    /// Does the server replace all of its memory whenever a region comes or goes? Then no request may be
    /// in flight meanwhile, unless it is known to stop its queues over it.
    pub(crate) fn replaces_memory(&self) -> bool {
        self.lock().regions.are_sent_whole()
    }

    /// Where the server's own messages arrive, if it sends any.
    pub(crate) fn notices(&self) -> Option<&UnixStream> {
        self.agreed.notices.as_ref()
    }

    /// Will the server wait for the answers to its own messages?
    pub(crate) fn answers_notices(&self) -> bool {
        self.agreed.has(Protocol::REPLY_ACK)
    }

    /// The socket, to be watched for its end.
    pub(crate) fn socket(&self) -> &UnixStream {
        &self.wire.socket
    }

    /// Starts a queue of `size` entries, from its beginning. The memory that it lies in was added before.
    ///
    /// # Errors
    ///
    /// When the device is gone or refuses.
    pub(crate) fn start_queue(
        &self,
        index: u16,
        fds: &QueueFds,
        at: &Addresses,
        size: u16,
    ) -> Result<(), Refusal> {
        let message = "to start a queue";
        let copy = |fd: &OwnedFd| {
            let copy = fd.try_clone().map(fd::event_fd);
            copy.map_err(|source| Refusal::System { message, source })
        };
        let (kick, call) = (copy(&fds.kick)?, copy(&fds.call)?);
        let addresses = VringConfigData {
            queue_max_size: size,
            queue_size: size,
            flags: 0,
            desc_table_addr: at.descriptor,
            used_ring_addr: at.device,
            avail_ring_addr: at.driver,
            log_addr: None,
        };
        let index = usize::from(index);
        let mut asked = self.lock();
        self.wire.ask(message, || {
            let frontend = &mut asked.line.frontend;
            frontend.set_vring_num(index, size)?;
            frontend.set_vring_base(index, 0)?;
            frontend.set_vring_addr(index, &addresses)?;
            // Before the kick, upon which the ring starts.
            frontend.set_vring_call(index, &call)?;
            frontend.set_vring_kick(index, &kick)?;
            frontend.set_vring_enable(index, true)?;
            asked.line.settle()
        })
    }

    /// Stops a queue. The server answers once no request of it is in flight; whether it has drained
    /// them is for the used ring to tell. Returns where in the available ring it stopped.
    ///
    /// # Errors
    ///
    /// When the device is gone or refuses.
    pub(crate) fn stop_queue(&self, index: u16) -> Result<u16, Refusal> {
        let message = "to stop a queue";
        let asked = self.lock();
        let stopped = self.wire.ask(message, || {
            asked.line.frontend.get_vring_base(usize::from(index))
        })?;
        u16::try_from(stopped).map_err(|_| {
            let fault = format!("it stopped at {stopped}, beyond every index");
            self.wire.lose(Lost::Protocol { message, fault }).into()
        })
    }

    /// Makes `region` known to the device, at the address that it has here. It stays mapped until it has
    /// been removed as often as it was added; only the first time says so to the server.
    ///
    /// A server without `CONFIGURE_MEM_SLOTS` is sent all regions anew ([`Connection::replaces_memory`]).
    ///
    /// # Errors
    ///
    /// [`Refusal::NoSlot`] when the server takes no more: what is in it has to be copied then. Else when
    /// the device is gone or refuses.
    pub(crate) fn add_region(&self, region: &Arc<Region>) -> Result<(), Refusal> {
        let mut asked = self.lock();
        let Asked { line, regions, .. } = &mut *asked;
        if regions.add(&self.wire, line, region)? {
            self.known.add(region.span());
        }
        Ok(())
    }

    /// Takes one [`Connection::add_region`] back. No request in flight points into the region.
    ///
    /// # Errors
    ///
    /// When the device is gone or refuses. The region is let go of all the same.
    pub(crate) fn remove_region(&self, region: &Arc<Region>) -> Result<(), Refusal> {
        let mut asked = self.lock();
        let Asked { line, regions, .. } = &mut *asked;
        if !regions.release(region) {
            return Ok(());
        }
        // First, so that no new request points there while the server forgets it.
        self.known.remove(region.span());
        regions.remove(&self.wire, line, region)
    }

    fn lock(&self) -> MutexGuard<'_, Asked> {
        self.asked
            .lock()
            .expect("nobody panics while asking the server")
    }
}

impl Drop for Connection {
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

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection")
            .field("agreed", &self.agreed)
            .field("server", &self.server)
            .field("lost", &self.wire.lost.get())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
