//! Why a frontend's message is refused. Each ends its session, never the process.

use pollux_memory::{MapError, TableError};
use pollux_ring::AreaError;

use crate::inflight::RecordError;

/// The frontend asked for something that cannot be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields are what the messages say they are")]
pub enum Refusal {
    /// A queue that was never offered.
    #[error(
        "there is no queue {index}: the device has {queues}; start pollux with a larger --num-queues"
    )]
    NoQueue { index: u32, queues: u16 },
    /// A ring size that no ring can have, or that this device does not take.
    #[error(
        "queue {index} cannot have {size} entries; it takes a power of two up to {most} (--queue-size)"
    )]
    RingSize { index: u16, size: u32, most: u16 },
    /// A running queue must be stopped first.
    #[error("queue {index} runs; its {what} cannot change before GET_VRING_BASE stops it")]
    Running { index: u16, what: &'static str },
    /// A queue is started before it is described.
    #[error("queue {index} is started, but {what} is missing")]
    Incomplete { index: u16, what: &'static str },
    /// A part of a ring is not in the shared memory.
    #[error(
        "the {area} area of queue {index} at {address:#x} is not in the shared memory; share the memory of the virtual \
         machine, in QEMU by a memory backend with share=on and -machine memory-backend=ID"
    )]
    RingOutside {
        index: u16,
        area: &'static str,
        /// Where it was said to be, in the frontend's address space.
        address: u64,
    },
    /// The parts of a ring do not fit its size.
    #[error("queue {index} has no valid ring")]
    Ring { index: u16, source: AreaError },
    /// A feature that was not offered.
    #[error(
        "the frontend accepts features {0:#x}, which were not offered; if it was connected before a restart, serve \
         the disk with the options that it had, such as --read-only"
    )]
    Features(u64),
    /// A configuration field that cannot be written, or not to this value.
    #[error(
        "the frontend writes {bytes:?} at offset {offset} of the configuration; only the cache byte can be written"
    )]
    Config { offset: u32, bytes: Vec<u8> },
    /// A region that cannot be mapped.
    #[error("a memory region is refused")]
    Map(#[from] MapError),
    /// A region that does not fit among the others, or is not there.
    #[error("a memory region is refused")]
    Table(#[from] TableError),
    /// An in-flight record that cannot be this device's.
    #[error("the in-flight record is refused")]
    Inflight(#[from] RecordError),
    /// More regions than were offered.
    #[error("the frontend shares more than {0} memory regions")]
    TooManyRegions(usize),
    /// More memory than a frontend needs.
    #[error("the frontend shares more than {0:#x} bytes of memory")]
    TooMuchMemory(u64),
    /// The log of dirty pages that cannot be mapped.
    #[error("the log of dirty pages is refused")]
    Log(#[source] MapError),
    /// A log of dirty pages for more memory than a guest has addresses for.
    #[error("the log of dirty pages has {len:#x} bytes; the most that a guest needs is {most:#x}")]
    LongLog { len: u64, most: u64 },
    /// The log of dirty pages has no bit for some of the memory it is for.
    #[error(
        "the log of dirty pages is for guest memory below {covered:#x}, but there is memory up to {end:#x}"
    )]
    ShortLog {
        /// One past the last address that it has a bit for.
        covered: u64,
        /// One past the last address that needs one.
        end: u64,
    },
    /// The disk is in use elsewhere.
    #[error("the disk cannot be used now")]
    InUse(#[source] std::io::Error),
    /// A message began and did not go on.
    #[error("the frontend sent half a message, and no more of it for {0:?}")]
    HalfMessage(std::time::Duration),
    /// More descriptors than any message has.
    #[error("the frontend sent more than {0} file descriptors with one message")]
    TooManyDescriptors(usize),
    /// Descriptors in the middle of a header.
    #[error("the frontend sent file descriptors with a part of a message's header")]
    TornHeader,
    /// A descriptor through which no call can be made.
    #[error("the {what} descriptor of queue {index} is {kind}; use an eventfd")]
    NotifierKind {
        index: u8,
        what: &'static str,
        kind: &'static str,
    },
    /// A pipe, where there are other disks that it could hold.
    #[error(
        "the {what} descriptor of queue {index} is a pipe, through which a frontend could hold other disks of this \
         process; use an eventfd, or serve this disk alone"
    )]
    Pipe { index: u8, what: &'static str },
    /// A pipe is read by the queue that is kicked, so others would miss what was for them.
    #[error(
        "queues {other} and {index} are kicked through the same pipe; give each its own, or an eventfd"
    )]
    SharedPipe { index: u8, other: u8 },
    /// A descriptor whose kicks cannot be waited for.
    #[error("the kicks of queue {index} cannot be waited for")]
    Kicks { index: u16, source: std::io::Error },
    /// The machine failed.
    #[error("cannot {doing}")]
    Machine {
        doing: &'static str,
        source: std::io::Error,
    },
    /// What no message told.
    #[error(
        "memory that the frontend shares is gone: its file was truncated, or has no room for one of its pages"
    )]
    MemoryLost,
    /// A request of the protocol that was not offered.
    #[error("the frontend asks for {0}, which was not offered")]
    NotOffered(&'static str),
}

impl Refusal {
    /// What `doing` failed with.
    pub(super) fn machine<E: Into<std::io::Error>>(doing: &'static str) -> impl Fn(E) -> Self {
        move |error| Self::Machine {
            doing,
            source: error.into(),
        }
    }
}

impl From<Refusal> for vhost::vhost_user::Error {
    fn from(refusal: Refusal) -> Self {
        Self::ReqHandlerError(std::io::Error::other(refusal))
    }
}

#[cfg(test)]
mod tests;
