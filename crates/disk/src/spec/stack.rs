//! Reads and prints stacked disks: `linear:`, `striped:` and `table:`. What they mean is in [`crate::stack`].

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;

use super::leg;
use super::size::Size;
use super::{Spec, SpecError};
use crate::stack::{Layout, StackError, Stretch, Target};

const SECTOR: u64 = 512;
const LINEAR: &str = "0 2097152 linear disk.img 0";
const STRIPED: &str = "0 4194304 striped 2 128 a.img 0 b.img 0";

/// A table in device-mapper's language, and the disks that it names. A disk that is named more than once is one
/// leg.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Table {
    /// Its lines.
    pub targets: Vec<Target>,
    /// The disks, by the number that lines have for them.
    pub legs: Vec<Spec>,
}

/// Reads what follows `linear:`.
pub fn linear(rest: &str, depth: u32) -> Result<Spec, SpecError> {
    let legs = leg::split(rest, |c| c == '+')?;
    // A path may have a comma, but one written here means the next leg.
    if let Some(leg) = legs
        .iter()
        .find(|leg| leg::is_path(leg) && leg.contains(','))
    {
        return Err(SpecError::Part {
            option: (*leg).to_owned(),
            remedy: "has a comma; join the legs of `linear` by `+`, as in `linear:a.img+b.img`, or write a path with \
                     a comma as [file:path=a,,b.img]",
        });
    }
    let legs = legs.into_iter().map(|text| leg::read(text, depth));
    Ok(Spec::Linear {
        legs: legs.collect::<Result<_, _>>()?,
    })
}

/// Reads what follows `striped:`.
pub fn striped(rest: &str, depth: u32) -> Result<Spec, SpecError> {
    const EXAMPLE: &str = "striped:chunk=64K:a.img,b.img";
    let chunk = rest.strip_prefix("chunk=").ok_or(SpecError::Missing {
        key: "chunk",
        example: EXAMPLE,
    })?;
    let (chunk, legs) = chunk.split_once(':').ok_or(SpecError::Missing {
        key: ":LEG,LEG",
        example: EXAMPLE,
    })?;
    let chunk: Size = chunk.parse().map_err(|source| SpecError::Size {
        key: "chunk",
        value: chunk.to_owned(),
        example: EXAMPLE,
        source,
    })?;
    let legs = leg::split(legs, |c| c == ',')?;
    // A path may have a plus sign, but of a single leg it means the next one.
    if let [leg] = legs[..]
        && leg::is_path(leg)
        && leg.contains('+')
    {
        return Err(Line(leg).part(
            "is one leg; join the legs of `striped` by `,`, as in `striped:chunk=64K:a.img,b.img`, or write a path \
             with a plus sign as [file:path=a+b.img]",
        ));
    }
    let legs = legs.into_iter().map(|text| leg::read(text, depth));
    Ok(Spec::Striped {
        chunk,
        legs: legs.collect::<Result<_, _>>()?,
    })
}

/// Reads what follows `table:`.
pub fn table(rest: &str, depth: u32) -> Result<Spec, SpecError> {
    let mut reading = Reading {
        depth,
        ..Reading::default()
    };
    for line in leg::split(rest, |c| c == '\n' || c == ';')? {
        reading.line(line)?;
    }
    if reading.targets.is_empty() {
        return Err(SpecError::Missing {
            key: "a line of the table",
            example: "table:0 2097152 linear disk.img 0",
        });
    }
    let (targets, legs) = (reading.targets, reading.legs.in_order());
    Ok(Spec::Table(Table { targets, legs }))
}

/// What was read of a table so far.
#[derive(Default)]
struct Reading {
    targets: Vec<Target>,
    legs: Numbered<Spec>,
    /// What `dmsetup table` calls it, if it says so.
    name: Option<String>,
    depth: u32,
}

impl Reading {
    /// `[NAME:] START LENGTH linear LEG OFFSET`, or `… striped LEGS CHUNK LEG OFFSET [LEG OFFSET]…`: all numbers
    /// in sectors of 512 bytes.
    fn line(&mut self, line: &str) -> Result<(), SpecError> {
        let words = leg::split(line, char::is_whitespace)?;
        let mut words = words.into_iter().filter(|word| !word.is_empty()).peekable();
        if words.peek().is_none_or(|word| word.starts_with('#')) {
            return Ok(());
        }
        let line = Line(line.trim());
        if let Some(name) = words.next_if(|word| word.ends_with(':')) {
            if self.name.as_deref().is_some_and(|known| known != name) {
                return Err(line.part("is of another device; a disk has one table"));
            }
            self.name = Some(name.to_owned());
        }
        let mut sectors =
            |missing| sectors(words.next()).ok_or_else(|| line.wrong(missing, LINEAR));
        let start = sectors("does not begin with its first sector")?;
        let len = sectors("has no length in sectors after its first")?;
        let layout = match words.next() {
            Some("linear") => {
                let stretch = self.stretch(&mut words, LINEAR)?;
                let stretch =
                    stretch.ok_or_else(|| line.wrong("names no leg and its offset", LINEAR))?;
                Layout::Linear(stretch)
            }
            Some("striped") => self.stripes(line, &mut words)?,
            _ => {
                return Err(
                    line.part("is of a kind that is not known here; use `linear` or `striped`")
                );
            }
        };
        if words.next().is_some() {
            return Err(line.part(
                "goes on after its last leg; write each of a table's lines on its own, or `;` between them",
            ));
        }
        self.targets.push(Target { start, len, layout });
        Ok(())
    }

    /// What follows `striped` in `line`.
    fn stripes<'a>(
        &mut self,
        line: Line<'_>,
        words: &mut impl Iterator<Item = &'a str>,
    ) -> Result<Layout, SpecError> {
        let wrong = |what| line.wrong(what, STRIPED);
        let count = words.next().and_then(number);
        let count = count.ok_or_else(|| wrong("does not say how many legs it has"))?;
        let chunk = sectors(words.next());
        let chunk = chunk.ok_or_else(|| wrong("has no chunk size in sectors"))?;
        let mut stripes = Vec::new();
        while let Some(stretch) = self.stretch(words, STRIPED)? {
            stripes.push(stretch);
        }
        if stripes.is_empty() || stripes.len() as u64 != count {
            return Err(wrong(
                "has not as many legs with offsets as it says, one at least",
            ));
        }
        Ok(Layout::Striped { chunk, stripes })
    }

    /// A leg and its offset, if more words follow.
    fn stretch<'a>(
        &mut self,
        words: &mut impl Iterator<Item = &'a str>,
        example: &'static str,
    ) -> Result<Option<Stretch>, SpecError> {
        let Some(text) = words.next() else {
            return Ok(None);
        };
        let at = sectors(words.next());
        let at =
            at.ok_or_else(|| Line(text).wrong("has no offset in sectors after it", example))?;
        let spec = leg::read(text, self.depth)?;
        let leg = self.legs.number(spec);
        Ok(Some(Stretch { leg, at }))
    }
}

/// A line of a table, or a part of one, of which an error speaks.
#[derive(Clone, Copy)]
struct Line<'a>(&'a str);

impl Line<'_> {
    fn part(self, remedy: &'static str) -> SpecError {
        let option = self.0.to_owned();
        SpecError::Part { option, remedy }
    }

    fn wrong(self, wrong: &'static str, example: &'static str) -> SpecError {
        let line = self.0.to_owned();
        SpecError::Line {
            line,
            wrong,
            example,
        }
    }
}

/// Things by the order in which they came first. A table may name tens of thousands of disks.
struct Numbered<T>(HashMap<T, usize>);

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T: Eq + Hash> Numbered<T> {
    /// That of `one`, a new one if it has not come before.
    fn number(&mut self, one: T) -> usize {
        let next = self.0.len();
        *self.0.entry(one).or_insert(next)
    }

    fn in_order(self) -> Vec<T> {
        let mut all: Vec<_> = self.0.into_iter().collect();
        all.sort_unstable_by_key(|&(_, number)| number);
        all.into_iter().map(|(one, _)| one).collect()
    }
}

fn number(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok())?
}

/// A number of sectors, in bytes.
fn sectors(word: Option<&str>) -> Option<u64> {
    number(word?)?.checked_mul(SECTOR)
}

/// Which of `legs` it is that `error` has a number for.
pub fn blamed(error: &StackError, legs: &[Spec]) -> Option<String> {
    let (StackError::TooSmall { leg, .. } | StackError::BeyondLeg { leg, .. }) = error else {
        return None;
    };
    Some(format!(
        " (leg {leg} is `{}`)",
        leg::printed(&legs[leg - 1])
    ))
}

/// Prints `legs` with `between` them.
pub fn print_legs(f: &mut fmt::Formatter<'_>, legs: &[Spec], between: char) -> fmt::Result {
    for (at, leg) in legs.iter().enumerate() {
        if at > 0 {
            write!(f, "{between}")?;
        }
        f.write_str(&leg::printed(leg))?;
    }
    Ok(())
}

/// As [`table`] reads it.
pub fn print_table(f: &mut fmt::Formatter<'_>, table: &Table) -> fmt::Result {
    f.write_str("table:")?;
    for (number, Target { start, len, layout }) in table.targets.iter().enumerate() {
        let between = if number > 0 { ";" } else { "" };
        write!(f, "{between}{} {}", start / SECTOR, len / SECTOR)?;
        let stretches = match layout {
            Layout::Linear(stretch) => {
                f.write_str(" linear")?;
                std::slice::from_ref(stretch)
            }
            Layout::Striped { chunk, stripes } => {
                write!(f, " striped {} {}", stripes.len(), chunk / SECTOR)?;
                &stripes[..]
            }
        };
        for Stretch { leg, at } in stretches {
            write!(f, " {} {}", leg::printed(&table.legs[*leg]), at / SECTOR)?;
        }
    }
    Ok(())
}

#[cfg(test)]
pub mod tests;
