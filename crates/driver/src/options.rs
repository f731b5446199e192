//! How a driver works: the mechanisms as values, so that each can be measured on and off.

use std::time::Duration;

/// How the end of a request is to be noticed. Each request says so itself; both kinds share a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Completion {
    /// Somebody looks: [`poll`](crate::Queue::poll), `reap`, or a `wait` that still looks. The device
    /// is not asked to call, unless somebody goes to sleep over it.
    #[default]
    Polled,
    /// The device calls: from submission on, calls are on until the request has ended.
    Call,
}

/// When are calls on, on a queue with requests of both kinds?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(
    clippy::manual_non_exhaustive,
    reason = "what is hidden is a rule, not a place for more"
)]
pub enum Mixed {
    /// While a call-driven request is in flight, or anybody sleeps on the queue.
    #[default]
    WhileNeeded,
    /// The same, but not while polled requests are in flight, whose pollers reap for everybody. Whoever
    /// waits for a call then waits no longer than this before it turns calls on and reaps itself.
    SuspendedFor(Duration),
    /// The rule of the Linux RFC of 2021: off while any polled request is in flight, without a bound.
    /// **It hangs** when a poller stops; it is here for the test that shows so.
    #[doc(hidden)]
    Rfc2021,
}

/// When is the device kicked?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KickLock {
    /// After the queue's lock is released: whether to kick was decided under it.
    #[default]
    Released,
    /// While it is held, to measure against.
    Held,
}

/// What if the server closes the connection, because it was restarted, or has crashed?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reconnect {
    /// The device is lost at once.
    Never,
    /// It is looked for again for so long, and whoever comes back is handed everything that was in flight:
    /// those who wait notice nothing but a delay. Only then is the device lost.
    ///
    /// It is assumed that a server that answers at the socket has taken over: nobody works any more on
    /// what the one before was given. The servers of Pollux and QEMU see to that by a lock on the image.
    /// And what a server keeps in its own memory alone goes with it: a disk in memory, or a cache of
    /// the server's own. Writes that have completed and were not flushed are then lost without an error, as
    /// for a guest under QEMU; what the kernel caches for the server stays.
    Within(Duration),
}

impl Default for Reconnect {
    /// Half a minute: a restart takes less, and what has not come back by then needs somebody.
    fn default() -> Self {
        Self::Within(Duration::from_secs(30))
    }
}

/// What to ask of a connection. The defaults suit every server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The most queues to use; never more than the server offers. `None`: as many as it offers.
    pub queues: Option<u16>,
    /// Entries of each queue: a power of two from 4 to 32768. A server that takes no queue as large (Pollux
    /// takes 1024 unless told otherwise) may close the connection over it.
    pub queue_size: u16,
    /// Is everything refused that would change the disk, whatever the server allows?
    pub read_only: bool,
    /// When calls are on.
    pub mixed: Mixed,
    /// When the device is kicked.
    pub kick_lock: KickLock,
    /// Are the times that a shared queue's lock is held and waited for recorded?
    pub record_lock: bool,
    /// Features of virtio that are not accepted even where they are offered, as a mask: to test what a
    /// poorer server would offer.
    pub without: u64,
    /// The same for the protocol features of vhost-user.
    pub without_protocol: u64,
    /// How long the server may take to answer a message before the connection counts as lost. Dropping the last
    /// owner of a queue waits as long for a server that hangs: see [`Driver`](crate::Driver).
    pub patience: Duration,
    /// What if the server closes the connection? One that lies or does not answer is lost in any case.
    pub reconnect: Reconnect,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            queues: None,
            queue_size: 256,
            read_only: false,
            mixed: Mixed::default(),
            kick_lock: KickLock::default(),
            record_lock: false,
            without: 0,
            without_protocol: 0,
            patience: Duration::from_secs(10),
            reconnect: Reconnect::default(),
        }
    }
}
