//! How often a driver is called: once for four requests, where it has four in flight.
//!
//! An early call finds a driver before its processor rests, and is no loss as such. But one that is called again and again
//! for a request or two of those that it has in flight spends its time, and the worker's, on calls. So there is an account:
//! what the driver is shown is paid in, calls are paid from it, and while it is overdrawn a call waits until nothing is
//! left to do. It never waits for what the driver has not brought yet.

/// What 4 KiB of data, or a request of less, is worth.
const PAGE: u64 = 128;

/// What a call costs: four such requests, but for one of 128. Now and then a driver with four in flight is found when it has
/// sent three of them; that is no reason to hold the next hundred calls.
const CALL: u64 = 4 * PAGE - PAGE / 32;

/// So much may be owed. A quarter of it would do for `null`; but `memory` calls too often in bursts, which 16 calls cover:
/// with 4 it made 0.85, 0.85, 0.99 and 1.08 of its requests in four runs, with 16 1.01, 1.08, 1.01 and 0.95.
const CREDIT: u64 = 16 * CALL;

/// More is forgotten: a driver that had one request in flight may have many from now on.
const MOST: u64 = CREDIT + 2 * CALL;

/// The account of one queue.
#[derive(Debug, Default)]
pub struct Account {
    owed: u64,
}

impl Account {
    /// The driver is shown requests that are worth so many pages.
    #[inline]
    pub fn earns(&mut self, pages: u64) {
        self.owed = self.owed.saturating_sub(pages.saturating_mul(PAGE));
    }

    /// It is called.
    #[inline]
    pub fn pays(&mut self) {
        self.owed = (self.owed + CALL).min(MOST);
    }

    /// Was it called too often?
    #[inline]
    pub fn is_overdrawn(&self) -> bool {
        self.owed > CREDIT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls for so many requests each, or for `held` where it is overdrawn. How many of them are made for 10,000 requests?
    fn settle(each: u64, held: u64) -> u64 {
        let (mut account, mut requests) = (Account::default(), 0);
        let calls = 100_000;
        for _ in 0..calls {
            let brought = if account.is_overdrawn() { held } else { each };
            requests += brought;
            account.earns(brought);
            account.pays();
        }
        10_000 * calls / requests
    }

    #[test]
    fn calls_are_held_until_there_are_four_requests_for_each() {
        for (each, held) in [(1, 5), (2, 6), (3, 5)] {
            let calls = settle(each, held);
            assert!((2500..=2520).contains(&calls), "{calls}: {each}, {held}");
        }
    }

    #[test]
    fn four_requests_for_each_call_are_enough() {
        for each in [4, 5, 128] {
            assert_eq!(settle(each, 10_000), 10_000 / each, "none is held");
        }
    }

    #[test]
    fn some_calls_may_be_early() {
        let mut account = Account::default();
        for call in 0..100_000 {
            // One of 500 brings three: too few to hold others for.
            account.earns(if call % 500 == 0 { 3 } else { 4 });
            account.pays();
            assert!(!account.is_overdrawn());
        }
    }

    #[test]
    fn one_that_had_one_request_in_flight_is_soon_out_of_debt() {
        let mut account = Account::default();
        (0..100_000).for_each(|_| account.pays());
        assert!(account.is_overdrawn());
        account.earns(16);
        account.pays();
        assert!(!account.is_overdrawn());
    }
}
