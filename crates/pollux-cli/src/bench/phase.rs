//! What a run goes through.

/// The phases of a run. All jobs end one before any begins the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Every block is written, for jobs that only read and verify.
    Fill,
    /// The same load before that.
    Ramp,
    /// What is measured.
    Run,
    /// What was written is read, and verified.
    ReadBack,
}
