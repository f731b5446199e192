//! One thread that serves any number of queues.
//!
//! A turn, in this order: reap what the disks have finished, show it to the drivers, take new chains,
//! submit them, show what finished at once. The worker sleeps only when a whole turn found nothing
//! and the polling policy has had enough; kicks are turned on at that one place, right before the
//! sleep, and everything is looked at once more after it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use pollux_disk::Channel;
use pollux_disk::wait::{Sleeper, WaitPoint};
use pollux_memory::Memory;

use crate::call::Call;
use crate::poll::{Policy, Progress, Wait};
use crate::prices;
use crate::queue::Queue;
use crate::rota::Rota;
use crate::share::{Share, kicked};
use crate::tuning::Tuning;

/// Names one session's share of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionId(pub u32);

/// What a session asks of a worker.
pub enum Command {
    /// Queues of this session follow; their requests go through this channel.
    Open {
        session: SessionId,
        channel: Box<dyn Channel>,
    },
    /// Run this queue: look at it without waiting for a kick.
    Start {
        session: SessionId,
        queue: Box<Queue>,
    },
    /// Take nothing more from queue `index`, and answer with the next available index once all that
    /// was taken has ended.
    Stop {
        session: SessionId,
        index: u16,
        stopped: Sender<u16>,
    },
    /// Call the driver of queue `index` through this from now on. Answered once nobody calls through
    /// the old one any more.
    SetCall {
        session: SessionId,
        index: u16,
        call: Option<Call>,
        done: Sender<()>,
    },
    /// Memory was added. Answered once no queue resolves by the old table any more.
    SetMemory {
        session: SessionId,
        memory: Arc<Memory>,
        done: Sender<()>,
    },
    /// All queues of this session have stopped: answer once its channel is closed.
    Close {
        session: SessionId,
        done: Sender<()>,
    },
    /// End the thread.
    End,
}

/// The loop's state.
pub struct Worker {
    commands: Receiver<Command>,
    sleeper: Sleeper,
    shares: Vec<Share>,
    /// Which share's turn it is.
    rota: Rota,
    policy: Policy,
    tuning: Tuning,
    epoch: Instant,
    turns: u32,
    ended: bool,
}

/// Commands are looked for in every turn without progress, and in every so many with.
const COMMANDS_EVERY: u32 = 32;

impl Worker {
    pub fn new(commands: Receiver<Command>, tuning: Tuning) -> std::io::Result<Self> {
        Ok(Self {
            commands,
            sleeper: Sleeper::new()?,
            shares: Vec::new(),
            rota: Rota::default(),
            policy: Policy::new(tuning.polling, tuning.poll_bounds, prices::of_a_sleep()),
            tuning,
            epoch: Instant::now(),
            turns: 0,
            ended: false,
        })
    }

    pub fn point(&self) -> &WaitPoint {
        self.sleeper.point()
    }

    /// Turns until it is told to end.
    pub fn run(mut self) {
        let epoch = self.epoch;
        loop {
            let progress = self.turn();
            if self.ended {
                return;
            }
            let wait = self.policy.after_turn(progress, || epoch.elapsed());
            match wait {
                _ if self.shares.is_empty() => self.rest(),
                Wait::Block => self.rest(),
                Wait::Yield => self.give_way(),
                Wait::Spin if progress.any() => {}
                Wait::Spin => std::hint::spin_loop(),
            }
        }
    }

    /// One turn. What did it bring?
    pub fn turn(&mut self) -> Progress {
        let mut progress = Progress::NONE;
        let (shares, tuning) = (&mut self.shares, self.tuning);
        self.rota.turn(|place| {
            let turn = shares[usize::from(place)].turn(tuning);
            progress = progress | turn;
            Some(turn.chains.max(turn.any().into()))
        });
        self.turns = self.turns.wrapping_add(1);
        if !progress.any() || self.turns.is_multiple_of(COMMANDS_EVERY) {
            progress.commands = self.obey();
        }
        progress
    }

    /// Does what it is told. Was it told anything?
    fn obey(&mut self) -> bool {
        let mut any = false;
        while let Ok(command) = self.commands.try_recv() {
            any = true;
            self.carry_out(command);
        }
        if any {
            self.rouse();
        }
        any
    }

    /// Looks at everything in the next turn.
    fn rouse(&mut self) {
        self.rota.rouse();
        self.shares.iter_mut().for_each(Share::rouse);
    }

    fn carry_out(&mut self, command: Command) {
        match command {
            Command::Open { session, channel } => {
                self.shares
                    .push(Share::new(session, channel, self.sleeper.point().clone()));
                self.renew_rota();
            }
            Command::Start { session, queue } => self.share(session).start(queue),
            Command::Stop {
                session,
                index,
                stopped,
            } => self.share(session).stop(index, stopped),
            Command::SetCall {
                session,
                index,
                call,
                done,
            } => {
                self.share(session).set_call(index, call);
                let _ = done.send(());
            }
            Command::SetMemory {
                session,
                memory,
                done,
            } => {
                self.share(session).set_memory(&memory);
                let _ = done.send(());
            }
            Command::Close { session, done } => {
                self.shares.retain(|share| share.session() != session);
                self.renew_rota();
                let _ = done.send(());
            }
            Command::End => self.ended = true,
        }
    }

    /// Shares have other places now.
    fn renew_rota(&mut self) {
        self.rota = Rota::default();
        for (place, _) in (0u16..).zip(&self.shares) {
            self.rota.add(place);
        }
    }

    fn share(&mut self, session: SessionId) -> &mut Share {
        let share = self
            .shares
            .iter_mut()
            .find(|share| share.session() == session);
        share.expect("a session opens its share first and closes it last")
    }

    /// Lets others run who wait for this processor.
    fn give_way(&mut self) {
        let before = self.epoch.elapsed();
        std::thread::yield_now();
        self.policy.gave_way(before, self.epoch.elapsed());
    }

    /// Turns the kicks on, looks once more, and sleeps unless that look found something.
    fn rest(&mut self) {
        self.sleeper.arm();
        let mut idle = self.commands.is_empty();
        for share in &mut self.shares {
            idle &= share.arm();
        }
        if idle {
            self.sleep();
        } else {
            self.sleeper.disarm();
        }
        self.rota.rouse();
        self.shares.iter_mut().for_each(Share::slept);
    }

    fn sleep(&mut self) {
        let before = self.epoch.elapsed();
        let shares = &mut self.shares;
        let slept = self.sleeper.sleep(None, |watch| kicked(shares, watch));
        if let Err(error) = slept {
            tracing::error!(%error, "the wait point failed");
        }
        let now = self.epoch.elapsed();
        if let Some(late) = self.sleeper.late() {
            prices::WOKEN.paid(late);
        }
        self.policy.woke(now, prices::of_a_sleep());
        for queue in self.shares.iter().flat_map(Share::alert_queues) {
            queue.stats().sleeps.add(1);
            queue
                .stats()
                .asleep_ns
                .add(nanoseconds(now.saturating_sub(before)));
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
