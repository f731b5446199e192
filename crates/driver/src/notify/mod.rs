//! How each side learns that there is something to do: kicks, calls, polls.

pub mod call;
pub mod call_policy;
pub mod doorbell;
pub mod polling;
pub mod shared_fd;
