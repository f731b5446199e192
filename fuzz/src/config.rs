//! Configuration: the file of `pollux serve`, and the configuration space of a disk.
//!
//! Bytes that begin with a zero, as no text does, are an access to the configuration space.

use std::path::Path;

use arbitrary::{Arbitrary, Unstructured};
use pollux_cli::plan::{Endpoint, Plan, plan};
use pollux_device::fuzzing::{Cache, Config, Rings, config_space};
use pollux_disk::{Access, Geometry, RangeLimits};

const FILE: &str = "pollux.toml";

/// One file, or one access.
pub fn run(data: &[u8]) {
    if let Some(access) = data.strip_prefix(&[0]) {
        if let Ok(access) = Look::arbitrary_take_rest(Unstructured::new(access)) {
            access.run();
        }
    } else if let Ok(text) = std::str::from_utf8(data) {
        file(text);
    }
}

/// What a file says is within the bounds that the program relies on; what is wrong is named.
fn file(text: &str) {
    match plan(text, Path::new(FILE)) {
        Ok(plan) => bounds(&plan),
        Err(error) => assert!(
            error.contains(FILE) || error.contains("--"),
            "{error:?} names the file or the option"
        ),
    }
}

fn bounds(plan: &Plan) {
    assert!((1..=256).contains(&plan.threads), "threads");
    assert!(
        plan.cpus.iter().all(|cpu| *cpu < 1024),
        "CPUs that a set can hold"
    );
    assert!(plan.tuning.poll_bounds.max.as_secs() <= 1, "a time to poll");
    assert!(plan.tuning.poll_bounds.cpu <= 100, "a share of the time");
    assert!(!plan.disks.is_empty(), "disks");
    for (endpoint, offer) in &plan.disks {
        if let Endpoint::Path { rights, .. } = endpoint {
            assert!(rights.mode.bits() <= 0o777, "permissions");
        }
        let options = &offer.options;
        assert!((1..=256).contains(&options.num_queues), "queues");
        let size = options.queue_size;
        assert!(size.is_power_of_two() && size <= 1024, "ring sizes");
        assert!(options.serial.len() <= 20, "serial numbers");
        let block = offer.how.block_size.unwrap_or(512);
        assert!([512, 4096].contains(&block), "blocks");
    }
}

/// A disk, and a look at its configuration space.
#[derive(Arbitrary, Debug)]
struct Look {
    bytes: u64,
    block_log: u8,
    physical_log: u8,
    min_io: u32,
    optimal_io: u32,
    ranges: Option<(u64, u32)>,
    read_only: bool,
    num_queues: u16,
    queue_log: u8,
    ring_log: Option<u8>,
    writeback: bool,
    offset: u32,
    len: u16,
}

impl Look {
    fn geometry(&self) -> Geometry {
        let block = 512 << (self.block_log % 8);
        let limits = self.ranges.map(|(max_bytes, alignment)| RangeLimits {
            max_bytes,
            alignment,
        });
        Geometry {
            bytes: self.bytes / u64::from(block) * u64::from(block),
            access: if self.read_only {
                Access::ReadOnly
            } else {
                Access::ReadWrite
            },
            block,
            physical_block: block << (self.physical_log % 8),
            min_io: self.min_io,
            optimal_io: self.optimal_io,
            discard: limits,
            write_zeroes: limits,
        }
    }

    /// Every window is a part of the same bytes, which are what the fields say.
    fn run(&self) {
        let geometry = self.geometry();
        let rings = Rings {
            num_queues: self.num_queues,
            queue_size: 1 << (self.queue_log % 11),
            smallest_direct: self.ring_log.map(|log| 1 << (log % 16)),
            cache: if self.writeback {
                Cache::Writeback
            } else {
                Cache::Writethrough
            },
        };
        let len = u32::from(self.len);
        let (config, window) = config_space(&geometry, rings, self.offset, len);
        assert_eq!(config.capacity, geometry.bytes / 512);
        assert_eq!(config.num_queues, self.num_queues);
        assert!(config.seg_max >= 1, "a request has data");
        let most = u32::from(rings.queue_size).max(3) - 2;
        assert!(config.seg_max <= most, "a request fits every ring");
        let bytes = config.to_bytes();
        assert_eq!(
            Config::parse(&bytes),
            config,
            "a driver reads what was said"
        );
        let start = match self.offset {
            0x100.. => self.offset - 0x100,
            start => start,
        };
        assert_eq!(
            window.len(),
            usize::from(self.len),
            "as much as was asked for"
        );
        for (at, byte) in (u64::from(start)..).zip(window) {
            let field = usize::try_from(at).ok().and_then(|at| bytes.get(at));
            assert_eq!(byte, field.copied().unwrap_or(0), "byte {at}");
        }
    }
}
