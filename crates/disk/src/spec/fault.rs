//! Reads and prints `fault:` disks. What they mean is in [`crate::fault`].

mod print;

use std::num::NonZeroU64;
use std::ops::Range;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use rustix::io::Errno;

use super::size::Size;
use super::{Spec, SpecError, time};
use crate::Failure;
use crate::fault::{Action, Chance, Delay, Faults, Hang, Keep, Kind, Ops, Rule, Then, When};

pub use print::print;

pub const EXAMPLE: &str = "fault:error=EIO,op=write,every=100,on=memory:size=1G";

/// Its options; after the first [`ACTIONS`] of them come the conditions of a rule.
const KEYS: [&str; 13] = [
    "seed", "log", "delay", "error", "torn", "hang", "op", "range", "after", "every", "chance",
    "times", "then",
];
const ACTIONS: usize = 6;

/// Errors that storage knows.
const ERRORS: [(&str, Failure); 12] = [
    ("EIO", Failure::Io(Errno::IO)),
    ("ENOSPC", Failure::Io(Errno::NOSPC)),
    ("EOPNOTSUPP", Failure::Unsupported),
    ("EROFS", Failure::ReadOnly),
    ("ENODATA", Failure::Io(Errno::NODATA)),
    ("EILSEQ", Failure::Io(Errno::ILSEQ)),
    ("ETIMEDOUT", Failure::Io(Errno::TIMEDOUT)),
    ("EREMOTEIO", Failure::Io(Errno::REMOTEIO)),
    ("ENOLINK", Failure::Io(Errno::NOLINK)),
    ("EDQUOT", Failure::Io(Errno::DQUOT)),
    ("ENOMEM", Failure::Io(Errno::NOMEM)),
    ("ENXIO", Failure::Io(Errno::NXIO)),
];
const OPS: [(&str, Kind); 6] = [
    ("read", Kind::Read),
    ("write", Kind::Write),
    ("flush", Kind::Flush),
    ("discard", Kind::Discard),
    ("write-zeroes", Kind::WriteZeroes),
    ("resize", Kind::Resize),
];
const THEN: [(&str, Then); 3] = [("fail", Then::Fail), ("ok", Then::Ok), ("hang", Then::Hang)];
const HANG: [(&str, Hang); 2] = [("request", Hang::Request), ("device", Hang::Device)];

/// Reads what follows `fault:`.
pub fn parse(mut rest: &str, depth: u32) -> Result<Spec, SpecError> {
    let mut reading = Reading::default();
    loop {
        if let Some(below) = rest.strip_prefix("on=") {
            return reading.end(below, depth);
        }
        if rest.is_empty() {
            return Err(SpecError::Missing {
                key: "on",
                example: EXAMPLE,
            });
        }
        let (option, later) = rest.split_once(',').unwrap_or((rest, ""));
        reading.option(option)?;
        rest = later;
    }
}

/// What was read so far.
#[derive(Default)]
struct Reading {
    seed: Option<u64>,
    log: Option<PathBuf>,
    rules: Vec<Rule>,
    /// The conditions that the last rule has already.
    given: Vec<&'static str>,
}

impl Reading {
    fn option(&mut self, option: &str) -> Result<(), SpecError> {
        let Some((key, value)) = option.split_once('=') else {
            return Err(SpecError::NoValue {
                option: option.to_owned(),
                example: EXAMPLE,
            });
        };
        let wrong = |remedy| SpecError::Part {
            option: option.to_owned(),
            remedy,
        };
        match key {
            "seed" if self.seed.is_some() => return Err(twice(key)),
            "log" if self.log.is_some() => return Err(twice(key)),
            "log" if value.is_empty() => {
                return Err(wrong("names no file; write for example `log=faults.log`"));
            }
            "log" => self.log = Some(value.into()),
            "seed" => {
                self.seed = Some(number(value).ok_or(wrong(
                    "is not a number; write a whole number, such as `seed=7`",
                ))?);
            }
            "delay" => {
                let delay = delay(value).ok_or(wrong(
                    "is not a delay; write for example `200us`, `1ms-5ms`, `exp:1ms` \
                        or `pareto:1ms`, at most 3600s",
                ))?;
                self.begin(Action::Delay(delay), Ops::ALL);
            }
            "error" => {
                let error = named(&ERRORS, value).ok_or(wrong(
                    "is not an error of storage; write for example `EIO`, `ENOSPC` or `EOPNOTSUPP`",
                ))?;
                self.begin(Action::Error(error), Ops::ALL);
            }
            "torn" => {
                let keep = keep(value).ok_or(wrong(
                    "is no part of a write; write for example `4K`, `0` or `random`",
                ))?;
                let then = Then::default();
                self.begin(Action::Torn { keep, then }, Ops::WRITE);
            }
            "hang" => {
                let hang = named(&HANG, value).ok_or(wrong(
                    "is neither `request` nor `device`; write one of the two",
                ))?;
                self.begin(Action::Hang(hang), Ops::ALL);
            }
            // `file:path`: a kind of disk.
            key if key.contains(':') => {
                return Err(wrong("names the disk below; write `on=` before it"));
            }
            key => return self.condition(key, value, wrong),
        }
        Ok(())
    }

    fn begin(&mut self, action: Action, ops: Ops) {
        let when = When::all(ops);
        self.rules.push(Rule { action, when });
        self.given.clear();
    }

    /// A part of the last rule.
    fn condition(
        &mut self,
        key: &str,
        value: &str,
        wrong: impl Fn(&'static str) -> SpecError,
    ) -> Result<(), SpecError> {
        let Some(&known) = KEYS[ACTIONS..].iter().find(|known| **known == key) else {
            return Err(SpecError::UnknownKey {
                kind: "fault",
                key: key.to_owned(),
                keys: KEYS.to_vec(),
                example: EXAMPLE,
            });
        };
        let Some(Rule { action, when }) = self.rules.last_mut() else {
            return Err(wrong(
                "is a condition of nothing; write it after `delay=`, `error=`, `torn=` or `hang=`",
            ));
        };
        if self.given.contains(&known) {
            return Err(twice(&format!("{key} of one rule")));
        }
        self.given.push(known);
        set(known, action, when, value).map_err(wrong)
    }

    /// All of it, over `below`.
    fn end(self, below: &str, depth: u32) -> Result<Spec, SpecError> {
        if below.starts_with("fault:") {
            return Err(SpecError::Part {
                option: "on=fault:...".to_owned(),
                remedy: "is one too many; write all rules into one `fault:`",
            });
        }
        let faults = Faults {
            seed: self.seed.unwrap_or_default(),
            log: self.log,
            rules: self.rules,
        };
        let on = Box::new(super::parse(below, depth)?);
        if faults.rules.is_empty() && faults.log.is_none() {
            return Err(SpecError::Missing {
                key: "RULE",
                example: EXAMPLE,
            });
        }
        Ok(Spec::Fault { faults, on })
    }
}

/// Gives a rule one more condition; if it is none of this rule, says why, and what to write.
fn set(
    condition: &str,
    action: &mut Action,
    when: &mut When,
    value: &str,
) -> Result<(), &'static str> {
    match (condition, action) {
        ("op", Action::Torn { .. }) => {
            return Err("is not for `torn=`; leave it out, as only writes are torn");
        }
        ("op", _) => {
            when.ops = ops(value).ok_or(
                "names no operations; write `read`, `write`, `flush`, `discard`, `write-zeroes`, `resize`, or several \
                 joined by `+`",
            )?;
        }
        ("range", _) => {
            let range =
                range(value).ok_or("is not a range of the disk; write for example `1M-2M`")?;
            when.range = Some(range);
        }
        ("after", _) => when.after = counting(value)?.get(),
        ("every", _) => when.every = counting(value)?,
        ("times", _) => when.times = Some(counting(value)?.get()),
        ("chance", _) => {
            when.chance =
                chance(value).ok_or("is no chance; write for example `10%` or `0.01%`")?;
        }
        (_, Action::Torn { then, .. }) => {
            let known = named(&THEN, value);
            *then = known.ok_or("is none of `fail`, `ok` and `hang`; write one of these")?;
        }
        _ => return Err("is for `torn=` only; leave it out"),
    }
    Ok(())
}

fn twice(key: &str) -> SpecError {
    let key = key.to_owned();
    SpecError::Twice { key }
}

fn named<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    let found = table.iter().find(|(known, _)| *known == name);
    found.map(|&(_, value)| value)
}

/// Digits and nothing else.
fn number<N: FromStr>(text: &str) -> Option<N> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok())?
}

fn counting(text: &str) -> Result<NonZeroU64, &'static str> {
    number(text).ok_or("is no count; write a whole number from 1 on")
}

fn bytes(text: &str) -> Option<u64> {
    match text {
        "0" => Some(0),
        text => text.parse().ok().map(|Size(bytes)| bytes),
    }
}

fn range(text: &str) -> Option<Range<u64>> {
    let (from, to) = text.split_once('-')?;
    let range = bytes(from)?..bytes(to)?;
    (!range.is_empty()).then_some(range)
}

fn keep(text: &str) -> Option<Keep> {
    match text {
        "random" => Some(Keep::Random),
        text => bytes(text).map(Keep::First),
    }
}

fn ops(text: &str) -> Option<Ops> {
    text.split('+').map(|name| named(&OPS, name)).collect()
}

fn delay(text: &str) -> Option<Delay> {
    Some(if let Some(mean) = text.strip_prefix("exp:") {
        Delay::Exponential(time(mean)?)
    } else if let Some(least) = text.strip_prefix("pareto:") {
        Delay::Pareto(time(least)?)
    } else if let Some((from, to)) = text.split_once('-') {
        let (from, to) = (time(from)?, time(to)?);
        (from <= to).then_some(Delay::Uniform(from, to))?
    } else {
        Delay::Fixed(time(text)?)
    })
}

fn time(text: &str) -> Option<Duration> {
    time::time(text).filter(|time| *time <= Delay::LONGEST)
}

/// Percent, with at most four decimals.
fn chance(text: &str) -> Option<Chance> {
    let percent = text.strip_suffix('%')?;
    let (whole, part) = percent.split_once('.').unwrap_or((percent, "0"));
    let part = (1..=4)
        .contains(&part.len())
        .then(|| format!("{part:0<4}"))?;
    let whole: u32 = number(whole)?;
    let million = whole.checked_mul(10_000)?.checked_add(number(&part)?)?;
    Chance::new(million)
}

#[cfg(test)]
pub mod tests;
