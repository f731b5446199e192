//! What is measured: one disk, one kind of request, one depth, one kind of client.

use std::fmt;

use clap::ValueEnum;
use pollux_tests::client::Waiting;
use serde::{Serialize, Serializer};

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
    /// A file on tmpfs through the page cache: no device is below it.
    Tmpfs,
    /// A file of a disk's file system, all of it in the page cache.
    Cached,
    /// A file of a disk's file system past the page cache (`O_DIRECT`).
    Direct,
}

impl Disk {
    /// Bytes of it: more than any processor's cache holds of the machines that we measure on.
    pub const fn size(self) -> u64 {
        match self {
            Self::Null => 2 << 30,
            Self::Memory => 256 << 20,
            Self::Tmpfs | Self::Cached | Self::Direct => 1 << 30,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Memory => "memory",
            Self::Tmpfs => "tmpfs",
            Self::Cached => "cached",
            Self::Direct => "direct",
        }
    }
}

impl fmt::Display for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What is asked of the disk, at random offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Work {
    /// Reads.
    RandRead,
    /// Writes.
    RandWrite,
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::RandRead => "randread",
            Self::RandWrite => "randwrite",
        })
    }
}

/// Cells that belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Set {
    /// The ring and the loop around it: disks that cost nothing or a copy.
    Ring,
    /// Files: tmpfs, the page cache, and past it.
    File,
}

impl Set {
    /// Both, in the order of the results.
    pub const ALL: [Self; 2] = [Self::Ring, Self::File];

    /// Its heading in the results.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Ring => "The ring: null and memory",
            Self::File => "Files",
        }
    }

    /// Its cells, in the order of the table.
    pub fn cells(self) -> Vec<Cell> {
        let depths: &[u16] = &[1, 16, 128];
        let groups: &[(Disk, Work, Waiting, &[u16])] = match self {
            Self::Ring => &[
                (Disk::Null, Work::RandRead, Waiting::Blocking, depths),
                (Disk::Null, Work::RandRead, Waiting::Polling, depths),
                (Disk::Memory, Work::RandRead, Waiting::Blocking, depths),
                (Disk::Memory, Work::RandRead, Waiting::Polling, depths),
            ],
            Self::File => &[
                (Disk::Tmpfs, Work::RandRead, Waiting::Blocking, depths),
                (Disk::Tmpfs, Work::RandRead, Waiting::Polling, &BAR_DEPTHS),
                (Disk::Tmpfs, Work::RandWrite, Waiting::Polling, &BAR_DEPTHS),
                (Disk::Cached, Work::RandRead, Waiting::Polling, &BAR_DEPTHS),
                (Disk::Direct, Work::RandRead, Waiting::Polling, depths),
                (Disk::Direct, Work::RandWrite, Waiting::Polling, depths),
            ],
        };
        let mut cells = vec![];
        for &(disk, work, client, depths) in groups {
            cells.extend(depths.iter().map(|&depth| Cell {
                disk,
                work,
                client,
                depth,
            }));
        }
        cells
    }
}

/// The depths at which SPDK was measured on tmpfs.
const BAR_DEPTHS: [u16; 5] = [1, 4, 16, 64, 128];

/// One row of the results.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Cell {
    /// What is read from, or written to.
    pub disk: Disk,
    /// Which of the two.
    pub work: Work,
    /// How the client waits.
    #[serde(serialize_with = "by_name")]
    pub client: Waiting,
    /// Requests in flight.
    pub depth: u16,
}

impl Cell {
    /// The word for its client.
    pub const fn client_name(self) -> &'static str {
        client_name(self.client)
    }

    /// Is `part` in its name? The name ends with a slash here, so that `/1/` is not `/16/`.
    pub fn matches(self, part: &str) -> bool {
        format!("{self}/").contains(part)
    }

    /// What SPDK's vhost target was measured at in this cell, on a machine like ours and one client
    /// like ours, in thousands a second: fixed figures, not measured in the same run.
    pub fn spdk_kilo_iops(self) -> Option<f64> {
        let (depths, figures): (&[u16], &[f64]) = match (self.disk, self.work, self.client) {
            (Disk::Tmpfs, Work::RandRead, Waiting::Polling) => {
                (&BAR_DEPTHS, &[336.0, 435.0, 485.0, 530.0, 516.0])
            }
            (Disk::Tmpfs, Work::RandWrite, Waiting::Polling) => {
                (&BAR_DEPTHS, &[334.0, 425.0, 433.0, 448.0, 475.0])
            }
            (Disk::Direct, Work::RandRead, Waiting::Polling) => {
                (&[1, 16, 128], &[16.3, 81.0, 124.0])
            }
            _ => return None,
        };
        let at = depths.iter().position(|&depth| depth == self.depth)?;
        Some(figures[at])
    }
}

const fn client_name(client: Waiting) -> &'static str {
    match client {
        Waiting::Blocking => "blocking",
        Waiting::Polling => "polling",
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn by_name<S: Serializer>(client: &Waiting, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(client_name(*client))
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            disk, work, depth, ..
        } = self;
        write!(f, "{disk}/{}/{work}/{depth}", self.client_name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_name_selects_cells() {
        let selected = |part: &str| {
            let cells = Set::ALL.into_iter().flat_map(Set::cells);
            cells.filter(|cell| cell.matches(part)).count()
        };
        assert_eq!(selected(""), 36);
        assert_eq!(selected("null/polling"), 3);
        assert_eq!(selected("tmpfs/polling/randwrite/1/"), 1);
        assert_eq!(selected("tape"), 0);
    }

    #[test]
    fn spdk_has_a_figure_where_it_was_measured_and_nowhere_else() {
        let cells = Set::ALL.into_iter().flat_map(Set::cells);
        let known: Vec<String> = cells
            .filter(|cell| cell.spdk_kilo_iops().is_some())
            .map(|cell| cell.to_string())
            .collect();
        assert_eq!(known.len(), 13, "{known:?}");
        assert!(known.iter().all(|name| name.contains("/polling/")));
    }
}
