//! Which system calls each kind of thread may make: what the table says of it.
//!
//! A thread hands its filter down to those it starts, which can only narrow it. So each kind is allowed
//! what it needs itself and what those need that it [`starts`].

use std::collections::BTreeSet;

use libc::c_long;
use pollux_threads::Kind;
use pollux_threads::Kind::{
    Cluster, Control, DriverControl, DriverPatience, Keeper, Main, Opener, Pool, Resizer, Session,
    Signals, Watchdog, Worker,
};

use table::{EVERY_THREAD, OPENING, STARTING_THREADS, TABLE};

pub use table::REFUSED;

mod table;

use crate::plan::Needs;

/// A call, and with which arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    pub call: c_long,
    pub when: When,
}

/// With which arguments a call is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum When {
    Always,
    /// That argument is this.
    Is(u8, u32),
    /// That argument has all of these bits.
    Has(u8, u32),
    /// That argument has none of these bits.
    Lacks(u8, u32),
    /// That argument is the number of this process.
    IsThisProcess(u8),
    /// That argument is none of these.
    IsNeither(u8, [u32; 2]),
}

pub const fn any(call: c_long) -> Rule {
    let when = When::Always;
    Rule { call, when }
}

pub const fn only(call: c_long, when: When) -> Rule {
    Rule { call, when }
}

/// The calls that only some disks need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Always,
    Files,
    Images,
    IoUring,
    Driver,
    Control,
    Opener,
    Cluster,
}

/// What these kinds of threads do, where the disks are such.
struct Row {
    who: &'static [Kind],
    need: Need,
    rules: &'static [Rule],
}

const fn row(who: &'static [Kind], need: Need, rules: &'static [Rule]) -> Row {
    Row { who, need, rules }
}

pub const fn errno(error: i32) -> u32 {
    error.unsigned_abs()
}

/// Which kinds of threads a thread of kind `of` may start.
fn starts(of: Kind, needs: Needs) -> Vec<Kind> {
    let (pool, patience) = (
        needs.files.then_some(Pool),
        needs.driver.then_some(DriverPatience),
    );
    let some: &[Option<Kind>] = match of {
        Main => &[
            Some(Signals),
            Some(Session),
            Some(Worker),
            Some(Watchdog),
            needs.driver.then_some(DriverControl),
            needs.control.then_some(Control),
        ],
        Session | Worker => &[pool, patience],
        Signals | DriverControl => &[patience],
        Opener => &[
            Some(Session),
            pool,
            needs.driver.then_some(DriverControl),
            patience,
        ],
        Control => &[Some(Resizer)],
        // An image that grows before it was used.
        Resizer => &[needs.images.then_some(Pool)],
        // The library's own are of the same kind.
        Watchdog | Pool | DriverPatience | Keeper | Cluster => &[],
    };
    some.iter().copied().flatten().collect()
}

/// All that a thread of kind `of` is allowed.
pub fn allowed(of: Kind, needs: Needs) -> BTreeSet<Rule> {
    let mut rules: BTreeSet<Rule> = EVERY_THREAD.iter().copied().collect();
    if of != Cluster {
        rules.extend(OPENING);
    }
    let needed = |need| match need {
        Need::Always => true,
        Need::Files => needs.files,
        Need::Images => needs.images,
        Need::IoUring => needs.io_uring,
        Need::Driver => needs.driver,
        Need::Control => needs.control,
        Need::Opener => needs.opener,
        Need::Cluster => needs.cluster,
    };
    for row in TABLE {
        if row.who.contains(&of) && needed(row.need) {
            rules.extend(row.rules);
        }
    }
    let children = starts(of, needs);
    if !children.is_empty() {
        rules.extend(STARTING_THREADS);
    }
    for child in children {
        rules.extend(allowed(child, needs));
    }
    rules
}

#[cfg(test)]
mod tests;
