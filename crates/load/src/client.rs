//! What a load needs of a client.

use std::io;
use std::time::Duration;

use pollux_driver::CompletionMode;

use crate::latency::Direction;

/// What one request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Whether it reads or writes.
    pub direction: Direction,
    /// Where on the disk, in bytes.
    pub offset: u64,
    /// How its end is noticed, for clients that let each request say so.
    pub completion: CompletionMode,
}

/// One queue of a client with a buffer for each of its requests, which are named by the number of that buffer.
///
/// A loop over it is compiled for each client alone, so that what is measured is the client and the way to it costs
/// nothing.
pub trait Client {
    /// Queues request `slot`, to be sent by the next [`Client::wait`].
    fn queue(&mut self, slot: usize, ask: Ask);

    /// Sends what was queued, and waits until `at_least` requests have come back, to be had from [`Client::take`].
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::TimedOut`] when `timeout` is over before; some may have come back all the same.
    fn wait(&mut self, at_least: usize, timeout: Option<Duration>) -> io::Result<()>;

    /// The next request that came back in the last wait, and how it ended.
    fn take(&mut self) -> Option<(usize, io::Result<()>)>;

    /// Puts `data` into the buffer of `slot`.
    fn put(&mut self, slot: usize, data: &[u8]);

    /// Copies the buffer of `slot`.
    fn get(&self, slot: usize, data: &mut [u8]);

    /// Ends the connection with so many requests in flight.
    ///
    /// # Errors
    ///
    /// When a client has to wait for them first, and they do not end within a minute.
    fn end(self, in_flight: usize) -> io::Result<()>;
}
