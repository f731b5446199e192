//! A `fault:` disk misbehaves exactly as it is told to, and in no other way.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::io::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use common::faulty::{faults, faulty, file, memory, over};
use pollux_disk::fault::Faults;
use pollux_disk::{
    Channel, Disk, Event, Events, Failure, Fault, Geometry, Memory, Op, OpenError, Options, Spec,
    Unmap, WaitPoint,
};
use pollux_disk_conformance::{Buffer, Client, behaves_like_a_disk, pattern, read, write, zeroes};
use pollux_memory::Region;
use proptest::prelude::*;
use rustix::io::Errno;

const EIO: Result<(), Failure> = Err(Failure::Io(Errno::IO));

/// Which of `count` flushes, counted from 1, fail.
fn failing(disk: &Fault, count: u64) -> Vec<u64> {
    let mut client = Client::new(disk);
    (1..=count)
        .filter(|_| client.run(Op::Flush).is_err())
        .collect()
}

#[test]
fn without_rules_it_behaves_as_the_disk_below() {
    behaves_like_a_disk(&|bytes| Arc::new(Fault::new(memory(bytes), &Faults::default()).unwrap()));
}

#[test]
fn late_as_it_may_be_it_behaves() {
    behaves_like_a_disk(&|bytes| {
        Arc::new(over(
            memory(bytes),
            "delay=0us-200us,delay=exp:50us,op=read",
        ))
    });
}

#[test]
fn every_nth_request_fails_and_no_other() {
    assert_eq!(failing(&faulty("error=EIO,every=3"), 10), [3, 6, 9]);
    assert_eq!(failing(&faulty("error=EIO,after=7"), 10), [8, 9, 10]);
    assert_eq!(failing(&faulty("error=EIO,after=1,every=4"), 10), [5, 9]);
    assert_eq!(failing(&faulty("error=EIO,every=2,times=2"), 10), [2, 4]);
    assert_eq!(failing(&faulty("error=EIO,times=1"), 10), [1]);
    assert!(failing(&faulty("error=EIO,op=read+write"), 10).is_empty());
    assert!(failing(&faulty("error=EIO,range=0-1M"), 10).is_empty());
}

#[test]
fn rules_count_for_themselves_and_the_first_decides() {
    let disk = faulty("error=ENOSPC,every=4,error=EOPNOTSUPP,every=2");
    let mut client = Client::new(&disk);
    let results: Vec<_> = (0..4).map(|_| client.run(Op::Flush)).collect();
    let (unsupported, full) = (Failure::Unsupported, Failure::Io(Errno::NOSPC));
    assert_eq!(results, [Ok(()), Err(unsupported), Ok(()), Err(full)]);
}

#[test]
fn all_channels_count_together_and_what_is_no_request_does_not_count() {
    let disk = faulty("error=EIO,every=3");
    let buffer = Buffer::new(512);
    let (mut one, mut other) = (Client::new(&disk), Client::new(&disk));
    assert_eq!(one.run(Op::Flush), Ok(()));
    assert_eq!(one.run(read(1 << 20, &buffer)), Err(Failure::OutOfRange));
    assert_eq!(other.run(Op::Flush), Ok(()));
    assert_eq!(one.run(Op::Flush), EIO);
    assert_eq!(other.run(Op::Flush), Ok(()));
}

#[test]
fn a_range_is_what_a_request_touches() {
    let disk = faulty("error=EIO,range=4K-8K");
    let mut client = Client::new(&disk);
    let buffer = Buffer::new(1024);
    for (at, result) in [
        (4096 - 1024, Ok(())),
        (4096 - 512, EIO),
        (4096, EIO),
        (8192 - 512, EIO),
        (8192, Ok(())),
    ] {
        assert_eq!(client.run(write(at, &buffer)), result, "{at}");
        let at_once = zeroes(at, 1024, Unmap::Allowed);
        assert_eq!(client.run(at_once), result, "{at}");
        assert_eq!(client.run(Op::Discard { at, len: 1024 }), result, "{at}");
    }
    assert_eq!(client.run(Op::Discard { at: 4096, len: 0 }), Ok(()));
}

#[test]
fn a_request_that_fails_does_not_reach_the_disk_below() {
    let below = memory(1 << 20);
    let bytes = pattern(1, 4096);
    Client::new(&*below).write_bytes(0, &bytes).unwrap();
    let disk = over(below, "error=EIO,op=write+discard+write-zeroes");
    let mut client = Client::new(&disk);
    assert_eq!(client.write_bytes(0, &pattern(2, 4096)), EIO);
    assert_eq!(client.run(Op::Discard { at: 0, len: 4096 }), EIO);
    assert_eq!(client.run(zeroes(0, 4096, Unmap::Forbidden)), EIO);
    assert!(client.read_bytes(0, 4096) == bytes);
}

/// How much of a write of 8 blocks, in spans that no block fits, is stored.
fn torn(below: Arc<dyn Disk>, rule: &str) -> (Result<(), Failure>, usize) {
    let disk = over(below, rule);
    let bytes = vec![7; 4096];
    let buffer = Buffer::cut(bytes.len(), &[100, 100, 700, 2000, 3333]);
    buffer.fill(&bytes);
    let mut client = Client::new(&disk);
    let result = client.run(write(4096, &buffer));
    let stored = client.read_bytes(4096, 4096);
    let kept = stored.iter().take_while(|&&byte| byte == 7).count();
    assert!(stored[kept..].iter().all(|&byte| byte == 0), "{kept}");
    (result, kept)
}

#[test]
fn of_a_torn_write_exactly_the_beginning_is_stored() {
    for kept in (0..=8).map(|blocks| blocks * 512) {
        let rule = format!("torn={kept}");
        assert_eq!(torn(memory(1 << 20), &rule), (EIO, kept));
        assert_eq!(torn(file(), &rule), (EIO, kept));
        let lies = format!("{rule},then=ok");
        assert_eq!(torn(file(), &lies), (Ok(()), kept));
    }
    assert_eq!(torn(file(), "torn=1M"), (EIO, 4096));
}

#[test]
fn a_write_that_is_torn_by_chance_keeps_whole_blocks_but_never_all() {
    let kept = |seed: u32| torn(memory(1 << 20), &format!("seed={seed},torn=random")).1;
    let kept: Vec<_> = (0..64).map(kept).collect();
    assert!(kept.iter().all(|kept| kept % 512 == 0 && *kept < 4096));
    assert!((0..8).all(|blocks| kept.contains(&(blocks * 512))));
}

#[test]
fn a_block_is_not_torn() {
    let geometry = Geometry {
        block: 4096,
        ..Geometry::plain(1 << 20)
    };
    let below = || Arc::new(Memory::new(geometry).unwrap());
    let refused = Fault::new(below(), &faults("torn=512")).err().unwrap();
    assert!(
        matches!(refused, OpenError::PartialBlock { .. }),
        "{refused}"
    );
    assert!(Fault::new(below(), &faults("torn=4K")).is_ok());
}

#[test]
fn a_failure_below_is_not_hidden_by_a_lie() {
    let below = Arc::new(over(memory(1 << 20), "error=ENOSPC,op=write"));
    let (result, kept) = torn(below, "torn=512,then=ok");
    assert_eq!((result, kept), (Err(Failure::Io(Errno::NOSPC)), 0));
}

#[test]
fn faults_are_late_too() {
    let disk = faulty("delay=1ms,error=EIO,op=flush,torn=0");
    let mut client = Client::new(&disk);
    assert_eq!(client.run(Op::Flush), EIO);
    assert_eq!(client.write_bytes(0, &[1; 512]), EIO);
    assert_eq!(client.read_bytes(0, 512), [0; 512]);
}

/// A disk that says what it was told.
struct Told {
    memory: Memory,
    maps: AtomicU32,
    unmaps: AtomicU32,
}

impl Disk for Told {
    fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }

    fn open_channel(&self, wait: &WaitPoint) -> std::io::Result<Box<dyn Channel>> {
        self.memory.open_channel(wait)
    }

    fn map(&self, _region: &Arc<Region>) -> std::io::Result<()> {
        self.maps.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn unmap(&self, _region: &Arc<Region>) {
        self.unmaps.fetch_add(1, Ordering::Relaxed);
    }

    fn events(&self) -> &Events {
        self.memory.events()
    }
}

#[test]
fn geometry_memory_and_events_are_those_of_the_disk_below() {
    let geometry = Geometry {
        min_io: 4096,
        optimal_io: 1 << 20,
        ..Geometry::plain(1 << 20)
    };
    let below = Arc::new(Told {
        memory: Memory::new(geometry).unwrap(),
        maps: AtomicU32::new(0),
        unmaps: AtomicU32::new(0),
    });
    let disk = over(Arc::clone(&below) as _, "error=EIO");
    assert_eq!(disk.geometry(), below.geometry());
    let heard = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&heard);
    let _subscription = disk.events().subscribe(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    below.events().tell(Event::Changed);
    assert_eq!(heard.load(Ordering::Relaxed), 1);
    let memory = tempfile::tempfile_in("/dev/shm").unwrap();
    memory.set_len(4096).unwrap();
    let region = Arc::new(Region::map(memory, 0, 0, 0, 4096).unwrap());
    disk.map(&region).unwrap();
    disk.unmap(&region);
    let told = (&below.maps, &below.unmaps);
    assert_eq!(told.0.load(Ordering::Relaxed), 1);
    assert_eq!(told.1.load(Ordering::Relaxed), 1);
}

#[test]
fn a_resize_meets_the_rules_that_are_about_it() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = common::sparse(&folder, 4096);
    let rules =
        "error=EIO,op=resize,times=1,delay=20ms,op=resize,hang=request,op=flush+resize,after=2";
    let spec = format!("fault:{rules},on=file:path={}", path.display());
    let disk = spec.parse::<Spec>().unwrap();
    let disk = disk.open(&Options::default()).unwrap();
    let error = disk.resize(Some(8192)).unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("Input/output error"), "{source}");
    assert_eq!(disk.geometry().bytes, 4096);
    let started = Instant::now();
    disk.resize(Some(8192)).unwrap();
    assert!(started.elapsed() >= Duration::from_millis(20));
    assert_eq!(disk.geometry().bytes, 8192);
    // The third is never answered, and has changed nothing.
    let (hung, (told, answered)) = (Arc::clone(&disk), mpsc::channel());
    thread::spawn(move || told.send(hung.resize(Some(12288))));
    let answered = answered.recv_timeout(Duration::from_millis(100));
    assert!(matches!(answered, Err(mpsc::RecvTimeoutError::Timeout)));
    assert_eq!(disk.geometry().bytes, 8192);
}

/// The results of a few hundred writes and reads, and what is stored in the end.
fn course(rules: &str, ops: &[(u64, bool)]) -> (Vec<Result<(), Failure>>, Vec<u8>) {
    let below = memory(64 << 10);
    let disk = over(Arc::clone(&below) as _, rules);
    let mut client = Client::new(&disk);
    let results = ops
        .iter()
        .zip(1..)
        .map(|(&(block, writes), seed)| {
            let buffer = Buffer::holding(&pattern(seed, 2048));
            let at = block * 512;
            client.run(if writes {
                write(at, &buffer)
            } else {
                read(at, &buffer)
            })
        })
        .collect();
    (results, Client::new(&*below).read_bytes(0, 64 << 10))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..Default::default() })]

    #[test]
    fn the_same_requests_meet_the_same_faults(
        seed: u64,
        ops in prop::collection::vec((0..124u64, any::<bool>()), 1..100),
    ) {
        let rules = format!(
            "seed={seed},torn=random,chance=30%,then=ok,error=ENOSPC,chance=20%,torn=random,every=3"
        );
        prop_assert_eq!(course(&rules, &ops), course(&rules, &ops));
    }
}

#[test]
fn another_seed_is_another_course() {
    let ops: Vec<_> = (0..100).map(|block| (block, true)).collect();
    let courses: Vec<_> = (0..4)
        .map(|seed| course(&format!("seed={seed},error=EIO,chance=50%"), &ops).0)
        .collect();
    for (at, one) in courses.iter().enumerate() {
        assert!(!courses[..at].contains(one), "seed {at}");
        let failed = one.iter().filter(|result| result.is_err()).count();
        assert!((20..80).contains(&failed), "{failed} of 100 at 50 %");
    }
}

#[test]
fn the_luck_of_a_rule_does_not_depend_on_those_behind_it() {
    let disk = |rules: &str| failing(&faulty(&format!("seed=3,{rules}")), 100);
    let alone = disk("error=EIO,chance=10%");
    assert!(!alone.is_empty());
    assert_eq!(disk("error=EIO,chance=10%,delay=exp:1us,chance=50%"), alone);
}

#[test]
fn the_log_tells_what_reaches_the_disk_below_and_others_may_append_to_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let rules = format!("log={},error=EIO,op=read,torn=0,after=2", path.display());
    let disk = faulty(&rules);
    let mut client = Client::new(&disk);
    let data = Buffer::cut(512, &[10, 20]);
    data.fill(&[0xab; 512]);
    client.run(write(4096, &data)).unwrap();
    let mut other = std::fs::OpenOptions::new()
        .append(true)
        .open(&path)
        .unwrap();
    other.write_all(b"seen\n").unwrap();
    client.run(Op::Flush).unwrap();
    client.run(read(0, &data)).unwrap_err();
    client.run(zeroes(512, 1024, Unmap::Forbidden)).unwrap();
    client.run(write(0, &data)).unwrap();
    client.run(write(0, &data)).unwrap_err();
    let shown = "ab".repeat(32);
    let expected = format!(
        "write 4096 512 {shown}\nseen\nflush 0 0\nwrite-zeroes 512 1024\nwrite 0 512 {shown}\n"
    );
    assert_eq!(std::fs::read_to_string(&path).unwrap(), expected);
    assert!(matches!(
        Fault::new(memory(1 << 20), &faults("log=/nowhere/log")),
        Err(OpenError::Log { .. })
    ));
}
