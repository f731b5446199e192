//! See `pollux_fuzz::image`.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| pollux_fuzz::image::run(data));

#[cfg(not(fuzzing))]
fn main() -> std::io::Result<()> {
    pollux_fuzz::replay(pollux_fuzz::image::run)
}
