//! One channel of a disk that misbehaves, around a channel of the disk below.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use pollux_memory::Loan;
use rustix::io::Errno;
use slab::Slab;
use tracing::warn;

use super::held::Held;
use super::log::described;
use super::rule::{Asked, Then};
use super::state::{Fate, Plan, RuleState};
use super::timer::Timer;
use crate::{Armed, Channel, Completion, Disk, Failure, Op, Queued, Request, Ticket, WaitPoint};

/// How a request ends.
type Outcome = Result<(), Failure>;

/// A request that the disk below works on.
struct Below {
    /// What its owner calls it.
    ticket: Ticket,
    /// Its completion comes so much later.
    delay: Duration,
    /// How it ends if it succeeds.
    then: Outcome,
    /// What is left of a torn write.
    loan: Option<Loan>,
}

/// A channel of a [`Fault`](super::Fault).
///
/// A request that is never answered is simply forgotten once the disk below has ended it, or if it
/// never hears of it: then its memory is used no more.
pub struct FaultChannel {
    channel: Box<dyn Channel>,
    /// By ticket, as the disk below is told it.
    below: Slab<Below>,
    answers: Answers,
    disk: Arc<dyn Disk>,
}

/// Completions on their way to the owner.
struct Answers {
    state: Arc<RuleState>,
    held: Held,
    /// Only where something can be held back.
    timer: Option<Timer>,
}

impl FaultChannel {
    pub fn new(disk: Arc<dyn Disk>, state: Arc<RuleState>, wait: &WaitPoint) -> io::Result<Self> {
        let channel = disk.open_channel(wait)?;
        let timer = state.delays().then(|| Timer::new(wait)).transpose()?;
        Ok(Self {
            channel,
            below: Slab::new(),
            answers: Answers {
                state,
                held: Held::default(),
                timer,
            },
            disk,
        })
    }

    /// Hands a request to the disk below.
    fn pass(&mut self, op: Op, below: Below) -> Queued {
        if let Err(failure) = self.answers.state.log(&op) {
            return queued(self.answers.ended(below, Err(failure)));
        }
        let slot = self.below.vacant_entry();
        let ticket = Ticket(slot.key() as u64);
        match self.channel.queue(Request { ticket, op }) {
            Queued::Pending => {
                slot.insert(below);
                Queued::Pending
            }
            Queued::Done(result) => queued(self.answers.ended(below, result)),
        }
    }

    /// Hands the first `bytes` of a write to the disk below.
    fn tear(&mut self, op: Op, bytes: u64, below: Below) -> Queued {
        let Op::Write {
            at,
            from,
            durability,
        } = op
        else {
            unreachable!("only writes are torn")
        };
        if bytes == 0 {
            return queued(self.answers.ended(below, Ok(())));
        }
        let loan = Loan::first(&from, bytes);
        #[expect(unsafe_code, reason = "a part is lent on")]
        // SAFETY: the loan is kept with the request (`Below`) until that has ended below.
        let from = unsafe { loan.spans() };
        let op = Op::Write {
            at,
            from,
            durability,
        };
        let loan = Some(loan);
        self.pass(op, Below { loan, ..below })
    }
}

/// What its owner is told of a request, if its answer is this.
fn queued(answer: Option<Completion>) -> Queued {
    answer.map_or(Queued::Pending, |answer| Queued::Done(answer.result))
}

impl Answers {
    /// A request has ended below. Is there an answer now?
    fn ended(&mut self, below: Below, result: Outcome) -> Option<Completion> {
        if let Some(loan) = below.loan {
            loan.end();
        }
        let answer = Completion {
            ticket: below.ticket,
            result: result.and(below.then),
        };
        self.hold(below.delay, answer)
    }

    /// Holds `answer` back, unless there is nothing to wait for.
    fn hold(&mut self, delay: Duration, answer: Completion) -> Option<Completion> {
        if self.state.hung() {
            return None;
        }
        if delay.is_zero() {
            return Some(answer);
        }
        self.held.push(Instant::now() + delay, answer);
        None
    }

    /// Gives what is due.
    fn release(&mut self, done: &mut dyn FnMut(Completion)) {
        if self.state.hung() {
            self.held.clear();
        }
        if self.held.first_due().is_none() {
            return;
        }
        let now = Instant::now();
        while let Some(answer) = self.held.pop(now) {
            self.set_timer(None);
            done(answer);
        }
    }

    fn set_timer(&mut self, due: Option<Instant>) {
        if let Some(timer) = &mut self.timer {
            timer.set(due);
        }
    }
}

fn told(fault: &str, op: &Op) {
    let (doing, at, len) = described(op);
    warn!(doing, at, len, "as the `fault` disk was told: {fault}");
}

// SAFETY: a request ends when the channel below has ended it, or was never shown it. It holds on to tickets, not to
// memory.
#[expect(unsafe_code, reason = "the promise of a channel")]
unsafe impl Channel for FaultChannel {
    fn queue(&mut self, request: Request) -> Queued {
        let Request { ticket, op } = request;
        if let Err(failure) = self.disk.geometry().check(&op) {
            return Queued::Done(Err(failure));
        }
        if self.answers.state.hung() {
            return Queued::Pending;
        }
        let Plan { delay, fate } = self.answers.state.plan(Asked::Op(&op));
        let below = |then| Below {
            ticket,
            delay,
            then,
            loan: None,
        };
        match fate {
            Fate::Below => self.pass(op, below(Ok(()))),
            Fate::Fails(failure) => {
                told("it fails", &op);
                queued(self.answers.ended(below(Err(failure)), Ok(())))
            }
            Fate::Torn { bytes, then } => {
                told("it is torn", &op);
                let then = match then {
                    Then::Fail => Err(Failure::Io(Errno::IO)),
                    Then::Ok => Ok(()),
                    Then::Hang => {
                        self.answers.state.hang();
                        Ok(())
                    }
                };
                self.tear(op, bytes, below(then))
            }
            Fate::Never => {
                told("it is never answered", &op);
                Queued::Pending
            }
            Fate::DeviceHangs => {
                told("nothing is answered any more", &op);
                self.answers.state.hang();
                Queued::Pending
            }
        }
    }

    fn submit(&mut self) {
        self.channel.submit();
    }

    fn reap(&mut self, done: &mut dyn FnMut(Completion)) {
        let Self {
            channel,
            below,
            answers,
            ..
        } = self;
        channel.reap(&mut |ended| {
            let slot = usize::try_from(ended.ticket.0).expect("a ticket of ours is a slot");
            if let Some(answer) = answers.ended(below.remove(slot), ended.result) {
                done(answer);
            }
        });
        answers.release(done);
    }

    fn arm(&mut self) -> Armed {
        let armed = self.channel.arm();
        if armed != Armed::Idle {
            return armed;
        }
        let due = self.answers.held.first_due();
        if due.is_some_and(|due| due <= Instant::now()) {
            return Armed::Pending;
        }
        self.answers.set_timer(due);
        Armed::Idle
    }

    fn replacements(&self) -> Option<u64> {
        self.channel.replacements()
    }
}

/// To the owner of a device that hangs there are requests in flight for ever. Those that the disk below
/// works on do end: what they use must not go before.
impl Drop for FaultChannel {
    fn drop(&mut self) {
        while self.answers.state.hung() && !self.below.is_empty() {
            self.submit();
            self.reap(&mut |_| ());
            thread::sleep(Duration::from_millis(1));
        }
    }
}
