//! Why there is no in-flight record.

use std::io;

use pollux_memory::MapError;

/// What the area of each queue is a multiple of, as other back ends have it.
pub const ALIGNMENT: u64 = 64;

/// Why an in-flight record is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields are what the messages say they are")]
pub enum RecordError {
    /// It is for a device that this one is not.
    #[error(
        "it is for {queues} queues of {entries} entries; this device has {most_queues} (--num-queues) \
         of at most {most_entries} (--queue-size)"
    )]
    Shape {
        queues: u16,
        entries: u16,
        most_queues: u16,
        most_entries: u16,
    },
    /// Its area is too small.
    #[error("its area has {len} bytes; {queues} queues of {entries} entries take {needed}")]
    Short {
        len: u64,
        needed: u64,
        queues: u16,
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
        queue: u16,
        size: u16,
        queues: u16,
        entries: u16,
    },
    /// Written by rules that are not known here.
    #[error(
        "of queue {queue} it has version {version}, features {features:#x} and {found} entries; \
         known is version 1 without features, and it was said to have {entries}"
    )]
    Foreign {
        queue: u16,
        version: u16,
        features: u64,
        found: u16,
        entries: u16,
    },
    /// A chain in flight that no ring of this size has.
    #[error(
        "it says that chain {head} of queue {queue} is in flight, whose ring has {size} entries"
    )]
    Head { queue: u16, head: u16, size: u16 },
    /// The machine lacks memory for a new one.
    #[error("a new one cannot be made")]
    Unmade(#[source] io::Error),
}
