//! The requests of one queue: how they become chains, and how they end.

pub mod bounce;
pub mod command;
pub mod core;
pub mod flight;
pub mod hybrid;
