//! What can go wrong with a connection, and whose fault it is.

use std::io;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use pollux_ring::PeerFault;

/// Why there is no connection to a server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields are what the messages say they are")]
pub enum ConnectError {
    /// There is nothing at the path.
    #[error("there is no socket at {path}; start the server first, or correct the path")]
    Missing { path: PathBuf },
    /// There is something, but no socket.
    #[error("{path} is not a socket; give the path on which the vhost-user server listens")]
    NotASocket { path: PathBuf },
    /// No server listens.
    #[error(
        "no server listens on {path}: the one that made this socket has ended, or serves another client \
         already; start it again, or wait until it is free"
    )]
    Refused { path: PathBuf },
    /// The socket is not ours to use.
    #[error(
        "no permission to connect to {path}; give this user the right to write to the socket, or run as its owner or \
         in its group"
    )]
    Permission { path: PathBuf },
    /// A folder on the way to it is closed.
    #[error(
        "{path} cannot be reached; give this user the right to enter the folder {folder} (`chmod +x`)"
    )]
    ClosedFolder { path: PathBuf, folder: PathBuf },
    /// No socket has such a path.
    #[error(
        "{path} is too long for the path of a unix socket, which has 107 bytes at most; choose a shorter one, for \
         example a relative one"
    )]
    TooLong { path: PathBuf },
    /// Connecting failed otherwise.
    #[error("cannot connect to {path}")]
    Connect { path: PathBuf, source: io::Error },
    /// The server is this process, and was to be another one.
    #[error(
        "{path} is a socket of this very process, which would wait for itself; serve one of the two disks by a process \
         of its own"
    )]
    Here { path: PathBuf },
    /// The server lacks something without which there is no disk.
    #[error("the server at {path} does not offer {what}; {remedy}")]
    Lacks {
        path: PathBuf,
        what: &'static str,
        remedy: &'static str,
    },
    /// The options ask for queues that cannot be.
    #[error(
        "a queue cannot have {size} entries; give a power of two from {least} to {most}",
        least = QUEUE_SIZES.start(), most = QUEUE_SIZES.end()
    )]
    QueueSize { size: u16 },
    /// What the device says of itself cannot be.
    #[error("the disk at {path} cannot be used: {fault}; report this to the makers of the server")]
    Nonsense { path: PathBuf, fault: Nonsense },
    /// The server refused one of our messages, but is still there.
    #[error("the server at {path} refuses {message}; its log should tell why")]
    Refusal {
        path: PathBuf,
        message: &'static str,
    },
    /// The server went away, fell silent or broke the protocol while the device was brought up.
    #[error("the server at {path} was lost before the disk was up")]
    Lost { path: PathBuf, source: Lost },
    /// This machine lacks something: file descriptors, threads, memory.
    #[error("cannot set up the connection to {path}")]
    System { path: PathBuf, source: io::Error },
}

/// How many entries a queue may have. A chain is never longer than its queue, and a discard is a chain of
/// three: header, range and status.
pub(crate) const QUEUE_SIZES: RangeInclusive<u16> = 4..=pollux_ring::MAX_SIZE;

/// What a device says of itself and cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields are what the messages say they are")]
pub enum Nonsense {
    /// `blk_size`.
    #[error("its blocks have {bytes} bytes, which is no power of two from 512 on")]
    BlockSize { bytes: u32 },
    /// `capacity`.
    #[error("it has {sectors} sectors of 512 bytes, which makes more than 2^64 bytes")]
    Capacity { sectors: u64 },
    /// `size_max` and `seg_max`, or the queue's size.
    #[error("a request may hold {most} bytes at most, and a block has {block}")]
    Requests { most: u64, block: u32 },
}

/// What makes a disk another one than it was before its server was restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields are what the messages say they are")]
pub enum Difference {
    /// It is smaller.
    #[error("it has {now} bytes, and had {before}")]
    Smaller { before: u64, now: u64 },
    /// Its blocks are of another size.
    #[error("its blocks have {now} bytes, and had {before}")]
    Block { before: u32, now: u32 },
    /// It cannot be written to.
    #[error("it is read-only now")]
    ReadOnly,
    /// It takes smaller requests, or none of some kind.
    #[error("it takes only smaller requests than before")]
    Requests,
    /// It lacks features of virtio.
    #[error("it does not offer features {missing:#x} of virtio any more")]
    Features { missing: u64 },
    /// It has fewer queues.
    #[error("it has {now} queues, and had {before}")]
    Queues { before: u16, now: u16 },
    /// It takes less memory, or in another way.
    #[error("it cannot take the memory that is in use")]
    Memory,
    /// What it says of itself cannot be.
    #[error(transparent)]
    Nonsense(#[from] Nonsense),
}

/// Why a device is gone. Every request in flight ends with this, and every later one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields are what the messages say they are")]
pub enum Lost {
    /// The socket is closed.
    #[error(
        "the server closed the connection: it has ended or crashed, or was told to let go (its log \
         tells); start it again and connect anew"
    )]
    Closed,
    /// The socket is closed, or the server did not answer, and for as long as [`Reconnect`](crate::Reconnect) allows no
    /// server was there to connect to.
    #[error(
        "the server closed the connection, or did not answer, and was not back within {within:?} ({reason}); start it \
         again and connect anew, or allow it more time"
    )]
    Away { within: Duration, reason: String },
    /// The socket is closed, or the server did not answer, and it is not waited for any more
    /// ([`Disk::give_up`](pollux_disk::Disk::give_up)).
    #[error(
        "the server closed the connection, or did not answer, and this program has given the disk up; start the server \
         again and connect anew"
    )]
    GivenUp,
    /// The server came back with a disk that cannot take the place of the one before.
    #[error(
        "the server was restarted with another disk: {difference}; restart it with the disk it had, or \
         connect anew"
    )]
    Changed { difference: Difference },
    /// It does not answer `message`, and is not [connected to once more](crate::Reconnect). One that is only slow needs
    /// a larger [`patience`](crate::Options::patience).
    #[error(
        "the server has not answered for {patience:?}; it may serve another client, or be stopped or overloaded: free \
         it or restart it, then connect anew"
    )]
    Silent {
        message: &'static str,
        patience: Duration,
    },
    /// It answers, but not what the specification says.
    #[error(
        "the server broke the vhost-user protocol in its answer to {message}: {fault}; report this to \
         its makers"
    )]
    Protocol {
        message: &'static str,
        fault: String,
    },
    /// It wrote nonsense into a used ring. Memory it may still write to is never used again.
    #[error(
        "the server corrupted the used ring of queue {queue}: {fault}; report this to its makers, \
         restart it and connect anew"
    )]
    Ring { queue: u16, fault: PeerFault },
    /// A page of memory that was [registered](crate::Driver::register) cannot be had.
    #[error(
        "memory that this program has registered is gone: its file was cut, has no room for all of it (no huge page is \
         left, or the tmpfs is full), or a page has failed; give it that room, and connect anew"
    )]
    Memory,
}

impl Lost {
    /// Has the session ended in a way that another one may follow?
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, Self::Closed | Self::Silent { .. })
    }

    /// Is that why there is this error?
    pub(crate) fn is_told_by(error: &io::Error) -> bool {
        let refusal = error.get_ref().and_then(|error| error.downcast_ref());
        matches!(refusal, Some(Refusal::Lost(_)))
    }
}

/// Why a message to the server had no effect.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    /// The device is gone.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The server said no; the connection is as it was.
    #[error("the server refuses {message}; its log should tell why")]
    Refused { message: &'static str },
    /// The server holds as many pieces of memory as it can.
    #[error(
        "the server takes no more than {limit} regions of memory; unmap some, or use larger ones; \
         requests in other memory are copied"
    )]
    NoSlot { limit: usize },
    /// This machine lacks something.
    #[error("cannot send {message} to the server")]
    System {
        message: &'static str,
        source: io::Error,
    },
}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> Self {
        let kind = match &refusal {
            Refusal::Lost(_) => io::ErrorKind::BrokenPipe,
            Refusal::Refused { .. } => io::ErrorKind::Other,
            Refusal::NoSlot { .. } => io::ErrorKind::QuotaExceeded,
            Refusal::System { source, .. } => source.kind(),
        };
        Self::new(kind, refusal)
    }
}
