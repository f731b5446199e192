//! Completions that are held back until they are due.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::Completion;

/// The earliest first; of two that are due at once, the one that came first.
#[derive(Debug, Default)]
pub struct Held {
    /// By when each is due, and its number.
    all: BTreeMap<(Instant, u64), Completion>,
    count: u64,
}

impl Held {
    /// Holds `completion` back until `due`.
    pub fn push(&mut self, due: Instant, completion: Completion) {
        self.count += 1;
        self.all.insert((due, self.count), completion);
    }

    /// When the first is due.
    pub fn first_due(&self) -> Option<Instant> {
        self.all.first_key_value().map(|((due, _), _)| *due)
    }

    /// The first, if it is due at `now`.
    pub fn pop(&mut self, now: Instant) -> Option<Completion> {
        let first = self.all.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.all.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Ticket;

    #[test]
    fn what_is_held_comes_when_it_is_due_and_in_that_order() {
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let mut held = Held::default();
        for (ticket, ms) in [(0, 30), (1, 10), (2, 20), (3, 10)] {
            let (ticket, result) = (Ticket(ticket), Ok(()));
            held.push(after(ms), Completion { ticket, result });
        }
        let mut popped = |ms| {
            let next = || held.pop(after(ms)).map(|done| done.ticket.0);
            std::iter::from_fn(next).collect::<Vec<_>>()
        };
        assert!(popped(9).is_empty());
        assert_eq!(popped(20), [1, 3, 2]);
        assert!(popped(29).is_empty());
        assert_eq!(popped(1000), [0]);
        assert_eq!(held.first_due(), None);
    }
}
