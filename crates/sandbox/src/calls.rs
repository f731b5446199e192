//! Which system calls each kind of thread may make: what the table says of it.
//!
//! A thread hands its filter down to those it starts, which can only narrow it. So each kind is allowed
//! what it needs itself and what those need that it [`starts`].

use std::collections::BTreeSet;

use pollux_threads::Kind::{
    self, Cluster, Control, DriverControl, DriverPatience, Keeper, Main, Opener, Pool, Resizer,
    Session, Signals, Worker,
};

use rule::Need;
use table::{EVERY_THREAD, OPENING, STARTING_THREADS, TABLE};

pub use rule::{Rule, TYPING, When, any, errno, only};
pub use table::REFUSED;

mod rule;
mod table;

use crate::plan::Needs;

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
        Pool | DriverPatience | Keeper | Cluster => &[],
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
        if row.threads.contains(&of) && needed(row.need) {
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
