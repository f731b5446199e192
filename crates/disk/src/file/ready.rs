//! What need not be waited for is done there and then.
//!
//! The page cache serves 4 KiB in about a microsecond; to hand that to `io_uring` and to hear of it again
//! costs up to as much once more, and to a thread a multiple. But the worker that asks must never wait, as other disks
//! wait behind it: so the kernel is asked for what it can do without waiting (`RWF_NOWAIT`), and the
//! engine does the rest: cold data, dirty throttling, locks.

use std::sync::atomic::Ordering;

use pollux_memory::io::{Flow, try_read_at, try_write_at};
use pollux_memory::uring::Transfer;
use rustix::io::Errno;

use super::backing::Backing;
use super::settings::{Cache, Inline};
use super::system::Residence;
use crate::Effort;

/// So many at once are done one by one; more go through `io_uring`, which also does at once what it can. One by
/// one each takes a microsecond instead of up to two; sixteen and more are served 8 to 19 % faster by one
/// system call for all of them (measured on ext4, 4 KiB in the page cache).
const FEW: u32 = 4;

/// From here on a copy holds the caller up for longer than it takes to hand it over (a wake-up, tens of
/// microseconds), and the engine may do it on another processor.
const MOST: u64 = 128 << 10;

/// The same of a file in memory, which is copied by threads of the kernel otherwise.
const MOST_IN_MEMORY: u64 = 256 << 10;

/// How many transfers come together, judged by the last that came together.
#[derive(Debug, Default)]
pub struct Burst {
    now: u32,
    last: u32,
}

/// Does a transfer come with others?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Company {
    /// It comes alone, or with few.
    Few,
    /// It comes with many, for which one system call will do.
    Many,
}

impl Burst {
    /// Another one comes.
    #[inline]
    pub fn another(&mut self) -> Company {
        self.now += 1;
        if self.now.max(self.last) <= FEW {
            Company::Few
        } else {
            Company::Many
        }
    }

    /// What came together has come.
    #[inline]
    pub fn end(&mut self) {
        if self.now > 0 {
            self.last = std::mem::take(&mut self.now);
        }
    }
}

/// How much of a transfer was done at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtOnce {
    /// It has ended.
    All(Result<(), Errno>),
    /// So many bytes from its start; the rest has to be waited for.
    Part(u64),
}

impl Backing {
    /// What is in the page cache is read at once, be it by `io_uring`; most file systems write to it by a thread of
    /// the kernel.
    pub fn effort(&self) -> Effort {
        match self.residence {
            Residence::Memory => Effort::Copy,
            Residence::Storage => Effort::Kernel,
        }
    }

    /// Does as much of `transfer` as need not be waited for.
    ///
    /// A file in memory is copied from and to whatever its system can tell: nothing is waited for there
    /// but memory, as wherever guest memory is touched; and, by what is copied to it, holes that are punched meanwhile.
    #[inline]
    pub fn at_once(&self, transfer: &Transfer, company: Company) -> AtOnce {
        let Transfer {
            flow, spans, at, ..
        } = *transfer;
        let bytes = spans.bytes();
        let most = match self.residence {
            Residence::Memory => MOST_IN_MEMORY,
            Residence::Storage => MOST,
        };
        if self.settings.inline == Inline::Off || bytes > most {
            return AtOnce::Part(0);
        }
        if self.residence == Residence::Memory {
            if flow == Flow::ToFile && self.punching.load(Ordering::Relaxed) > 0 {
                return AtOnce::Part(0);
            }
            return AtOnce::All(self.copy(flow, at, spans));
        }
        // Past the page cache, everything has to be waited for.
        let ready = self.nowait.of(flow);
        if company == Company::Many
            || self.settings.cache == Cache::None
            || !ready.load(Ordering::Relaxed)
        {
            return AtOnce::Part(0);
        }
        let moved = match flow {
            Flow::FromFile => try_read_at(&self.file, &spans, at),
            Flow::ToFile => try_write_at(&self.file, &spans, at),
        };
        match moved {
            Ok(moved) if moved as u64 == bytes => AtOnce::All(Ok(())),
            Ok(moved) => AtOnce::Part(moved as u64),
            Err(error) => {
                if error == Errno::OPNOTSUPP {
                    ready.store(false, Ordering::Relaxed);
                }
                // Whatever it was, the engine meets it again, and then it is the answer.
                AtOnce::Part(0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_judged_by_the_last_one_and_by_how_far_it_has_come() {
        let mut burst = Burst::default();
        let mut come = |count: u32| -> Vec<bool> {
            let companies = (0..count).map(|_| burst.another() == Company::Few);
            let few = companies.collect();
            burst.end();
            burst.end(); // a turn in which nothing comes changes nothing
            few
        };
        assert_eq!(come(1), [true]);
        assert_eq!(come(6), [true, true, true, true, false, false]);
        assert_eq!(come(2), [false, false], "many came last");
        assert_eq!(come(4), [true; 4]);
    }
}
