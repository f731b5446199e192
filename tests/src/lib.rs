//! What the tests against real peers share: servers to start, guests to boot, clients to drive.

pub mod server;
