//! A connected disk.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};

use pollux_disk::{Disk, Effort, Events, Geometry, ResizeError, WaitPoint};
use pollux_memory::Region;
use pollux_threads::lock;

use crate::connection::Connection;
use crate::device::Device;
use crate::device::active_queue::ActiveQueue;
use crate::device::facts::Facts;
use crate::device::holders::Holder;
use crate::error::{ConnectError, Lost, QUEUE_SIZES, Refusal};
use crate::exclusive::channel::Channel;
use crate::exclusive::gone::Gone;
use crate::memory::buffer::Buffer;
use crate::options::Options;
use crate::shared::queue::Queue;
use crate::shared::state::Shared;

/// A vhost-user-blk disk, opened from this program.
///
/// It outlives restarts of its server: see [`Reconnect`](crate::Reconnect).
/// Cheap to clone; the connection lasts until the last clone, queue and channel are gone. Its queues are
/// used in two ways: [`Driver::channel`] takes one for a single owner, without any lock;
/// [`Driver::queue`] shares one between any number of threads and tasks.
///
/// **Dropping may wait.** A queue stops when its last owner is dropped: the server answers once everything in flight
/// has ended, so that nothing is written to memory that goes back to its owner. A server that hangs is waited for as
/// long as [`Options::patience`](struct@Options#structfield.patience) says, ten seconds by default. Then the connection
/// is closed, and what the server may still write to is given up ([`Driver::retired`]). In an event loop, drop the last
/// owner on a thread that may block.
#[derive(Clone)]
pub struct Driver(Arc<Inner>);

struct Inner {
    device: Arc<Device>,
    /// Shared queues, by number, while they have owners.
    shared: Mutex<Vec<Weak<Shared>>>,
}

impl Driver {
    /// Connects to the server that listens on `path`, and brings the device up.
    ///
    /// # Errors
    ///
    /// When no server listens there, or it serves no disk that can be used: see [`ConnectError`].
    pub fn connect(path: impl AsRef<Path>, options: &Options) -> Result<Self, ConnectError> {
        let path = path.as_ref();
        let size = options.queue_size;
        if !(size.is_power_of_two() && QUEUE_SIZES.contains(&size)) {
            return Err(ConnectError::QueueSize { size });
        }
        let connection = Connection::open(path, options)?;
        let facts = Facts::new(connection.features(), &connection.config(), options);
        let facts = facts.map_err(|fault| ConnectError::Nonsense {
            path: path.to_owned(),
            fault,
        })?;
        let device = Device::new(connection, facts, options.clone());
        let device = device.map_err(|source| ConnectError::System {
            path: path.to_owned(),
            source,
        })?;
        // It has been told of the driver's memory meanwhile.
        if let Some(source) = device.connection().session().wire.lost() {
            return Err(ConnectError::Lost {
                path: path.to_owned(),
                source,
            });
        }
        Ok(Self(Arc::new(Inner {
            shared: Mutex::new((0..device.queues()).map(|_| Weak::new()).collect()),
            device,
        })))
    }

    /// How many queues can be used at a time.
    #[must_use]
    pub fn queues(&self) -> u16 {
        self.0.device.queues()
    }

    /// Memory that the device uses without a copy: see [`Buffer`].
    ///
    /// # Errors
    ///
    /// When there is no room for it: the server takes no more memory, or the machine has none.
    pub fn allocate(&self, len: usize) -> io::Result<Buffer> {
        self.0.device.pool().allocate(len)
    }

    /// Memory of the caller's own as a buffer: `len` bytes of `file` at `offset`, which the device uses without
    /// a copy. The file is a memfd, or lies on tmpfs or hugetlbfs; [`Buffer::split_off`] cuts it into parts for
    /// requests. A program that maps the file elsewhere forms no reference to what the device may write: that is for
    /// the `unsafe` block that maps it to promise.
    ///
    /// It stays registered until its last part is handed to [`Driver::unregister`]; to drop it leaves it so until
    /// the connection ends. Each takes one of the regions of memory that a server can hold, of which some have eight:
    /// few large ones are better than many small ones. A server without `CONFIGURE_MEM_SLOTS` takes it only while no
    /// queue runs.
    ///
    /// If a page of it cannot be had (the file was cut, no huge page is left, or a tmpfs is full), this process no
    /// longer sees what the device sees. Then no request is told as done any more: the disk is lost
    /// ([`Lost::Memory`](crate::Lost)). What was read before that is there to be had by [`Buffer::read`], which panics
    /// if it is gone by then; a program that goes by [spans](Buffer::span) asks [`Driver::lost`] after it has read.
    ///
    /// ```no_run
    /// # use pollux_disk::Durability;
    /// # use pollux_driver::{CompletionMode, Driver};
    /// # fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let disk = Driver::builder("pollux.sock").connect()?;
    /// let file = pollux_memory::memfd("mine", 1 << 20)?;
    /// let mut first = disk.register(file, 0, 1 << 20)?;
    /// let second = first.split_off(512 << 10);
    /// first.write(0, b"hello");
    ///
    /// let queue = disk.queue(0)?;
    /// let first = queue.write(0, first, Durability::Volatile, CompletionMode::Polled).wait()?;
    /// let second = queue.read(512 << 10, second, CompletionMode::Call).wait()?;
    /// drop(first);
    /// disk.unregister(second).expect("it is the last part");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// When the file is shorter or cannot be mapped, or the server does not take it
    /// ([`io::ErrorKind::QuotaExceeded`]: it takes no more regions).
    pub fn register(&self, file: File, offset: u64, len: u64) -> io::Result<Buffer> {
        let device = self.device()?;
        // What the device calls it is where it lies in this process, once it is mapped.
        let region = Region::map(file, offset, 0, 0, len).map_err(io::Error::other)?;
        let region = Arc::new(region.with_alarm(Arc::clone(device.alarm())));
        device.share(&region)?;
        Ok(Buffer::registered(region, device))
    }

    /// Takes [`Driver::register`] back: the device forgets the memory that `last` is a part of.
    ///
    /// # Errors
    ///
    /// The buffer, when it is not the last part of memory registered here (another is somewhere, perhaps with a
    /// request that has not ended), or when the server is one without `CONFIGURE_MEM_SLOTS` and queues run.
    pub fn unregister(&self, last: Buffer) -> Result<(), Buffer> {
        let device = &self.0.device;
        if !device.can_change_memory() {
            return Err(last);
        }
        device.unshare(&last.into_registered(device)?);
        Ok(())
    }

    /// A queue of its own, whose owner sleeps at `wait`.
    ///
    /// # Errors
    ///
    /// When all queues are taken ([`io::ErrorKind::ResourceBusy`]; share one by [`Driver::queue`]), or the
    /// queue cannot be started.
    pub fn channel(&self, wait: &WaitPoint) -> io::Result<Channel> {
        let device = self.device()?;
        let index = device.holders().take(0..device.queues()).ok_or_else(|| {
            let queues = device.queues();
            let message = format!("all {queues} queues of the disk are in use; share one");
            io::Error::new(io::ErrorKind::ResourceBusy, message)
        })?;
        Channel::new(ActiveQueue::start(device, index)?, wait)
    }

    /// Queue `index`, shared with all others that ask for it.
    ///
    /// # Errors
    ///
    /// When there is no such queue, it is in use as a [`Channel`] of its own, or it cannot be started.
    pub fn queue(&self, index: u16) -> io::Result<Queue> {
        let device = self.device()?;
        let mut all = lock(&self.0.shared);
        let queues = device.queues();
        let entry = all.get_mut(usize::from(index)).ok_or_else(|| {
            let message = format!("there is no queue {index}; the disk has {queues}");
            io::Error::new(io::ErrorKind::InvalidInput, message)
        })?;
        if let Some(shared) = entry.upgrade() {
            return Ok(Queue(shared));
        }
        // It has no handle left; the owner of the last one may still be stopping it.
        device.holders().take_shared(index).map_err(|holder| {
            let message = match holder {
                Holder::Stuck => format!("queue {index} was given up, as the log says"),
                _ => format!("queue {index} belongs to one channel; take another"),
            };
            io::Error::new(io::ErrorKind::ResourceBusy, message)
        })?;
        let queue = Queue::over(ActiveQueue::start(device, index)?)?;
        *entry = Arc::downgrade(&queue.0);
        Ok(queue)
    }

    fn any_channel(&self, wait: &WaitPoint) -> io::Result<Box<dyn pollux_disk::Channel>> {
        let device = self.device()?;
        let last = device.queues() - 1;
        if let Some(index) = device.holders().take(0..last) {
            return Ok(Box::new(Channel::new(
                ActiveQueue::start(device, index)?,
                wait,
            )?));
        }
        Ok(Box::new(self.queue(last)?.channel(wait)?))
    }

    /// The device, while it is there.
    pub(crate) fn device(&self) -> io::Result<&Arc<Device>> {
        match self.lost() {
            None => Ok(&self.0.device),
            Some(lost) => Err(Refusal::Lost(lost).into()),
        }
    }

    /// Why the device is gone, once it is.
    #[must_use]
    pub fn lost(&self) -> Option<Lost> {
        self.0.device.has_lost_memory();
        self.0.device.why().cloned()
    }

    /// How often a server has come back and taken the place of one that was gone: see
    /// [`Reconnect`](crate::Reconnect).
    #[must_use]
    pub fn reconnects(&self) -> u64 {
        self.0.device.reconnects()
    }

    /// The process that listens on the socket, if it has a number here.
    #[must_use]
    pub fn server(&self) -> Option<u32> {
        self.0.device.connection().server()
    }

    /// How many bytes of the pool's were given up, because a device that is gone might still write to them.
    #[must_use]
    pub fn retired(&self) -> u64 {
        self.0.device.pool().retired()
    }
}

impl Disk for Driver {
    fn geometry(&self) -> Geometry {
        self.0.device.facts().geometry
    }

    fn effort(&self) -> Effort {
        Effort::HandOver
    }

    /// A server that is away now, or goes later, is not waited for.
    fn give_up(&self) {
        self.0.device.connection().give_up();
    }

    /// A queue of its own while two or more are free; the last one is shared by all
    /// that come after. Of a device that is gone, one that says so of each request: a disk that this one is a part of
    /// has other parts.
    fn open_channel(&self, wait: &WaitPoint) -> io::Result<Box<dyn pollux_disk::Channel>> {
        match self.any_channel(wait) {
            Err(error) if Lost::is_told_by(&error) => Ok(Box::new(Gone)),
            opened => opened,
        }
    }

    /// Shares `region` with the device. One that it cannot take is used through bounce buffers, and one that is gone
    /// uses none.
    fn map(&self, region: &Arc<Region>) -> io::Result<()> {
        match self.0.device.share(region) {
            Ok(()) | Err(Refusal::Lost(_)) => Ok(()),
            Err(refusal @ (Refusal::NoSlot { .. } | Refusal::Refused { .. })) => {
                tracing::warn!(%refusal, "memory is not shared with the device: requests in it are copied");
                Ok(())
            }
            Err(refusal) => Err(refusal.into()),
        }
    }

    fn unmap(&self, region: &Arc<Region>) {
        self.0.device.unshare(region);
    }

    /// Only its server can; what it does is told by [`Event::Changed`](pollux_disk::Event).
    fn resize(&self, _bytes: Option<u64>) -> Result<(), ResizeError> {
        Err(ResizeError::Elsewhere)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let all = self.0.device.counters();
        vec![
            ("kicks", all.kicks),
            ("calls", all.calls),
            ("polls", all.polls),
            ("empty polls", all.empty_polls),
            ("sleeps", all.sleeps),
            ("reconnects", self.reconnects()),
            ("replayed", all.replayed),
        ]
    }

    fn events(&self) -> &Events {
        self.0.device.events()
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Driver").field(&self.0.device).finish()
    }
}
