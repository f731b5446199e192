//! What SPDK's vhost target was measured at, and what we are asked to reach beside it.

use pollux_tests::client::Waiting;

use crate::cell::{BLOCK, Cell, Contest, Disk, Work};

/// A fixed figure of such a machine with such a client, not measured in the same run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Published {
    /// Thousands of requests a second.
    pub kilo_iops: f64,
    /// How many times that is asked of us.
    pub asked: Option<f64>,
}

/// The depths at which SPDK was measured; a disk of its own has fewer.
pub const DEPTHS: [u16; 5] = [1, 4, 16, 64, 128];
const FEW_DEPTHS: [u16; 3] = [1, 16, 128];

impl Published {
    /// SPDK in this cell.
    pub fn of(cell: Cell) -> Option<Self> {
        let Contest::Servers(waiting) = cell.contest else {
            return None;
        };
        let (depths, figures): (&[u16], &[f64]) = match (cell.disk, cell.work, waiting) {
            (Disk::Null, Work::RandRead, Waiting::Polling) => {
                (&DEPTHS, &[938.0, 2397.0, 3514.0, 3702.0, 3720.0])
            }
            (Disk::Null, Work::RandRead, Waiting::Blocking) => {
                (&DEPTHS, &[36.0, 155.0, 796.0, 1885.0, 3074.0])
            }
            (Disk::Memory, Work::RandRead, Waiting::Polling) => {
                (&DEPTHS, &[509.0, 921.0, 877.0, 845.0, 805.0])
            }
            (Disk::Memory, Work::RandRead, Waiting::Blocking) => {
                (&DEPTHS, &[30.0, 90.0, 156.0, 334.0, 654.0])
            }
            (Disk::Tmpfs, Work::RandRead, Waiting::Polling) => {
                (&DEPTHS, &[336.0, 435.0, 485.0, 530.0, 516.0])
            }
            (Disk::Tmpfs, Work::RandRead, Waiting::Blocking) => {
                (&DEPTHS, &[40.0, 108.0, 208.0, 419.0, 403.0])
            }
            (Disk::Tmpfs, Work::RandWrite, Waiting::Polling) => {
                (&DEPTHS, &[334.0, 425.0, 433.0, 448.0, 475.0])
            }
            (Disk::Direct, Work::RandRead, Waiting::Polling) => (&FEW_DEPTHS, &[16.3, 81.0, 124.0]),
            (Disk::Direct, Work::RandRead, Waiting::Blocking) => (&FEW_DEPTHS, &[9.3, 72.0, 108.0]),
            _ => return None,
        };
        let at = depths.iter().position(|&depth| depth == cell.depth)?;
        (cell.block == BLOCK).then_some(Self {
            kilo_iops: figures[at],
            asked: asked(cell.disk, cell.work),
        })
    }
}

/// How many times SPDK's figure is asked of us.
const fn asked(disk: Disk, work: Work) -> Option<f64> {
    match (disk, work) {
        (Disk::Null | Disk::Direct, Work::RandRead) => Some(1.0),
        (Disk::Memory, Work::RandRead) => Some(1.3),
        (Disk::Tmpfs, Work::RandRead) => Some(1.2),
        _ => None,
    }
}

/// Our figure by SPDK's, beside what is asked.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct Beside {
    /// Ours by SPDK's.
    pub ratio: f64,
    /// What is asked of it.
    pub asked: Option<f64>,
}

impl Beside {
    /// Is it as high as is asked?
    pub fn suffices(self) -> bool {
        self.asked.is_none_or(|asked| self.ratio >= asked)
    }
}

impl std::fmt::Display for Beside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2}", self.ratio)?;
        match self.asked {
            None => Ok(()),
            Some(asked) if self.suffices() => write!(f, " ≥ {asked:.1}"),
            Some(asked) => write!(f, " MISSES {asked:.1}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::set::Set;

    #[test]
    fn every_figure_stands_beside_one_cell() {
        let all = Set::OF_CELLS.into_iter().filter_map(Set::cells);
        let cells: Vec<Cell> = all.flat_map(|all| all.list).collect();
        let count = |disk: Disk, work: Work| {
            let of_it = |cell: &&Cell| cell.disk == disk && cell.work == work;
            let known = |cell: &&Cell| Published::of(**cell).is_some();
            cells.iter().filter(of_it).filter(known).count()
        };
        assert_eq!(count(Disk::Null, Work::RandRead), 10);
        assert_eq!(count(Disk::Memory, Work::RandRead), 10);
        assert_eq!(count(Disk::Tmpfs, Work::RandRead), 10);
        assert_eq!(count(Disk::Tmpfs, Work::RandWrite), 5);
        assert_eq!(count(Disk::Direct, Work::RandRead), 6);
        let known = cells.iter().filter(|cell| Published::of(**cell).is_some());
        assert_eq!(known.count(), 41);
    }

    #[test]
    fn what_misses_says_so() {
        let shown = |ratio, asked| Beside { ratio, asked }.to_string();
        assert_eq!(shown(1.25, Some(1.2)), "1.25 ≥ 1.2");
        assert_eq!(shown(1.15, Some(1.2)), "1.15 MISSES 1.2");
        assert_eq!(shown(0.5, None), "0.50");
    }
}
