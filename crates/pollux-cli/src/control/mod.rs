//! The control plane: `pollux serve --control PATH` answers HTTP/1.1 with JSON, and `pollux disk` asks.
//!
//! One thread of its own serves the socket. It reads what workers count anyway, and sends them nothing, so no client can
//! be noticed on a disk. It has no timer while no client is connected.

mod client;
mod command;
mod metrics;
mod model;
mod name;
mod problem;
mod routes;
mod server;
mod sockets;
mod state;
mod table;
mod top;

pub use command::{DiskArgs, run};
pub use name::{name, unique};
pub use server::Control;
pub use state::{Served, State};
pub use top::{TopArgs, run as top};

/// The most bytes of an answer that the program reads of a daemon.
const LONGEST_ANSWER: usize = 64 << 20;
