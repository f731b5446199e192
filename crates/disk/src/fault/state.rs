//! What the rules have counted and drawn so far, for all channels of a disk together.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pollux_threads::lock;

use fastrand::Rng;

use super::Delay;
use super::log::Log;
use super::rule::{Action, Asked, Faults, Hang, Keep, Rule, Then};
use crate::{Failure, Op};

/// What is to become of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Its completion is held back for so long.
    pub delay: Duration,
    pub fate: Fate,
}

/// How it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// As the disk below says.
    Below,
    /// It fails, and the disk below hears nothing of it.
    Fails(Failure),
    /// The disk below stores the first so many bytes.
    Torn { bytes: u64, then: Then },
    /// Never.
    Never,
    /// Never, as all that follow.
    DeviceHangs,
}

/// The rules at work.
#[derive(Debug)]
pub struct RuleState {
    rules: Mutex<Vec<Counted>>,
    /// A torn write keeps whole blocks.
    block: u64,
    delays: bool,
    hung: AtomicBool,
    log: Option<Log>,
}

#[derive(Debug)]
struct Counted {
    rule: Rule,
    rng: Rng,
    /// Requests that the rule is about.
    seen: u64,
    /// How often something happened.
    struck: u64,
}

impl RuleState {
    pub fn new(faults: &Faults, block: u32, log: Option<Log>) -> Self {
        let mut seeds = Rng::with_seed(faults.seed);
        let counted = |rule: &Rule| Counted {
            rule: rule.clone(),
            // Of its own, so that one rule's luck does not depend on another's.
            rng: seeds.fork(),
            seen: 0,
            struck: 0,
        };
        let delays = |rule: &Rule| matches!(rule.action, Action::Delay(_));
        Self {
            delays: faults.rules.iter().any(delays),
            rules: Mutex::new(faults.rules.iter().map(counted).collect()),
            block: block.into(),
            hung: AtomicBool::new(false),
            log,
        }
    }

    /// Is there a rule that delays?
    pub fn delays(&self) -> bool {
        self.delays
    }

    /// Has the device stopped answering?
    pub fn hung(&self) -> bool {
        self.hung.load(Ordering::Relaxed)
    }

    /// The device stops answering.
    pub fn hang(&self) {
        self.hung.store(true, Ordering::Relaxed);
    }

    /// Tells the log, if there is one, that `op` reaches the disk below.
    pub fn log(&self, op: &Op) -> Result<(), Failure> {
        self.log.as_ref().map_or(Ok(()), |log| log.tell(op))
    }

    /// What is to become of what is asked for.
    pub fn plan(&self, asked: Asked<'_>) -> Plan {
        let mut plan = Plan {
            delay: Duration::ZERO,
            fate: Fate::Below,
        };
        let mut rules = lock(&self.rules);
        for counted in rules.iter_mut() {
            if !counted.strikes(asked) {
                continue;
            }
            let rng = &mut counted.rng;
            let fate = match counted.rule.action {
                Action::Delay(delay) => {
                    plan.delay = longer(plan.delay, delay.draw(rng));
                    continue;
                }
                Action::Error(failure) => Fate::Fails(failure),
                Action::Hang(Hang::Request) => Fate::Never,
                Action::Hang(Hang::Device) => Fate::DeviceHangs,
                Action::Torn { keep, then } => torn(asked, keep, then, self.block, rng),
            };
            if plan.fate == Fate::Below {
                plan.fate = fate;
            }
        }
        plan
    }
}

fn longer(delay: Duration, more: Duration) -> Duration {
    delay.saturating_add(more).min(Delay::LONGEST)
}

fn torn(asked: Asked<'_>, keep: Keep, then: Then, block: u64, rng: &mut Rng) -> Fate {
    let Asked::Op(Op::Write { from, .. }) = asked else {
        return Fate::Below;
    };
    let all = from.bytes();
    let bytes = match keep {
        Keep::First(bytes) => bytes.min(all),
        Keep::Random => rng.u64(0..(all / block).max(1)) * block,
    };
    Fate::Torn { bytes, then }
}

impl Counted {
    /// Counts what is asked for, if the rule is about it. Does something happen to it?
    fn strikes(&mut self, asked: Asked<'_>) -> bool {
        let when = &self.rule.when;
        if !when.counts(asked) {
            return false;
        }
        self.seen += 1;
        let strikes = self.seen > when.after
            && (self.seen - when.after).is_multiple_of(when.every.get())
            && when.times.is_none_or(|times| self.struck < times)
            && when.chance.draw(&mut self.rng);
        self.struck += u64::from(strikes);
        strikes
    }
}
