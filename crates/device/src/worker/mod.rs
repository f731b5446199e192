//! One thread that serves any number of queues.
//!
//! A turn, in this order: reap what the disks have finished, show it to the drivers, take new chains, submit them, show
//! what finished at once. The worker sleeps only when a whole turn found nothing and the polling policy has had enough.
//! The kicks of active queues are turned on at that one place, right before the sleep, and everything is polled once
//! more after it; those of idle queues stay on.

mod active;
mod command;
mod session_queues;
mod workers;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use pollux_disk::wait::{Neighbours, Sleeper, WaitPoint};
use pollux_stats::WorkerStats;

use crate::poll::{Policy, Polling, Progress, Wait};
use crate::queue::WORK;
use crate::tuning::Tuning;

pub use command::{Command, Notifier, SessionId, watch_of};
pub use session_queues::{SessionQueues, kicked};
pub use workers::{Handle, Workers};

/// The loop's state.
pub struct Worker {
    commands: Receiver<Command>,
    sleeper: Sleeper,
    sessions: Vec<SessionQueues>,
    /// Whose idle queues are polled next.
    idle: usize,
    policy: Policy,
    tuning: Tuning,
    started: Instant,
    turns: u32,
    /// The turn after which others could run last: in a sleep, or as it gave way.
    let_others: u32,
    /// Work since the last sleep, or since kicks were listened for.
    busy: u64,
    ended: bool,
    stats: Arc<WorkerStats>,
}

/// Commands are polled for in every turn without progress, and in every so many with. So often a worker listens for
/// kicks through pipes: a driver may kick one that is awake, and a write to a pipe that is full must not have to wait
/// until the worker sleeps.
const COMMANDS_EVERY: u32 = 32;

/// One turn in so many polls a queue that is idle: in each turn that was 7 % of one that takes a chain.
const IDLE_EVERY: u32 = 4;

/// After so much work a worker listens for the kicks of those that are idle, as if it slept: polled one by one, many of
/// them wait for long behind turns of few large requests. Two turns are as much at most, and as many as
/// [`COMMANDS_EVERY`] that find something, or after which it cannot sleep, at least.
const HEARS_EVERY: u64 = 2 * WORK;

impl Worker {
    pub fn new(commands: Receiver<Command>, tuning: Tuning) -> std::io::Result<Self> {
        Ok(Self {
            commands,
            sleeper: Sleeper::new()?,
            sessions: Vec::new(),
            idle: 0,
            policy: Policy::new(tuning.polling, tuning.poll_bounds),
            tuning,
            started: Instant::now(),
            turns: 0,
            let_others: 0,
            busy: 0,
            ended: false,
            stats: Arc::default(),
        })
    }

    pub fn point(&self) -> &WaitPoint {
        self.sleeper.point()
    }

    /// What it counts, and since when.
    pub fn stats(&self) -> (Arc<WorkerStats>, Instant) {
        (Arc::clone(&self.stats), self.started)
    }

    /// Turns until it is told to end.
    pub fn run(mut self) {
        let started = self.started;
        loop {
            let progress = self.turn();
            if self.ended {
                return;
            }
            let in_flight = || self.sessions.iter().map(SessionQueues::in_flight).sum();
            let wait = self
                .policy
                .after_turn(progress, || started.elapsed(), in_flight);
            if !progress.any() {
                self.count_polls();
            }
            match wait {
                _ if self.sessions.is_empty() => self.rest(),
                Wait::Spin | Wait::Yield if !progress.any() && self.only_waits_for_tokens() => {
                    self.rest();
                }
                Wait::Block => self.rest(),
                Wait::Yield => self.give_way(),
                Wait::Spin if progress.any() => {}
                Wait::Spin => std::hint::spin_loop(),
            }
        }
    }

    /// One turn. What did it find?
    pub fn turn(&mut self) -> Progress {
        let mut progress = Progress::NONE;
        let mut is_limited = false;
        for session in self
            .sessions
            .iter_mut()
            .filter(|session| !session.is_idle())
        {
            progress = progress | session.turn(self.tuning);
            is_limited |= session.is_limited();
        }
        if is_limited {
            // Others may share its limits: which one takes the tokens first changes.
            self.sessions.rotate_left(1);
        }
        self.turns = self.turns.wrapping_add(1);
        self.stats.turns.add(1);
        if self.turns.is_multiple_of(IDLE_EVERY) {
            self.poll_idle();
        }
        if progress.any() {
            self.busy += HEARS_EVERY / u64::from(COMMANDS_EVERY) + progress.work;
        }
        let is_time = self.turns.is_multiple_of(COMMANDS_EVERY);
        if self.busy >= HEARS_EVERY
            || (is_time && self.sessions.iter().any(SessionQueues::has_pipes))
        {
            self.hear();
        }
        if !progress.any() || is_time {
            progress.commands = self.obey();
        }
        progress
    }

    /// Polls the next of the queues that are idle.
    fn poll_idle(&mut self) {
        self.idle = (self.idle + 1) % self.sessions.len().max(1);
        if let Some(session) = self.sessions.get_mut(self.idle) {
            session.poll_idle();
        }
    }

    /// Makes those active again that have kicked while the worker was awake, and empties their pipes.
    #[cold]
    fn hear(&mut self) {
        self.busy = 0;
        let sessions = &mut self.sessions;
        let has_kicks = |session: &SessionQueues| session.has_idle() || session.has_pipes();
        if sessions.iter().any(has_kicks)
            && let Err(error) = self.sleeper.hear(|watch| kicked(sessions, watch))
        {
            tracing::error!(%error, "the wait point failed");
        }
    }

    /// Does what it is told. Was it told anything?
    fn obey(&mut self) -> bool {
        let mut any = false;
        while let Ok(command) = self.commands.try_recv() {
            any = true;
            self.carry_out(command);
        }
        any
    }

    fn carry_out(&mut self, command: Command) {
        match command {
            Command::Open { session, channel } => {
                self.sessions.push(SessionQueues::new(session, channel));
            }
            Command::Start { session, queue } => self.session(session).start(queue),
            Command::Stop {
                session,
                index,
                stopped,
            } => self.session(session).stop(index, stopped),
            Command::SetNotifier {
                session,
                index,
                notifier,
                done,
            } => {
                self.session(session).set_notifier(index, notifier);
                let _ = done.send(());
            }
            Command::SetMemory {
                session,
                memory,
                done,
            } => {
                self.session(session).set_memory(&memory);
                let _ = done.send(());
            }
            Command::SetDirty {
                session,
                index,
                dirty,
                done,
            } => {
                self.session(session).set_dirty(index, dirty);
                let _ = done.send(());
            }
            Command::PollAll { session } => self.session(session).poll_all(),
            Command::Close { session, closed } => {
                let at = self
                    .sessions
                    .iter()
                    .position(|queues| queues.id() == session);
                let at = at.expect("a session is opened first and closed last");
                let _ = closed.send(self.sessions.remove(at).into_channel());
            }
            Command::End => self.ended = true,
        }
    }

    fn session(&mut self, id: SessionId) -> &mut SessionQueues {
        let session = self.sessions.iter_mut().find(|session| session.id() == id);
        session.expect("a session is opened first and closed last")
    }

    /// Lets others run that wait for this processor: for as long as they like, so no call waits for that.
    pub fn give_way(&mut self) {
        self.let_others = self.turns;
        self.sessions
            .iter_mut()
            .for_each(SessionQueues::release_calls);
        let yielded = self.sleeper.give_way();
        self.policy.gave_way(self.started.elapsed(), yielded);
    }

    /// Is there nothing to poll for, but time that has to pass?
    #[inline]
    fn only_waits_for_tokens(&self) -> bool {
        let sessions = &self.sessions;
        self.tuning.polling != Polling::Always
            && sessions.iter().any(SessionQueues::waits_for_tokens)
            && sessions.iter().all(SessionQueues::only_waits_for_tokens)
    }

    /// Turns the kicks on, polls once more, and sleeps unless that poll found something.
    pub fn rest(&mut self) {
        self.sleeper.arm();
        let mut idle = self.commands.is_empty();
        for session in &mut self.sessions {
            idle &= session.arm();
        }
        if idle {
            self.sleep();
            self.sessions.iter_mut().for_each(SessionQueues::slept);
        } else {
            self.sleeper.disarm();
            self.sessions.iter_mut().for_each(SessionQueues::disarm);
            // One that may never sleep, for a queue without kicks, hears those that kick, and lets others run, all the
            // same.
            self.busy += HEARS_EVERY / u64::from(COMMANDS_EVERY);
            if self.turns.wrapping_sub(self.let_others) >= Neighbours::YIELD_EVERY {
                self.give_way();
            }
        }
    }

    fn sleep(&mut self) {
        self.busy = 0;
        self.let_others = self.turns;
        let before = Instant::now();
        self.stats.sleeps.add(1);
        self.stats.asleep.start(self.age_ns(before));
        for queue in self.sessions.iter().flat_map(SessionQueues::active_queues) {
            queue.falls_asleep(before);
        }
        let sessions = &mut self.sessions;
        let timeout = sessions
            .iter()
            .filter_map(SessionQueues::throttled_for)
            .min();
        let slept = self.sleeper.sleep(timeout, |watch| kicked(sessions, watch));
        if let Err(error) = slept {
            tracing::error!(%error, "the wait point failed");
        }
        let now = Instant::now();
        self.policy
            .woke(now.saturating_duration_since(self.started));
        self.stats.asleep.stop(self.age_ns(now));
        let slept = nanoseconds(self.sleeper.slept());
        for queue in self.sessions.iter().flat_map(SessionQueues::active_queues) {
            queue.woke(now, slept);
        }
    }

    fn age_ns(&self, now: Instant) -> u64 {
        nanoseconds(now.saturating_duration_since(self.started))
    }

    /// Counts the time of polls that have found nothing, if it is known by now how long they took.
    #[inline]
    fn count_polls(&mut self) {
        let polled = self.policy.take_polled_ns();
        if polled > 0 {
            self.stats.polling_ns.add(polled);
            let queues = self.sessions.iter().flat_map(SessionQueues::active_queues);
            queues.for_each(|queue| queue.waited(polled));
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
