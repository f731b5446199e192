//! The clients: crate `blkio`, which shares no code with Pollux, and our own driver.
//!
//! Both are asked for the same things in the same way, by crate `load`.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use blkio::ReqFlags;
use pollux_driver::{Channel, Driver, Options, Waiter, Waiting};
use pollux_load::{Ask, Buffers, Closed, Direction, Order, Own, Pattern};
use pollux_tests::client::{self as libblkio, Client as Connection, Memory, Shape};

use crate::work::{Disk, Work};

/// A client, and how it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// Crate `blkio`.
    Blkio(libblkio::Waiting),
    /// Ours: a queue of its own.
    Driver(Waiting),
}

impl Client {
    /// The word for how it waits.
    pub const fn waiting(self) -> &'static str {
        match self {
            Self::Blkio(libblkio::Waiting::Blocking) => "blocking",
            Self::Blkio(libblkio::Waiting::Polling) => "polling",
            Self::Driver(Waiting::Polled) => "polled",
            Self::Driver(Waiting::Call) => "call",
            Self::Driver(_) => "adaptive",
        }
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let library = match self {
            Self::Blkio(_) => "blkio",
            Self::Driver(_) => "driver",
        };
        write!(f, "{library} {}", self.waiting())
    }
}

/// What a client is to prepare.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// What its requests ask for.
    pub work: Work,
    /// Bytes of each.
    pub block: usize,
    /// How many there are at once, each with a buffer of its own.
    pub depth: u16,
}

impl Job {
    /// Room for every request's three descriptors (header, data, status), and the 128 that guests use.
    fn queue_size(self) -> u16 {
        (3 * self.depth).next_power_of_two().max(128)
    }

    /// Its requests, in whole blocks of `disk`: others with each seed, the same for every client.
    pub fn pattern(self, disk: Disk, seed: u64) -> Pattern {
        let blocks = disk.size() / self.block as u64;
        let blocks = usize::try_from(blocks).expect("disks fit into memory");
        match self.work {
            Work::RandRead => Pattern::new(Order::Random(seed), blocks),
            Work::RandWrite => Pattern::new(Order::Random(seed), blocks).reads(0),
            Work::Read => Pattern::new(Order::Sequential, blocks),
            Work::Write => Pattern::new(Order::Sequential, blocks).reads(0),
        }
    }

    /// A loop of `client` on `disk` that has queued nothing yet.
    pub fn closed<R: pollux_load::Client>(self, client: R, disk: Disk) -> Closed<R> {
        Closed::new(client, self.pattern(disk, 1), self.depth.into(), self.block)
    }

    /// The same with its first requests queued.
    pub fn start<R: pollux_load::Client>(self, client: R, disk: Disk) -> Closed<R> {
        self.start_seeded(client, disk, 1)
    }

    /// The same, at other offsets with each seed.
    pub fn start_seeded<R: pollux_load::Client>(
        self,
        client: R,
        disk: Disk,
        seed: u64,
    ) -> Closed<R> {
        let pattern = self.pattern(disk, seed);
        let mut load = Closed::new(client, pattern, self.depth.into(), self.block);
        load.begin();
        load
    }

    /// Connects our driver to `socket` with one queue.
    pub fn connect(self, socket: &Path, waiter: Waiter) -> io::Result<Own<Channel>> {
        let options = Options::default().queue_size(self.queue_size());
        let driver = Driver::connect(socket, &options).map_err(io::Error::other)?;
        let channel = driver.channel(waiter.point())?;
        Ok(Own::new(channel, waiter, self.buffers(&driver)?))
    }

    /// Buffers for all of its requests.
    pub fn buffers(self, driver: &Driver) -> io::Result<Buffers> {
        Buffers::new(driver, self.depth.into(), self.block)
    }
}

/// A queue of crate `blkio`.
pub struct Blkio {
    queue: libblkio::Queue,
    /// That of all queues of the connection.
    memory: Arc<Memory>,
    /// Where this queue's part of it begins.
    from: usize,
    block: usize,
}

impl Blkio {
    /// Connects to `socket` with one queue.
    pub fn connect(socket: &Path, waiting: libblkio::Waiting, job: Job) -> io::Result<Self> {
        let mut queues = Self::connect_all(socket, waiting, job, 1)?;
        Ok(queues.pop().expect("one queue was asked for"))
    }

    /// Connects to `socket` with so many queues, each for a job like this.
    pub fn connect_all(
        socket: &Path,
        waiting: libblkio::Waiting,
        job: Job,
        queues: u16,
    ) -> io::Result<Vec<Self>> {
        let shape = Shape {
            waiting,
            ..Shape::blocking(queues, job.queue_size())
        };
        let (client, queues) = Connection::connect(socket, shape)?;
        let part = usize::from(job.depth) * job.block;
        let memory = Arc::new(client.memory(queues.len() * part)?);
        memory.fill(0..memory.len(), 0xee); // so that no page is new to either side
        let one = |(number, queue)| Self {
            queue,
            memory: Arc::clone(&memory),
            from: number * part,
            block: job.block,
        };
        Ok(queues.into_iter().enumerate().map(one).collect())
    }

    /// The same, but once its first requests are on their way it sends others `most` at a time at most, as it takes
    /// back no more.
    pub fn by(mut self, most: u16) -> Self {
        self.queue.return_at_most(usize::from(most));
        self
    }
}

impl Blkio {
    fn range(&self, slot: usize) -> std::ops::Range<usize> {
        let from = self.from + slot * self.block;
        from..from + self.block
    }
}

impl pollux_load::Client for Blkio {
    #[inline]
    fn queue(&mut self, slot: usize, ask: Ask) {
        let range = self.range(slot);
        match ask.direction {
            Direction::Read => self.queue.read(ask.offset, &self.memory, range, slot),
            Direction::Write => {
                let flags = ReqFlags::empty();
                self.queue
                    .write(ask.offset, &self.memory, range, slot, flags);
            }
        }
    }

    #[inline]
    fn wait(&mut self, at_least: usize, timeout: Option<Duration>) -> io::Result<()> {
        self.queue.wait_within(at_least, timeout)
    }

    #[inline]
    fn take(&mut self) -> Option<(usize, io::Result<()>)> {
        let done = self.queue.take()?;
        Some((done.token, done.result.map_err(Into::into)))
    }

    fn put(&mut self, slot: usize, data: &[u8]) {
        self.memory.put(self.range(slot).start, data);
    }

    fn get(&self, slot: usize, data: &mut [u8]) {
        self.memory.get(self.range(slot).start, data);
    }

    fn end(self, _in_flight: usize) -> io::Result<()> {
        // Once no queue can have requests in flight there any more.
        if let Some(memory) = Arc::into_inner(self.memory) {
            memory.abandon();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_one_after_the_other_begin_again_at_the_end() {
        let job = Job {
            work: Work::Read,
            block: 1 << 30,
            depth: 1,
        };
        let mut pattern = job.pattern(Disk::Null, 1);
        let offsets = [(); 3].map(|()| pattern.ask(job.block).offset);
        assert_eq!(offsets, [0, 1 << 30, 0]);
    }
}
