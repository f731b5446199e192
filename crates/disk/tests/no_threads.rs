//! A machine that has no more threads to give.
//!
//! A process of its own and one test, because the process gets no more memory from then on.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use common::log;
use pollux_disk::file::{Engine, Inline, Settings};
use pollux_disk::{File, Op, Options};
use pollux_disk_conformance::{Buffer, Client, read};
use rustix::process::{Resource, getrlimit, setrlimit};

/// So often a thread is asked for.
const TIMES: usize = 200;
/// A burst of lines, and some for the seconds that it takes.
const FEW: usize = 100;

#[test]
fn threads_that_cannot_be_started_are_told_of_now_and_then() {
    log::listen();
    let settings = Settings {
        engine: Engine::Threads,
        inline: Inline::Off,
        ..Settings::default()
    };
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(16 << 20).unwrap();
    let disk = File::open(file.path(), settings, &Options::default()).unwrap();
    let mut client = Client::new(&disk);
    let buffers: Vec<_> = (0..8).map(|_| Buffer::new(4096)).collect();
    let ops: Vec<Op> = (0..)
        .zip(&buffers)
        .map(|(number, buffer)| read(number * 4096, buffer))
        .collect();
    // Some memory is left for all else, and not enough for the stack of a thread.
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
    let mut limit = getrlimit(Resource::As);
    limit.current = Some((pages << 12) + (1 << 20));
    setrlimit(Resource::As, limit).unwrap();
    for _ in 0..TIMES {
        assert!(client.run_all(&ops).iter().all(Result::is_ok));
    }
    let lines = log::count("cannot start another thread");
    assert!((1..FEW).contains(&lines), "{lines} lines");
}
