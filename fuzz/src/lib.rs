//! The fuzz targets, each a function of the fuzzer's bytes that panics where something is wrong.
//!
//! They are called by libFuzzer (`make fuzz`), by the test that replays `corpus-seed/` (`make test`), and by
//! `cargo run -p pollux-fuzz --bin TARGET FILE...`, which repeats a find without a fuzzer.
#![deny(unsafe_code)]

pub mod chain;
pub mod config;
pub mod image;
pub mod request;
pub mod session;
pub mod spec;

use std::io;

/// Gives the files that the command line names to `target`, one after the other.
///
/// # Errors
///
/// When a file cannot be read.
pub fn replay(target: impl Fn(&[u8])) -> io::Result<()> {
    for path in std::env::args_os().skip(1) {
        target(&std::fs::read(path)?);
    }
    Ok(())
}
