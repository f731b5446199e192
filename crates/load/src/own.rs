//! The client that is our driver: a channel, usually of a queue of its own.

use std::io;
use std::time::Duration;

use pollux_disk::{Channel, Completion, Durability, Op, Queued, Request, Ticket, WaitPoint};
use pollux_driver::{Buffer, CompletionMode, Counters, Driver, Hybrid, Waiter, Waiting};
use pollux_memory::{Loan, Span};

use crate::client::{Ask, Client};
use crate::latency::Direction;

/// What lends a request its buffer.
pub trait Lend {
    /// Request `slot`.
    fn request(&self, slot: usize, ask: Ask) -> Request;

    /// The memory of a request.
    fn span(&self, slot: usize) -> Span;
}

/// A buffer for each request, of memory that the device knows, and what each request lends of it.
pub struct Buffers {
    lent: Vec<(Span, Loan)>,
    _memory: Buffer,
}

impl Buffers {
    /// `depth` buffers of `bytes`, of memory that `driver` shares with its device.
    pub fn new(driver: &Driver, depth: usize, bytes: usize) -> io::Result<Self> {
        let mut memory = driver.allocate(depth * bytes)?;
        for slot in 0..depth {
            memory.write(slot * bytes, &vec![0xee; bytes]); // so that no page is new to either side
        }
        let lend = |slot| {
            // SAFETY: the memory goes after the channel that it is lent to: their owner has them in this order.
            let span = unsafe { memory.span() }.slice(slot * bytes, bytes);
            let span = span.expect("as many as there is room for");
            (span, Loan::first(&[span], u64::MAX))
        };
        Ok(Self {
            lent: (0..depth).map(lend).collect(),
            _memory: memory,
        })
    }
}

impl Lend for Buffers {
    #[inline]
    fn request(&self, slot: usize, ask: Ask) -> Request {
        // SAFETY: the loans end after the channel that they are lent to.
        let spans = unsafe { self.lent[slot].1.spans() };
        Request {
            ticket: Ticket(slot as u64),
            op: match ask.direction {
                Direction::Read => Op::Read {
                    at: ask.offset,
                    into: spans,
                },
                Direction::Write => Op::Write {
                    at: ask.offset,
                    from: spans,
                    durability: Durability::Volatile,
                },
            },
        }
    }

    fn span(&self, slot: usize) -> Span {
        self.lent[slot].0
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // After the channel that they were lent to: it is a field before this one.
        for (_, loan) in self.lent.drain(..) {
            loan.end();
        }
    }
}

/// A channel all of whose requests are waited for in the same way.
pub struct Own<C, B = Buffers> {
    channel: C,
    waiter: Waiter,
    back: Back,
    buffers: B,
}

/// What the last wait has found.
#[derive(Default)]
struct Back {
    all: Vec<Completion>,
    taken: usize,
}

impl<C: Channel, B: Lend> Own<C, B> {
    /// Of a channel whose completions come to `waiter`.
    pub fn new(channel: C, waiter: Waiter, buffers: B) -> Self {
        Self {
            channel,
            waiter,
            back: Back::default(),
            buffers,
        }
    }

    #[inline]
    fn queued(&mut self, ticket: Ticket, queued: Queued) {
        if let Queued::Done(result) = queued {
            self.back.all.push(Completion { ticket, result });
        }
    }

    /// Waits by `other`, if there is one, in place of its own waiter.
    #[inline]
    fn wait_by(
        &mut self,
        other: Option<&mut Waiter>,
        at_least: usize,
        timeout: Option<Duration>,
    ) -> io::Result<()> {
        let Self { channel, back, .. } = self;
        if back.taken == back.all.len() {
            back.all.clear();
        } else {
            back.all.drain(..back.taken);
        }
        back.taken = 0;
        channel.submit();
        // Where the device is as fast as this, there is no wait.
        channel.reap(&mut |done| back.all.push(done));
        let waiter = other.unwrap_or(&mut self.waiter);
        while back.all.len() < at_least {
            let put = &mut |done| back.all.push(done);
            if waiter.wait(channel, timeout, put)? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }
}

impl<C: Channel, B: Lend> Client for Own<C, B> {
    #[inline]
    fn queue(&mut self, slot: usize, ask: Ask) {
        let request = self.buffers.request(slot, ask);
        let queued = self.channel.queue(request);
        self.queued(request.ticket, queued);
    }

    #[inline]
    fn wait(&mut self, at_least: usize, timeout: Option<Duration>) -> io::Result<()> {
        self.wait_by(None, at_least, timeout)
    }

    #[inline]
    fn take(&mut self) -> Option<(usize, io::Result<()>)> {
        let Completion { ticket, result } = *self.back.all.get(self.back.taken)?;
        self.back.taken += 1;
        let slot = usize::try_from(ticket.0).expect("it was a usize before");
        Some((slot, result.map_err(io::Error::other)))
    }

    fn put(&mut self, slot: usize, data: &[u8]) {
        self.buffers.span(slot).write(data);
    }

    fn get(&self, slot: usize, data: &mut [u8]) {
        self.buffers.span(slot).read(data);
    }

    fn end(mut self, in_flight: usize) -> io::Result<()> {
        const PATIENCE: Duration = Duration::from_secs(60);
        if in_flight > 0 {
            self.wait(in_flight, Some(PATIENCE))?;
        }
        Ok(())
    }
}

/// How the requests of a [`Mixed`] channel are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// All in this way, whatever each says.
    Alike(Waiting),
    /// Each as it says: the channel polls while a polled one is in flight, and sleeps otherwise.
    Each,
}

/// A channel whose requests each say how they are waited for.
pub struct Mixed<C, B = Buffers> {
    own: Own<C, B>,
    /// While a polled request is in flight.
    poller: Option<Waiter>,
    completions: Vec<CompletionMode>,
    polled: usize,
}

impl<C: Hybrid> Mixed<C> {
    /// Of the channel that `open` opens for a place to wait at.
    pub fn new(
        waits: Waits,
        buffers: Buffers,
        open: impl FnOnce(&WaitPoint) -> io::Result<C>,
    ) -> io::Result<Self> {
        let (waiting, poller) = match waits {
            Waits::Alike(waiting) => (waiting, None),
            Waits::Each => (Waiting::Call, Some(Waiter::new(Waiting::Polled)?)),
        };
        let waiter = Waiter::new(waiting)?;
        let channel = open(waiter.point())?;
        Ok(Self {
            completions: vec![CompletionMode::Call; buffers.lent.len()],
            own: Own::new(channel, waiter, buffers),
            poller,
            polled: 0,
        })
    }

    /// What its channel has counted.
    pub fn counters(&mut self) -> Counters {
        self.own.channel.counters()
    }
}

impl<C: Hybrid> Client for Mixed<C> {
    #[inline]
    fn queue(&mut self, slot: usize, ask: Ask) {
        self.completions[slot] = ask.completion;
        self.polled += usize::from(ask.completion == CompletionMode::Polled);
        let request = self.own.buffers.request(slot, ask);
        let queued = self.own.channel.queue_as(request, ask.completion);
        self.own.queued(request.ticket, queued);
    }

    #[inline]
    fn wait(&mut self, at_least: usize, timeout: Option<Duration>) -> io::Result<()> {
        let poller = self.poller.as_mut().filter(|_| self.polled > 0);
        self.own.wait_by(poller, at_least, timeout)
    }

    #[inline]
    fn take(&mut self) -> Option<(usize, io::Result<()>)> {
        let (slot, result) = self.own.take()?;
        self.polled -= usize::from(self.completions[slot] == CompletionMode::Polled);
        Some((slot, result))
    }

    fn put(&mut self, slot: usize, data: &[u8]) {
        self.own.put(slot, data);
    }

    fn get(&self, slot: usize, data: &mut [u8]) {
        self.own.get(slot, data);
    }

    fn end(self, in_flight: usize) -> io::Result<()> {
        self.own.end(in_flight)
    }
}
