//! Prints `fault:` disks as they are read.

use std::fmt;
use std::num::NonZeroU64;

use super::{ERRORS, HANG, OPS, THEN};
use crate::fault::{Action, Chance, Delay, Faults, Keep, Ops, Rule, Then};
use crate::spec::Spec;
use crate::spec::size::Size;
use crate::spec::time::printed_time;

/// As [`super::parse`] reads it; what is as it is by default is left out.
pub fn print(faults: &Faults, on: &Spec, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str("fault:")?;
    if faults.seed != 0 {
        write!(f, "seed={},", faults.seed)?;
    }
    if let Some(log) = &faults.log {
        write!(f, "log={},", log.display())?;
    }
    for rule in &faults.rules {
        print_rule(rule, f)?;
    }
    write!(f, "on={on}")
}

fn print_rule(Rule { action, when }: &Rule, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut all = Ops::ALL;
    match action {
        Action::Delay(Delay::Fixed(time)) => write!(f, "delay={},", printed_time(*time)),
        Action::Delay(Delay::Uniform(from, to)) => {
            write!(f, "delay={}-{},", printed_time(*from), printed_time(*to))
        }
        Action::Delay(Delay::Exponential(mean)) => write!(f, "delay=exp:{},", printed_time(*mean)),
        Action::Delay(Delay::Pareto(least)) => write!(f, "delay=pareto:{},", printed_time(*least)),
        Action::Error(failure) => write!(f, "error={},", name_of(&ERRORS, failure)),
        Action::Hang(hang) => write!(f, "hang={},", name_of(&HANG, hang)),
        Action::Torn { keep, then } => {
            all = Ops::WRITE;
            match keep {
                Keep::First(bytes) => write!(f, "torn={},", Size(*bytes))?,
                Keep::Random => f.write_str("torn=random,")?,
            }
            match then {
                Then::Fail => Ok(()),
                then => write!(f, "then={},", name_of(&THEN, then)),
            }
        }
    }?;
    if when.ops != all {
        let kinds = OPS.iter().filter(|(_, kind)| when.ops.contains(*kind));
        let names: Vec<_> = kinds.map(|(name, _)| *name).collect();
        write!(f, "op={},", names.join("+"))?;
    }
    if let Some(range) = &when.range {
        write!(f, "range={}-{},", Size(range.start), Size(range.end))?;
    }
    if when.after > 0 {
        write!(f, "after={},", when.after)?;
    }
    if when.every > NonZeroU64::MIN {
        write!(f, "every={},", when.every)?;
    }
    if when.chance != Chance::ALWAYS {
        write!(f, "chance={},", printed_chance(when.chance))?;
    }
    match when.times {
        None => Ok(()),
        Some(times) => write!(f, "times={times},"),
    }
}

fn name_of<T: PartialEq>(table: &[(&'static str, T)], value: &T) -> &'static str {
    let found = table.iter().find(|(_, known)| known == value);
    found.map_or("?", |(name, _)| name)
}

fn printed_chance(chance: Chance) -> String {
    let (whole, part) = (
        chance.of_a_million() / 10_000,
        chance.of_a_million() % 10_000,
    );
    let text = format!("{whole}.{part:04}");
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}
