//! What the tests against real peers share: servers to start, guests to boot, clients to drive.

// All errors here are the machine's or the peer's, and all of them fail a test.
#![allow(clippy::missing_errors_doc, clippy::must_use_candidate)]

pub mod activation;
pub mod backend;
pub mod busy;
pub mod ceph;
pub mod client;
pub mod control;
pub mod drive;
pub mod events;
pub mod executions;
pub mod frontend;
pub mod guest;
pub mod hostile;
pub mod hot;
pub mod load;
pub mod model;
pub mod peers;
pub mod process;
pub mod qcow2;
pub mod random;
pub mod records;
pub mod server;
pub mod spdk;
pub mod stepping;
pub mod storage;
pub mod storm;
pub mod subject;
