//! How many requests and bytes a second a disk, or a group of disks, may have.
//!
//! [`Limits`] are what was said, in the words of QEMU's `throttling.*`. A [`Limiter`] holds them for all queues of a
//! disk and may be shared by disks. Its buckets ([`Buckets`]) are a machine without a clock of its own.

mod bucket;
mod limiter;

use std::num::NonZeroU64;

pub use bucket::Flow;
pub use limiter::{Limiter, Throttle, Verdict};

/// What can be limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limited {
    /// Requests.
    IopsTotal,
    /// Reads.
    IopsRead,
    /// Writes, discards and ranges that are zeroed.
    IopsWrite,
    /// Bytes read and written.
    BpsTotal,
    /// Bytes read.
    BpsRead,
    /// Bytes written.
    BpsWrite,
}

impl Limited {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::IopsTotal,
        Self::IopsRead,
        Self::IopsWrite,
        Self::BpsTotal,
        Self::BpsRead,
        Self::BpsWrite,
    ];

    /// What it is called.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::IopsTotal => "iops-total",
            Self::IopsRead => "iops-read",
            Self::IopsWrite => "iops-write",
            Self::BpsTotal => "bps-total",
            Self::BpsRead => "bps-read",
            Self::BpsWrite => "bps-write",
        }
    }

    /// Which limit `word` means.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|what| what.word() == word)
    }

    /// Is it counted in bytes?
    #[must_use]
    pub const fn is_bytes(self) -> bool {
        matches!(self, Self::BpsTotal | Self::BpsRead | Self::BpsWrite)
    }
}

/// A limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// So many a second.
    pub per_second: NonZeroU64,
    /// So many at once after a pause. `None`: a fiftieth of a second's, which makes up for late wake-ups.
    pub burst: Option<NonZeroU64>,
}

/// What is limited, and how. The default limits nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits([Option<Rate>; Limited::ALL.len()]);

impl Limits {
    /// The limit on `what`.
    #[must_use]
    pub const fn get(&self, what: Limited) -> Option<Rate> {
        self.0[what as usize]
    }

    /// Limits `what`, or limits it no more.
    pub const fn set(&mut self, what: Limited, rate: Option<Rate>) {
        self.0[what as usize] = rate;
    }

    /// Is nothing limited?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// What is limited, with its rate.
    pub fn iter(&self) -> impl Iterator<Item = (Limited, Rate)> {
        let each = Limited::ALL.into_iter().zip(self.0);
        each.filter_map(|(what, rate)| Some((what, rate?)))
    }
}

#[cfg(test)]
mod tests;
