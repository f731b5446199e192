//! A queue that any number of threads, tasks and channels share.

pub mod blocking;
#[cfg(not(loom))]
pub mod channel;
pub mod channel_calls;
pub mod completion;
#[cfg(not(loom))]
pub mod descriptors;
pub mod listeners;
pub mod lock;
#[cfg(not(loom))]
pub mod owner;
pub mod parker;
pub mod parts;
#[cfg(not(loom))]
pub mod peek;
#[cfg(not(loom))]
pub mod pending;
#[cfg(not(loom))]
pub mod queue;
#[cfg(not(loom))]
pub mod readiness;
pub mod room;
#[cfg(not(loom))]
pub mod state;
pub mod switchboard;
pub mod waiting;
pub mod wakeups;
