//! What a user of the driver chooses.

use std::time::Duration;

/// How the end of a request is to be noticed. Each request says so itself; both kinds share a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompletionMode {
    /// The owner polls: [`poll`](crate::Queue::poll), `reap`, or a `wait` that still polls. The device
    /// is not asked to call, unless an owner goes to sleep over it.
    #[default]
    Polled,
    /// The device calls: from submission on, calls are on until the request has ended.
    Call,
}

/// When are calls on, on a queue with requests of both kinds?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mixed {
    /// While a call-driven request is in flight, or any owner sleeps on the queue.
    #[default]
    WhileNeeded,
    /// The same, but not while polled requests are in flight, whose pollers reap for everybody. An
    /// owner that waits for a call waits no longer than this before it turns calls on and reaps itself.
    SuspendedFor(Duration),
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

/// What if the server closes the connection, because it was restarted, or has crashed; or does not answer in time?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reconnect {
    /// The device is lost at once.
    Never,
    /// The driver tries to connect again for so long, and hands everything that was in flight to the server that is
    /// back: the program notices nothing but a delay. Only then is the device lost.
    ///
    /// It is assumed that a server that answers at the socket has taken over: no other works any more on
    /// what the one before was given. The servers of Pollux and QEMU see to that by a lock on the image.
    /// And what a server keeps in its own memory alone goes with it: a disk in memory, or a cache of
    /// the server's own. Writes that have completed and were not flushed are then lost without an error, as
    /// for a guest under QEMU; what the kernel caches for the server stays.
    Within(Duration),
    /// The same for as long as it takes: requests wait, as they do for any storage that does not answer.
    Always,
}

impl Default for Reconnect {
    /// Half a minute: a restart takes less, and a server that has not come back by then needs an administrator.
    fn default() -> Self {
        Self::Within(Duration::from_secs(30))
    }
}

/// What to ask of a connection. The defaults suit every server.
///
/// ```
/// # use pollux_driver::Options;
/// let options = Options::default().queues(4).queue_size(128);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// The most queues to use; never more than the server offers. `None`: as many as it offers.
    pub queues: Option<u16>,
    /// Entries of each queue: a power of two from 4 to 32768. A server that takes no queue as large (Pollux
    /// takes 1024 unless told otherwise) may close the connection over it.
    pub queue_size: u16,
    /// Is everything refused that would change the disk, whatever the server allows?
    pub read_only: bool,
    /// How long the server may take to answer a message before the connection is closed, as if the server had done so.
    /// Dropping the last owner of a queue waits as long for a server that hangs: see [`Driver`](crate::Driver).
    pub patience: Duration,
    /// What if the server closes the connection, or does not answer? One that lies is lost in any case.
    pub reconnect: Reconnect,
    /// Must the server be another process? A program whose disks are made of each other by way of a socket waits for
    /// itself as it starts or ends.
    pub elsewhere: bool,
    /// What tests and measurements change.
    #[doc(hidden)]
    pub experiment: Experiment,
}

/// What only tests and measurements change. It is no part of the interface.
#[doc(hidden)]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Experiment {
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
}

impl Default for Options {
    fn default() -> Self {
        Self {
            queues: None,
            queue_size: 256,
            read_only: false,
            patience: Duration::from_secs(10),
            reconnect: Reconnect::default(),
            elsewhere: false,
            experiment: Experiment::default(),
        }
    }
}

impl Options {
    /// These with so many [`queues`](#structfield.queues) at most; `None` is as many as the server offers.
    #[must_use]
    pub fn queues(mut self, most: impl Into<Option<u16>>) -> Self {
        self.queues = most.into();
        self
    }

    /// These with this [`queue_size`](#structfield.queue_size).
    #[must_use]
    pub fn queue_size(mut self, entries: u16) -> Self {
        self.queue_size = entries;
        self
    }

    /// These with this [`read_only`](#structfield.read_only).
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// These with this [`patience`](#structfield.patience).
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// These with this [`reconnect`](#structfield.reconnect).
    #[must_use]
    pub fn reconnect(mut self, reconnect: Reconnect) -> Self {
        self.reconnect = reconnect;
        self
    }

    /// These with this [`elsewhere`](#structfield.elsewhere).
    #[must_use]
    pub fn elsewhere(mut self, elsewhere: bool) -> Self {
        self.elsewhere = elsewhere;
        self
    }

    /// These with this [`experiment`](#structfield.experiment).
    #[doc(hidden)]
    #[must_use]
    pub fn experiment(mut self, experiment: Experiment) -> Self {
        self.experiment = experiment;
        self
    }
}
