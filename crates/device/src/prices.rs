//! What a sleep costs on this machine: measured at the start, refined with each sleep and call since then.
//!
//! They are the machine's, so the process has them once (`make prices` shows them).

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pollux_disk::WaitPoint;

/// A price: a mean of the last few.
pub struct Price(AtomicU64);

/// What it costs to wake somebody who sleeps: writing a descriptor.
pub static WAKING: Price = Price::guess(Duration::from_micros(5));

/// What it costs to be woken: the time from that write until the sleeper runs.
pub static WOKEN: Price = Price::guess(Duration::from_micros(15));

/// Who writes a descriptor in less than this has woken nobody.
const WAKES: Duration = Duration::from_micros(1);

impl Price {
    #[allow(clippy::cast_possible_truncation, reason = "a guess is no century")]
    const fn guess(price: Duration) -> Self {
        Self(AtomicU64::new(price.as_nanos() as u64))
    }

    fn get(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Relaxed))
    }

    /// It was paid once more. Who loses an addition to another thread loses little; and one that was far
    /// dearer than any before has paid for something else as well.
    pub fn paid(&self, price: Duration) {
        let before = self.0.load(Ordering::Relaxed);
        let price = u64::try_from(price.as_nanos()).unwrap_or(u64::MAX);
        let price = price.min(before.saturating_mul(4));
        self.0
            .store(before - before / 8 + price / 8, Ordering::Relaxed);
    }
}

/// A call took so long. Did it wake anybody?
pub fn called(took: Duration) -> bool {
    let woke = took >= WAKES;
    if woke {
        WAKING.paid(took);
    }
    woke
}

/// What both sides together pay for one sleep.
///
/// Our own wake-ups are cheaper than a driver's where all of us are bound to one processor and the driver is
/// elsewhere. So being woken is believed to take at least three times what waking takes, as it does where both
/// have been measured.
pub fn of_a_sleep() -> Duration {
    let waking = WAKING.get();
    waking + WOKEN.get().max(waking * 3)
}

/// Wakes who sleeps at `point`, a worker without work, a few times: it notes how late it was, as ever, and
/// this thread what that took.
pub fn measure(point: &WaitPoint) {
    const ROUNDS: u32 = 16;
    const UNTIL_IT_SLEEPS: Duration = Duration::from_micros(100);
    for _ in 0..ROUNDS {
        thread::sleep(UNTIL_IT_SLEEPS);
        let before = Instant::now();
        point.wake();
        called(before.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuning::Tuning;
    use crate::workers::Workers;

    #[test]
    fn a_price_follows_what_is_paid() {
        let price = Price::guess(Duration::from_micros(5));
        for _ in 0..100 {
            price.paid(Duration::from_micros(50));
        }
        assert!(price.get().abs_diff(Duration::from_micros(50)) < Duration::from_micros(1));
        price.paid(Duration::from_secs(1));
        assert!(price.get() < Duration::from_micros(70), "{:?}", price.get());
        for _ in 0..100 {
            price.paid(Duration::from_micros(3));
        }
        assert!(price.get() < Duration::from_micros(4));
    }

    /// No other worker of this process sleeps.
    #[test]
    fn workers_measure_a_sleep_as_they_start() {
        let guess = WOKEN.get();
        // One that has not come to sleep by then, on a busy machine, is not woken. They are kept: to end one is to wake it.
        let mut started = vec![];
        let measured = (0..20).any(|_| {
            started.push(Workers::start(1, &[], Tuning::default()).unwrap());
            WOKEN.get() != guess
        });
        assert!(measured, "it is still believed to cost {guess:?}");
    }
}
