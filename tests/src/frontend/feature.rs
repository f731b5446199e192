//! Feature bits of virtio that a driver may leave out.

/// Flushing.
pub const FLUSH: u64 = 1 << 9;
/// Switching the cache.
pub const CONFIG_WCE: u64 = 1 << 11;
/// Descriptors that point to tables of descriptors.
pub const INDIRECT_DESC: u64 = 1 << 28;
/// Suppression by index.
pub const EVENT_IDX: u64 = 1 << 29;
/// Anything newer than the legacy interface.
pub const VERSION_1: u64 = 1 << 32;
/// Writes to guest memory are logged: taken by [`Driver::set_logging`](super::Driver::set_logging) alone.
pub const LOG_ALL: u64 = 1 << 26;
pub(super) const PROTOCOL_FEATURES: u64 = 1 << 30;
/// Those of a block device.
pub(super) const BLOCK: u64 = (1 << 17) - 1;
/// All that this driver understands, and takes if it is offered.
pub(super) const KNOWN: u64 = BLOCK | INDIRECT_DESC | EVENT_IDX | VERSION_1 | PROTOCOL_FEATURES;
