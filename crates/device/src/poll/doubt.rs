//! Whether looking is worth another try, after it has failed.

/// Tries that failed in a row, and how many chances go by before the next one.
#[derive(Clone, Debug, Default)]
pub struct Doubt {
    failures: u32,
    skips: u32,
}

/// How many tries in a row may fail before chances are let go by.
const TOLERATED: u32 = 2;
/// The most chances that go by between two tries: what a vain one costs is spread over as many sleeps.
const MOST_SKIPS: u32 = 1024;

impl Doubt {
    /// Is this chance to be taken?
    #[inline]
    pub fn tries(&mut self) -> bool {
        let tries = self.skips == 0;
        self.skips = self.skips.saturating_sub(1);
        tries
    }

    /// It was taken, and that paid.
    #[inline]
    pub fn paid(&mut self) {
        *self = Self::default();
    }

    /// It was taken in vain.
    pub fn failed(&mut self) {
        self.failures = self.failures.saturating_add(1);
        if let Some(doublings) = self.failures.checked_sub(TOLERATED + 1) {
            self.skips = 2u32.saturating_pow(doublings + 1).min(MOST_SKIPS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_become_rare_while_they_fail_and_usual_once_one_pays() {
        let mut doubt = Doubt::default();
        let mut tries = Vec::new();
        for chance in 0..5000 {
            if doubt.tries() {
                tries.push(chance);
                doubt.failed();
            }
        }
        let skips: Vec<_> = tries.windows(2).map(|pair| pair[1] - pair[0] - 1).collect();
        assert_eq!(skips[..6], [0, 0, 2, 4, 8, 16]);
        assert!(
            skips.contains(&1024) && skips.iter().all(|skips| *skips <= 1024),
            "{skips:?}"
        );
        doubt.paid();
        assert!(doubt.tries() && doubt.tries());
    }
}
