//! What a peer can do wrong to a ring. Each ends the queue, and nothing else.

/// The peer broke the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerFault {
    /// The peer's index is further ahead than the ring is long.
    #[error("the ring's index jumped by {jump}; the ring holds {size}")]
    IndexJump {
        /// How far ahead of what was taken it is.
        jump: u16,
        /// The ring's size.
        size: u16,
    },
    /// An available entry names a descriptor that does not exist.
    #[error("the available ring names descriptor {head}; there are {size}")]
    HeadOutOfRange {
        /// The entry.
        head: u16,
        /// The ring's size.
        size: u16,
    },
    /// A descriptor links to one that does not exist.
    #[error("the chain from head {head} continues at descriptor {next}; its table has {len}")]
    NextOutOfRange {
        /// Where the chain starts.
        head: u16,
        /// Where it was to go on.
        next: u16,
        /// How many descriptors the table has.
        len: u32,
    },
    /// A chain has more descriptors than its table: it comes back to itself.
    #[error("the chain from head {head} never ends")]
    ChainLoop {
        /// Where the chain starts.
        head: u16,
    },
    /// An indirect table is empty, longer than [`crate::MAX_CHAIN`], or no multiple of 16 bytes.
    #[error("the indirect table of head {head} has {bytes} bytes")]
    IndirectLength {
        /// Where the chain starts.
        head: u16,
        /// The length the descriptor gives.
        bytes: u32,
    },
    /// A descriptor is indirect where it must not be: inside an indirect table, with a successor, or
    /// without the feature (VIRTIO 1.3, 2.7.5.3.1).
    #[error("the chain from head {head} has an indirect descriptor where none may be")]
    IndirectMisplaced {
        /// Where the chain starts.
        head: u16,
    },
    /// A descriptor points outside the memory that the peer shares.
    #[error(
        "the chain from head {head} points at {address:#x}+{len:#x}, outside the shared memory"
    )]
    OutsideMemory {
        /// Where the chain starts.
        head: u16,
        /// The address in the descriptor.
        address: u64,
        /// The length in the descriptor.
        len: u32,
    },
    /// Its buffers lie in too many pieces: they cross regions of memory again and again.
    #[error("the chain from head {head} crosses the borders of memory regions too often")]
    Scattered {
        /// Where the chain starts.
        head: u16,
    },
    /// A device-readable descriptor follows a device-writable one (VIRTIO 1.3, 2.7.4.2).
    #[error("the chain from head {head} has a readable descriptor after a writable one")]
    ReadableAfterWritable {
        /// Where the chain starts.
        head: u16,
    },
    /// A used entry names a chain that is not in flight.
    #[error("the used ring returns head {id}, which is not in flight")]
    NotInFlight {
        /// The entry's id.
        id: u32,
    },
    /// A used entry claims more bytes than the chain has room for.
    #[error("the used ring claims {written} bytes for head {id}, which has room for {room}")]
    Overrun {
        /// The entry's id.
        id: u32,
        /// The length it claims.
        written: u32,
        /// What the chain's writable part holds.
        room: u64,
    },
}
