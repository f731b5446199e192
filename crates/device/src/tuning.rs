//! The mechanisms as values, so that each can be measured on and off in one run.

use crate::poll::{Bounds, Polling};

/// When are completions shown to the driver?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Signal {
    /// Before new chains are taken: the driver handles them meanwhile.
    #[default]
    CompletionsFirst,
    /// After new chains were submitted: once a turn.
    AfterSubmissions,
}

/// When may the driver kick?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kicks {
    /// Only while the worker sleeps, and on queues that are idle.
    #[default]
    OffWhileAwake,
    /// Between the turns of the loop.
    PerTurn,
}

/// When is a driver called that has asked for it?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Calls {
    /// Once it sends nothing more, where that makes more requests a second; else at once.
    #[default]
    WhenQuiet,
    /// At once.
    AtOnce,
}

/// How a worker works.
///
/// ```
/// # use pollux_device::{Polling, Tuning};
/// let tuning = Tuning::default().polling(Polling::Never);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tuning {
    /// When does it poll?
    pub polling: Polling,
    /// How much at most, when that is [`Polling::Adaptive`]?
    pub poll_bounds: Bounds,
    /// When are completions shown?
    pub signal: Signal,
    /// When are kicks on?
    pub kicks: Kicks,
    /// When are drivers called? At once where polling is [`Polling::Never`].
    pub calls: Calls,
}

impl Tuning {
    /// This with other [`polling`](#structfield.polling).
    #[must_use]
    pub fn polling(mut self, polling: Polling) -> Self {
        self.polling = polling;
        self
    }

    /// This with other [`poll_bounds`](#structfield.poll_bounds).
    #[must_use]
    pub fn poll_bounds(mut self, poll_bounds: Bounds) -> Self {
        self.poll_bounds = poll_bounds;
        self
    }

    /// This with other [`signal`](#structfield.signal).
    #[must_use]
    pub fn signal(mut self, signal: Signal) -> Self {
        self.signal = signal;
        self
    }

    /// This with other [`kicks`](#structfield.kicks).
    #[must_use]
    pub fn kicks(mut self, kicks: Kicks) -> Self {
        self.kicks = kicks;
        self
    }

    /// This with other [`calls`](#structfield.calls).
    #[must_use]
    pub fn calls(mut self, calls: Calls) -> Self {
        self.calls = calls;
        self
    }

    /// When drivers are called: at once by a worker that does not poll, which gains nothing by waiting.
    pub(crate) fn calls_when(self) -> Calls {
        match self.polling {
            Polling::Never => Calls::AtOnce,
            Polling::Adaptive | Polling::Always => self.calls,
        }
    }
}
