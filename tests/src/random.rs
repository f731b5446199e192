//! The seed of a test's random numbers: the same seed gives the same run.

/// The seed of this run: `$POLLUX_TEST_SEED`, or a new one from the clock. It is printed, and the
/// test runner shows it when the test fails.
pub fn seed() -> u64 {
    let chosen = std::env::var("POLLUX_TEST_SEED")
        .ok()
        .map(|text| text.parse().expect("POLLUX_TEST_SEED is a number"));
    let seed = chosen.unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |since| {
            since.as_secs() << 20 | u64::from(since.subsec_micros())
        })
    });
    println!("POLLUX_TEST_SEED={seed} repeats this run");
    seed
}
