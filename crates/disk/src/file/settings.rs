//! How a file is used: every choice there is, each with a default that suits most.

/// What lies between a write and the storage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Cache {
    /// Nothing: the page cache is bypassed (`O_DIRECT`). The storage may still have a cache of its own,
    /// which a flush empties.
    None,
    /// The page cache, which a flush empties.
    #[default]
    Writeback,
    /// The page cache, which every write empties of itself before it completes.
    Writethrough,
}

/// How data is moved that has to be waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Engine {
    /// `io_uring`; where it is forbidden or missing, as in many containers, the threads, and the log
    /// says so once.
    #[default]
    Auto,
    /// `io_uring` or nothing.
    IoUring,
    /// A pool of threads.
    Threads,
}

/// How data is moved that need not be waited for: what the page cache holds, and files in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Inline {
    /// The caller of [`Channel::queue`](crate::Channel::queue), there and then.
    #[default]
    On,
    /// The engine, as for all other data. To measure against.
    Off,
}

/// How `io_uring` is told where a guest's memory is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Buffers {
    /// With each transfer, which pins the pages it needs and lets go of them.
    #[default]
    Plain,
    /// Once and for all, which **pins all of the guest's memory**: it is allocated in full, is never swapped
    /// out, cannot be given back by a balloon, and counts against the limit on locked memory.
    Registered,
}

/// When an image is locked against other writers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Locked {
    /// As long as it is open.
    #[default]
    Always,
    /// From [`Disk::acquire`](crate::Disk::acquire) to [`Disk::release`](crate::Disk::release): so that two
    /// daemons can have it open, and a guest that migrates takes it from the one to the other. Where the page
    /// cache does not see what other machines write, on block devices and network file systems, that takes
    /// [`Cache::None`].
    Running,
}

/// What the bytes of a file are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// The guest's disk, unless they begin like an image of another format: such a file is not opened, and a
    /// guest cannot make one of its disk.
    #[default]
    Probe,
    /// The guest's disk, whatever they are.
    Raw,
}

/// How a [`File`](super::File) is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Settings {
    /// What lies between a write and the storage.
    pub cache: Cache,
    /// How data is moved that has to be waited for.
    pub engine: Engine,
    /// How data is moved that need not be waited for.
    pub inline: Inline,
    /// How `io_uring` is told where a guest's memory is.
    pub buffers: Buffers,
    /// When it is locked against other writers.
    pub lock: Locked,
    /// What its bytes are.
    pub format: Format,
}

impl From<Cache> for Settings {
    fn from(cache: Cache) -> Self {
        Self {
            cache,
            ..Self::default()
        }
    }
}
