//! The queues that run, as the control thread sees them: what it takes to start each at a server that has
//! come back, and to wake what sleeps over it.
//!
//! A queue is started anew on *fresh rings* and with fresh eventfds, of which only the new server knows; meanwhile its
//! owner still works on the rings of before, where no server answers. Once all queues have been started the *epoch*
//! of the device moves on. Every poll compares it with the owner's own, and an owner that is behind
//! claims the fresh rings (`Device::claim`) and lays out anew what has not ended (`requests/core/replay.rs`). So no
//! owner of requests ever talks to a server about it, waits for one that is away, or locks more than this list.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use pollux_disk::WaitPoint;

use crate::connection::queues::QueueFds;
use crate::device::rings::Rings;

/// A queue that runs.
#[derive(Debug)]
pub struct QueueRecord {
    /// Its number.
    pub index: u16,
    /// [Renewed](Self::renew_fds) for each server.
    pub fds: QueueFds,
    /// What the server of `epoch` knows it by.
    pub rings: Arc<Rings>,
    /// Which server that is.
    pub epoch: u64,
    /// Has its owner taken these rings over from those of before?
    claimed: bool,
    /// Had it requests when these rings took the place of those of before?
    owes: bool,
    /// For the next server, and in which attempt it was told of them.
    spare: Option<(u64, Arc<Rings>)>,
    /// Where those sleep that are called.
    points: Vec<WaitPoint>,
}

impl QueueRecord {
    /// A queue whose owner is to claim `rings`, and which no server has started yet.
    pub fn new(index: u16, fds: QueueFds, rings: Arc<Rings>, epoch: u64) -> Self {
        Self {
            index,
            fds,
            rings,
            epoch,
            claimed: false,
            owes: false,
            spare: None,
            points: Vec::new(),
        }
    }

    /// Its owner goes on with these rings.
    pub fn claim(&mut self) -> (u64, Arc<Rings>) {
        self.claimed = true;
        (self.epoch, Arc::clone(&self.rings))
    }

    /// Has it requests that have not ended?
    pub fn has_requests(&self) -> bool {
        // What it owes, its owner shows after it has claimed them.
        self.rings.are_in_use() || (self.owes && self.rings.are_fresh())
    }

    /// The rings for the next server, if there are some.
    pub fn take_spare(&mut self) -> Option<(u64, Arc<Rings>)> {
        self.spare.take()
    }

    /// The server of this `attempt` knows it by these.
    pub fn put_spare(&mut self, attempt: u64, fresh: Arc<Rings>) {
        self.spare = Some((attempt, fresh));
    }

    /// What was prepared is what the server of `epoch` knows.
    pub fn advance(&mut self, epoch: u64) {
        self.owes = self.has_requests();
        let (_, fresh) = self.spare.take().expect("prepared before");
        let old = std::mem::replace(&mut self.rings, fresh);
        if !self.claimed {
            // No request was ever in them, and their server was told of them before this attempt.
            self.spare = Some((0, old));
        }
        (self.epoch, self.claimed) = (epoch, false);
    }

    /// Calls end the sleep at `point` from now on, as does [`QueueRecord::wake_sleepers`].
    ///
    /// # Errors
    ///
    /// What `epoll_ctl` says.
    pub fn watched_by(&mut self, point: &WaitPoint) -> io::Result<()> {
        self.fds.call.fd().watched_by(point)?;
        self.points.push(point.clone());
        Ok(())
    }

    /// Takes [`QueueRecord::watched_by`] back.
    pub fn unwatched_by(&mut self, point: &WaitPoint) {
        self.points.retain(|other| !other.is(point));
        self.fds.call.fd().unwatched_by(point);
    }

    /// Takes fresh eventfds for kicks and calls, for the next server. The last one still has the old, which are for the
    /// caller to close.
    ///
    /// The machine may lack something. Then it may be called again, and has to be before the next server is.
    pub fn renew_fds(&self, [kick, call]: [OwnedFd; 2]) -> ([OwnedFd; 2], io::Result<()>) {
        let fd = self.fds.call.fd();
        for point in &self.points {
            fd.unwatched_by(point);
            // A call of the last server may have been on its way there.
            point.wake_always();
        }
        let old = [self.fds.kick.renew(kick), fd.renew(call)];
        let watched = self
            .points
            .iter()
            .try_for_each(|point| fd.watched_by(point));
        (old, watched)
    }

    /// Wakes what sleeps over it. Not by what the server calls by, which the server can read before a sleeper does.
    pub fn wake_sleepers(&self) {
        self.points.iter().for_each(WaitPoint::wake_always);
    }
}
