//! Arithmetic on ring indices, which wrap at 2^16.
//!
//! A plain `<` between two indices is wrong whenever they straddle the wrap, so `u16` stops at this
//! module's door: everything else holds a [`RingIndex`], which has no ordering.

/// A free-running index into a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingIndex(pub u16);

impl RingIndex {
    /// How many entries lie between `earlier` and this.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u16 {
        self.0.wrapping_sub(earlier.0)
    }

    /// The index `entries` further on.
    #[must_use]
    pub const fn plus(self, entries: u16) -> Self {
        Self(self.0.wrapping_add(entries))
    }

    /// The index just before: of all indices, the one a ring reaches last.
    #[must_use]
    pub const fn before(self) -> Self {
        Self(self.0.wrapping_sub(1))
    }

    /// Did moving from `old` to this step over `event`? (VIRTIO 1.3, 2.7.7.2 and 2.7.10)
    #[must_use]
    pub const fn passed(self, event: Self, old: Self) -> bool {
        self.since(event.plus(1)) < self.since(old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_over_the_event_is_seen_on_both_sides_of_the_wrap() {
        for start in [0, 1, 0x7fff, 0x8000, 0xfffc, 0xffff] {
            let old = RingIndex(start);
            let new = old.plus(4);
            assert!(new.passed(old, old));
            assert!(new.passed(old.plus(3), old));
            assert!(!new.passed(old.plus(4), old), "an event not reached yet");
            assert!(!new.passed(old.before(), old), "an event long passed");
        }
    }

    #[test]
    fn standing_still_passes_nothing() {
        for event in 0..=u16::MAX {
            assert!(!RingIndex(7).passed(RingIndex(event), RingIndex(7)));
        }
    }
}
