//! What is measured: one disk, one depth, one kind of client.

use std::fmt;

use pollux_tests::client::Waiting;
use serde::Serialize;

/// Bytes of each request.
pub const BLOCK: usize = 4096;

/// The disk behind the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Disk {
    /// Nothing: requests complete without touching the data. What is left is the ring.
    Null,
    /// Memory that was written before, so that every read copies real data.
    Memory,
}

impl Disk {
    /// Bytes of it. The memory disk is larger than any cache of the machines that we measure on.
    pub const fn size(self) -> u64 {
        match self {
            Self::Null => 2 << 30,
            Self::Memory => 256 << 20,
        }
    }
}

/// One row of the results.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    /// What is read from.
    pub disk: Disk,
    /// How the client waits.
    pub client: Waiting,
    /// Requests in flight.
    pub depth: u16,
}

impl Cell {
    /// All of them, in the order of the table.
    pub fn all() -> Vec<Self> {
        let mut cells = vec![];
        for disk in [Disk::Null, Disk::Memory] {
            for client in [Waiting::Blocking, Waiting::Polling] {
                for depth in [1, 16, 128] {
                    cells.push(Self {
                        disk,
                        client,
                        depth,
                    });
                }
            }
        }
        cells
    }

    /// The word for its client.
    pub const fn client_name(self) -> &'static str {
        match self.client {
            Waiting::Blocking => "blocking",
            Waiting::Polling => "polling",
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let disk = match self.disk {
            Disk::Null => "null",
            Disk::Memory => "memory",
        };
        write!(f, "{disk}/{}/{}", self.client_name(), self.depth)
    }
}
