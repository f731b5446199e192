//! The thread that notices what the server does unasked: that it goes away, or changes its disk.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use pollux_blk::Config;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;

use crate::connection::Connection;
use crate::error::{Lost, Refusal};
use crate::notice::{self, Notice};

/// Told what the device says of itself now. It runs on the control thread, which notices nothing else
/// meanwhile.
pub(crate) type OnChange = dyn FnMut(Config) + Send;

/// Told once why the device is gone, on the control thread, which then ends.
pub(crate) type OnLoss = dyn FnOnce(Lost) + Send;

/// The thread of one connection. It sleeps until something happens; dropping this ends it.
#[derive(Debug)]
pub(crate) struct Control {
    end: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    /// Watches `connection` from now on.
    ///
    /// # Errors
    ///
    /// When the machine lacks threads or file descriptors.
    pub(crate) fn start(
        connection: Arc<Connection>,
        on_change: Box<OnChange>,
        on_loss: Box<OnLoss>,
    ) -> io::Result<Self> {
        let end = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let watch = Watch {
            connection,
            end: Arc::clone(&end),
            notices: Notices::Heard,
            on_change,
        };
        let thread = thread::Builder::new()
            .name("driver-control".to_owned())
            .spawn(move || {
                if let Some(lost) = watch.run() {
                    on_loss(lost);
                }
            })?;
        Ok(Self {
            end,
            thread: Some(thread),
        })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        rustix::io::write(&*self.end, &1u64.to_ne_bytes()).expect("nobody else adds to it");
        let Some(thread) = self.thread.take() else {
            return;
        };
        // A callback may hold the last reference to what holds this. The thread ends by itself then.
        if thread.thread().id() != thread::current().id() {
            let _ = thread.join();
        }
    }
}

struct Watch {
    connection: Arc<Connection>,
    end: Arc<OwnedFd>,
    notices: Notices,
    on_change: Box<OnChange>,
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
    Notice,
}

impl Watch {
    /// Until the device is gone, or nobody wants to know any more.
    fn run(mut self) -> Option<Lost> {
        loop {
            match self.sleep() {
                Woken::End => return None,
                Woken::Loss => return Some(self.lose(Lost::Closed)),
                Woken::Notice => {
                    if let Err(lost) = self.hear() {
                        return Some(self.lose(lost));
                    }
                }
            }
        }
    }

    fn sleep(&self) -> Woken {
        // Nothing is ever read here: answers on this socket belong to whoever asked. Its end is all
        // that wakes us, and that is told unasked.
        let socket = PollFd::new(self.connection.socket(), PollFlags::RDHUP);
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
                Some(_) => return Woken::Notice,
                None => {}
            }
        }
    }

    fn heard(&self) -> Option<&UnixStream> {
        self.connection
            .notices()
            .filter(|_| self.notices == Notices::Heard)
    }

    /// Takes one message of the server's, answers it if it wants that, and only then acts on it: the
    /// answer may be what the server waits for before it answers whoever asks it something now.
    fn hear(&mut self) -> Result<(), Lost> {
        let Some(stream) = self.heard() else {
            return Ok(());
        };
        match notice::take(stream, self.connection.answers_notices()) {
            Ok(Notice::ConfigChange) => self.reread(),
            Ok(Notice::Nothing) => Ok(()),
            Ok(Notice::Unknown(number)) => {
                tracing::debug!(
                    number,
                    "the server sent a message that means nothing to a disk"
                );
                Ok(())
            }
            Err(error) => {
                tracing::warn!(%error, "the server's own messages are no longer heard");
                self.notices = Notices::Over;
                Ok(())
            }
        }
    }

    fn reread(&mut self) -> Result<(), Lost> {
        match self.connection.reread_config() {
            Ok(config) => (self.on_change)(config),
            Err(Refusal::Lost(lost)) => return Err(lost),
            Err(error) => tracing::warn!(%error, "the disk has changed, it is not known how"),
        }
        Ok(())
    }

    /// The reason that stays: a message that failed knows more than the end of the socket.
    fn lose(&self, lost: Lost) -> Lost {
        self.connection.lose(lost);
        let lost = self.connection.lost().expect("it has just been given");
        tracing::error!(%lost, "the disk is gone");
        lost
    }
}
