//! Lines of the log that a frontend or its driver can provoke at will, each kind with a quota for each disk.

use pollux_disk::Quota;

/// More than a restart of many machines causes at once.
const BURST: u32 = 100;

/// The quotas of one disk.
#[derive(Debug)]
pub struct LogQuotas {
    /// Sessions that begin and end.
    pub sessions: Quota,
    /// Frontends that wait for the end of another's session.
    pub waiting: Quota,
    /// Sessions that are refused, or end by what their frontend did.
    pub refusals: Quota,
    /// Rings that their drivers have broken.
    pub rings: Quota,
    /// Queues without kicks.
    pub kicks: Quota,
    /// Cache modes.
    pub cache: Quota,
    /// Requests that are submitted again.
    pub resumed: Quota,
    /// Frontends that cannot be told of a new size.
    pub news: Quota,
}

impl Default for LogQuotas {
    fn default() -> Self {
        Self {
            sessions: Quota::new(BURST),
            waiting: Quota::new(BURST),
            refusals: Quota::new(BURST),
            rings: Quota::new(BURST),
            kicks: Quota::new(BURST),
            cache: Quota::new(BURST),
            resumed: Quota::new(BURST),
            news: Quota::new(BURST),
        }
    }
}
