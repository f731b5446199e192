//! Numbers as people read them.

use std::time::Duration;

/// What a reader sees of a count does not have 53 bits.
#[allow(clippy::cast_precision_loss, reason = "shown with a few digits")]
pub fn float(count: u64) -> f64 {
    count as f64
}

/// A part of nothing is nothing.
pub fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// `count` for each of `of`; 0 of none.
pub fn per(count: u64, of: u64) -> f64 {
    ratio(float(count), float(of))
}

/// `count` a second.
pub fn rate(count: u64, time: Duration) -> f64 {
    ratio(float(count), time.as_secs_f64())
}

/// Microseconds of `time` for each of `of`.
pub fn us_per(time: Duration, of: u64) -> f64 {
    ratio(time.as_secs_f64() * 1e6, float(of))
}

/// Three digits at least, and their unit.
fn scaled<'a>(value: f64, units: &[(f64, &'a str)]) -> (String, &'a str) {
    let (factor, unit) = units
        .iter()
        .rev()
        .find(|(factor, _)| value >= *factor)
        .unwrap_or(&units[0]);
    let value = value / factor;
    let decimals = match value {
        value if value < 10.0 => 2,
        value if value < 100.0 => 1,
        _ => 0,
    };
    (format!("{value:.decimals$}"), unit)
}

/// `12.3 µs`
pub fn time(ns: f64) -> String {
    let (number, unit) = scaled(ns, &[(1.0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")]);
    format!("{number} {unit}")
}

/// `1.5 GiB`
pub fn bytes(bytes: f64) -> String {
    const UNITS: [(f64, &str); 7] = [
        (1.0, "B"),
        (1024.0, "KiB"),
        (1_048_576.0, "MiB"),
        (1_073_741_824.0, "GiB"),
        (1_099_511_627_776.0, "TiB"),
        (1_125_899_906_842_624.0, "PiB"),
        (1_152_921_504_606_846_976.0, "EiB"),
    ];
    let (number, unit) = scaled(bytes, &UNITS);
    // Most sizes are whole.
    let number = if number.contains('.') {
        number.trim_end_matches('0').trim_end_matches('.')
    } else {
        &number
    };
    format!("{number} {unit}")
}

/// `312k`
pub fn count(value: f64) -> String {
    if value < 1000.0 {
        return format!("{value:.0}");
    }
    let (number, unit) = scaled(value, &[(1.0, ""), (1e3, "k"), (1e6, "M")]);
    number + unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        assert_eq!(time(0.0), "0.00 ns");
        assert_eq!(time(950.0), "950 ns");
        assert_eq!(time(12_340.0), "12.3 µs");
        assert_eq!(time(3_100_000_000.0), "3.10 s");
        assert_eq!(bytes(0.0), "0 B");
        assert_eq!(bytes(1023.0), "1023 B");
        assert_eq!(bytes(1536.0), "1.5 KiB");
        assert_eq!(bytes(536_870_912.0), "512 MiB");
        assert_eq!(bytes(21_474_836_480.0), "20 GiB");
        assert_eq!(bytes(52_708_912_300_000.0), "47.9 TiB");
        assert_eq!(bytes(float(u64::MAX)), "16 EiB");
        assert_eq!(count(312_400.0), "312k");
        assert_eq!(count(950.2), "950");
        assert_eq!(count(1_250_000.0), "1.25M");
    }

    #[test]
    fn nothing_is_divided_by_nothing() {
        for zero in [
            per(3, 0),
            rate(3, Duration::ZERO),
            us_per(Duration::from_secs(1), 0),
        ] {
            assert_eq!(zero.to_bits(), 0);
        }
        assert_eq!(per(3, 6).to_bits(), 0.5f64.to_bits());
    }
}
