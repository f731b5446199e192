//! What the tests of disks share beside the expectations: what of the machine they use.

#![allow(dead_code, reason = "every test file uses its own part")]

pub mod faulty;
pub mod log;
pub mod loops;
pub mod owner;
pub mod tiny;

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use pollux_disk::file::{Engine, Settings};
use pollux_disk::{File, Options};
use tempfile::TempDir;

/// A file of so many zeroes; what was there before is gone.
pub fn sparse(folder: &TempDir, bytes: u64) -> PathBuf {
    let path = folder.path().join("disk.img");
    fs::File::create(&path).unwrap().set_len(bytes).unwrap();
    path
}

/// Makes a file that long.
pub fn set_len(path: &Path, bytes: u64) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_len(bytes).unwrap();
}

/// The engines of a file disk that there are here.
pub fn engines() -> Vec<Engine> {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(4096).unwrap();
    let settings = Settings {
        engine: Engine::IoUring,
        ..Settings::default()
    };
    match File::open(file.path(), settings, &Options::default()) {
        Ok(_) => vec![Engine::IoUring, Engine::Threads],
        Err(error) => {
            skip(&error.to_string());
            vec![Engine::Threads]
        }
    }
}

/// Says why something is not tested here; fails where `REQUIRE_PEERS` says that all must be there.
pub fn skip(why: &str) {
    let required = std::env::var_os("REQUIRE_PEERS").is_some_and(|value| value == "1");
    assert!(!required, "this must work here: {why}");
    let thread = std::thread::current();
    let said = format!("SKIP {}: {why}\n", thread.name().unwrap_or("a test"));
    // Not `println!`, of which a test that passes shows nothing.
    let _ = io::stderr().write_all(said.as_bytes());
}

/// A folder in memory, where there is one.
pub fn tmpfs() -> Option<TempDir> {
    TempDir::new_in("/dev/shm")
        .inspect_err(|error| skip(&format!("no folder in /dev/shm: {error}")))
        .ok()
}
