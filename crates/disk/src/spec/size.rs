//! Sizes as people write them.

use std::fmt;
use std::str::FromStr;

/// A number of bytes, at least 1 and at most 2^63 - 1, the most that a file can hold.
///
/// ```
/// # use pollux_disk::spec::Size;
/// assert_eq!("1G".parse(), Ok(Size(1 << 30)));
/// assert_eq!(Size(3 << 19).to_string(), "1536K");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Size(pub u64);

/// Why something is not a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// Something else than a whole number and a suffix.
    #[error("a size is a whole number of bytes, or one followed by K, M, G or T")]
    NotANumber,
    /// No bytes at all.
    #[error("a size of 0 holds nothing")]
    Zero,
    /// More than there can be.
    #[error("no disk is that large")]
    TooLarge,
}

const UNITS: [(char, u32); 4] = [('T', 40), ('G', 30), ('M', 20), ('K', 10)];

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let unit = UNITS.iter().find_map(|&(unit, shift)| {
            Some((text.strip_suffix([unit, unit.to_ascii_lowercase()])?, shift))
        });
        let (digits, shift) = unit.unwrap_or((text, 0));
        if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
            return Err(SizeError::NotANumber);
        }
        // Digits only, so it can fail only by being too large.
        let number: u64 = digits.parse().map_err(|_| SizeError::TooLarge)?;
        let bytes = number
            .checked_mul(1 << shift)
            .filter(|&bytes| i64::try_from(bytes).is_ok())
            .ok_or(SizeError::TooLarge)?;
        match bytes {
            0 => Err(SizeError::Zero),
            bytes => Ok(Self(bytes)),
        }
    }
}

/// In the largest unit of which it is a whole number.
impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |&&(_, shift): &&(char, u32)| self.0 > 0 && self.0.trailing_zeros() >= shift;
        match UNITS.iter().find(fits) {
            Some((unit, shift)) => write!(f, "{}{unit}", self.0 >> shift),
            None => write!(f, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024() {
        let table = [
            ("1", Ok(1)),
            ("512", Ok(512)),
            ("4k", Ok(4096)),
            ("4K", Ok(4096)),
            ("16M", Ok(16 << 20)),
            ("2g", Ok(2 << 30)),
            ("1T", Ok(1 << 40)),
            ("9223372036854775807", Ok(i64::MAX.cast_unsigned())),
            ("9223372036854775808", Err(SizeError::TooLarge)),
            ("8388608T", Err(SizeError::TooLarge)),
            ("99999999999999999999", Err(SizeError::TooLarge)),
            ("0", Err(SizeError::Zero)),
            ("0G", Err(SizeError::Zero)),
            ("", Err(SizeError::NotANumber)),
            ("G", Err(SizeError::NotANumber)),
            ("-1", Err(SizeError::NotANumber)),
            ("+1", Err(SizeError::NotANumber)),
            ("1.5G", Err(SizeError::NotANumber)),
            ("1 G", Err(SizeError::NotANumber)),
            ("1GG", Err(SizeError::NotANumber)),
            ("1GiB", Err(SizeError::NotANumber)),
        ];
        for (text, size) in table {
            assert_eq!(text.parse(), size.map(Size), "{text}");
        }
    }

    #[test]
    fn a_size_is_printed_in_its_largest_unit() {
        for (size, text) in [
            (1, "1"),
            (1536, "1536"),
            (2048, "2K"),
            (3 << 30, "3G"),
            (5 << 50, "5120T"),
        ] {
            assert_eq!(Size(size).to_string(), text);
        }
    }
}
