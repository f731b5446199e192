//! How each side learns that there is something to do: kicks, calls, polls.

pub mod call;
pub mod interrupts;
pub mod kick;
pub mod polling;
