//! What a process that ends keeps from the next one, for a moment.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// `PF_EXITING`: at least the first thread of a process has begun to end.
const EXITING: u64 = 4;
/// SIGKILL, as a bit of a set of signals.
const KILLED: u64 = 1 << 8;

/// How long something may be held by a process that is not looked up, and how often it is asked for meanwhile.
const LETS_GO: Duration = Duration::from_secs(2);
const ASK_EVERY: Duration = Duration::from_millis(10);

/// Has that process been killed, or has its first thread begun to end, or ended? The files of one that ends stay open,
/// and locked, until the kernel has taken its memory and its contexts of `io_submit` away. `false` where `/proc` does
/// not tell.
#[must_use]
pub fn is_ending(process: u32) -> bool {
    let read = |name| fs::read_to_string(format!("/proc/{process}/{name}")).unwrap_or_default();
    is_killed(&read("status")) || is_exiting(&read("stat"))
}

/// What `ask` says. As long as its error is that another process `holds` what is asked for, it asks again for a while:
/// that process may have been killed a moment ago.
///
/// # Errors
///
/// The last of `ask`.
pub fn once_let_go<T, E>(
    mut ask: impl FnMut() -> Result<T, E>,
    holds: impl Fn(&E) -> bool,
) -> Result<T, E> {
    let started = Instant::now();
    loop {
        match ask() {
            Err(error) if holds(&error) && started.elapsed() < LETS_GO => sleep(ASK_EVERY),
            asked => return asked,
        }
    }
}

/// Does `status` tell of a SIGKILL? That of `kill` stays with the process until its end is waited for, one by another
/// thread with the first thread until it begins to end.
fn is_killed(status: &str) -> bool {
    let sets = status.lines().filter_map(|line| {
        let set = (line.strip_prefix("SigPnd:")).or_else(|| line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(set.trim(), 16).ok()
    });
    sets.fold(0, |all, set| all | set) & KILLED != 0
}

/// Do its flags in `stat` say so? Its name, in brackets, may hold anything.
fn is_exiting(stat: &str) -> bool {
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
    let flags = fields
        .split(' ')
        .nth(6)
        .and_then(|flags| flags.parse::<u64>().ok());
    flags.is_some_and(|flags| flags & EXITING != 0)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_that_was_killed_ends_and_others_do_not() {
        assert!(!is_ending(std::process::id()));
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        assert!(!is_ending(child.id()));
        child.kill().unwrap();
        // It is not waited for, so it stays.
        let started = Instant::now();
        while !is_ending(child.id()) {
            assert!(started.elapsed() < Duration::from_secs(60));
        }
        child.wait().unwrap();
        assert!(!is_ending(child.id()));
    }

    #[test]
    fn what_is_held_is_asked_for_again_and_nothing_else_is() {
        let asked = |held: u32| {
            let mut asked = 0;
            let said: Result<(), _> = once_let_go(
                || {
                    asked += 1;
                    if asked <= held {
                        Err("held")
                    } else {
                        Err("closed")
                    }
                },
                |error| *error == "held",
            );
            (said, asked)
        };
        assert_eq!(asked(0), (Err("closed"), 1));
        assert_eq!(asked(3), (Err("closed"), 4));
        assert_eq!(asked(u32::MAX).0, Err("held"));
    }

    #[test]
    fn the_flags_are_found_behind_any_name() {
        let stat = |name, flags| format!("7 ({name}) S 1 7 7 0 -1 {flags} 120 0 0 0");
        for name in ["cat", "a) S 1 7 7 0 -1 4 (", ""] {
            assert!(is_exiting(&stat(name, 0x0040_0004)));
            assert!(!is_exiting(&stat(name, 0x0040_0000)));
        }
        assert!(!is_exiting("") && !is_exiting("7 (cat) S 1"));
        for (own, shared) in [(0x100, 0), (0, 0x100), (0x102, 0x1)] {
            assert!(is_killed(&format!(
                "SigPnd:\t{own:016x}\nShdPnd:\t{shared:016x}\n"
            )));
        }
        assert!(!is_killed(
            "SigPnd:\t0000000000000200\nSigBlk:\t0000000000000100\n"
        ));
        assert!(!is_killed(""));
    }
}
