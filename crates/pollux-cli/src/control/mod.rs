//! The control plane: `pollux serve --control PATH` answers HTTP/1.1 with JSON, and `pollux disk` asks.
//!
//! One thread of its own serves the socket. It reads what workers count anyway, and sends them nothing, so no client
//! can be noticed on a disk. It has no timer while no client is connected. What it may not do itself, opening a disk
//! that is to be added, a second thread does: see `opener`; and a third keeps the list of what was added: see `keeper`.
//! A disk is resized in a thread that lives as long as that takes: see `routes/resize.rs`.

mod client;
mod command;
mod connections;
mod folders;
mod keeper;
mod kept;
mod metrics;
mod noted;
mod opener;
mod passing;
mod routes;
mod server;
mod sockets;
mod state;
mod table;
#[cfg(any(test, feature = "fuzzing"))]
mod test_daemon;
mod top;

pub use command::{DiskArgs, run};
pub use folders::Folders;
pub use kept::Kept;
pub use opener::Starting;
#[cfg(feature = "fuzzing")]
pub use routes::Reach;
pub use server::Control;
pub use state::State;
#[cfg(feature = "fuzzing")]
pub use test_daemon::{Said, TestDaemon};
pub use top::{TopArgs, run as top};

/// The most bytes of an answer that the program reads of a daemon.
const LONGEST_ANSWER: usize = 64 << 20;
