//! A queue with one owner, and how that owner waits.

pub mod channel;
pub mod gone;
pub mod waiter;
