//! Lists of spans of our own: what a channel that was lent spans lends on.

use std::mem::ManuallyDrop;

use crate::{Span, Spans};

/// A list of spans that is lent with one request after another, and stays in place meanwhile.
///
/// A channel that passes on only a part of what it was lent needs a list of that part. The list lives
/// until [`Loan::end`], which is called when the request it was lent to has ended, as everything that
/// is lent is used no longer than that. A loan that is only dropped leaves its list behind for ever:
/// that wastes a few bytes, where freeing it might leave the disk with a list that is gone.
#[derive(Debug)]
pub struct Loan(ManuallyDrop<Vec<Span>>);

impl Loan {
    /// The first `bytes` of `spans`, or all of them where they are fewer. What they name is lent on,
    /// so the request that this is lent to ends before the one that `spans` came with.
    #[must_use]
    pub fn first(spans: &[Span], bytes: u64) -> Self {
        let mut left = bytes;
        let cut = spans.iter().map_while(|span| {
            let len = usize::try_from(left).map_or(span.len(), |left| left.min(span.len()));
            let more = left > 0;
            left -= len as u64;
            more.then(|| span.split_at(len).0)
        });
        Self(ManuallyDrop::new(cut.collect()))
    }

    /// Of a list that the caller has put together out of spans that were lent to it, to be lent on: the
    /// request that this is lent to ends before those that they came with.
    #[must_use]
    pub fn of(list: Vec<Span>) -> Self {
        Self(ManuallyDrop::new(list))
    }

    /// Lends it.
    ///
    /// # Safety
    ///
    /// [`Loan::end`] comes after the end of the request that this is lent to: once the list is used no more
    /// ([`Spans::new`]). If it never comes, the list stays for ever.
    #[must_use]
    pub unsafe fn spans(&self) -> Spans {
        // SAFETY: the list does not change, and it stays where it is until `end`.
        unsafe { Spans::new(&self.0) }
    }

    /// The request it was lent to has ended: gives the list back, for another to be made of it.
    #[expect(clippy::must_use_candidate, reason = "most lists are made once")]
    pub fn end(self) -> Vec<Span> {
        ManuallyDrop::into_inner(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Region;

    #[test]
    fn a_loan_is_as_long_as_was_said_and_no_longer() {
        let memory = tempfile::tempfile_in("/dev/shm").unwrap();
        memory.set_len(4096).unwrap();
        let region = Region::map(memory, 0, 0, 0, 4096).unwrap();
        // SAFETY: the region is kept until the end of the test.
        let span = unsafe { region.span() }.split_at(10).0;
        span.write(b"0123456789");
        let (head, tail) = span.split_at(4);
        let nothing = span.split_at(0).0;
        for len in 0..=12 {
            let loan = Loan::first(&[head, nothing, tail], len);
            let mut seen = Vec::new();
            // SAFETY: the loan ends after this.
            for span in unsafe { loan.spans() }.iter() {
                let mut part = vec![0; span.len()];
                span.read(&mut part);
                seen.extend(part);
            }
            assert_eq!(seen, b"0123456789"[..10.min(usize::try_from(len).unwrap())]);
            loan.end();
        }
    }
}
