//! How much a turn does: its bound in chains and in work, which is what the worker itself has to do, counted in bytes
//! that it copies.

use pollux_blk::Kind;
use pollux_disk::Effort;

/// How many chains one turn takes from the queues of a session: a driver that recycles heads for ever must
/// not hold the worker, nor deep queues those of another disk.
pub const BUDGET: u16 = 64;

/// The work of a slice. A power of two.
pub const SLICE: u64 = 128 << 10;

/// The work of a turn. So many chains of 4 KiB leave a slice over.
pub const WORK: u64 = BUDGET as u64 * (7 << 10);

/// After so much work a turn begins nothing more.
#[cfg(feature = "fuzzing")]
pub const ENOUGH: u64 = WORK - SLICE;

/// The work of a step of the walk through a chain: a descriptor, or a part of one.
pub const STEP: u64 = 256;

/// How much work a byte is, in powers of two: `bytes >> shift`.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    read: u32,
    write: u32,
    range: u32,
}

impl Pace {
    /// As the disk says. What is handed over costs an eighth of a copy; what touches no data nothing. What `io_uring`
    /// reads counts as a quarter, so that one system call is made for half a MiB: for less it would be felt.
    pub const fn of(effort: Effort) -> Self {
        // A slice of what is no work has 2^63 bytes.
        const NOTHING: u32 = u64::BITS - 1 - SLICE.ilog2();
        let (read, write, range) = match effort {
            Effort::Nothing => (NOTHING, NOTHING, NOTHING),
            Effort::HandOver => (3, 3, NOTHING),
            Effort::Kernel => (2, 3, NOTHING),
            Effort::Copy => (1, 1, NOTHING),
            Effort::Everything => (0, 0, 0),
        };
        Self { read, write, range }
    }

    const fn shift(self, kind: Kind) -> u32 {
        match kind {
            Kind::In => self.read,
            Kind::Out => self.write,
            _ => self.range,
        }
    }

    /// The work of a request of this kind over so many bytes.
    #[inline]
    pub const fn work(self, kind: Kind, bytes: u64) -> u64 {
        bytes >> self.shift(kind)
    }

    /// How many bytes a slice has.
    pub(super) const fn slice(self, kind: Kind) -> u64 {
        SLICE << self.shift(kind)
    }
}

/// What is left of a turn.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// So many chains may be taken.
    pub chains: u16,
    pub(super) work: u64,
    /// So many slices were begun.
    pub slices: u16,
    /// The queue that was served last had no room to poll for chains.
    pub(super) is_short: bool,
    /// Its limits have cut it short, after some chains.
    pub(super) is_limited: bool,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            chains: BUDGET,
            work: WORK,
            slices: 0,
            is_short: false,
            is_limited: false,
        }
    }
}

impl Budget {
    /// Is nothing left? A queue is served only where a slice's work is left, as less might never do.
    #[inline]
    pub fn is_spent(&self) -> bool {
        self.chains == 0 || self.work < SLICE
    }

    /// How much work has been done.
    #[inline]
    pub fn spent(&self) -> u64 {
        WORK - self.work
    }

    /// Did the turn end for a queue before it had its share, as one of so many that were `served`? It found the turn as
    /// it was `before`. The first of those served has had all that there is; one that had no room to poll has not had
    /// its share.
    #[inline]
    pub fn cuts_short(&mut self, before: Self, served: u16) -> bool {
        if std::mem::take(&mut self.is_short) {
            return true;
        }
        let chains = u32::from(before.chains - self.chains) * u32::from(served);
        let work = (before.work - self.work) * u64::from(served);
        served > 1 && self.is_spent() && chains < BUDGET.into() && work < WORK
    }

    /// Have limits cut the queue short that was served last?
    #[inline]
    pub fn is_limited(&self) -> bool {
        self.is_limited
    }

    /// May chains be taken by a queue that has to keep `reserve` for what it goes on with?
    #[inline]
    pub(super) fn takes(&self, reserve: u64) -> bool {
        self.work >= SLICE + reserve
    }

    #[inline]
    pub fn spend(&mut self, work: u64) {
        self.work = self.work.saturating_sub(work);
    }

    /// A chain was walked in so many steps.
    #[inline]
    pub(super) fn walked(&mut self, steps: usize) {
        self.spend(STEP * steps as u64);
    }
}
