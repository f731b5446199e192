//! A device as it is brought up over vhost-user, and the memory it is told of.
//!
//! Messages go through one lock, one at a time, each with its answer: the server may be asked from any
//! thread, and never stands between two questions. None is sent while requests are on their way: only
//! when queues start and stop, and memory or the configuration change.
//!
//! A connection outlasts its sessions: while the server is *away*, memory that comes and goes is noted,
//! for the next session to be told of ([`Connection::install`]).

pub mod backend_requests;
pub mod backoff;
pub mod deadline;
pub mod dial;
pub mod fd;
pub mod monitor;
pub mod negotiate;
pub mod queues;
pub mod regions;
pub mod session;
pub mod wire;

use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use pollux_blk::{Config, feature};
use pollux_memory::Region;

use crate::Options;
use crate::connection::regions::{Origin, Regions};
use crate::connection::session::{Opened, Session};
use crate::connection::wire::Line;
use crate::error::{ConnectError, Lost, Refusal};
use crate::memory::known_regions::KnownRegions;
use crate::options::Reconnect;

/// A connection to a server. Dropping it ends the session.
pub(crate) struct Connection {
    path: PathBuf,
    options: Options,
    exchange: Mutex<Exchange>,
    /// The same as in there, for threads that cannot wait for their turn.
    session: Mutex<Arc<Session>>,
    attempt: Mutex<Attempt>,
    /// Why there will be no other session.
    over: OnceLock<Lost>,
    /// What was agreed on first, and holds for all sessions.
    features: u64,
    queues: u16,
    known: KnownRegions,
}

/// An attempt to connect once more.
#[derive(Default)]
struct Attempt {
    socket: Option<UnixStream>,
    /// There are to be none.
    is_over: bool,
}

/// What only one thread at a time may use.
struct Exchange {
    session: Arc<Session>,
    line: Line,
    regions: Regions,
    config: Config,
}

impl Connection {
    /// Connects to the server that listens on `path`, and agrees with it on features.
    ///
    /// # Errors
    ///
    /// When no server is there, or it is not a server of vhost-user disks; after `options.patience` if it
    /// does not answer.
    pub(crate) fn open(path: &Path, options: &Options) -> Result<Self, ConnectError> {
        let Opened {
            session,
            line,
            config,
        } = Session::open(path, options, options.patience, |_| Ok(()))?;
        Ok(Self {
            path: path.to_owned(),
            options: options.clone(),
            session: Mutex::new(Arc::clone(&session)),
            attempt: Mutex::default(),
            over: OnceLock::new(),
            features: session.agreed.features,
            queues: session.agreed.queues,
            known: KnownRegions::default(),
            exchange: Mutex::new(Exchange {
                regions: Regions::new(session.agreed.memory),
                session,
                line,
                config,
            }),
        })
    }

    /// Connects once more, for another session like the first. No answer is waited for longer than
    /// `patience`. Until [`Connection::end_attempt`], [`Connection::give_up`] ends that session.
    ///
    /// # Errors
    ///
    /// As for [`Connection::open`].
    pub(crate) fn reopen(&self, patience: Duration) -> Result<Opened, ConnectError> {
        let mut options = self.options.clone();
        // No more than requests and rings are made for; but a disk that is read-only now says so.
        options.experiment.without = !(self.features | feature::RO);
        Session::open(&self.path, &options, patience, |socket| {
            let mut attempt = self.lock_attempt();
            if attempt.is_over {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            debug_assert!(
                attempt.socket.is_none(),
                "an attempt ends before the next one"
            );
            attempt.socket = Some(socket.try_clone()?);
            Ok(())
        })
    }

    /// The attempt has succeeded, and the session is current, or it has failed.
    pub(crate) fn end_attempt(&self) {
        // Closed last, and without the lock: what the server has left in it may be slow to close.
        let _old = self.lock_attempt().socket.take();
    }

    /// There are to be no more attempts to connect. One that has reached the server fails at once. The session that is
    /// current goes on, unless it has only just begun.
    pub(crate) fn give_up(&self) {
        let mut attempt = self.lock_attempt();
        attempt.is_over = true;
        if let Some(socket) = &attempt.socket {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// Is that so?
    pub(crate) fn is_given_up(&self) -> bool {
        self.lock_attempt().is_over
    }

    /// The session is `opened` from now on: its server is told of all memory first.
    ///
    /// # Errors
    ///
    /// When it does not take the driver's own, or is gone again.
    pub(crate) fn install(&self, opened: Opened) -> Result<(), Refusal> {
        let Opened {
            session,
            mut line,
            config,
        } = opened;
        let mut exchange = self.lock();
        let memory = session.agreed.memory;
        exchange
            .regions
            .tell_all(&session.wire, &mut line, memory, &self.known)?;
        exchange.session = Arc::clone(&session);
        (exchange.line, exchange.config) = (line, config);
        *self.lock_session() = Arc::clone(&session);
        drop(exchange);
        // If the device was lost meanwhile, the session of before was closed.
        if let Some(over) = self.over.get() {
            session.wire.lose(over.clone());
        }
        Ok(())
    }

    /// Is the server away, so that what it was not told now is for the next session? One that did not answer in time
    /// may be only slow, as its storage is: it answers in a session that begins once the last has ended there.
    pub(crate) fn is_away(&self, refusal: &Refusal) -> bool {
        matches!(refusal, Refusal::Lost(lost) if lost.may_pass())
            && self.options.reconnect != Reconnect::Never
            && self.over.get().is_none()
    }

    /// Where the server listens.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// How long the server may be away.
    pub(crate) fn reconnect(&self) -> Reconnect {
        self.options.reconnect
    }

    /// How long an answer is waited for.
    pub(crate) fn patience(&self) -> Duration {
        self.options.patience
    }

    /// The features of virtio that both sides agreed on.
    pub(crate) fn features(&self) -> u64 {
        self.features
    }

    /// What the device told of itself when it was last asked.
    pub(crate) fn config(&self) -> Config {
        self.lock().config
    }

    /// Asks the device again what it tells of itself.
    pub(crate) fn reread_config(&self) -> Result<Config, Refusal> {
        let mut exchange = self.lock();
        let session = Arc::clone(&exchange.session);
        let config = negotiate::read_config(&session.wire, &mut exchange.line.frontend)?;
        exchange.config = config;
        Ok(config)
    }

    /// How many queues may be used.
    pub(crate) fn queues(&self) -> u16 {
        self.queues
    }

    /// The process that listened on the socket, if it has a number here.
    pub(crate) fn server(&self) -> Option<u32> {
        self.session().server
    }

    /// The session that is current.
    pub(crate) fn session(&self) -> Arc<Session> {
        Arc::clone(&self.lock_session())
    }

    /// Why the device is gone for good, once it is.
    pub(crate) fn lost(&self) -> Option<Lost> {
        self.over.get().cloned()
    }

    /// Ends the connection for `lost`. The first reason stays.
    pub(crate) fn lose(&self, lost: Lost) {
        let lost = self.over.get_or_init(|| lost).clone();
        self.session().wire.lose(lost);
        self.give_up();
    }

    /// The memory that the device knows.
    pub(crate) fn known(&self) -> &KnownRegions {
        &self.known
    }

    /// Does the server replace all of its memory whenever a region comes or goes? Then no request may be
    /// in flight meanwhile, unless it is known to stop its queues over it.
    pub(crate) fn replaces_memory(&self) -> bool {
        self.lock().regions.are_sent_whole()
    }

    /// Makes `region` known to the device, at the address that it has here. It stays mapped until it has
    /// been removed as often as it was added; only the first time says so to the server.
    ///
    /// A server that is away is told when it is back. One without `CONFIGURE_MEM_SLOTS` is sent all regions anew
    /// ([`Connection::replaces_memory`]).
    ///
    /// # Errors
    ///
    /// [`Refusal::NoSlot`] when the server takes no more: what is in it has to be copied then. Else when
    /// the device is gone or refuses.
    pub(crate) fn add_region(&self, region: &Arc<Region>, origin: Origin) -> Result<(), Refusal> {
        let mut exchange = self.lock();
        let Exchange {
            session,
            line,
            regions,
            ..
        } = &mut *exchange;
        let is_away = |refusal: &Refusal| self.is_away(refusal);
        if regions.add(&session.wire, line, region, origin, is_away)? {
            self.known.add(region.addresses());
        }
        Ok(())
    }

    /// Takes one [`Connection::add_region`] back. No request in flight points into the region. If the server is not
    /// told `now`, it is with the next region that comes or goes.
    ///
    /// # Errors
    ///
    /// When the device is gone or refuses. The region is let go of all the same.
    pub(crate) fn remove_region(&self, region: &Arc<Region>, now: bool) -> Result<(), Refusal> {
        let mut exchange = self.lock();
        let Exchange {
            session,
            line,
            regions,
            ..
        } = &mut *exchange;
        if !regions.release(region) {
            return Ok(());
        }
        // First, so that no new request points there while the server forgets it.
        self.known.remove(region.addresses());
        let was_known = regions.forget(region);
        if !now || !was_known {
            return Ok(());
        }
        match regions.tell_gone(&session.wire, line, region) {
            Err(refusal) if self.is_away(&refusal) => Ok(()),
            removed => removed,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Exchange> {
        self.exchange
            .lock()
            .expect("nothing panics while asking the server")
    }

    fn lock_attempt(&self) -> MutexGuard<'_, Attempt> {
        self.attempt
            .lock()
            .expect("nothing panics while reading it")
    }

    fn lock_session(&self) -> MutexGuard<'_, Arc<Session>> {
        self.session.lock().expect("it is only copied and replaced")
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let session = self.session();
        f.debug_struct("Connection")
            .field("agreed", &session.agreed)
            .field("server", &session.server)
            .field("lost", &self.over.get())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
