//! The rules: what happens, to which requests.

use std::num::NonZeroU64;
use std::ops::Range;
use std::path::PathBuf;

use super::Delay;
use crate::{Failure, Op};

/// What goes wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    /// Where chance begins.
    pub seed: u64,
    /// Where what reaches the disk below is told.
    pub log: Option<PathBuf>,
    /// What happens to which requests.
    pub rules: Vec<Rule>,
}

/// What happens to the requests of a kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rule {
    /// What happens.
    pub action: Action,
    /// To which requests.
    pub when: When,
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// The completion is held back.
    Delay(Delay),
    /// The request fails without reaching the disk below.
    Error(Failure),
    /// Only the beginning of a write reaches the disk below.
    Torn {
        /// How much.
        keep: Keep,
        /// And then?
        then: Then,
    },
    /// No answer.
    Hang(Hang),
}

/// How much of a torn write is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Keep {
    /// As many bytes, whole blocks; all of a shorter write.
    First(u64),
    /// Any number of whole blocks, but not all of them.
    Random,
}

/// What follows a torn write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Then {
    /// It fails with `EIO`.
    #[default]
    Fail,
    /// It is said to be complete: a disk that lies.
    Ok,
    /// The device hangs, as seen from a machine whose power was cut.
    Hang,
}

/// What does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hang {
    /// This request is never answered.
    Request,
    /// Nothing is ever answered again.
    Device,
}

/// Which requests a rule is about: all that every field lets pass, one after the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct When {
    /// Of these kinds.
    pub ops: Ops,
    /// That touch these bytes of the disk, which neither a flush nor a resize does.
    pub range: Option<Range<u64>>,
    /// Not the first so many.
    pub after: u64,
    /// Of the rest the last of every so many.
    pub every: NonZeroU64,
    /// Of the rest so many.
    pub chance: Chance,
    /// And not more often.
    pub times: Option<u64>,
}

impl When {
    /// All requests of such kinds.
    #[must_use]
    pub const fn all(ops: Ops) -> Self {
        Self {
            ops,
            range: None,
            after: 0,
            every: NonZeroU64::MIN,
            chance: Chance::ALWAYS,
            times: None,
        }
    }

    /// Does the rule count what is asked for?
    pub(super) fn counts(&self, asked: Asked<'_>) -> bool {
        self.ops.contains(asked.kind())
            && self
                .range
                .as_ref()
                .is_none_or(|range| touches(range, asked))
    }
}

/// What is asked of the disk.
#[derive(Clone, Copy, Debug)]
pub(super) enum Asked<'a> {
    /// A request of a channel.
    Op(&'a Op),
    /// [`Disk::resize`](crate::Disk::resize)
    Resize,
}

impl Asked<'_> {
    const fn kind(self) -> Kind {
        match self {
            Self::Op(Op::Read { .. }) => Kind::Read,
            Self::Op(Op::Write { .. }) => Kind::Write,
            Self::Op(Op::Flush) => Kind::Flush,
            Self::Op(Op::Discard { .. }) => Kind::Discard,
            Self::Op(Op::WriteZeroes { .. }) => Kind::WriteZeroes,
            Self::Resize => Kind::Resize,
        }
    }
}

fn touches(range: &Range<u64>, asked: Asked<'_>) -> bool {
    let (at, len) = match asked {
        Asked::Op(&Op::Read { at, into }) => (at, into.bytes()),
        Asked::Op(&Op::Write { at, from, .. }) => (at, from.bytes()),
        Asked::Op(&(Op::Discard { at, len } | Op::WriteZeroes { at, len, .. })) => (at, len),
        Asked::Op(Op::Flush) | Asked::Resize => return false,
    };
    len > 0 && at < range.end && at.saturating_add(len) > range.start
}

/// So many of a million.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Chance(u32);

impl Chance {
    /// Every time.
    pub const ALWAYS: Self = Self(Self::MILLION);
    const MILLION: u32 = 1_000_000;

    /// `of_a_million` times of a million, if that is possible and not never.
    #[must_use]
    pub const fn new(of_a_million: u32) -> Option<Self> {
        match of_a_million {
            0 => None,
            1..=Self::MILLION => Some(Self(of_a_million)),
            _ => None,
        }
    }

    /// How many times of a million.
    #[must_use]
    pub const fn of_a_million(self) -> u32 {
        self.0
    }

    /// This time?
    pub(super) fn draw(self, rng: &mut fastrand::Rng) -> bool {
        self == Self::ALWAYS || rng.u32(0..Self::MILLION) < self.0
    }
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// [`Op::Read`]
    Read,
    /// [`Op::Write`]
    Write,
    /// [`Op::Flush`]
    Flush,
    /// [`Op::Discard`]
    Discard,
    /// [`Op::WriteZeroes`]
    WriteZeroes,
    /// [`Disk::resize`](crate::Disk::resize)
    Resize,
}

impl Kind {
    /// All there are.
    pub const ALL: [Self; 6] = [
        Self::Read,
        Self::Write,
        Self::Flush,
        Self::Discard,
        Self::WriteZeroes,
        Self::Resize,
    ];
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ops(u8);

impl Ops {
    /// All there are.
    pub const ALL: Self = Self((1 << Kind::ALL.len()) - 1);
    /// Writes alone.
    pub const WRITE: Self = Self(1 << Kind::Write as u8);

    /// Is `kind` one of them?
    #[must_use]
    pub const fn contains(self, kind: Kind) -> bool {
        self.0 & 1 << kind as u8 != 0
    }
}

impl FromIterator<Kind> for Ops {
    fn from_iter<I: IntoIterator<Item = Kind>>(kinds: I) -> Self {
        Self(kinds.into_iter().fold(0, |set, kind| set | 1 << kind as u8))
    }
}
