//! A queue that any number of threads, tasks and channels share.

pub mod blocking;
#[cfg(not(loom))]
pub mod channel;
pub mod channel_calls;
pub mod completion_state;
pub mod listeners;
pub mod lock;
#[cfg(not(loom))]
pub mod owner;
pub mod parker;
pub mod parts;
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
#[cfg(all(feature = "tokio", not(loom)))]
pub mod tokio;
#[cfg(not(loom))]
pub mod transport;
#[cfg(not(loom))]
pub mod used_index;
pub mod waiting;
pub mod wakeups;
