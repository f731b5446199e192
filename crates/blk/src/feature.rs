//! Feature bits that Pollux knows, as masks.
//!
//! Not here, because never offered: GEOMETRY (4), which is a legacy of BIOS disks; `SECURE_ERASE` (16),
//! LIFETIME (15) and ZONED (17); `ACCESS_PLATFORM` (33), as addresses are guest-physical.

/// No segment is longer than `size_max` bytes.
pub const SIZE_MAX: u64 = 1 << 1;
/// No request has more than `seg_max` segments.
pub const SEG_MAX: u64 = 1 << 2;
/// The disk is read-only.
pub const RO: u64 = 1 << 5;
/// The block size is in `blk_size`.
pub const BLK_SIZE: u64 = 1 << 6;
/// FLUSH requests. A driver without them gets write-through.
pub const FLUSH: u64 = 1 << 9;
/// Physical block size and the best request sizes are in `topology`.
pub const TOPOLOGY: u64 = 1 << 10;
/// The driver can switch between write-back and write-through in `writeback`.
pub const CONFIG_WCE: u64 = 1 << 11;
/// Several queues, as many as `num_queues` says.
pub const MQ: u64 = 1 << 12;
/// DISCARD requests.
pub const DISCARD: u64 = 1 << 13;
/// `WRITE_ZEROES` requests.
pub const WRITE_ZEROES: u64 = 1 << 14;

/// vhost only, never seen by a driver: what the device writes to guest memory is logged.
pub const LOG_ALL: u64 = 1 << 26;
/// A descriptor may point to a table of descriptors.
pub const INDIRECT_DESC: u64 = 1 << 28;
/// Notifications are suppressed by `used_event` and `avail_event`, not by flags.
pub const EVENT_IDX: u64 = 1 << 29;
/// vhost-user only, never seen by a driver: there are protocol features to negotiate.
pub const PROTOCOL_FEATURES: u64 = 1 << 30;
/// The device follows VIRTIO 1.0 or later; it refuses drivers that do not.
pub const VERSION_1: u64 = 1 << 32;
