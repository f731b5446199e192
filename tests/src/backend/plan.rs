//! What the device is to be like, and how it is to behave.

use std::time::Duration;

/// Feature bits of virtio (6, 5.2.3), for [`Plan::without`].
#[allow(missing_docs)] // the specification's names
pub mod feature {
    pub const SIZE_MAX: u64 = 1 << 1;
    pub const SEG_MAX: u64 = 1 << 2;
    pub const RO: u64 = 1 << 5;
    pub const BLK_SIZE: u64 = 1 << 6;
    pub const FLUSH: u64 = 1 << 9;
    pub const TOPOLOGY: u64 = 1 << 10;
    pub const CONFIG_WCE: u64 = 1 << 11;
    pub const MQ: u64 = 1 << 12;
    pub const DISCARD: u64 = 1 << 13;
    pub const WRITE_ZEROES: u64 = 1 << 14;
    pub const SECURE_ERASE: u64 = 1 << 16;
    pub const ZONED: u64 = 1 << 17;
    pub const INDIRECT_DESC: u64 = 1 << 28;
    pub const EVENT_IDX: u64 = 1 << 29;
    pub const PROTOCOL_FEATURES: u64 = 1 << 30;
    pub const VERSION_1: u64 = 1 << 32;

    /// All that the device has to offer.
    pub(crate) const ALL: u64 = SIZE_MAX
        | SEG_MAX
        | BLK_SIZE
        | FLUSH
        | TOPOLOGY
        | CONFIG_WCE
        | MQ
        | DISCARD
        | WRITE_ZEROES
        | SECURE_ERASE
        | ZONED
        | INDIRECT_DESC
        | EVENT_IDX
        | PROTOCOL_FEATURES
        | VERSION_1;
}

/// Feature bits of the protocol, for [`Plan::without_protocol`].
#[allow(missing_docs)] // the protocol's names
pub mod protocol {
    pub const MQ: u64 = 1 << 0;
    pub const REPLY_ACK: u64 = 1 << 3;
    pub const BACKEND_REQ: u64 = 1 << 5;
    pub const CONFIG: u64 = 1 << 9;
    pub const CONFIGURE_MEM_SLOTS: u64 = 1 << 15;

    /// All that the device has to offer.
    pub(crate) const ALL: u64 = MQ | REPLY_ACK | BACKEND_REQ | CONFIG | CONFIGURE_MEM_SLOTS;
}

/// What a device is to be like from the first message on.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Size of the disk in sectors of 512 bytes.
    pub sectors: u64,
    /// Queues that it offers.
    pub queues: u16,
    /// Logical block size in bytes.
    pub block: u32,
    /// Longest segment of a request in bytes.
    pub size_max: u32,
    /// Most data segments of a request.
    pub seg_max: u32,
    /// Longest range of a discard, a secure erase or of zeroes, in sectors.
    pub range_sectors: u32,
    /// Features of virtio that it does not offer.
    pub without: u64,
    /// Features of the protocol that it does not offer.
    pub without_protocol: u64,
    /// What the configuration space says instead, by position.
    pub config: Vec<(usize, Vec<u8>)>,
    /// When it calls.
    pub calls: Calls,
    /// Bytes of the largest region of memory that it takes.
    pub largest_region: u64,
    /// Does it end the session over a larger one?
    pub ends_over_memory: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            sectors: 2048,
            queues: 1,
            block: 512,
            size_max: 1 << 20,
            seg_max: 126,
            range_sectors: 2048,
            without: 0,
            without_protocol: 0,
            config: vec![],
            calls: Calls::AsAsked,
            largest_region: u64::MAX,
            ends_over_memory: false,
        }
    }
}

/// What comes instead of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// Nothing, and nothing after it.
    Mute,
    /// Half of it, and nothing after it.
    Half,
    /// The end of the connection.
    HangUp,
    /// A refusal, and the end of the connection.
    Refusal,
}

/// When the device calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    /// When the driver has asked for it.
    AsAsked,
    /// For every completion, whether anybody has asked or not.
    Always,
    /// The same, and whenever a thread of its own gets to it: without a break.
    AndForNothing,
    /// As asked, but a thread of its own reads them again, without a break: few reach the driver.
    Stolen,
}

/// How requests end from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conduct {
    /// As they should, in the order in which they came.
    Prompt,
    /// As they should, but together: once there are `batch`, or the first has waited for `patience`, and
    /// in any order.
    Late {
        /// How many are waited for.
        batch: usize,
        /// For how long.
        patience: Duration,
    },
    /// Not at all.
    Held,
    /// The one that came first as it should, and after it none.
    Next,
    /// The next one by a lie, and after it none.
    Lie(Lie),
    /// All by this lie.
    Liar(Lie),
}

/// What is wrong with the end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// The used index moves on by so much more than it should.
    IndexJump(u16),
    /// The used element names this head, whatever was asked for.
    Id(u32),
    /// It names a head that might be, but with which nothing is in flight.
    IdleHead,
    /// It is there twice.
    Twice,
    /// More was written than there is room for.
    Written(u32),
    /// The status byte is not written.
    NoStatus,
    /// The status byte is this.
    Status(u8),
}
