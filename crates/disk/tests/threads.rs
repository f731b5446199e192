//! The threads of a file disk: they sleep when there is nothing to do, and end with the disk.
//!
//! A process of its own and one test, because it counts the threads of the process.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::fs;
use std::time::{Duration, Instant};

use pollux_disk::file::{Engine, Inline, MAX_THREADS, Settings};
use pollux_disk::{File, Op, Options};
use pollux_disk_conformance::{Buffer, Client, read};

/// For so long a thread that sleeps is watched: that it is not woken can be seen in no other way.
const WATCHED: Duration = Duration::from_millis(500);

/// The threads of the pools: is each asleep, and how often has it gone to sleep so far?
fn threads() -> Vec<(String, bool, u64)> {
    let mut threads: Vec<_> = fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| {
            let status = fs::read_to_string(task.unwrap().path().join("status")).ok()?;
            let field = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name));
                line.map(|value| value.trim_matches([':', '\t']).to_owned())
            };
            let sleeps = field("voluntary_ctxt_switches")?.parse().ok()?;
            let asleep = field("State")?.starts_with('S');
            (field("Name")? == "pollux-file").then_some((field("Pid")?, asleep, sleeps))
        })
        .collect();
    threads.sort();
    threads
}

/// Waits until there are so many: a thread gives itself its name when it first runs, and is in the
/// kernel's books for a moment after it was joined.
fn there_are(expected: std::ops::RangeInclusive<usize>) {
    let started = Instant::now();
    while !expected.contains(&threads().len()) {
        assert!(
            started.elapsed() < Duration::from_secs(10),
            "{:?}",
            threads()
        );
        std::thread::yield_now();
    }
}

/// The threads once all are asleep and have stayed so: one that has just become idle takes its time on a busy machine.
fn at_rest() -> Vec<(String, bool, u64)> {
    let started = Instant::now();
    let mut before = threads();
    loop {
        std::thread::sleep(WATCHED);
        let now = threads();
        if now == before && now.iter().all(|(_, asleep, _)| *asleep) {
            return now;
        }
        assert!(started.elapsed() < Duration::from_secs(60), "{now:?}");
        before = now;
    }
}

#[test]
fn threads_sleep_without_waking_and_end_with_the_disk() {
    let settings = Settings {
        engine: Engine::Threads,
        inline: Inline::Off,
        ..Settings::default()
    };
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(16 << 20).unwrap();
    for _ in 0..10 {
        let disk = File::open(file.path(), settings, &Options::default()).unwrap();
        there_are(0..=0);
        let mut client = Client::new(&disk);
        let mut other = Client::new(&disk);
        there_are(1..=1);
        let buffers: Vec<_> = (0..500).map(|_| Buffer::new(4096)).collect();
        let ops: Vec<Op> = (0..)
            .zip(&buffers)
            .map(|(n, b)| read(n * 4096, b))
            .collect();
        assert!(client.run_all(&ops).iter().all(Result::is_ok));
        assert!(other.run_all(&ops).iter().all(Result::is_ok));
        there_are(1..=MAX_THREADS);
        drop(disk);
        assert_eq!(other.run(Op::Flush), Ok(()), "a channel keeps its disk");
        drop((client, other));
        there_are(0..=0);
    }

    let disk = File::open(file.path(), settings, &Options::default()).unwrap();
    let mut client = Client::new(&disk);
    assert_eq!(client.run(Op::Flush), Ok(()));
    let before = at_rest();
    assert!(!before.is_empty(), "the threads of the disk");
    std::thread::sleep(WATCHED);
    assert_eq!(threads(), before, "an idle thread was woken");
}
