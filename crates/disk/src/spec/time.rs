//! Times as people write them.

use std::time::Duration;

/// Nanoseconds of each unit. Those after [`PRINTED`] are read only.
const UNITS: [(&str, u64); 6] = [
    ("ns", 1),
    ("us", 1000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];
const PRINTED: usize = 4;

/// A whole number and its unit.
pub fn time(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let (_, ns) = UNITS
        .iter()
        .find(|(unit, _)| *unit == &text[digits.len()..])?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(Duration::from_nanos(number.checked_mul(*ns)?))
}

/// In the largest unit of which it is a whole number.
pub fn printed_time(time: Duration) -> String {
    let ns = time.as_nanos();
    let fits = UNITS[..PRINTED]
        .iter()
        .rev()
        .find(|(_, unit)| ns.is_multiple_of(u128::from(*unit)));
    let (name, unit) = fits.unwrap_or(&UNITS[0]);
    format!("{}{name}", ns / u128::from(*unit))
}
