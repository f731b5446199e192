//! Our driver on several servers at once: one disk striped over theirs, one thread, one place to sleep.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use pollux_disk::{Armed, Channel, Completion, Disk, PollScope, Queued, Request, Stack, striped};
use pollux_driver::{Driver, Options, Waiter};

use crate::cell::BLOCK;
use crate::client::{Buffers, Job, Lend, Own};

/// A channel of a striped disk: each block of 4 KiB is on the next server.
pub struct Striped {
    channel: Box<dyn Channel>,
    _stack: Stack,
}

/// Buffers for each server: what one shares with its client another does not know.
pub struct OfEach(Vec<Buffers>);

/// Connects to `sockets`; requests are of one block each.
pub fn connect(sockets: &[PathBuf], waiter: Waiter, job: Job) -> io::Result<Own<Striped, OfEach>> {
    debug_assert_eq!(job.block, BLOCK, "longer ones are on several servers");
    let driver = |socket: &PathBuf| Driver::connect(socket, &Options::default());
    let drivers: Result<Vec<Driver>, _> = sockets.iter().map(driver).collect();
    let drivers = drivers.map_err(io::Error::other)?;
    let legs = drivers
        .iter()
        .map(|driver| Arc::new(driver.clone()) as Arc<dyn Disk>);
    let stack = striped(BLOCK as u64, legs.collect(), PollScope::OwnInFlight);
    let stack = stack.map_err(io::Error::other)?;
    let channel = stack.open_channel(waiter.point())?;
    let buffers: io::Result<Vec<Buffers>> = drivers
        .iter()
        .map(|driver| Buffers::new(driver, job))
        .collect();
    let striped = Striped {
        channel,
        _stack: stack,
    };
    Ok(Own::new(striped, waiter, OfEach(buffers?)))
}

impl Lend for OfEach {
    #[inline]
    fn request(&self, token: usize, offset: u64) -> Request {
        let leg = offset / BLOCK as u64 % self.0.len() as u64;
        let leg = usize::try_from(leg).expect("there are so many");
        self.0[leg].request(token, offset)
    }
}

// SAFETY: the stack's channel, to which everything is passed on, makes the same promise.
unsafe impl Channel for Striped {
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
