//! Signals that end the program, and one that does not.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use std::{fs, io};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};

/// Those after which it ends what it has begun, and then itself. SIGHUP is one of them, unless this process was started
/// to outlive its terminal (`nohup`).
pub fn ending() -> impl Iterator<Item = i32> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let hup = (!ignores(&status, SIGHUP)).then_some(SIGHUP);
    [SIGTERM, SIGINT].into_iter().chain(hup)
}

/// Outlives SIGUSR1, which asks a daemon for its counters, and may be sent to all processes of this program.
pub fn outlive_usr1() -> io::Result<()> {
    signal_hook::flag::register(SIGUSR1, Arc::new(AtomicBool::new(false)))?;
    Ok(())
}

/// Tells a signal from its repetition.
#[derive(Debug, Default)]
pub struct Repetitions(Option<(i32, Instant)>);

/// The same signal again within so long is no second one: `timeout` sends its own to a process, and then to the group
/// of that process.
const AT_ONCE: Duration = Duration::from_millis(100);

impl Repetitions {
    /// Is the `signal` that came at `now` the last one once more?
    pub fn has(&mut self, signal: i32, now: Instant) -> bool {
        let last = self.0.replace((signal, now));
        last.is_some_and(|(last, then)| last == signal && now.duration_since(then) < AT_ONCE)
    }
}

/// Does a process with that `status` ignore `signal`?
fn ignores(status: &str, signal: i32) -> bool {
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_signal_at_once_is_no_second_one() {
        let mut signals = Repetitions::default();
        let then = Instant::now();
        assert!(!signals.has(SIGTERM, then));
        assert!(signals.has(SIGTERM, then));
        assert!(!signals.has(SIGINT, then));
        assert!(!signals.has(SIGTERM, then));
        assert!(!signals.has(SIGTERM, then + AT_ONCE));
    }

    #[test]
    fn what_is_ignored_is_read_off_the_status() {
        let status =
            |mask: u64| format!("SigBlk:\t0000000000000003\nSigIgn:\t{mask:016x}\nSigCgt:\t1\n");
        assert!(ignores(&status(1), SIGHUP));
        assert!(ignores(&status(0x1001), SIGHUP));
        assert!(!ignores(&status(0x1000), SIGHUP));
        assert!(!ignores("", SIGHUP));
    }
}
