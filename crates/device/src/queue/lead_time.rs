//! How early a driver that sleeps is called: with how much of a turn still to be done.
//!
//! A sleeper runs a while after it is called: some tens of microseconds where its processor has gone to rest. Called
//! while as much is left to do as fills that time, it comes back with new requests just as the worker is through with
//! the old ones, and neither waits for the other. Called sooner it finds less, and sleeps and is called more often. How
//! many requests fill the time is a matter of the disk, the machine and the driver; so it is learnt from what came of
//! the last calls:
//!
//! ```text
//! called ──asks for a call again, before the worker is through──▶ in time: a little later, next time
//!    └─────the worker is through, and nothing new is there──────▶ late: much earlier
//! ```

use super::budget::BUDGET;

/// What is learnt, for one queue.
#[derive(Debug)]
pub struct LeadTime {
    /// How many requests are left when the driver is called, in fractions.
    fractions: u16,
    /// It was called at once, and nothing has come of that yet.
    called: bool,
}

/// Fractions of a request: a call that was in time takes one away.
const WHOLE: u16 = 4;

/// A call that was late adds so much: so one of 41 is late, where anything is to be gained by calling later. One of 33
/// made 0.026 calls for each read of `memory`, 64 in flight, and 0.93 of the reads that were made before; one of 41, 65
/// or 129 made 0.028, 0.029 and 0.031, and as many reads (9 to 13 pairs).
const LATE: u16 = 10 * WHOLE;

impl Default for LeadTime {
    /// Until more is known: half a turn. A request that is a copy of 4 KiB takes half a microsecond.
    fn default() -> Self {
        Self {
            fractions: BUDGET / 2 * WHOLE,
            called: false,
        }
    }
}

impl LeadTime {
    /// The driver is called once no more requests than these are left.
    #[inline]
    pub fn requests(&self) -> u16 {
        self.fractions / WHOLE
    }

    /// The driver had asked for a call, and gets one at once.
    #[inline]
    pub fn call(&mut self) {
        self.wait();
        self.called = true;
    }

    /// The driver had asked for a call, which waits: nothing is learnt of that one, but the last was in time.
    #[inline]
    pub fn wait(&mut self) {
        if std::mem::take(&mut self.called) {
            self.fractions = self.fractions.saturating_sub(1);
        }
    }

    /// There is nothing left to do, and the driver has submitted nothing new.
    #[inline]
    pub fn ran_dry(&mut self) {
        if self.called {
            self.called = false;
            self.fractions = (self.fractions + LATE).min(BUDGET * WHOLE); // There is not more to a turn.
        }
    }
}

#[cfg(test)]
mod tests;
