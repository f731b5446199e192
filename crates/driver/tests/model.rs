//! Random requests against a model of bytes, through our own device end: whatever the queue's size, the
//! features and the memory, what is read is what was written.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;

use common::Served;
use pollux_blk::feature;
use pollux_disk::{Disk, Durability, Failure, Op, Queued, Request, Ticket, Unmap};
use pollux_disk_conformance::Client;
use pollux_driver::{
    Buffer, CompletionMode, Counters, Driver, Experiment, Hybrid, Options, Waiter, Waiting,
};
use pollux_memory::{Loan, Region, Span};
use proptest::prelude::*;

const BLOCK: u64 = 512;
/// So many requests at a time, each in a part of the disk of its own.
const PARTS: u64 = 6;
const PART_BLOCKS: u64 = 64;
const PART: u64 = PART_BLOCKS * BLOCK;
/// Bytes on the disk: no request has any beyond the parts.
const DISK: u64 = 1 << 20;

#[derive(Clone, Copy, Debug)]
enum What {
    Read,
    Write(Durability),
    Zero(Unmap, Durability),
    Discard,
    Flush,
}

/// One request: which blocks of its part, how its memory is cut, and how its end is noticed.
#[derive(Clone, Debug)]
struct Step {
    what: What,
    first: u64,
    blocks: u64,
    /// Lengths of spans, and whether the device knows them.
    cuts: Vec<(usize, bool)>,
    completion: CompletionMode,
}

fn step() -> impl Strategy<Value = Step> {
    let durability = prop_oneof![Just(Durability::Volatile), Just(Durability::Stable)];
    let unmap = prop_oneof![Just(Unmap::Allowed), Just(Unmap::Forbidden)];
    let what = prop_oneof![
        4 => Just(What::Read),
        4 => durability.clone().prop_map(What::Write),
        1 => (unmap, durability).prop_map(|(unmap, durability)| What::Zero(unmap, durability)),
        1 => Just(What::Discard),
        1 => Just(What::Flush),
    ];
    let cut = (
        prop_oneof![1..40usize, 1..5000usize, Just(4096)],
        any::<bool>(),
    );
    let cuts = prop_oneof![
        Just(vec![(usize::MAX, true)]),
        Just(vec![(usize::MAX, false)]),
        proptest::collection::vec(cut, 1..20),
    ];
    let completion = prop_oneof![Just(CompletionMode::Polled), Just(CompletionMode::Call)];
    (what, 0..PART_BLOCKS, 0..PART_BLOCKS, cuts, completion).prop_map(
        |(what, first, blocks, cuts, completion)| Step {
            what,
            first,
            blocks: blocks.min(PART_BLOCKS - first),
            cuts,
            completion,
        },
    )
}

/// Memory for one request: shared with the device, and not.
struct Memory {
    shared: Buffer,
    ours: Arc<Region>,
}

impl Memory {
    fn new(driver: &Driver) -> Self {
        let file: File = tempfile::tempfile_in("/dev/shm").unwrap();
        file.set_len(PART).unwrap();
        Self {
            shared: driver.allocate(usize::try_from(PART).unwrap()).unwrap(),
            ours: Arc::new(Region::map(file, 0, 0, 0, PART).unwrap()),
        }
    }

    /// `bytes` of it, cut as the step has it; the last cut takes all that is left.
    fn spans(&self, cuts: &[(usize, bool)], bytes: usize) -> Vec<Span> {
        let mut spans = Vec::new();
        let mut at = 0;
        for (nr, (len, shared)) in cuts.iter().enumerate() {
            let left = bytes - at;
            let len = if nr + 1 == cuts.len() {
                left
            } else {
                left.min(*len)
            };
            // SAFETY: every run keeps its memories longer than its channel.
            let shared_span = unsafe { self.shared.span() };
            // SAFETY: likewise.
            let own_span = unsafe { self.ours.span() };
            let side = if *shared { shared_span } else { own_span };
            spans.push(side.slice(at, len).unwrap());
            at += len;
        }
        spans
    }
}

fn gather(spans: &[Span]) -> Vec<u8> {
    let parts = spans.iter().map(|span| {
        let mut bytes = vec![0; span.len()];
        span.read(&mut bytes);
        bytes
    });
    parts.collect::<Vec<_>>().concat()
}

fn scatter(spans: &[Span], mut bytes: &[u8]) {
    for span in spans {
        let (here, rest) = bytes.split_at(span.len());
        span.write(here);
        bytes = rest;
    }
}

/// What each byte of the disk is; `None`: discarded, so anything.
type Model = Vec<Option<u8>>;

fn agree(model: &[Option<u8>], bytes: &[u8]) -> bool {
    let same = |(model, byte): (&Option<u8>, &u8)| model.is_none_or(|is| is == *byte);
    model.len() == bytes.len() && model.iter().zip(bytes).all(same)
}

/// Runs rounds of requests, all of a round at once, and compares with the model.
struct Run<'a, C: Hybrid> {
    channel: C,
    waiter: &'a mut Waiter,
    memories: Vec<Memory>,
    model: Model,
    fill: u8,
}

impl<C: Hybrid> Run<'_, C> {
    fn round(&mut self, steps: &[Step]) {
        let mut ended = HashMap::new();
        let mut lists = Vec::new();
        for (nr, step) in steps.iter().enumerate() {
            let at = nr as u64 * PART + step.first * BLOCK;
            let len = step.blocks * BLOCK;
            let spans = self.memories[nr].spans(&step.cuts, usize::try_from(len).unwrap());
            let list = Loan::first(&spans, u64::MAX);
            let op = self.op(step.what, at, len, &spans, &list);
            lists.push((at, len, spans, list));
            let ticket = Ticket(nr as u64);
            let request = Request { ticket, op };
            match self.channel.queue_as(request, step.completion) {
                Queued::Pending => {}
                Queued::Done(result) => assert!(ended.insert(ticket, result).is_none()),
            }
        }
        self.channel.submit();
        while ended.len() < steps.len() {
            let done = &mut |done: pollux_disk::Completion| {
                assert!(ended.insert(done.ticket, done.result).is_none(), "twice");
            };
            self.waiter.wait(&mut self.channel, None, done).unwrap();
        }
        for (nr, (at, len, spans, list)) in lists.into_iter().enumerate() {
            list.end();
            assert_eq!(ended[&Ticket(nr as u64)], Ok(()), "{:?}", steps[nr]);
            let range = usize::try_from(at).unwrap()..usize::try_from(at + len).unwrap();
            if let What::Read = steps[nr].what {
                let read = gather(&spans);
                assert!(agree(&self.model[range], &read), "{:?}", steps[nr]);
            }
        }
    }

    fn op(&mut self, what: What, at: u64, len: u64, spans: &[Span], list: &Loan) -> Op {
        let range = usize::try_from(at).unwrap()..usize::try_from(at + len).unwrap();
        let model = &mut self.model[range];
        match what {
            What::Read => {
                // SAFETY: the list ends when all requests have.
                let into = unsafe { list.spans() };
                Op::Read { at, into }
            }
            What::Write(durability) => {
                for byte in &mut *model {
                    self.fill = self.fill.wrapping_mul(5).wrapping_add(3);
                    *byte = Some(self.fill);
                }
                let bytes: Vec<_> = model.iter().flatten().copied().collect();
                scatter(spans, &bytes);
                Op::Write {
                    at,
                    // SAFETY: as for a read.
                    from: unsafe { list.spans() },
                    durability,
                }
            }
            What::Zero(unmap, durability) => {
                model.fill(Some(0));
                Op::WriteZeroes {
                    at,
                    len,
                    unmap,
                    durability,
                }
            }
            What::Discard => {
                model.fill(None);
                Op::Discard { at, len }
            }
            What::Flush => Op::Flush,
        }
    }
}

/// What the disk is to hold after all `rounds`, and what they counted.
fn check(
    driver: &Driver,
    waiting: Waiting,
    shared: bool,
    rounds: &[Vec<Step>],
) -> (Model, Counters) {
    let mut waiter = Waiter::new(waiting).unwrap();
    let point = waiter.point().clone();
    let memories: Vec<_> = (0..PARTS).map(|_| Memory::new(driver)).collect();
    if shared {
        let channel = driver.queue(0).unwrap().channel(&point).unwrap();
        run(channel, &mut waiter, memories, rounds)
    } else {
        let channel = driver.channel(&point).unwrap();
        run(channel, &mut waiter, memories, rounds)
    }
}

fn run(
    channel: impl Hybrid,
    waiter: &mut Waiter,
    memories: Vec<Memory>,
    rounds: &[Vec<Step>],
) -> (Model, Counters) {
    let mut run = Run {
        channel,
        waiter,
        memories,
        model: vec![Some(0); usize::try_from(DISK).unwrap()],
        fill: 1,
    };
    for steps in rounds {
        run.round(steps);
    }
    let counters = run.channel.counters();
    (run.model, counters)
}

fn options() -> impl Strategy<Value = Options> {
    let without = [
        feature::INDIRECT_DESC,
        feature::EVENT_IDX,
        feature::FLUSH,
        feature::SEG_MAX,
        feature::SIZE_MAX,
        feature::CONFIG_WCE,
    ];
    let without = proptest::sample::subsequence(without.to_vec(), 0..=without.len());
    let size = prop_oneof![Just(4), Just(8), Just(128), Just(256)];
    (without, size).prop_map(|(without, queue_size)| {
        Options::default()
            .queue_size(queue_size)
            .experiment(Experiment {
                without: without.into_iter().fold(0, |all, bit| all | bit),
                ..Experiment::default()
            })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn what_is_read_is_what_was_written(
        options in options(),
        waiting in prop_oneof![Just(Waiting::Polled), Just(Waiting::Call), Just(Waiting::Adaptive)],
        shared in any::<bool>(),
        rounds in proptest::collection::vec(proptest::collection::vec(step(), 1..=6), 1..12),
    ) {
        let served = Served::disk(&format!("memory:size={DISK}"), 1);
        let driver = served.connect(&options);
        prop_assert_eq!(u64::from(driver.geometry().block), BLOCK);
        let (model, counters) = check(&driver, waiting, shared, &rounds);
        // Beneath the driver, and all of it: a write that strays may lie where nothing was read.
        let disk = Client::new(&**served.device.disk()).read_bytes(0, model.len());
        prop_assert!(agree(&model, &disk), "the disk as the requests leave it");
        let ended: u64 = served.device.snapshots().iter().map(|queue| queue.requests.total()).sum();
        prop_assert_eq!(counters.requests, ended, "what came back is what the device ended");
        prop_assert!(counters.kicks <= ended, "each kick tells of something: {:?}", counters);
        prop_assert_eq!(driver.retired(), 0);
        drop(driver);
        served.join();
    }
}

#[test]
fn a_queue_too_small_or_odd_is_refused_by_name() {
    for size in [0, 1, 2, 3, 5, 100, 255, 32769, u16::MAX] {
        let options = Options::default().queue_size(size);
        let error = Driver::connect("nowhere", &options).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("a queue cannot have {size} entries; give a power of two from 4 to 32768")
        );
    }
}

#[test]
fn there_is_a_queue_whatever_is_asked_for() {
    for (asked, queues) in [(Some(0), 1), (Some(2), 2), (Some(99), common::QUEUES)] {
        let served = Served::disk("memory:size=1M", 1);
        let driver = served.connect(&Options::default().queues(asked));
        assert_eq!(driver.queues(), queues);
        let waiter = Waiter::new(Waiting::Polled).unwrap();
        drop(driver.open_channel(waiter.point()).unwrap());
        drop(driver);
        served.join();
    }
}

#[test]
fn what_the_disk_cannot_do_ends_before_the_device_is_asked() {
    let served = Served::disk("memory:size=1M", 1);
    let driver = served.connect(&Options::default().experiment(Experiment {
        without: feature::DISCARD | feature::FLUSH,
        ..Experiment::default()
    }));
    let waiter = Waiter::new(Waiting::Polled).unwrap();
    let mut channel = driver.channel(waiter.point()).unwrap();
    let buffer = driver.allocate(700).unwrap();
    // SAFETY: the buffer is kept until the end of the test.
    let list = Loan::first(&[unsafe { buffer.span() }], u64::MAX);
    // SAFETY: the list ends when nothing is in flight.
    let from = unsafe { list.spans() };
    let durability = Durability::Volatile;
    let invalid = Err(Failure::Io(rustix::io::Errno::INVAL));
    for (op, result) in [
        (Op::Flush, Ok(())),
        (Op::Discard { at: 0, len: 512 }, Err(Failure::Unsupported)),
        (
            Op::Write {
                at: 0,
                from,
                durability,
            },
            invalid,
        ),
        (
            Op::Write {
                at: 1,
                from,
                durability,
            },
            invalid,
        ),
        (
            Op::Write {
                at: u64::MAX,
                from,
                durability,
            },
            Err(Failure::OutOfRange),
        ),
    ] {
        let ticket = Ticket(0);
        let queued = channel.queue_as(Request { ticket, op }, CompletionMode::Polled);
        assert_eq!(queued, Queued::Done(result), "{op:?}");
    }
    list.end();
    drop((channel, driver));
    served.join();
}
