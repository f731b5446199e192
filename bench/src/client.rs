//! The clients: crate `blkio`, which shares no code with Pollux, and our own driver.
//!
//! Both are asked for the same things in the same way, and their loop is compiled for each alone
//! ([`Load`](crate::load::Load)), so that what is measured is the client and the way to it is nothing.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use blkio::ReqFlags;
use pollux_disk::{Completion as Done, Durability, Op, Queued, Request, Ticket};
use pollux_driver::{Buffer, Channel, Driver, Options, Waiter, Waiting};
use pollux_memory::Loan;
use pollux_tests::client::{self as libblkio, Client as Connection, Memory, Shape};

use crate::cell::Work;

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
            Self::Driver(Waiting::Adaptive) => "adaptive",
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

    fn tokens(self) -> std::ops::Range<usize> {
        0..usize::from(self.depth)
    }
}

/// One queue of a client, and a buffer for each of its requests, which are named by number.
pub trait Requests {
    /// Queues request `token` at `offset`, to be sent by the next [`Requests::wait`].
    fn queue(&mut self, token: usize, offset: u64);

    /// Sends what was queued, and waits until `at_least` requests have come back, to be had from
    /// [`Requests::take`]; for ever, if no `patience` is given.
    fn wait(&mut self, at_least: usize, patience: Option<Duration>) -> io::Result<()>;

    /// The next request that came back in the last wait.
    fn take(&mut self) -> Option<io::Result<usize>>;

    /// Ends the connection with so many requests on their way.
    fn end(self, in_flight: usize) -> io::Result<()>;
}

/// A queue of crate `blkio`.
pub struct Blkio {
    queue: libblkio::Queue,
    /// That of all queues of the connection.
    memory: Arc<Memory>,
    /// Where this queue's part of it begins.
    from: usize,
    job: Job,
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
            job,
        };
        Ok(queues.into_iter().enumerate().map(one).collect())
    }

    /// The same, but once its first requests are on their way it sends others `most` at a time at most, as it takes
    /// back no more.
    pub fn by(mut self, most: u16) -> Self {
        self.queue.bring_at_most(usize::from(most));
        self
    }
}

impl Requests for Blkio {
    #[inline]
    fn queue(&mut self, token: usize, offset: u64) {
        let Job { work, block, .. } = self.job;
        let from = self.from + token * block;
        let range = from..from + block;
        match work {
            Work::RandRead | Work::Read => self.queue.read(offset, &self.memory, range, token),
            Work::RandWrite => {
                let flags = ReqFlags::empty();
                self.queue.write(offset, &self.memory, range, token, flags);
            }
        }
    }

    #[inline]
    fn wait(&mut self, at_least: usize, patience: Option<Duration>) -> io::Result<()> {
        self.queue.wait_within(at_least, patience)
    }

    #[inline]
    fn take(&mut self) -> Option<io::Result<usize>> {
        let done = self.queue.take()?;
        Some(done.result.map(|()| done.token).map_err(Into::into))
    }

    fn end(self, _in_flight: usize) -> io::Result<()> {
        // Once no queue can have requests in flight there any more.
        if let Some(memory) = Arc::into_inner(self.memory) {
            memory.abandon();
        }
        Ok(())
    }
}

/// Our driver: a channel of it, usually a queue of its own.
pub struct Own<C = Channel, B = Buffers> {
    channel: C,
    waiter: Waiter,
    back: Back,
    buffers: B,
}

/// What lends a request its buffer.
pub trait Lend {
    /// Request `token` at `offset`.
    fn request(&self, token: usize, offset: u64) -> Request;
}

/// What the last wait has found.
struct Back {
    all: Vec<Done>,
    taken: usize,
}

impl Own {
    /// Connects to `socket`.
    pub fn connect(socket: &Path, waiter: Waiter, job: Job) -> io::Result<Self> {
        let options = Options::default().queue_size(job.queue_size());
        let driver = Driver::connect(socket, &options).map_err(io::Error::other)?;
        let channel = driver.channel(waiter.point())?;
        Ok(Self::new(channel, waiter, Buffers::new(&driver, job)?))
    }
}

impl<C, B> Own<C, B> {
    /// Of a channel whose completions come to `waiter`.
    pub fn new(channel: C, waiter: Waiter, buffers: B) -> Self {
        Self {
            channel,
            waiter,
            back: Back {
                all: vec![],
                taken: 0,
            },
            buffers,
        }
    }

    /// What it consists of.
    pub fn parts(self) -> (C, Waiter, B) {
        (self.channel, self.waiter, self.buffers)
    }
}

impl<C: pollux_disk::Channel, B: Lend> Requests for Own<C, B> {
    #[inline]
    fn queue(&mut self, token: usize, offset: u64) {
        let request = self.buffers.request(token, offset);
        if let Queued::Done(result) = self.channel.queue(request) {
            let ticket = request.ticket;
            self.back.all.push(Done { ticket, result });
        }
    }

    #[inline]
    fn wait(&mut self, at_least: usize, patience: Option<Duration>) -> io::Result<()> {
        let Self { channel, back, .. } = self;
        back.all.drain(..back.taken);
        back.taken = 0;
        channel.submit();
        while back.all.len() < at_least {
            let put = &mut |done| back.all.push(done);
            if self.waiter.wait(channel, patience, put)? == 0 {
                return Err(io::Error::other("a request was not answered in time"));
            }
        }
        Ok(())
    }

    #[inline]
    fn take(&mut self) -> Option<io::Result<usize>> {
        let Done { ticket, result } = *self.back.all.get(self.back.taken)?;
        self.back.taken += 1;
        Some(result.map(|()| token(ticket)).map_err(io::Error::other))
    }

    fn end(mut self, in_flight: usize) -> io::Result<()> {
        const PATIENCE: Duration = Duration::from_secs(60);
        if in_flight > 0 {
            self.wait(in_flight, Some(PATIENCE))?;
        }
        Ok(())
    }
}

/// Checks that a request is on its way: in these clients none ends before the device was asked, unless
/// the device is gone.
#[inline]
pub fn on_its_way(queued: Queued) -> io::Result<()> {
    match queued {
        Queued::Pending => Ok(()),
        Queued::Done(result) => Err(io::Error::other(format!("ended at once: {result:?}"))),
    }
}

/// The number that a request was queued with.
#[inline]
pub fn token(Ticket(number): Ticket) -> usize {
    usize::try_from(number).expect("it was a usize before")
}

/// A buffer for each request, of memory that the device knows, and what each request lends of it.
pub struct Buffers {
    work: Work,
    lent: Vec<Loan>,
    _memory: Buffer,
}

impl Buffers {
    /// Of memory that `driver` shares with its device.
    pub fn new(driver: &Driver, job: Job) -> io::Result<Self> {
        let mut memory = driver.allocate(job.tokens().len() * job.block)?;
        memory.write(0, &vec![0xee; memory.len()]); // so that no page is new to either side
        let lend = |token| {
            // SAFETY: the memory goes after the channel that it is lent to: their owner has them in this order.
            let span = unsafe { memory.span() }.slice(token * job.block, job.block);
            Loan::first(&[span.expect("as many as there is room for")], u64::MAX)
        };
        Ok(Self {
            work: job.work,
            lent: job.tokens().map(lend).collect(),
            _memory: memory,
        })
    }
}

impl Lend for Buffers {
    #[inline]
    fn request(&self, token: usize, offset: u64) -> Request {
        // SAFETY: the loans end after the channel that they are lent to.
        let spans = unsafe { self.lent[token].spans() };
        Request {
            ticket: Ticket(token as u64),
            op: match self.work {
                Work::RandRead | Work::Read => Op::Read {
                    at: offset,
                    into: spans,
                },
                Work::RandWrite => Op::Write {
                    at: offset,
                    from: spans,
                    durability: Durability::Volatile,
                },
            },
        }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // After the channel that they were lent to: it is a field before this one.
        for loan in self.lent.drain(..) {
            loan.end();
        }
    }
}
