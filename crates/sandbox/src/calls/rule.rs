//! What a row of the table is made of.

use libc::c_long;
use pollux_threads::Kind;

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
    /// That argument is none of these.
    NoneOf(u8, &'static [u32]),
    /// That argument is the number of this process.
    IsThisProcess(u8),
}

/// Requests of terminals (TIOCSTI, TIOCLINUX, TIOCSETD) with which one types into the shell that has started this
/// process.
pub const TYPING: &[u32] = &[0x5412, 0x541c, 0x5423];

pub const fn any(call: c_long) -> Rule {
    let when = When::Always;
    Rule { call, when }
}

pub const fn only(call: c_long, when: When) -> Rule {
    Rule { call, when }
}

/// The calls that only some disks need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
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
pub struct Row {
    pub threads: &'static [Kind],
    pub need: Need,
    pub rules: &'static [Rule],
}

pub const fn row(threads: &'static [Kind], need: Need, rules: &'static [Rule]) -> Row {
    Row {
        threads,
        need,
        rules,
    }
}

pub const fn errno(error: i32) -> u32 {
    error.unsigned_abs()
}
