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

/// The threads of the pools and how often each has gone to sleep so far.
fn threads() -> Vec<(String, u64)> {
    let mut threads: Vec<_> = fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| {
            let status = fs::read_to_string(task.unwrap().path().join("status")).ok()?;
            let field = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name));
                line.map(|value| value.trim_matches([':', '\t']).to_owned())
            };
            let sleeps = field("voluntary_ctxt_switches")?.parse().ok()?;
            (field("Name")? == "pollux-file").then_some((field("Pid")?, sleeps))
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
    // Time to fall asleep, and then time in which to be caught awake.
    std::thread::sleep(Duration::from_millis(100));
    let before = threads();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(threads(), before, "an idle thread was woken");
}
