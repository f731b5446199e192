//! A session on one worker: a channel into its disk, and those of its queues that run here.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Sender;
use pollux_disk::wait::Watch;
use pollux_disk::{Armed, Channel, Completion};
use pollux_memory::Memory;

use super::active::Active;
use super::command::{Notifier, SessionId};
use crate::poll::{Polling, Progress};
use crate::queue::{Budget, Dirty, Queue};
use crate::tuning::{Kicks, Signal, Tuning};

/// A session's queues on one worker.
pub struct SessionQueues {
    id: SessionId,
    channel: Box<dyn Channel>,
    /// By position, which tickets carry; a stopped queue leaves its position to the next.
    queues: Vec<Option<Box<Queue>>>,
    /// Those that each turn polls.
    active: Active,
    /// Positions of queues that are kicked through pipes.
    piped: Vec<u16>,
    /// Positions with completions that are staged and not published.
    touched: Vec<u16>,
    /// Positions of queues that are to stop, and where to say that they have.
    stopping: Vec<(u16, Sender<u16>)>,
    /// The channel wants to be reaped, whatever is in flight: another server has taken the place of the disk's, say.
    is_called: bool,
    is_limited: bool,
    /// Has a queue been kicked?
    is_kicked: bool,
}

impl SessionQueues {
    pub fn new(id: SessionId, channel: Box<dyn Channel>) -> Self {
        Self {
            id,
            channel,
            queues: Vec::new(),
            active: Active::default(),
            piped: Vec::new(),
            touched: Vec::new(),
            stopping: Vec::new(),
            is_called: false,
            is_limited: false,
            is_kicked: false,
        }
    }

    /// Its queues have stopped.
    pub fn into_channel(self) -> Box<dyn Channel> {
        self.channel
    }

    pub fn id(&self) -> SessionId {
        self.id
    }

    /// The queues that a sleep concerns: not those that are idle.
    pub fn active_queues(&self) -> impl Iterator<Item = &Queue> {
        self.active
            .iter()
            .filter_map(|position| self.queues[usize::from(position)].as_deref())
    }

    fn for_active_queues(&mut self, mut what: impl FnMut(&mut Queue)) {
        for position in self.active.iter() {
            if let Some(queue) = &mut self.queues[usize::from(position)] {
                what(queue);
            }
        }
    }

    /// Is there nothing that a turn could find?
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.active.is_empty() && self.stopping.is_empty() && !self.is_called
    }

    /// Is one of its queues kicked through a pipe?
    pub fn has_pipes(&self) -> bool {
        !self.piped.is_empty()
    }

    /// Is one of its queues idle?
    pub fn has_idle(&self) -> bool {
        self.active.has_idle()
    }

    /// Did limits cut the last turn short?
    #[inline]
    pub fn is_limited(&self) -> bool {
        self.is_limited
    }

    /// Does the first of its queues wait for tokens? Those behind it are asked by
    /// [`SessionQueues::only_waits_for_tokens`].
    #[inline]
    pub fn waits_for_tokens(&self) -> bool {
        let first = self.active_queues().next();
        first.is_some_and(Queue::only_waits_for_tokens)
    }

    /// Is every queue that could have work kept waiting by its limits, with nothing in flight? One of several sessions
    /// may have none at all.
    pub fn only_waits_for_tokens(&self) -> bool {
        let all = self.active_queues().all(Queue::only_waits_for_tokens);
        all && self.stopping.is_empty() && !self.is_called
    }

    /// For how long at most the worker sleeps: until the first of its queues has tokens.
    pub fn throttled_for(&self) -> Option<Duration> {
        self.active_queues().filter_map(Queue::throttled_for).min()
    }

    /// How many requests of its drivers have not ended.
    pub fn in_flight(&self) -> u32 {
        let queues = self.queues.iter().flatten();
        queues.map(|queue| u32::from(queue.in_flight())).sum()
    }

    /// One turn: completions first, then new chains.
    pub fn turn(&mut self, tuning: Tuning) -> Progress {
        let early = tuning.signal == Signal::CompletionsFirst;
        self.is_called = false;
        let completions = self.reap();
        if early {
            self.publish_touched();
        }
        if tuning.kicks == Kicks::PerTurn {
            self.disarm();
        }
        let (chains, left, is_due) = self.take(early);
        // A worker that never sleeps asks for no kicks.
        if is_due && tuning.polling != Polling::Always {
            self.leave();
        }
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
            completions: completions.saturating_add(left.slices),
            commands: false,
            work: left.spent(),
        }
    }

    /// Takes new chains and goes on with large requests, as far as the turn allows; shows what has ended of a queue
    /// before the next one's are taken, if that is `early`. Returns how many chains were taken, what is left of the
    /// turn, and whether any queue was empty for long.
    fn take(&mut self, early: bool) -> (u16, Budget, bool) {
        let (queues, channel) = (&mut self.queues, &mut *self.channel);
        let (mut chains, mut left) = (0, Budget::default());
        self.is_limited = false;
        let is_limited = &mut self.is_limited;
        let is_due = self.active.turn(&mut left, |position, left| {
            let queue = queues[usize::from(position)].as_mut();
            let queue = queue.expect("the position of an active queue is taken");
            let slices = left.slices;
            let taken = queue.take(position, left, channel);
            chains += taken;
            *is_limited |= left.is_limited();
            if early {
                queue.publish();
            }
            taken.saturating_add(left.slices - slices)
        });
        (chains, left, is_due)
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
        while let Some(position) = self.touched.pop() {
            self.publish(position);
        }
    }

    fn publish_all(&mut self) {
        self.touched.clear();
        for (position, _) in (0u16..).zip(0..self.queues.len()) {
            self.publish(position);
        }
    }

    fn publish(&mut self, position: u16) {
        if let Some(queue) = &mut self.queues[usize::from(position)] {
            queue.publish();
        }
    }

    /// Turns the kicks of all queues on, and polls them and the channel once more; not those that are idle, whose kicks
    /// are on. Is there nothing?
    pub fn arm(&mut self) -> bool {
        let mut idle = true;
        self.for_active_queues(|queue| idle &= queue.arm() == pollux_ring::Armed::Idle);
        // Queues that stop wait for their last completion, which the channel announces.
        self.is_called = self.channel.arm() != Armed::Idle;
        idle && !self.is_called
    }

    /// Makes the calls that wait. Those of queues that are idle do not.
    pub fn release_calls(&mut self) {
        self.for_active_queues(Queue::release);
    }

    /// Queues that were empty for long become idle, once they are armed and nothing has come before that.
    fn leave(&mut self) {
        let queues = &mut self.queues;
        self.active.leave(|position| {
            let queue = queues[usize::from(position)].as_mut();
            queue.is_some_and(|queue| queue.becomes_idle())
        });
    }

    /// Polls the next of the queues that are idle: what is there is taken in the next turn.
    pub fn poll_idle(&mut self) {
        let queues = &mut self.queues;
        self.active.poll_idle(|position| {
            let queue = queues[usize::from(position)].as_mut();
            queue.is_some_and(|queue| queue.ends_idleness())
        });
    }

    /// Polls all queues in the next turn, as if each had kicked.
    pub fn poll_all(&mut self) {
        for (position, _) in (0u16..)
            .zip(&self.queues)
            .filter(|(_, queue)| queue.is_some())
        {
            self.active.kicked(position);
        }
    }

    /// Queue `index` has kicked. One that has stopped, or does not run yet, is polled when it starts. A kick of an idle
    /// queue for nothing changes nothing: it goes on asking for kicks.
    fn kicked(&mut self, index: u16) {
        let positions = (0u16..).zip(&mut self.queues);
        let running = positions.filter_map(|(position, queue)| Some((position, queue.as_mut()?)));
        if let Some((position, queue)) = { running }.find(|(_, queue)| queue.index() == index) {
            queue.kicked();
            if queue.ends_idleness() {
                self.active.kicked(position);
            }
            if !self.is_kicked {
                self.first_kick(usize::from(position));
            }
        }
    }

    /// Memory that a virtual machine does not share holds zeroes here, whatever its driver does.
    #[cold]
    fn first_kick(&mut self, position: usize) {
        self.is_kicked = true;
        let mut queues = self.queues.iter_mut().flatten();
        if queues.all(|queue| queue.is_untouched())
            && let Some(queue) = &self.queues[position]
        {
            queue.warn_of_private_memory();
        }
    }

    /// A sleep is over: turns the kicks of all queues off but for those that were empty for long.
    pub fn slept(&mut self) {
        self.active.slept();
        self.leave();
        self.disarm();
    }

    /// Turns the kicks of all queues off, but for those that are idle.
    pub fn disarm(&mut self) {
        self.for_active_queues(Queue::disarm);
    }

    /// Runs `queue`. It is polled in the next turn, whether it was kicked or not.
    pub fn start(&mut self, queue: Box<Queue>) {
        let position = self
            .queues
            .iter()
            .position(Option::is_none)
            .unwrap_or_else(|| {
                self.queues.push(None);
                self.queues.len() - 1
            });
        let piped = queue.kick().is_some_and(|kick| kick.is_pipe());
        self.queues[position] = Some(queue);
        let position =
            u16::try_from(position).expect("a session has no more queues than a u16 counts");
        if piped {
            self.piped.push(position);
        }
        self.active.add(position);
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
        let (queues, active, piped) = (&mut self.queues, &mut self.active, &mut self.piped);
        self.stopping.retain(|(position, stopped)| {
            let entry = &mut queues[usize::from(*position)];
            let queue = entry
                .as_mut()
                .expect("a queue that stops is there until it has stopped");
            let Some(next) = queue.drained() else {
                return true;
            };
            queue.end();
            *entry = None;
            piped.retain(|piped| piped != position);
            active.remove(*position);
            // A session that has gone does not wait for the answer.
            let _ = stopped.send(next);
            false
        });
    }

    pub fn set_notifier(&mut self, index: u16, notifier: Notifier) {
        let mut queues = self.queues.iter_mut().flatten();
        if let Some(queue) = queues.find(|queue| queue.index() == index) {
            match notifier {
                Notifier::Call(call) => queue.set_call(call),
                Notifier::Error(error) => queue.set_error(error),
            }
        }
    }

    pub fn set_dirty(&mut self, index: u16, dirty: Option<Dirty>) {
        let mut queues = self.queues.iter_mut().flatten();
        if let Some(queue) = queues.find(|queue| queue.index() == index) {
            queue.set_dirty(dirty);
        }
    }

    pub fn set_memory(&mut self, memory: &Arc<Memory>) {
        for queue in self.queues.iter_mut().flatten() {
            queue.set_memory(Arc::clone(memory));
        }
    }
}

/// The queue has kicked whose kicks are called `watch`.
pub fn kicked(sessions: &mut [SessionQueues], watch: Watch) {
    let session = sessions
        .iter_mut()
        .find(|session| u64::from(session.id.0) == watch.0 >> 16);
    if let (Some(session), Ok(index)) = (session, u16::try_from(watch.0 & 0xffff)) {
        session.kicked(index);
    }
}
