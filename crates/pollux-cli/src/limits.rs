//! Limits as people and programs write them, in the words of QEMU's `throttling.*`.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU64;
use std::str::FromStr;
use std::sync::{Arc, Weak};

use pollux::device::{Limited, Limiter, Limits, Rate};
use pollux::disk::spec::Size;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How many requests and bytes a second a disk may have; what is absent is not limited.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields, default, expecting = "an object of limits")]
pub struct DiskLimits {
    /// Requests a second, but for flushes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops_total: Option<u64>,
    /// How many of them may come at once after a pause; by default what comes in a fiftieth of a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops_total_max: Option<u64>,
    /// Reads a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops_read: Option<u64>,
    /// How many of them at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops_read_max: Option<u64>,
    /// Writes, discards and zeroed ranges a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops_write: Option<u64>,
    /// How many of them at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops_write_max: Option<u64>,
    /// Bytes read and written a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bps_total: Option<u64>,
    /// How many of them at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bps_total_max: Option<u64>,
    /// Bytes read a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bps_read: Option<u64>,
    /// How many of them at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bps_read_max: Option<u64>,
    /// Bytes written a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bps_write: Option<u64>,
    /// How many of them at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bps_write_max: Option<u64>,
}

/// Limits that cannot be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadLimit {
    /// There is no such limit.
    #[error(
        "there is no limit `{0}`; there are iops-total, iops-read, iops-write, bps-total, bps-read and bps-write, and \
         each with -max for a burst"
    )]
    Word(String),
    /// All limits are lifted, and one is set.
    #[error(
        "`none` lifts all limits of a disk, alone in `pollux disk limit`; to lift one, write iops-total=none"
    )]
    NotAlone,
    /// It has no number.
    #[error(
        "{word}={text} is no limit; write a whole number from 1 on, {units}, such as {word}={example}"
    )]
    Number {
        word: String,
        text: String,
        units: &'static str,
        example: &'static str,
    },
    /// It would stop the disk.
    #[error("{0}=0 would stop the disk; to lift the limit, write {0}=none, or null in JSON")]
    Zero(String),
    /// A burst above nothing.
    #[error("{0}-max is for bursts above {0}; give {0} as well")]
    NoRate(&'static str),
    /// A burst below what comes anyway.
    #[error(
        "{word}-max={burst} is less than {word}={rate}; it is how many may come at once after a pause, at least {rate}"
    )]
    SmallBurst {
        word: &'static str,
        burst: u64,
        rate: u64,
    },
    /// It is there twice.
    #[error("{0} is given twice; leave out one")]
    Twice(String),
    /// Disks share limits that none of them has, and that cannot come later.
    #[error(
        "no disk of the limit group `{0}` has limits; give them to one, such as iops-total=5000, or leave out the group"
    )]
    Unset(String),
    /// Disks that share limits do not agree.
    #[error(
        "the disks of the limit group `{0}` have different limits; give them to one disk, or the same to all"
    )]
    Group(String),
}

impl BadLimit {
    /// Which field of [`DiskLimits`] is to blame.
    pub fn field(&self) -> Option<String> {
        let word = match self {
            Self::Word(word) | Self::Zero(word) | Self::Twice(word) | Self::Number { word, .. } => {
                word.clone()
            }
            Self::NoRate(word) | Self::SmallBurst { word, .. } => format!("{word}-max"),
            Self::Group(_) | Self::Unset(_) | Self::NotAlone => return None,
        };
        Some(format!("limits.{}", word.replace('-', "_")))
    }
}

impl DiskLimits {
    /// Rate and burst of each limit, in the order of [`Limited::ALL`].
    fn each(&mut self) -> [[&mut Option<u64>; 2]; 6] {
        [
            [&mut self.iops_total, &mut self.iops_total_max],
            [&mut self.iops_read, &mut self.iops_read_max],
            [&mut self.iops_write, &mut self.iops_write_max],
            [&mut self.bps_total, &mut self.bps_total_max],
            [&mut self.bps_read, &mut self.bps_read_max],
            [&mut self.bps_write, &mut self.bps_write_max],
        ]
    }

    /// Is nothing limited?
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// All that are set, by their words.
    pub fn by_word(mut self) -> Vec<(String, u64)> {
        let mut all = Vec::new();
        for (what, [rate, burst]) in Limited::ALL.into_iter().zip(self.each()) {
            let word = what.word();
            all.extend(rate.map(|rate| (word.to_owned(), rate)));
            all.extend(burst.map(|burst| (format!("{word}-max"), burst)));
        }
        all
    }

    /// As the device takes them.
    pub fn checked(mut self) -> Result<Limits, BadLimit> {
        let mut limits = Limits::default();
        for (what, [rate, burst]) in Limited::ALL.into_iter().zip(self.each()) {
            let word = what.word();
            let positive = |number: u64, end| {
                NonZeroU64::new(number).ok_or_else(|| BadLimit::Zero(format!("{word}{end}")))
            };
            let burst = burst.map(|burst| positive(burst, "-max")).transpose()?;
            let Some(per_second) = rate.map(|rate| positive(rate, "")).transpose()? else {
                if burst.is_some() {
                    return Err(BadLimit::NoRate(word));
                }
                continue;
            };
            if let Some(burst) = burst.filter(|burst| *burst < per_second) {
                let (burst, rate) = (burst.get(), per_second.get());
                return Err(BadLimit::SmallBurst { word, burst, rate });
            }
            limits.set(what, Some(Rate { per_second, burst }));
        }
        Ok(limits)
    }
}

impl From<Limits> for DiskLimits {
    fn from(limits: Limits) -> Self {
        let mut all = Self::default();
        for (what, [rate, burst]) in Limited::ALL.into_iter().zip(all.each()) {
            let limit = limits.get(what);
            *rate = limit.map(|limit| limit.per_second.get());
            *burst = limit.and_then(|limit| limit.burst).map(NonZeroU64::get);
        }
        all
    }
}

/// What `parts` change: fields of [`DiskLimits`], each once.
pub fn changes<'a>(
    parts: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<(String, Option<u64>)>, BadLimit> {
    let mut given = HashSet::new();
    let mut once = |part| {
        let (field, number) = change(part)?;
        if given.insert(field.clone()) {
            Ok((field, number))
        } else {
            Err(BadLimit::Twice(field.replace('_', "-")))
        }
    };
    parts.into_iter().map(&mut once).collect()
}

/// One limit, as `iops-total=1000`: its field in [`DiskLimits`], and its number, or `None` for `none`.
fn change(text: &str) -> Result<(String, Option<u64>), BadLimit> {
    let (word, number) = text.split_once('=').unwrap_or((text, ""));
    let what = Limited::of(word.strip_suffix("-max").unwrap_or(word));
    let what = what.ok_or_else(|| match text {
        "none" => BadLimit::NotAlone,
        _ => BadLimit::Word(word.to_owned()),
    })?;
    let value = match (number, what.is_bytes()) {
        ("none", _) => Some(None),
        ("0", _) => return Err(BadLimit::Zero(word.to_owned())),
        (_, true) => number.parse().ok().map(|Size(bytes)| Some(bytes)),
        (_, false) => requests(number).map(Some),
    };
    let (units, example) = if what.is_bytes() {
        ("with K, M or G for powers of 1024", "100M")
    } else {
        ("with K or M for thousands or millions", "5000")
    };
    let bad = || BadLimit::Number {
        word: word.to_owned(),
        text: number.to_owned(),
        units,
        example,
    };
    Ok((word.replace('-', "_"), value.ok_or_else(bad)?))
}

/// A number of requests, which are counted in thousands.
pub fn requests(text: &str) -> Option<u64> {
    let units = [('K', 1000), ('k', 1000), ('M', 1_000_000)];
    let unit = units
        .iter()
        .find_map(|(unit, many)| Some((text.strip_suffix(*unit)?, *many)));
    let (digits, many) = unit.unwrap_or((text, 1));
    let number: u64 = digits.parse().ok()?;
    number.checked_mul(many)
}

/// The limits of a disk as an option: `iops-total=5000,bps-write=100M`.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub struct LimitsOption(pub Limits);

impl FromStr for LimitsOption {
    type Err = BadLimit;

    fn from_str(text: &str) -> Result<Self, BadLimit> {
        let mut all = DiskLimits::default();
        for (field, number) in changes(text.split(','))? {
            let word = field.replace('_', "-");
            for (what, [rate, burst]) in Limited::ALL.into_iter().zip(all.each()) {
                if word == what.word() {
                    *rate = number;
                } else if word.strip_suffix("-max") == Some(what.word()) {
                    *burst = number;
                }
            }
        }
        Ok(Self(all.checked()?))
    }
}

impl TryFrom<String> for LimitsOption {
    type Error = BadLimit;

    fn try_from(text: String) -> Result<Self, BadLimit> {
        text.parse()
    }
}

/// Limits that several disks share, by the names of their groups. A group is forgotten with its last disk.
#[derive(Debug, Default)]
pub struct Groups(HashMap<String, Weak<Limiter>>);

impl Groups {
    /// The limits of the disks in this group, if there are any.
    pub fn limits(&self, group: Option<&str>) -> Option<Limits> {
        let limiter = self.0.get(group?)?.upgrade()?;
        Some(limiter.limits())
    }

    /// What a disk asks that is to have these `limits`, in `group` or for itself. They are not set yet.
    pub fn limiter(
        &mut self,
        group: Option<&str>,
        limits: Limits,
    ) -> Result<Arc<Limiter>, BadLimit> {
        let limiter = match group {
            Some(group) => {
                let there = self.0.get(group).and_then(Weak::upgrade);
                let limiter = there.unwrap_or_default();
                self.0.insert(group.to_owned(), Arc::downgrade(&limiter));
                limiter
            }
            None => Arc::default(),
        };
        let others = limiter.limits();
        if !limits.is_empty() && !others.is_empty() && limits != others {
            return Err(BadLimit::Group(group.unwrap_or_default().to_owned()));
        }
        Ok(limiter)
    }
}

/// Does one disk at least of each group have limits?
pub fn are_set<'a>(disks: impl Iterator<Item = (&'a str, Limits)>) -> Result<(), BadLimit> {
    let mut groups = HashMap::new();
    for (group, limits) in disks {
        *groups.entry(group).or_insert(false) |= !limits.is_empty();
    }
    match groups.into_iter().find(|(_, is_limited)| !is_limited) {
        Some((group, _)) => Err(BadLimit::Unset(group.to_owned())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
