//! From legs and a plan to a whole: checks that all fits, and what the whole can do.

use crate::{Access, Geometry, RangeLimits, ResizeError};

use super::map::{Layout, Map, Stretch, Target};

/// How a stack is made of its legs.
#[derive(Clone, Debug)]
pub enum Plan {
    /// One after the other. The sizes are those that the legs had at first, since nothing may move later: only
    /// the last can grow.
    Joined(Vec<u64>),
    /// By turns, in chunks of so many bytes.
    Striped(u64),
    /// As a table says.
    Table(Vec<Target>),
}

/// A whole: where everything lies, and what can be done with it.
#[derive(Debug)]
pub struct Whole {
    /// Where everything lies.
    pub map: Map,
    /// What can be done with it.
    pub geometry: Geometry,
}

/// Why disks cannot be stacked like that. Legs are counted from 1.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields are what the messages say they are")]
pub enum StackError {
    /// There is nothing to stack.
    #[error("a stacked disk needs at least one leg")]
    NoLegs,
    /// No such chunks.
    #[error(
        "chunks of {chunk} bytes are impossible; use a power of two from 512 bytes to 1 GiB, at least the \
         legs' blocks of {block}"
    )]
    Chunk { chunk: u64, block: u32 },
    /// A leg is smaller than a chunk or a block.
    #[error("leg {leg} holds {bytes} bytes, which is less than one chunk or block of {least}")]
    TooSmall { leg: usize, bytes: u64, least: u64 },
    /// A table asks for more of a leg than there is.
    #[error(
        "leg {leg} holds {bytes} bytes ({} sectors), and the table uses it up to {needed} ({}); enlarge the leg, or \
         shorten the target",
        .bytes / 512, .needed / 512
    )]
    BeyondLeg { leg: usize, bytes: u64, needed: u64 },
    /// A table names a leg that there is not.
    #[error("the table names leg {leg}, and there are {legs}; name one of these")]
    NoSuchLeg { leg: usize, legs: usize },
    /// A gap, an overlap, or nothing at all.
    #[error(
        "target {target} begins at sector {}, and those before it end at sector {}; let it begin there",
        .start / 512, .expected / 512
    )]
    Gap {
        target: usize,
        start: u64,
        expected: u64,
    },
    /// More than any disk can hold.
    #[error("together the legs hold more than 2^63 - 1 bytes, and no disk is that large")]
    TooLarge,
    /// A target without bytes, or beyond all bounds.
    #[error("target {target} has an impossible length or place")]
    Impossible { target: usize },
    /// Something is no multiple of the block size.
    #[error(
        "{what} of target {target} is {value} bytes, no multiple of the legs' blocks of {block}"
    )]
    Misaligned {
        target: usize,
        what: &'static str,
        value: u64,
        block: u32,
    },
}

const CHUNKS: std::ops::RangeInclusive<u64> = 512..=1 << 30;

impl Plan {
    /// The whole, of legs of those geometries.
    pub fn whole(&self, legs: &[Geometry]) -> Result<Whole, StackError> {
        let block = legs.iter().map(|leg| leg.block).max();
        let block = block.ok_or(StackError::NoLegs)?;
        let map = match self {
            Self::Joined(sizes) => joined(sizes, legs, block)?,
            Self::Striped(chunk) => striped(*chunk, legs, block)?,
            Self::Table(targets) => {
                check(targets, legs, block)?;
                Map::new(targets.clone())
            }
        };
        let geometry = geometry(&map, legs, block);
        Ok(Whole { map, geometry })
    }

    /// The first leg that would be longer, were the whole made anew, and have what follows it moved. Nothing is moved
    /// as long as this whole lives.
    pub fn moves(&self, legs: &[Geometry]) -> Option<ResizeError> {
        let Self::Joined(sizes) = self else {
            return None;
        };
        let block = u64::from(legs.iter().map(|leg| leg.block).max()?);
        let (_, followed) = legs.split_last()?;
        let mut grown = followed.iter().zip(sizes).enumerate();
        let grown = grown.find(|(_, (leg, before))| leg.bytes / block > *before / block);
        grown.map(|(leg, (geometry, &before))| ResizeError::Moves {
            leg: leg + 1,
            before,
            now: geometry.bytes,
        })
    }
}

/// Whole blocks of each, one after the other.
fn joined(sizes: &[u64], legs: &[Geometry], block: u32) -> Result<Map, StackError> {
    let mut start = 0u64;
    let mut targets = Vec::with_capacity(legs.len());
    for (leg, (geometry, size)) in legs.iter().zip(sizes).enumerate() {
        let last = leg + 1 == legs.len();
        let bytes = if last { geometry.bytes } else { *size };
        let len = whole(bytes, u64::from(block), leg)?;
        let layout = Layout::Linear(Stretch { leg, at: 0 });
        targets.push(Target { start, len, layout });
        start = sum(start, len)?;
    }
    Ok(Map::new(targets))
}

/// As many chunks of each as the smallest has.
fn striped(chunk: u64, legs: &[Geometry], block: u32) -> Result<Map, StackError> {
    chunk_is_possible(chunk, block)?;
    let sizes = legs.iter().enumerate();
    let sizes: Result<Vec<_>, _> = sizes
        .map(|(leg, geometry)| whole(geometry.bytes, chunk, leg))
        .collect();
    let least = sizes?.into_iter().min().ok_or(StackError::NoLegs)?;
    let stripes = (0..legs.len()).map(|leg| Stretch { leg, at: 0 }).collect();
    let len = least.checked_mul(legs.len() as u64);
    let len = len
        .ok_or(StackError::TooLarge)
        .and_then(|len| sum(0, len))?;
    let layout = Layout::Striped { chunk, stripes };
    let start = 0;
    Ok(Map::new(vec![Target { start, len, layout }]))
}

/// Where what has `len` bytes from `start` ends: offsets are signed numbers everywhere below.
fn sum(start: u64, len: u64) -> Result<u64, StackError> {
    let end = start.checked_add(len);
    end.filter(|end| i64::try_from(*end).is_ok())
        .ok_or(StackError::TooLarge)
}

/// As many whole `units` of leg number `leg` as there are.
fn whole(bytes: u64, unit: u64, leg: usize) -> Result<u64, StackError> {
    match bytes - bytes % unit {
        0 => Err(StackError::TooSmall {
            leg: leg + 1,
            bytes,
            least: unit,
        }),
        whole => Ok(whole),
    }
}

fn chunk_is_possible(chunk: u64, block: u32) -> Result<(), StackError> {
    let possible = chunk.is_power_of_two() && CHUNKS.contains(&chunk) && chunk >= u64::from(block);
    possible
        .then_some(())
        .ok_or(StackError::Chunk { chunk, block })
}

/// Is there leg `leg`, and has it `needed` bytes?
fn reaches(leg: usize, needed: u64, legs: &[Geometry]) -> Result<(), StackError> {
    let number = leg + 1;
    match legs.get(leg) {
        None => Err(StackError::NoSuchLeg {
            leg: number,
            legs: legs.len(),
        }),
        Some(&Geometry { bytes, .. }) if needed > bytes => Err(StackError::BeyondLeg {
            leg: number,
            bytes,
            needed,
        }),
        Some(_) => Ok(()),
    }
}

/// Can a table lie on these legs?
fn check(targets: &[Target], legs: &[Geometry], block: u32) -> Result<(), StackError> {
    let mut expected = 0u64;
    for (number, target) in (1..).zip(targets) {
        let Target { start, len, layout } = target;
        if *start != expected {
            return Err(StackError::Gap {
                target: number,
                start: *start,
                expected,
            });
        }
        let impossible = StackError::Impossible { target: number };
        expected = sum(*start, *len)?;
        if *len == 0 {
            return Err(impossible);
        }
        let stretches = match layout {
            Layout::Linear(stretch) => std::slice::from_ref(stretch),
            Layout::Striped { chunk, stripes } => {
                chunk_is_possible(*chunk, block)?;
                &stripes[..]
            }
        };
        if stretches.is_empty() {
            return Err(StackError::NoLegs);
        }
        let offsets = stretches.iter().map(|stretch| ("an offset", stretch.at));
        for (what, value) in offsets.chain([("the length", *len)]) {
            if !value.is_multiple_of(u64::from(block)) {
                return Err(StackError::Misaligned {
                    target: number,
                    what,
                    value,
                    block,
                });
            }
        }
        // A short target may have no bytes on some of its legs.
        for stretch in stretches {
            reaches(stretch.leg, 0, legs)?;
        }
        for (stretch, bytes) in target.stretches() {
            let needed = stretch.at.checked_add(bytes).ok_or(impossible.clone())?;
            reaches(stretch.leg, needed, legs)?;
        }
    }
    if expected == 0 {
        return Err(StackError::Impossible { target: 1 });
    }
    Ok(())
}

/// What all legs can do, the whole can.
fn geometry(map: &Map, legs: &[Geometry], block: u32) -> Geometry {
    let most = |of: fn(&Geometry) -> u32| legs.iter().map(of).max().unwrap_or_default();
    let chunk = map
        .targets()
        .iter()
        .filter_map(|target| match target.layout {
            Layout::Striped { chunk, .. } => u32::try_from(chunk).ok(),
            Layout::Linear(_) => None,
        });
    let read_only = legs.iter().any(|leg| leg.access == Access::ReadOnly);
    Geometry {
        bytes: map.bytes(),
        access: if read_only {
            Access::ReadOnly
        } else {
            Access::ReadWrite
        },
        block,
        physical_block: most(|leg| leg.physical_block),
        min_io: most(|leg| leg.min_io),
        optimal_io: chunk.max().unwrap_or_else(|| most(|leg| leg.optimal_io)),
        discard: both(legs, |leg| leg.discard),
        write_zeroes: both(legs, |leg| leg.write_zeroes),
    }
}

/// The narrowest limits, if every leg has some.
fn both(legs: &[Geometry], of: fn(&Geometry) -> Option<RangeLimits>) -> Option<RangeLimits> {
    let all = legs.iter().map(of);
    all.reduce(|one, other| {
        let (one, other) = (one?, other?);
        Some(RangeLimits {
            max_bytes: one.max_bytes.min(other.max_bytes),
            alignment: one.alignment.max(other.alignment),
        })
    })?
}

#[cfg(test)]
mod tests;
