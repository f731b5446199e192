//! Which cells there are, and what else is measured.

use clap::ValueEnum;
use pollux_driver as driver;
use pollux_tests::client::Waiting;

use crate::cell::{BLOCK, Cell, Contest, Disk, Server, Work};
use crate::client::Client;

/// What belongs together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Set {
    /// The ring and the loop around it: disks that cost nothing or a copy.
    Ring,
    /// Files: tmpfs, the page cache, and past it.
    File,
    /// Images in QEMU's format, on tmpfs.
    Qcow2,
    /// Images in a Ceph cluster of one node, started for it.
    Rbd,
    /// The same beside a client that has Ceph's library in its own process: fio.
    RbdDirect,
    /// Our driver beside crate `blkio`, on either server.
    Driver,
    /// The driver's ways to wait, beside each other.
    Waits,
    /// Mechanisms of the server on and off, and off beside the peer.
    Mechanisms,
    /// The server's processor time and latency at 100 to 100,000 requests a second.
    Load,
    /// Idle queues, busy disks, and the client, on the server's worker or processor.
    Sharing,
    /// Somebody else on the server's processor.
    Neighbour,
    /// Linux in front of several servers: polled and by interrupts.
    Kernel,
    /// The guest's driver beside Linux's own: polled, by interrupts, both.
    Guest,
    /// Many servers on one processor.
    Density,
    /// What a disk of its own takes of the server's processor, and large requests.
    Direct,
    /// What the server does when there is nothing to do.
    Idle,
    /// The driver at a few requests a second.
    Rates,
    /// Polled and call-driven requests on one queue.
    Mix,
    /// Kicks and the lock of a shared queue.
    Lock,
    /// Stacked disks over queues of the driver.
    Stack,
}

/// What is measured in the same way and shown in the same tables.
#[derive(Clone, Debug)]
pub struct Cells {
    /// The heading in the results.
    pub title: &'static str,
    /// What the tables call the two sides.
    pub sides: [&'static str; 2],
    /// How long measurements last, by those of two servers. Two clients on one server differ by less from
    /// time to time than two servers do, and there are many.
    pub share_of_runtime: f64,
    /// In the order of the table.
    pub list: Vec<Cell>,
}

/// Cells that differ in their depth alone.
type Group<'a> = (Disk, Work, usize, Contest, &'a [u16]);

impl Set {
    /// Those that have [`Cells`], in the order of the results; the others are studies.
    pub const OF_CELLS: [Self; 6] = [
        Self::Ring,
        Self::File,
        Self::Qcow2,
        Self::Rbd,
        Self::Driver,
        Self::Waits,
    ];

    /// Its cells; `None` of a study.
    pub fn cells(self) -> Option<Cells> {
        let (title, sides, share_of_runtime, groups) = match self {
            Self::Ring => ("The ring: null and memory", ["ours", "peer"], 1.0, ring()),
            Self::File => ("Files", ["ours", "peer"], 1.0, files()),
            Self::Qcow2 => ("Images", ["ours", "peer"], 1.0, images()),
            Self::Rbd => ("Images in a Ceph cluster", ["ours", "peer"], 1.0, cluster()),
            Self::Driver => (
                "The driver beside crate blkio",
                ["driver", "blkio"],
                0.3,
                clients(),
            ),
            Self::Waits => (
                "The driver's ways to wait",
                ["first", "second"],
                0.3,
                waits(),
            ),
            Self::RbdDirect
            | Self::Mechanisms
            | Self::Load
            | Self::Sharing
            | Self::Neighbour
            | Self::Kernel
            | Self::Guest
            | Self::Density
            | Self::Direct
            | Self::Idle
            | Self::Rates
            | Self::Mix
            | Self::Lock
            | Self::Stack => {
                return None;
            }
        };
        let of_group = |(disk, work, block, contest, depths): Group<'static>| {
            depths.iter().map(move |&depth| Cell {
                disk,
                work,
                block,
                contest,
                depth,
            })
        };
        Some(Cells {
            title,
            sides,
            share_of_runtime,
            list: groups.into_iter().flat_map(of_group).collect(),
        })
    }
}

const ALL_DEPTHS: &[u16] = &[1, 4, 16, 64, 128];
const DEPTHS: &[u16] = &[1, 16, 128];

fn ring() -> Vec<Group<'static>> {
    let mut groups = vec![];
    for disk in [Disk::Null, Disk::Memory] {
        for waiting in [Waiting::Blocking, Waiting::Polling] {
            let contest = Contest::Servers(waiting);
            groups.push((disk, Work::RandRead, BLOCK, contest, ALL_DEPTHS));
        }
    }
    groups
}

fn files() -> Vec<Group<'static>> {
    let (blocking, polling) = (
        Contest::Servers(Waiting::Blocking),
        Contest::Servers(Waiting::Polling),
    );
    let all = ALL_DEPTHS;
    vec![
        (Disk::Tmpfs, Work::RandRead, BLOCK, blocking, all),
        (Disk::Tmpfs, Work::RandRead, BLOCK, polling, all),
        (Disk::Tmpfs, Work::RandWrite, BLOCK, polling, all),
        (Disk::Cached, Work::RandRead, BLOCK, polling, all),
        (Disk::Direct, Work::RandRead, BLOCK, blocking, DEPTHS),
        (Disk::Direct, Work::RandRead, BLOCK, polling, DEPTHS),
        (Disk::Direct, Work::RandWrite, BLOCK, polling, DEPTHS),
    ]
}

fn images() -> Vec<Group<'static>> {
    let polling = Contest::Servers(Waiting::Polling);
    vec![
        (Disk::Image, Work::RandRead, BLOCK, polling, DEPTHS),
        (Disk::Image, Work::RandWrite, BLOCK, polling, DEPTHS),
        (Disk::Image, Work::Read, 64 << 10, polling, DEPTHS),
        (Disk::Fresh, Work::RandWrite, BLOCK, polling, DEPTHS),
        // The same requests to a raw file, to compare with.
        (Disk::Tmpfs, Work::Read, 64 << 10, polling, DEPTHS),
    ]
}

fn cluster() -> Vec<Group<'static>> {
    // A client that polls would take from the cluster one of two processors.
    let blocking = Contest::Servers(Waiting::Blocking);
    vec![
        (Disk::Rbd, Work::RandRead, BLOCK, blocking, DEPTHS),
        (Disk::Rbd, Work::RandWrite, BLOCK, blocking, DEPTHS),
        (Disk::Rbd, Work::RandRead, 64 << 10, blocking, DEPTHS),
        (Disk::Rbd, Work::RandWrite, 64 << 10, blocking, DEPTHS),
    ]
}

fn clients() -> Vec<Group<'static>> {
    use driver::Waiting::{Adaptive, Call, Polled};
    let mut groups = vec![];
    for server in [Server::Ours, Server::Peer] {
        for disk in [Disk::Null, Disk::Memory] {
            for waiting in [Call, Adaptive, Polled] {
                let contest = Contest::Clients(server, waiting);
                groups.push((disk, Work::RandRead, BLOCK, contest, DEPTHS));
            }
        }
    }
    groups
}

fn waits() -> Vec<Group<'static>> {
    use driver::Waiting::{Adaptive, Call, Polled};
    const LARGE: [usize; 2] = [64 << 10, 128 << 10];
    const FEW: &[u16] = &[1, 16];
    let mut groups = vec![];
    for server in [Server::Ours, Server::Peer] {
        let against = |one, other| Contest::Waits(server, [one, other].map(Client::Driver));
        let adaptive = against(Adaptive, Polled);
        let polled = against(Polled, Call);
        groups.push((Disk::Memory, Work::RandRead, BLOCK, adaptive, DEPTHS));
        groups.push((Disk::Memory, Work::RandRead, BLOCK, polled, &DEPTHS[..1]));
        let blkio = [Waiting::Polling, Waiting::Blocking].map(Client::Blkio);
        let blkio = Contest::Waits(server, blkio);
        for block in LARGE {
            groups.push((Disk::Memory, Work::RandRead, block, polled, FEW));
            groups.push((Disk::Memory, Work::RandRead, block, blkio, &FEW[1..]));
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::options::Options;

    fn all() -> impl Iterator<Item = Cell> {
        let all = Set::OF_CELLS.into_iter().filter_map(Set::cells);
        all.flat_map(|all| all.list)
    }

    #[test]
    fn a_part_of_the_name_selects_cells() {
        let selected = |part: &str| {
            let options = Options::parse_from(["pollux-bench", "--only", part]);
            options
                .sets()
                .iter()
                .map(|all| all.list.len())
                .sum::<usize>()
        };
        assert_eq!(selected(""), 20 + 29 + 15 + 12 + 36 + 20);
        assert_eq!(selected("ours:null/polling"), 3);
        assert_eq!(selected("peer:memory/polled:call/randread-64k/16/"), 1);
        assert_eq!(selected("tmpfs/polling/randwrite/1/"), 1);
        assert_eq!(selected("rbd/blocking/randwrite-64k"), 3);
        assert_eq!(selected("tape"), 0);
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<String> = all().map(|cell| cell.to_string()).collect();
        let before = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), before);
    }

    #[test]
    fn the_sides_of_a_contest_differ_in_what_it_is_about_alone() {
        for cell in all() {
            let [one, other] = cell.contest.sides();
            let (servers, clients) = (one.server == other.server, one.client == other.client);
            assert!(servers != clients, "{cell}");
        }
    }
}
