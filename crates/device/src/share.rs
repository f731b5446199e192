//! One session's share of a worker: a channel into its disk, and those of its queues that run here.

use std::os::fd::AsFd;
use std::sync::Arc;

use crossbeam_channel::Sender;
use pollux_disk::wait::{WaitPoint, Watch};
use pollux_disk::{Armed, Channel, Completion};
use pollux_memory::Memory;

use crate::call::Call;
use crate::poll::Progress;
use crate::queue::{BUDGET, Queue};
use crate::rota::Rota;
use crate::tuning::{Kicks, Signal, Tuning};
use crate::worker::SessionId;

/// A session's share.
pub struct Share {
    session: SessionId,
    channel: Box<dyn Channel>,
    /// The worker's, where kicks are watched.
    point: WaitPoint,
    /// By position, which tickets carry; a stopped queue leaves its place to the next.
    queues: Vec<Option<Box<Queue>>>,
    /// Whose turn it is to be looked at.
    rota: Rota,
    /// Positions with completions that are staged and not published.
    touched: Vec<u16>,
    /// Positions of queues that are to stop, and who waits for it.
    stopping: Vec<(u16, Sender<u16>)>,
}

impl Share {
    pub fn new(session: SessionId, channel: Box<dyn Channel>, point: WaitPoint) -> Self {
        Self {
            session,
            channel,
            point,
            queues: Vec::new(),
            rota: Rota::default(),
            touched: Vec::new(),
            stopping: Vec::new(),
        }
    }

    pub fn session(&self) -> SessionId {
        self.session
    }

    /// The queues that a sleep concerns: not those that are dormant.
    pub fn alert_queues(&self) -> impl Iterator<Item = &Queue> {
        self.rota
            .alert()
            .filter_map(|position| self.queues[usize::from(position)].as_deref())
    }

    /// One turn: completions first, then new chains.
    pub fn turn(&mut self, tuning: Tuning) -> Progress {
        let early = tuning.signal == Signal::CompletionsFirst;
        let completions = self.reap();
        if early {
            self.publish_touched();
        }
        if tuning.kicks == Kicks::PerTurn {
            self.disarm();
        }
        let chains = self.take(early);
        // Even where nothing was taken: what was reaped may have a sequel.
        self.channel.submit();
        if !early {
            self.publish_all();
        }
        if tuning.kicks == Kicks::PerTurn {
            // What arming finds is found by the next turn as well.
            let _ = self.arm();
        }
        if !self.stopping.is_empty() {
            self.finish_stopping();
        }
        Progress {
            chains,
            completions,
            commands: false,
        }
    }

    /// Takes new chains, as many as the turn allows; shows what has ended of a queue before the next one's
    /// are taken, if that is `early`. Returns how many were taken.
    fn take(&mut self, early: bool) -> u16 {
        let (queues, channel) = (&mut self.queues, &mut *self.channel);
        let mut left = BUDGET;
        self.rota.turn(|position| {
            if left == 0 {
                return None;
            }
            let queue = queues[usize::from(position)].as_mut();
            let queue = queue.expect("a place in the rota is taken");
            let taken = queue.take(position, left, channel);
            left -= taken.min(left);
            if early {
                queue.publish();
            }
            Some(taken)
        })
    }

    /// Tells the queues what the disk has finished. How much was there?
    fn reap(&mut self) -> u16 {
        let mut reaped = 0_u16;
        let (queues, touched) = (&mut self.queues, &mut self.touched);
        self.channel.reap(&mut |Completion { ticket, result }| {
            reaped = reaped.saturating_add(1);
            let (position, slot) = Queue::of_ticket(ticket);
            let queue = queues[usize::from(position)]
                .as_mut()
                .expect("a queue stays until nothing is in flight");
            if !queue.staged() {
                touched.push(position);
            }
            queue.complete(slot, result);
        });
        reaped
    }

    fn publish_touched(&mut self) {
        for position in self.touched.drain(..) {
            if let Some(queue) = &mut self.queues[usize::from(position)] {
                queue.publish();
            }
        }
    }

    fn publish_all(&mut self) {
        self.touched.clear();
        for queue in self.queues.iter_mut().flatten() {
            queue.publish();
        }
    }

    /// Turns the kicks of all queues on, and looks at them and at the channel once more; not at those that are dormant,
    /// whose kicks are on. Is there nothing?
    pub fn arm(&mut self) -> bool {
        let mut idle = true;
        for position in self.rota.alert() {
            if let Some(queue) = &mut self.queues[usize::from(position)] {
                idle &= queue.arm() == pollux_ring::Armed::Idle;
            }
        }
        // Queues that stop wait for their last completion, which the channel announces.
        idle & (self.channel.arm() == Armed::Idle)
    }

    /// Looks at all queues in the next turn, but for those that are dormant.
    pub fn rouse(&mut self) {
        self.rota.rouse();
    }

    /// The queue at `position` has kicked.
    pub fn kicked(&mut self, position: u16) {
        if let Some(Some(queue)) = self.queues.get(usize::from(position)) {
            queue.drain_kicks();
            self.rota.kicked(position);
        }
    }

    /// A sleep is over, or was to be: turns the kicks of all queues off, and looks at them in the next turn. Those that
    /// have brought nothing for long are left alone, with their kicks on.
    pub fn slept(&mut self) {
        let queues = &self.queues;
        self.rota.slept(|position| {
            let queue = queues[usize::from(position)].as_ref();
            queue.is_some_and(|queue| queue.is_armed())
        });
        self.disarm();
    }

    /// Turns the kicks of all queues off, but for those that are dormant.
    fn disarm(&mut self) {
        for position in self.rota.alert() {
            if let Some(queue) = &mut self.queues[usize::from(position)] {
                queue.disarm();
            }
        }
    }

    /// Runs `queue`. It is looked at in the next turn, whether it was kicked or not.
    pub fn start(&mut self, queue: Box<Queue>) {
        let position = self
            .queues
            .iter()
            .position(Option::is_none)
            .unwrap_or_else(|| {
                self.queues.push(None);
                self.queues.len() - 1
            });
        if let Some(kick) = queue.kick() {
            let name = watch_of(self.session, position);
            if let Err(error) = self.point.watch(kick.as_fd(), name) {
                tracing::warn!(queue = queue.index(), %error, "kicks of this queue wake nobody: its descriptor cannot be waited for");
            }
        }
        self.queues[position] = Some(queue);
        let position =
            u16::try_from(position).expect("a session has no more queues than a u16 counts");
        self.rota.add(position);
    }

    /// Lets queue `index` end what it has taken; tells `stopped` the index of the next chain then.
    pub fn stop(&mut self, index: u16, stopped: Sender<u16>) {
        for (position, queue) in (0u16..).zip(&mut self.queues) {
            if let Some(queue) = queue.as_mut().filter(|queue| queue.index() == index) {
                queue.drain();
                self.stopping.push((position, stopped));
                break;
            }
        }
        self.finish_stopping();
    }

    fn finish_stopping(&mut self) {
        let (queues, point, rota) = (&mut self.queues, &self.point, &mut self.rota);
        self.stopping.retain(|(position, stopped)| {
            let place = &mut queues[usize::from(*position)];
            let queue = place
                .as_mut()
                .expect("a queue that stops is there until it has stopped");
            let Some(next) = queue.drained() else {
                return true;
            };
            queue.publish();
            queue.drain_kicks();
            if let Some(kick) = queue.kick() {
                // It was not watched if that failed when it started.
                let _ = point.unwatch(kick.as_fd());
            }
            *place = None;
            rota.remove(*position);
            // A session that has gone does not wait for the answer.
            let _ = stopped.send(next);
            false
        });
    }

    pub fn set_call(&mut self, index: u16, call: Option<Call>) {
        if let Some(queue) = self
            .queues
            .iter_mut()
            .flatten()
            .find(|queue| queue.index() == index)
        {
            queue.set_call(call);
        }
    }

    pub fn set_memory(&mut self, memory: &Arc<Memory>) {
        for queue in self.queues.iter_mut().flatten() {
            queue.set_memory(Arc::clone(memory));
        }
    }
}

/// What the kicks of a queue are called at the worker's wait point.
fn watch_of(session: SessionId, position: usize) -> Watch {
    Watch(u64::from(session.0) << 16 | position as u64)
}

/// The queue has kicked whose kicks are called `watch`.
pub fn kicked(shares: &mut [Share], watch: Watch) {
    let share = shares
        .iter_mut()
        .find(|share| u64::from(share.session.0) == watch.0 >> 16);
    if let (Some(share), Ok(position)) = (share, u16::try_from(watch.0 & 0xffff)) {
        share.kicked(position);
    }
}
