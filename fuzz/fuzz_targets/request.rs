//! See `pollux_fuzz::request`.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| pollux_fuzz::request::run(data));

#[cfg(not(fuzzing))]
fn main() -> std::io::Result<()> {
    pollux_fuzz::replay(pollux_fuzz::request::run)
}
