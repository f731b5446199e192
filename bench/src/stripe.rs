//! Our driver on several servers at once: one disk striped over theirs, one thread, one place to sleep.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use pollux_disk::{Armed, Channel, Completion, Disk, PollScope, Queued, Request, Stack, striped};
use pollux_driver::{Driver, Options, Waiter};
use pollux_load::{Ask, Buffers, Lend, Own};
use pollux_memory::Span;

use crate::cell::BLOCK;
use crate::client::Job;

/// A channel of a disk made of disks.
pub struct Stacked {
    channel: Box<dyn Channel>,
    _stack: Arc<Stack>,
}

impl Stacked {
    /// Of `stack`, whose completions come to `waiter`.
    pub fn open(stack: &Arc<Stack>, waiter: &Waiter) -> io::Result<Self> {
        Ok(Self {
            channel: stack.open_channel(waiter.point())?,
            _stack: Arc::clone(stack),
        })
    }
}

/// Buffers for each server: what one shares with its client another does not know.
pub struct OfEach(Vec<Buffers>);

/// Connects to `sockets`: each block of 4 KiB is on the next server; requests are of one block each.
pub fn connect(sockets: &[PathBuf], waiter: Waiter, job: Job) -> io::Result<Own<Stacked, OfEach>> {
    debug_assert_eq!(job.block, BLOCK, "longer ones are on several servers");
    let driver = |socket: &PathBuf| Driver::connect(socket, &Options::default());
    let drivers: Result<Vec<Driver>, _> = sockets.iter().map(driver).collect();
    let drivers = drivers.map_err(io::Error::other)?;
    let legs = drivers
        .iter()
        .map(|driver| Arc::new(driver.clone()) as Arc<dyn Disk>);
    let stack = striped(BLOCK as u64, legs.collect(), PollScope::OwnInFlight);
    let stack = stack.map_err(io::Error::other)?;
    let channel = Stacked::open(&Arc::new(stack), &waiter)?;
    let buffers: io::Result<Vec<Buffers>> =
        drivers.iter().map(|driver| job.buffers(driver)).collect();
    Ok(Own::new(channel, waiter, OfEach(buffers?)))
}

impl Lend for OfEach {
    #[inline]
    fn request(&self, slot: usize, ask: Ask) -> Request {
        let leg = ask.offset / BLOCK as u64 % self.0.len() as u64;
        let leg = usize::try_from(leg).expect("there are so many");
        self.0[leg].request(slot, ask)
    }

    fn span(&self, slot: usize) -> Span {
        self.0[0].span(slot)
    }
}

// SAFETY: the stack's channel, to which everything is passed on, makes the same promise.
unsafe impl Channel for Stacked {
    #[inline]
    fn queue(&mut self, request: Request) -> Queued {
        self.channel.queue(request)
    }

    #[inline]
    fn submit(&mut self) {
        self.channel.submit();
    }

    #[inline]
    fn reap(&mut self, done: &mut dyn FnMut(Completion)) {
        self.channel.reap(done);
    }

    #[inline]
    fn arm(&mut self) -> Armed {
        self.channel.arm()
    }
}
