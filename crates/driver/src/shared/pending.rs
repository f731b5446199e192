//! One request on a shared queue, to be waited for, awaited or polled.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use pollux_disk::Failure;
use pollux_disk::wait::give_way;
use pollux_memory::Spans;
use rustix::io::Errno;

use crate::memory::data::{Data, Direction};
use crate::notify::polling::{Next, Polling};
use crate::options::CompletionMode;
use crate::requests::command::Command;
use crate::shared::completion_state::CompletionState;
use crate::shared::owner::{Held, Waits};
use crate::shared::room::Turn;
use crate::shared::state::Shared;
use crate::shared::wakeups::Wakeups;

/// A request that is on its way, with the memory that was lent with it.
///
/// It was handed to the device when it was made, or waits for room in the queue: then it is handed over
/// when it is polled, waited for or awaited. Three ways to its end, all of which mix on one queue:
///
/// - [`Pending::is_done`] polls once, and never sleeps;
/// - [`Pending::wait`] polls for as long as that has paid lately on this queue, then sleeps;
/// - `.await` in a task, while something [drives](crate::Readiness) the queue.
///
/// Dropping it abandons the request, not the memory: that stays lent until the request has ended.
#[must_use = "the request is on its way, and its result would be lost"]
pub struct Pending<D: Data> {
    shared: Arc<Shared>,
    stage: Stage<D>,
    direction: Direction,
}

/// A request that has failed, and the memory that was lent with it.
///
/// `?` turns it into a [`Failure`] or an [`io::Error`] and drops the memory.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("the request failed")]
pub struct Failed<D> {
    /// Why it failed.
    #[source]
    pub failure: Failure,
    /// What was lent, unless the device is gone and may still write to it ([`Failure::Lost`]). What a failed read has
    /// left in a buffer is not specified.
    pub data: Option<D>,
}

impl<D> fmt::Debug for Failed<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Failed").field(&self.failure).finish()
    }
}

impl<D> From<Failed<D>> for Failure {
    fn from(failed: Failed<D>) -> Self {
        failed.failure
    }
}

impl<D> From<Failed<D>> for io::Error {
    fn from(failed: Failed<D>) -> Self {
        failed.failure.into()
    }
}

enum Stage<D: Data> {
    /// Its memory could not be lent.
    Kept(D, Failure),
    /// How it ends was known before the device was asked.
    Foreseen(Arc<Lent<D>>, Result<(), Failure>),
    /// There is no room for it.
    Waiting(Arc<Lent<D>>, Option<Turn>),
    /// The device has it.
    InFlight(Arc<Lent<D>>),
    /// Its end was told.
    Over,
}

/// A request and what was lent with it. The queue has one reference while it is in flight.
struct Lent<D: Data> {
    state: CompletionState<D::Lent>,
    /// But for its memory, which is `spans`.
    command: Command,
    completion: CompletionMode,
    /// Neither moves nor changes: it is lent in place.
    spans: D::Spans,
}

impl<D: Data> Held for Lent<D> {
    fn completion(&self) -> CompletionMode {
        self.state.completion()
    }

    fn end(&self, result: Result<(), Failure>, wakes: &mut Wakeups) {
        if result == Err(Failure::Lost)
            && let Some(lent) = self.state.take_lent()
        {
            D::retire(lent);
        }
        self.state.end(result, wakes);
    }
}

impl<D: Data> Lent<D> {
    /// What it asks for.
    ///
    /// # Safety
    ///
    /// The user of what this returns has a reference to this until the request has ended.
    unsafe fn command(self: &Arc<Self>) -> Command {
        // SAFETY: the list does not change, and it is where it is until the last reference is gone.
        self.command
            .with_data(unsafe { Spans::new(self.spans.as_ref()) })
    }
}

impl<D: Data> fmt::Debug for Lent<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lent")
            .field("command", &self.command)
            .field("result", &self.state.result())
            .finish_non_exhaustive()
    }
}

impl<D: Data> Pending<D> {
    /// A request with `data`; `command` says what to do with that, and names no memory.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        data: D,
        direction: Direction,
        completion: CompletionMode,
        command: Command,
    ) -> Self {
        let shared = Arc::clone(shared);
        let pool = shared.board.transport().queue().device().pool();
        let lent = match data.lend(pool, direction) {
            Ok(lent) => lent,
            Err((data, error)) => {
                tracing::debug!(%error, "no memory for a copy");
                let stage = Stage::Kept(data, Failure::Io(Errno::NOMEM));
                return Self {
                    shared,
                    stage,
                    direction,
                };
            }
        };
        // SAFETY: the data stays in `Lent`, of which the queue has a reference while the request is in flight, until
        // that has ended: `Pending::end`. Where it is retired, its owner has given the memory up.
        let spans = unsafe { D::spans(&lent) };
        let lent = Arc::new(Lent {
            state: CompletionState::new(completion, lent),
            command,
            completion,
            spans,
        });
        let mut pending = Self {
            shared,
            stage: Stage::Waiting(lent, None),
            direction,
        };
        pending.submit();
        pending
    }

    /// Hands a request that waits for room to the device, if there is some.
    fn submit(&mut self) {
        let Stage::Waiting(lent, turn) = &mut self.stage else {
            return;
        };
        let mut foreseen = None;
        let room = self.shared.board.submit(turn, |ends, policy| {
            let held: Arc<dyn Held> = Arc::<Lent<D>>::clone(lent);
            // SAFETY: the queue has `held` until the request has ended, and a request that is not accepted has.
            let command = unsafe { lent.command() };
            match ends.core.accept(command, Waits::Handle(held)) {
                Ok(()) => policy.begin(lent.completion),
                Err((_, result)) => foreseen = Some(result),
            }
        });
        if !room {
            return;
        }
        let lent = Arc::clone(lent);
        self.stage = match foreseen {
            Some(result) => Stage::Foreseen(lent, result),
            None => Stage::InFlight(lent),
        };
    }

    /// Looks once, and completes for everybody what the device has finished: has this request ended? It
    /// never sleeps.
    pub fn is_done(&mut self) -> bool {
        self.submit();
        match &self.stage {
            Stage::Kept(..) | Stage::Foreseen(..) | Stage::Over => true,
            Stage::Waiting(..) => {
                self.shared.board.poll();
                false
            }
            Stage::InFlight(lent) => {
                lent.state.has_ended() || {
                    self.shared.board.poll();
                    lent.state.has_ended()
                }
            }
        }
    }

    /// Waits until the request has ended: polls for as long as that has paid lately on this queue, then
    /// asks for a call and sleeps. One that is call-driven sleeps at once.
    ///
    /// # Errors
    ///
    /// How the request failed, with its memory; [`Failure::Lost`], without it, when the device is gone
    /// ([`Driver::lost`](crate::Driver::lost) says why).
    pub fn wait(mut self) -> Result<D, Failed<D>> {
        if self.is_done() {
            return self.end();
        }
        if self.completion() == Some(CompletionMode::Call) {
            return self.sleep();
        }
        let shared = Arc::clone(&self.shared);
        let clock = || shared.started.elapsed();
        let mut polls = shared.polling.begin();
        if self.polls(&mut polls) {
            shared.polling.end(polls, clock);
            return self.end();
        }
        let slept = shared.polling.sleep(polls);
        let result = self.sleep();
        shared.polling.wake(slept, clock);
        result
    }

    /// Polls for as long as that pays: has it ended?
    fn polls(&mut self, polls: &mut Polling) -> bool {
        let started = self.shared.started;
        loop {
            match polls.empty(started.elapsed()) {
                Next::Poll => std::hint::spin_loop(),
                Next::Yield => {
                    let yielded = give_way();
                    polls.gave_way(started.elapsed(), yielded);
                }
                Next::Sleep => return false,
            }
            if self.is_done() {
                return true;
            }
        }
    }

    fn sleep(mut self) -> Result<D, Failed<D>> {
        let shared = Arc::clone(&self.shared);
        shared.board.block(|waker| self.poll_with(waker))
    }

    fn completion(&self) -> Option<CompletionMode> {
        match &self.stage {
            Stage::Waiting(lent, _) | Stage::InFlight(lent) => Some(lent.completion),
            Stage::Kept(..) | Stage::Foreseen(..) | Stage::Over => None,
        }
    }

    fn poll_with(&mut self, waker: &Waker) -> Poll<Result<D, Failed<D>>> {
        loop {
            if self.is_done() {
                return Poll::Ready(self.end());
            }
            match &mut self.stage {
                Stage::Waiting(_, turn) => {
                    if self.shared.board.poll_room(turn, waker).is_pending() {
                        return Poll::Pending;
                    }
                }
                Stage::InFlight(lent) => {
                    if self.shared.board.poll_end(&lent.state, waker).is_pending() {
                        return Poll::Pending;
                    }
                }
                Stage::Kept(..) | Stage::Foreseen(..) | Stage::Over => {}
            }
        }
    }

    /// How it has ended, with its memory.
    fn end(&mut self) -> Result<D, Failed<D>> {
        let (lent, result) = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Kept(data, failure) => {
                return Err(Failed {
                    failure,
                    data: Some(data),
                });
            }
            Stage::Foreseen(lent, result) => (lent, result),
            Stage::InFlight(lent) => {
                let result = lent.state.result().expect("asked when it has ended");
                (lent, result)
            }
            Stage::Waiting(..) | Stage::Over => {
                panic!("a request is not waited for after its end")
            }
        };
        // What failed has no data that would have to be copied.
        let direction = match result {
            Ok(()) => self.direction,
            Err(_) => Direction::Out,
        };
        let data = lent.state.take_lent();
        let data = data.map(|data| D::take_back(data, direction));
        match (result, data) {
            // It was registered with another device, and copied from and to here.
            (Ok(()), Some(data)) if data.is_torn() => Err(Failed {
                failure: Failure::Io(Errno::FAULT),
                data: Some(data),
            }),
            (Ok(()), data) => Ok(data.expect("only a device that is gone keeps memory")),
            (Err(failure), data) => Err(Failed { failure, data }),
        }
    }
}

impl<D: Data> Future for Pending<D> {
    type Output = Result<D, Failed<D>>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.get_mut().poll_with(context.waker())
    }
}

impl<D: Data> Unpin for Pending<D> {}

impl<D: Data> Drop for Pending<D> {
    fn drop(&mut self) {
        match &self.stage {
            Stage::Waiting(_, Some(turn)) => self.shared.board.leave_room(*turn),
            Stage::InFlight(lent) if !lent.state.has_ended() => {
                self.shared.board.forsake(&lent.state);
            }
            _ => {}
        }
    }
}

impl<D: Data> fmt::Debug for Pending<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match &self.stage {
            Stage::Kept(_, failure) => return f.debug_tuple("Kept").field(failure).finish(),
            Stage::Foreseen(_, result) => {
                return f.debug_tuple("Foreseen").field(result).finish();
            }
            Stage::Waiting(lent, _) => ("Waiting", lent),
            Stage::InFlight(lent) => ("InFlight", lent),
            Stage::Over => return f.write_str("Over"),
        };
        f.debug_tuple(stage.0).field(stage.1).finish()
    }
}
