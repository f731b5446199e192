//! Why there is no in-flight record.

use std::io;

use pollux_memory::MapError;

/// What the area of each queue is a multiple of, as other back ends have it.
pub const ALIGNMENT: u64 = 64;

/// Why an in-flight record is refused.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// It is for a device that this one is not.
    #[error(
        "it is for {queues} queues of {entries} entries; this device has {most_queues} (--num-queues) \
         of at most {most_entries} (--queue-size)"
    )]
    Shape {
        /// Queues that it is for.
        queues: u16,
        /// Entries of each.
        entries: u16,
        /// Queues that there are.
        most_queues: u16,
        /// Entries that one may have.
        most_entries: u16,
    },
    /// Its area is too small.
    #[error("its area has {len} bytes; {queues} queues of {entries} entries take {needed}")]
    Short {
        /// Bytes that there are.
        len: u64,
        /// Bytes that it takes.
        needed: u64,
        /// Queues that it is for.
        queues: u16,
        /// Entries of each.
        entries: u16,
    },
    /// Its area starts where its words cannot be.
    #[error("its area starts at offset {0:#x} of its file, which is no multiple of {ALIGNMENT}")]
    Offset(u64),
    /// Its file cannot be mapped.
    #[error(transparent)]
    Map(#[from] MapError),
    /// A queue that it has no room for.
    #[error(
        "queue {queue} has {size} entries; it has room for {queues} queues of at most {entries}"
    )]
    Room {
        /// The queue's number.
        queue: u16,
        /// Entries of the queue.
        size: u16,
        /// Queues that it is for.
        queues: u16,
        /// Entries of each.
        entries: u16,
    },
    /// Written by rules that are not known here.
    #[error(
        "of queue {queue} it has version {version}, features {features:#x} and {found} entries; \
         known is version 1 without features, and it was said to have {entries}"
    )]
    Foreign {
        /// The queue's number.
        queue: u16,
        /// What it says of its version.
        version: u16,
        /// What it says of its features.
        features: u64,
        /// The entries that it says it has.
        found: u16,
        /// The entries that its message said it has.
        entries: u16,
    },
    /// A chain in flight that no ring of this size has.
    #[error(
        "it says that chain {head} of queue {queue} is in flight, whose ring has {size} entries"
    )]
    Head {
        /// The queue's number.
        queue: u16,
        /// Where the chain is said to start.
        head: u16,
        /// Entries of the queue.
        size: u16,
    },
    /// The machine lacks memory for a new one.
    #[error("a new one cannot be made")]
    Unmade(#[source] io::Error),
}
