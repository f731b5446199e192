//! The thread that notices what the server does unasked: that it goes away, or changes its disk; and that
//! tries to reach it until it is back.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pollux_blk::Config;
use pollux_disk::{Admitted, Quota};
use pollux_threads::{Kind, spawn};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use crate::connection::Connection;
use crate::connection::backend_requests::{self, BackendRequest};
use crate::connection::backoff::{Absence, Failed, Progress};
use crate::connection::session::{Opened, Session};
use crate::error::{Lost, Refusal};
use crate::options::Reconnect;

/// Told of all that, on the control thread, which notices nothing else meanwhile.
pub(crate) trait Observer: Send + Sync {
    /// What the device says of itself now.
    fn changed(&self, config: &Config);

    /// The server is away, and is waited for.
    fn away(&self);

    /// The device is gone, and why. Told once.
    fn lost(&self, why: Lost);

    /// A server answers, where one was gone.
    ///
    /// # Errors
    ///
    /// When it cannot take the place of that one.
    fn back(&self, opened: Opened) -> Result<(), Failed>;

    /// How requests get on.
    fn progress(&self) -> Progress;
}

/// The thread of one connection. It sleeps until something happens; dropping this ends it.
#[derive(Debug)]
pub(crate) struct Monitor {
    connection: Arc<Connection>,
    end: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Monitor {
    /// Watches `connection` from now on, and tells `observer` for as long as that is there.
    ///
    /// # Errors
    ///
    /// When the machine lacks threads or file descriptors.
    pub(crate) fn start<T: Observer + 'static>(
        connection: Arc<Connection>,
        observer: Weak<T>,
    ) -> io::Result<Self> {
        let end = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let watch = Watch {
            session: connection.session(),
            connection: Arc::clone(&connection),
            end: Arc::clone(&end),
            notices: Notices::Heard,
            absence: None,
            unread: Quota::default(),
            absences: Quota::default(),
            observer,
        };
        let thread = spawn(Kind::DriverControl, "driver-control", move || watch.run())?;
        Ok(Self {
            connection,
            end,
            thread: Some(thread),
        })
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        rustix::io::write(&*self.end, &1u64.to_ne_bytes()).expect("nothing else adds to it");
        self.connection.give_up();
        let Some(thread) = self.thread.take() else {
            return;
        };
        // A callback may hold the last reference to what holds this. The thread ends by itself then.
        if thread.thread().id() != thread::current().id() {
            let _ = thread.join();
        }
    }
}

struct Watch<T: Observer> {
    connection: Arc<Connection>,
    session: Arc<Session>,
    end: Arc<OwnedFd>,
    notices: Notices,
    /// Of the server that is away, or was lately.
    absence: Option<Absence>,
    /// For lines about messages of the server's own that tell nothing, or are no longer heard.
    unread: Quota,
    /// For lines about a server that goes away, and that is back.
    absences: Quota,
    observer: Weak<T>,
}

/// Is the server still listened to?
#[derive(Clone, Copy, PartialEq, Eq)]
enum Notices {
    Heard,
    /// It has closed its end, or made no sense.
    Over,
}

/// What woke the thread.
enum Woken {
    End,
    Loss,
    BackendRequest,
}

/// What has become of a server that was gone.
enum Search {
    /// It is back.
    Found,
    /// It will not be.
    Lost(Lost),
    /// Nobody wants to know any more.
    End,
}

impl<T: Observer> Watch<T> {
    /// Until the device is gone for good, or has no owner any more.
    fn run(mut self) {
        loop {
            let closed = match self.sleep() {
                Woken::End => return,
                Woken::Loss => Err(Lost::Closed),
                Woken::BackendRequest => self.hear(),
            };
            let Err(lost) = closed else { continue };
            match self.search(lost) {
                Search::Found => {}
                Search::End => return,
                Search::Lost(lost) => return self.lose(lost),
            }
        }
    }

    /// The session is over, for a reason that a message may know better. The server may come back.
    fn search(&mut self, lost: Lost) -> Search {
        let lost = self.session.wire.lose(lost);
        let reconnect = self.connection.reconnect();
        let within = match reconnect {
            Reconnect::Within(within) if lost.may_pass() => within,
            Reconnect::Always if lost.may_pass() => Duration::MAX,
            _ => return Search::Lost(lost),
        };
        let Some(observer) = self.observer.upgrade() else {
            return Search::End;
        };
        observer.away();
        let progress = observer.progress();
        drop(observer);
        let now = Instant::now();
        let earlier = self.absence.take();
        let mut absence = match earlier {
            Some(earlier) => earlier.goes_on(now, progress),
            None => Absence::begin(now, within, progress),
        };
        let told = self.absences.admits();
        if let Some(Admitted { withheld }) = told {
            let path = self.connection.path().display();
            let what = match lost {
                Lost::Silent { .. } => "did not answer",
                _ => "closed the connection",
            };
            tracing::warn!(%path, ?reconnect, withheld, "the server {what}, and is waited for");
        }
        let found = self.attempts(&mut absence, within);
        if matches!(found, Search::Found) {
            absence.end(Instant::now(), progress.ended);
            if told.is_some() {
                let path = self.connection.path().display();
                tracing::info!(%path, after = ?now.elapsed(), "the disk is back");
            }
        }
        self.absence = Some(absence);
        found
    }

    fn attempts(&mut self, absence: &mut Absence, within: Duration) -> Search {
        let mut reason = "it had been back, and was gone again at once".to_owned();
        while let Some(pause) = absence.pause(Instant::now()) {
            // A queue may have found its ring broken, before all that or meanwhile.
            if let Some(lost) = self.connection.lost() {
                return Search::Lost(lost);
            }
            let is_given_up = self.connection.is_given_up();
            // That it ends was told before it was given up for that.
            if self.ends_within(pause) {
                return Search::End;
            }
            if is_given_up {
                return Search::Lost(Lost::GivenUp);
            }
            let attempted = self.attempt(absence.left(Instant::now()));
            self.connection.end_attempt();
            match attempted {
                Ok(true) => return Search::Found,
                Ok(false) => return Search::End,
                Err(Failed::ForGood(lost)) => return Search::Lost(lost),
                Err(Failed::ForNow(why)) => {
                    // Once for each reason: attempts have no end where that is asked for.
                    if why != reason {
                        tracing::info!(why, "the server is not back yet");
                    }
                    reason = why;
                }
            }
        }
        Search::Lost(Lost::Away { within, reason })
    }

    /// Tries to go on at the server that answers at the socket; false, if the device has no owner any more.
    fn attempt(&mut self, left: Duration) -> Result<bool, Failed> {
        let patience = self.connection.patience().min(left);
        let opened = self.connection.reopen(patience.max(LEAST))?;
        let session = Arc::clone(&opened.session);
        let Some(observer) = self.observer.upgrade() else {
            return Ok(false);
        };
        observer.back(opened).inspect_err(|_| {
            // It may serve no other before it has let go of us.
            session.wire.lose(Lost::Closed);
        })?;
        self.session = session;
        self.notices = Notices::Heard;
        Ok(true)
    }

    /// Is this to end before that time is over?
    fn ends_within(&self, pause: Duration) -> bool {
        let mut end = [PollFd::new(&*self.end, PollFlags::IN)];
        let started = Instant::now();
        loop {
            let left = pause.saturating_sub(started.elapsed());
            let timeout = Timespec::try_from(left).expect("half a second at most");
            match poll(&mut end, Some(&timeout)) {
                Err(Errno::INTR) if !left.is_zero() => {}
                ended => return ended.is_ok_and(|ready| ready > 0),
            }
        }
    }

    fn sleep(&self) -> Woken {
        // Nothing is ever read here: answers on this socket belong to the thread that asked. Its end is all
        // that wakes us, and that is told unasked.
        let socket = PollFd::new(self.session.wire.socket(), PollFlags::RDHUP);
        let end = PollFd::new(&*self.end, PollFlags::IN);
        let heard = self.heard();
        let notices = heard.map(|stream| PollFd::new(stream, PollFlags::IN));
        let mut fds: Vec<_> = [end, socket].into_iter().chain(notices).collect();
        loop {
            match poll(&mut fds, None) {
                Ok(_) => {}
                Err(Errno::INTR | Errno::NOMEM | Errno::AGAIN) => continue,
                // Three open descriptors can be watched under any sane limit. A device that cannot be
                // watched is not safe to wait for.
                Err(error) => {
                    tracing::error!(%error, "the connection cannot be watched");
                    return Woken::Loss;
                }
            }
            let woken = fds.iter().position(|fd| !fd.revents().is_empty());
            match woken {
                Some(0) => return Woken::End,
                Some(1) => return Woken::Loss,
                Some(_) => return Woken::BackendRequest,
                None => {}
            }
        }
    }

    fn heard(&self) -> Option<&UnixStream> {
        self.session
            .notices()
            .filter(|_| self.notices == Notices::Heard)
    }

    /// Takes one message of the server's, answers it if it wants that, and only then acts on it: the
    /// answer may be what the server waits for before it answers a thread that asks it something now.
    fn hear(&mut self) -> Result<(), Lost> {
        let Some(stream) = self.heard() else {
            return Ok(());
        };
        match backend_requests::take(stream, self.session.answers_notices()) {
            Ok(BackendRequest::ConfigChange) => self.reread(),
            Ok(BackendRequest::Nothing) => Ok(()),
            Ok(BackendRequest::Unknown(number)) => {
                tracing::debug!(
                    number,
                    "the server sent a message that means nothing to a disk"
                );
                Ok(())
            }
            Err(error) => {
                if let Some(Admitted { withheld }) = self.unread.admits() {
                    // One that ends closes all at once, and is no cause for alarm here.
                    if error.kind() == io::ErrorKind::ConnectionAborted {
                        tracing::info!(
                            withheld,
                            "the server has closed the socket over which it tells of changes of the disk"
                        );
                    } else {
                        tracing::warn!(%error, withheld, "the server's own messages are no longer heard");
                    }
                }
                self.notices = Notices::Over;
                Ok(())
            }
        }
    }

    fn reread(&mut self) -> Result<(), Lost> {
        match self.connection.reread_config() {
            Ok(config) => {
                if let Some(observer) = self.observer.upgrade() {
                    observer.changed(&config);
                }
            }
            Err(Refusal::Lost(lost)) => return Err(lost),
            Err(error) => {
                if let Some(Admitted { withheld }) = self.unread.admits() {
                    tracing::warn!(%error, withheld, "the disk has changed, it is not known how");
                }
            }
        }
        Ok(())
    }

    fn lose(&self, lost: Lost) {
        self.connection.lose(lost);
        let lost = self.connection.lost().expect("it has just been given");
        tracing::error!(%lost, "the disk is gone");
        if let Some(observer) = self.observer.upgrade() {
            observer.lost(lost);
        }
    }
}

/// A server that answers at all does so within this.
const LEAST: Duration = Duration::from_millis(1);
