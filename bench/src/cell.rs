//! What is measured: one disk, one kind of request, one depth, and who is compared.

use std::fmt;

use pollux_driver as driver;
use pollux_tests::client::Waiting;
use serde::{Serialize, Serializer};

use crate::client::{Client, Job};

pub use crate::work::{Disk, Work};

/// Bytes of most requests.
pub const BLOCK: usize = 4096;

/// One of the servers of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// `--ours`.
    Ours,
    /// `--peer`.
    Peer,
    /// `qemu-storage-daemon`, where the peer is something else.
    StorageDaemon,
    /// SPDK's vhost target, where there is one.
    Spdk,
}

impl Server {
    /// Each of them.
    pub const ALL: [Self; 4] = [Self::Ours, Self::Peer, Self::StorageDaemon, Self::Spdk];
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ours => "ours",
            Self::Peer => "peer",
            Self::StorageDaemon => "qsd",
            Self::Spdk => "spdk",
        })
    }
}

/// A server under a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// Which of the two.
    pub server: Server,
    /// Who asks.
    pub client: Client,
}

/// Who is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contest {
    /// Both servers, under crate `blkio`.
    Servers(Waiting),
    /// Our driver, which waits in that way, and crate `blkio`, on one server.
    Clients(Server, driver::Waiting),
    /// Our driver, waiting in one way and in another, on one server.
    Waits(Server, [Client; 2]),
}

impl Contest {
    /// The two that take turns.
    pub fn sides(self) -> [Side; 2] {
        let side = |server, client| Side { server, client };
        match self {
            Self::Servers(waiting) => {
                [Server::Ours, Server::Peer].map(|server| side(server, Client::Blkio(waiting)))
            }
            Self::Clients(server, waiting) => {
                let blkio = match waiting {
                    driver::Waiting::Polled => Waiting::Polling,
                    _ => Waiting::Blocking,
                };
                let clients = [Client::Driver(waiting), Client::Blkio(blkio)];
                clients.map(|client| side(server, client))
            }
            Self::Waits(server, waits) => waits.map(|client| side(server, client)),
        }
    }

    /// The word for how its clients wait.
    pub fn waiting(self) -> String {
        match self {
            Self::Servers(waiting) => Client::Blkio(waiting).waiting().to_owned(),
            // The two that do the same are called by the same word.
            Self::Clients(_, waiting) => match waiting {
                driver::Waiting::Polled => "polling".to_owned(),
                driver::Waiting::Call => "blocking".to_owned(),
                _ => "adaptive".to_owned(),
            },
            Self::Waits(_, waits) => {
                let [one, other] = waits.map(Client::waiting);
                format!("{one}:{other}")
            }
        }
    }

    /// The server, where it is one and the same.
    pub const fn server(self) -> Option<Server> {
        match self {
            Self::Servers(_) => None,
            Self::Clients(server, _) | Self::Waits(server, _) => Some(server),
        }
    }
}

/// One row of the results.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Cell {
    /// What is read from, or written to.
    pub disk: Disk,
    /// Which of the two.
    pub work: Work,
    /// Bytes of each request.
    pub block: usize,
    /// Who is compared.
    #[serde(rename = "client", serialize_with = "by_name")]
    pub contest: Contest,
    /// Requests in flight.
    pub depth: u16,
}

impl Cell {
    /// What its client is to prepare.
    pub const fn job(self) -> Job {
        let Self {
            work, block, depth, ..
        } = self;
        Job { work, block, depth }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn by_name<S: Serializer>(contest: &Contest, to: S) -> Result<S::Ok, S::Error> {
    match contest.server() {
        None => to.serialize_str(&contest.waiting()),
        Some(server) => to.collect_str(&format_args!("{server}:{}", contest.waiting())),
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            disk, work, depth, ..
        } = self;
        if let Some(server) = self.contest.server() {
            write!(f, "{server}:")?;
        }
        write!(f, "{disk}/{}/{work}", self.contest.waiting())?;
        if self.block != BLOCK {
            write!(f, "-{}k", self.block / 1024)?;
        }
        write!(f, "/{depth}")
    }
}
