//! Completions that are held back until they are due.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

use crate::{Completion, Failure, Ticket};

/// The earliest first; of two that are due at once, the one that came first.
#[derive(Debug, Default)]
pub struct Held {
    heap: BinaryHeap<Reverse<Entry>>,
    count: u64,
}

#[derive(Debug)]
struct Entry {
    due: Instant,
    number: u64,
    ticket: Ticket,
    result: Result<(), Failure>,
}

impl Held {
    /// Holds `completion` back until `due`.
    pub fn push(&mut self, due: Instant, completion: Completion) {
        self.count += 1;
        self.heap.push(Reverse(Entry {
            due,
            number: self.count,
            ticket: completion.ticket,
            result: completion.result,
        }));
    }

    /// When the first is due.
    pub fn first_due(&self) -> Option<Instant> {
        self.heap.peek().map(|Reverse(entry)| entry.due)
    }

    /// The first, if it is due at `now`.
    pub fn pop(&mut self, now: Instant) -> Option<Completion> {
        if self.first_due()? > now {
            return None;
        }
        let Reverse(Entry { ticket, result, .. }) = self.heap.pop()?;
        Some(Completion { ticket, result })
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.heap.clear();
    }
}

impl Entry {
    fn order(&self) -> (Instant, u64) {
        (self.due, self.number)
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.order().cmp(&other.order())
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Entry {}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_held_comes_when_it_is_due_and_in_that_order() {
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let mut held = Held::default();
        for (ticket, ms) in [(0, 30), (1, 10), (2, 20), (3, 10)] {
            let ticket = Ticket(ticket);
            held.push(
                after(ms),
                Completion {
                    ticket,
                    result: Ok(()),
                },
            );
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
