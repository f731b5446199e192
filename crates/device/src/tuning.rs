//! The mechanisms as values, so that each can be measured on and off in one run.

use crate::poll::{Bounds, Polling};

/// When are completions shown to the driver?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Signal {
    /// Before new chains are looked at: the driver handles them meanwhile.
    #[default]
    CompletionsFirst,
    /// After new chains were submitted: once a turn.
    AfterSubmissions,
}

/// When may the driver kick?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kicks {
    /// Only while the worker sleeps.
    #[default]
    OffWhileAwake,
    /// Between the turns of the loop.
    PerTurn,
}

/// When is a driver called that has asked for it?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Calls {
    /// Once it sends nothing more, where that makes more requests a second; else at once.
    #[default]
    WhenQuiet,
    /// At once.
    AtOnce,
}

/// How a worker works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// When does it look in vain?
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
    /// When drivers are called: at once by a worker that does not poll, as it finds nothing by waiting.
    pub(crate) fn calls(self) -> Calls {
        match self.polling {
            Polling::Never => Calls::AtOnce,
            Polling::Adaptive | Polling::Always => self.calls,
        }
    }
}
