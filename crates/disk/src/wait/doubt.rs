//! Whether something is worth another try, after it has failed.

/// Tries that failed in a row, and how many chances go by before the next one: two, and twice as many after each
/// further failure. Whoever looks before it sleeps asks this whether to look at all.
#[derive(Clone, Debug)]
pub struct Doubt {
    tolerated: u32,
    most: u32,
    failures: u32,
    skips: u32,
}

impl Doubt {
    /// One that lets no chance go by before more than `tolerated` tries in a row have failed, and `most` at most between
    /// two tries: what a vain one costs is spread over as many.
    #[must_use]
    pub const fn new(tolerated: u32, most: u32) -> Self {
        Self {
            tolerated,
            most,
            failures: 0,
            skips: 0,
        }
    }

    /// Is this chance to be taken?
    #[inline]
    #[must_use]
    pub fn tries(&mut self) -> bool {
        let tries = self.skips == 0;
        self.skips = self.skips.saturating_sub(1);
        tries
    }

    /// It was taken, and that paid.
    #[inline]
    pub fn paid(&mut self) {
        (self.failures, self.skips) = (0, 0);
    }

    /// It was taken in vain.
    pub fn failed(&mut self) {
        self.failures = self.failures.saturating_add(1);
        if let Some(doublings) = self.failures.checked_sub(self.tolerated + 1) {
            self.skips = 2u32.saturating_pow(doublings + 1).min(self.most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_become_rare_while_they_fail_and_usual_once_one_pays() {
        let mut doubt = Doubt::new(2, 1024);
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
