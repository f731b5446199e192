//! What the options come to on the disk that is there.

use std::num::NonZeroU32;
use std::time::Duration;

use pollux::disk::spec::Size;
use pollux::disk::{Access, Geometry};
use pollux_load::{Idle, Order, Pattern};

use super::options::{BenchArgs, Rw, Waiting, name};

/// What each block of a verified disk may cost: 8 bytes of memory, for 2^28 blocks 2 GiB.
const MOST_VERIFIED: u64 = 1 << 28;

/// How requests are chosen between polled and call-driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// All are waited for in the same way.
    All(Waiting),
    /// So many percent are polled, the others call-driven.
    Hipri(u8),
}

/// What each job does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub rw: Rw,
    /// Percent of the requests that read.
    pub reads: u8,
    /// Bytes of a request.
    pub bytes: usize,
    pub depth: usize,
    pub jobs: u16,
    pub runtime: Duration,
    /// For how long the load runs before that.
    pub ramp_time: Duration,
    pub rate: Option<NonZeroU32>,
    pub mix: Mix,
    pub verify: bool,
    /// Blocks of `bytes` in a job's part of the disk. Parts follow one another.
    pub blocks: usize,
}

impl Plan {
    /// Holds `args` against the disk.
    pub fn new(args: &BenchArgs, disk: &Geometry) -> Result<Self, String> {
        let (bs, block) = (args.bs, u64::from(disk.block));
        if !bs.0.is_multiple_of(block) {
            return Err(format!(
                "--bs {bs}: the disk has blocks of {block} bytes; give a multiple of that"
            ));
        }
        if let Some(percent) = args.rwmixread.filter(|_| !args.rw.mixes()) {
            return Err(format!(
                "--rwmixread {percent}: --rw {} has nothing to mix; give --rw rw or randrw",
                name(args.rw)
            ));
        }
        let verify = args.verify.is_some();
        if disk.access == Access::ReadOnly && (args.rw.writes() || verify) {
            let what = if args.rw.writes() { "--rw" } else { "--verify" };
            return Err(format!(
                "{what}: the disk is read-only, and this writes to it; give --rw read or randread, without --verify"
            ));
        }
        let blocks = blocks(args, disk)?;
        let reads = match (args.rw.reads(), args.rw.writes()) {
            (true, false) => 100,
            (false, _) => 0,
            (true, true) => args.rwmixread.unwrap_or(50),
        };
        let in_memory = |what, number| {
            usize::try_from(number).map_err(|_| format!("{what}: too large for this machine"))
        };
        Ok(Self {
            rw: args.rw,
            reads,
            bytes: in_memory("--bs", bs.0)?,
            depth: args.iodepth.into(),
            jobs: args.numjobs,
            runtime: args.runtime,
            ramp_time: args.ramp_time,
            rate: args.rate_iops,
            mix: args
                .hipri_percent
                .map_or(Mix::All(args.completion), Mix::Hipri),
            verify,
            blocks: in_memory("--size", blocks)?,
        })
    }

    /// What job number `number` does; what it writes is marked with `seed`.
    pub fn of_job(&self, number: u16, seed: u64) -> pollux_load::Plan {
        let order = if self.rw.random() {
            Order::Random(u64::from(number) + 1)
        } else {
            Order::Sequential
        };
        let pattern = Pattern::new(order, self.blocks).reads(self.reads);
        let (pattern, idle) = match self.mix {
            Mix::All(Waiting::Polled) => (pattern, Idle::Poll),
            Mix::All(_) => (pattern, Idle::Sleep(Duration::ZERO)),
            Mix::Hipri(percent) => (pattern.polled(percent), Idle::Sleep(Duration::ZERO)),
        };
        pollux_load::Plan {
            begin: u64::from(number) * self.blocks as u64 * self.bytes as u64,
            runtime: self.runtime,
            rate: self.rate,
            idle,
            verify: self.verify.then_some(seed),
            ..pollux_load::Plan::new(pattern, self.depth, self.bytes)
        }
    }

    /// What a rate of requests refers to, where a job that went on to its end has `worked` for so long. With a rate,
    /// nothing is due between the last request and the end, and that time counts as well.
    pub fn span(&self, worked: Duration) -> Duration {
        match self.rate {
            Some(_) => worked.max(self.runtime),
            None => worked,
        }
    }

    /// Are polled and call-driven requests told apart?
    pub fn is_mixed(&self) -> bool {
        matches!(self.mix, Mix::Hipri(_))
    }
}

/// Blocks of `--bs` in a job's part of the disk.
fn blocks(args: &BenchArgs, disk: &Geometry) -> Result<u64, String> {
    let (bs, verify) = (args.bs, args.verify.is_some());
    let size = args.size.map_or(disk.bytes, |size| size.0);
    if size > disk.bytes {
        return Err(format!(
            "--size {}: the disk has only {}; give that or less",
            Size(size),
            Size(disk.bytes)
        ));
    }
    let blocks = size / bs.0 / u64::from(args.numjobs);
    let least = if verify { u64::from(args.iodepth) } else { 1 };
    if blocks < least {
        let (jobs, part) = (args.numjobs, Size(least.saturating_mul(bs.0)));
        let what = match args.size {
            Some(size) => format!("--size {size}: too small"),
            None => format!("--bs {bs}: the disk has only {size} bytes, too few"),
        };
        return Err(format!(
            "{what} for --numjobs {jobs}, which needs a part of {part} or more for each job; give a larger \
             disk or --size, or a smaller --bs, --numjobs or --iodepth"
        ));
    }
    if verify && blocks * u64::from(args.numjobs) > MOST_VERIFIED {
        let most = Size(MOST_VERIFIED.saturating_mul(bs.0));
        return Err(format!(
            "--verify: it remembers every block, at most {most} with --bs {bs}; give --size {most} or less"
        ));
    }
    Ok(blocks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::options::tests::parse;

    fn args(line: &str) -> BenchArgs {
        parse(&format!("--socket s {line}")).unwrap()
    }

    fn plan(line: &str) -> Result<Plan, String> {
        Plan::new(&args(line), &Geometry::plain(1 << 20))
    }

    #[test]
    fn jobs_share_the_disk_out() {
        assert_eq!(plan("").unwrap().blocks, 256);
        assert_eq!(plan("--numjobs 3").unwrap().blocks, 85);
        assert_eq!(plan("--size 10k").unwrap().blocks, 2);
    }

    #[test]
    fn the_mix_of_reads_and_writes_follows_rw() {
        assert_eq!(plan("--rw randread").unwrap().reads, 100);
        assert_eq!(plan("--rw randwrite").unwrap().reads, 0);
        assert_eq!(plan("--rw rw").unwrap().reads, 50);
        assert_eq!(plan("--rwmixread 70 --rw randrw").unwrap().reads, 70);
    }

    #[test]
    fn what_the_disk_cannot_do_is_refused_by_name() {
        for (line, words) in [
            ("--bs 1000", "--bs 1000: the disk has blocks of 512 bytes"),
            (
                "--size 2m",
                "--size 2M: the disk has only 1M; give that or less",
            ),
            ("--size 1k", "--size 1K: too small"),
            ("--bs 1g", "--bs 1G: the disk has only 1048576 bytes"),
            (
                "--rwmixread 70",
                "--rwmixread 70: --rw read has nothing to mix",
            ),
            ("--numjobs 2 --bs 1m", "--numjobs 2"),
            ("--verify crc32c --bs 64k --iodepth 32", "--iodepth"),
        ] {
            let error = plan(line).unwrap_err();
            assert!(error.contains(words), "{line}: {error}");
        }
        let huge = Geometry::plain(1 << 50);
        let error = Plan::new(&args("--verify crc32c"), &huge).unwrap_err();
        assert!(error.contains("give --size 1T or less"), "{error}");
    }

    #[test]
    fn with_a_rate_the_time_after_the_last_request_counts() {
        let span = |line, ms| {
            let span = plan(line).unwrap().span(Duration::from_millis(ms));
            span.as_millis()
        };
        let rated = "--runtime 1s --rate-iops 2";
        assert_eq!((span(rated, 500), span(rated, 1500)), (1000, 1500));
        assert_eq!(span("--runtime 1s", 500), 500);
    }

    #[test]
    fn a_read_only_disk_is_only_read() {
        let disk = Geometry {
            access: Access::ReadOnly,
            ..Geometry::plain(1 << 20)
        };
        assert!(Plan::new(&args("--rw randread"), &disk).is_ok());
        for (line, option) in [
            ("--rw write", "--rw"),
            ("--rw randrw", "--rw"),
            ("--verify crc32c", "--verify"),
        ] {
            let error = Plan::new(&args(line), &disk).unwrap_err();
            assert!(error.starts_with(option), "{line}: {error}");
        }
    }
}
