//! Chains and requests, through the device's queue to a disk, beside a model of both.
//!
//! The fuzzer is the driver: it writes descriptors, indirect tables, headers and indices, as they should
//! be or as they should not, and decides when a slow disk ends what, and how. After each turn of the
//! worker every byte of guest memory, every byte of the disk and the used ring are what [`model`] says, and the
//! driver was called if it had asked for that. The disk itself checks that what it is asked for lies inside it, and
//! inside the memory, and that writes are complete when the features say so.

mod disk;
mod memory;
mod model;
mod step;

use arbitrary::{Arbitrary, Unstructured};
use pollux_blk::SECTOR;
use pollux_device::fuzzing::{Plan, SingleQueue};
use pollux_device::{Calls, Kicks, Signal, Tuning};
use pollux_disk::{Access, Durability, Geometry, RangeLimits};
use pollux_ring::Suppression;

use self::disk::Handle;
use self::memory::Rig;
use self::model::Model;
use self::step::Step;

/// Bytes on the disk.
const DISK: u64 = 16 * SECTOR;
/// The longest range of a discard.
const RANGE: u64 = 8 * SECTOR;
const SERIAL: &str = "a serial number";

/// What was negotiated, and how the disk and the worker work.
#[derive(Arbitrary, Clone, Copy, Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a feature of its own, and the fuzzer's to choose"
)]
struct Setup {
    size_log: u8,
    next: u16,
    used: u16,
    event_idx: bool,
    indirect: bool,
    size_max: bool,
    seg_max: bool,
    flush: bool,
    writeback: bool,
    read_only: bool,
    discard: bool,
    slow: bool,
    after_submissions: bool,
    kicks_per_turn: bool,
}

#[derive(Arbitrary, Debug)]
struct Input {
    setup: Setup,
    steps: Vec<Step>,
}

impl Setup {
    fn size(self) -> u16 {
        1 << (self.size_log % 9)
    }

    fn geometry(self) -> Geometry {
        let limits = self.discard.then_some(RangeLimits {
            max_bytes: RANGE,
            alignment: 512,
        });
        Geometry {
            access: if self.read_only {
                Access::ReadOnly
            } else {
                Access::ReadWrite
            },
            discard: limits,
            write_zeroes: limits,
            ..Geometry::plain(DISK)
        }
    }

    /// A write is complete once it is stable, unless the driver can flush and has left the cache on (5.2.6.2).
    fn durability(self) -> Durability {
        match (self.flush, self.writeback) {
            (true, true) => Durability::Volatile,
            _ => Durability::Stable,
        }
    }

    fn size_max(self) -> Option<u32> {
        self.size_max.then_some(0x800)
    }

    fn seg_max(self) -> Option<u32> {
        self.seg_max.then_some(3)
    }

    fn tuning(self) -> Tuning {
        Tuning::default()
            .signal(if self.after_submissions {
                Signal::AfterSubmissions
            } else {
                Signal::CompletionsFirst
            })
            .kicks(if self.kicks_per_turn {
                Kicks::PerTurn
            } else {
                Kicks::OffWhileAwake
            })
            .calls(Calls::AtOnce)
    }

    fn bare(self, rig: &Rig, disk: &Handle) -> SingleQueue {
        let plan = Plan {
            areas: rig.areas(self.size()),
            next: self.next,
            suppression: if self.event_idx {
                Suppression::EventIdx
            } else {
                Suppression::Flags
            },
            indirect: self.indirect,
            memory: rig.table(),
            call: rig.call(),
            geometry: self.geometry(),
            size_max: self.size_max(),
            seg_max: self.seg_max(),
            flush: self.flush,
            writeback: self.writeback,
            serial: SERIAL.to_owned(),
        };
        SingleQueue::new(plan, disk.channel(), self.tuning()).expect("a queue can be made")
    }
}

/// One run: a queue from its start to its stop.
pub fn run(data: &[u8]) {
    let Ok(input) = Input::arbitrary_take_rest(Unstructured::new(data)) else {
        return;
    };
    memory::with(|rig| Run::new(rig, input.setup).all(&input.steps));
}

struct Run<'a> {
    rig: &'a Rig,
    disk: Handle,
    model: Model,
    bare: SingleQueue,
    seen: Vec<u8>,
}

impl<'a> Run<'a> {
    fn new(rig: &'a Rig, setup: Setup) -> Self {
        rig.clear(setup.next, setup.used);
        let disk = Handle::new(setup, rig.table());
        let bare = setup.bare(rig, &disk);
        assert_eq!(rig.calls(), 1, "a queue that starts calls once");
        Self {
            model: Model::new(setup),
            bare,
            disk,
            rig,
            seen: vec![0; 3 * memory::REGION],
        }
    }

    fn all(mut self, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Turn => self.turn(),
                Step::Arm => {
                    let idle = self.model.arm(&self.rig.ring());
                    assert_eq!(self.bare.arm(), idle, "armed as the model is");
                }
                Step::Disarm => self.bare.disarm(),
                Step::End { which, how } => {
                    self.disk.end(*which, how.result());
                    self.model.end(*which, how.result());
                }
                Step::Driver(write) => write.apply(self.rig, &mut self.model),
            }
        }
        self.turn();
        self.stop();
    }

    fn turn(&mut self) {
        let taken = self.bare.turn().chains;
        self.model.turn(&self.rig.ring(), taken);
        self.compare();
    }

    /// All that was taken ends, once, and nothing else does.
    fn stop(mut self) {
        self.disk.end_all();
        self.model.end_all();
        let next = self.bare.stop(2).expect("all that was taken has ended");
        self.model.reap();
        assert_eq!(next, self.model.next, "it goes on where it stopped");
        self.compare();
        assert_eq!(self.model.in_flight(), 0, "the model ends as well");
    }

    fn compare(&mut self) {
        let counted = self.bare.counted();
        let faults = u64::from(self.model.broken);
        assert_eq!(
            counted.peer_faults, faults,
            "a broken ring is noticed, once"
        );
        self.rig.read(&mut self.seen);
        assert!(self.seen == self.model.memory, "guest memory");
        let (bytes, allocated) = (&self.model.disk, &self.model.allocated);
        assert!(self.disk.holds(bytes, allocated), "the disk");
        assert_eq!(self.disk.pending(), self.model.pending(), "in flight");
        let (from, used) = self.model.used();
        self.rig.check_used(self.model.size(), from, used);
        let called = self.rig.calls() > 0;
        assert_eq!(called, self.model.calls(&self.rig.ring()), "a call");
        self.model.was_seen();
    }
}
