//! The owner of a channel.

use std::time::{Duration, Instant};

use pollux_disk::wait::Sleeper;
use pollux_disk::{Armed, Channel, Completion, Disk, Failure, Op, Queued, Request, Ticket};

use crate::{Buffer, read, write};

/// Longer than any request takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// One channel and its owner, which sleeps until something has ended.
pub struct Client {
    sleeper: Sleeper,
    channel: Box<dyn Channel>,
    sleeps: u64,
}

impl Client {
    /// Opens a channel.
    ///
    /// # Panics
    ///
    /// When the disk opens none.
    #[must_use]
    pub fn new(disk: &dyn Disk) -> Self {
        let sleeper = Sleeper::new().expect("a test has some descriptors");
        let channel = disk
            .open_channel(sleeper.point())
            .unwrap_or_else(|error| panic!("a disk opens channels: {error}"));
        Self {
            sleeper,
            channel,
            sleeps: 0,
        }
    }

    /// How often it slept.
    #[must_use]
    pub fn sleeps(&self) -> u64 {
        self.sleeps
    }

    /// Does `op` and waits for its end.
    ///
    /// # Errors
    ///
    /// As the disk says.
    pub fn run(&mut self, op: Op) -> Result<(), Failure> {
        let mut results = self.run_all(&[op]);
        results.pop().expect("one operation has one result")
    }

    /// Does all of `ops` at once and waits for their ends.
    ///
    /// # Panics
    ///
    /// When one ends twice.
    pub fn run_all(&mut self, ops: &[Op]) -> Vec<Result<(), Failure>> {
        let requests = (0..).zip(ops).map(|(at, &op)| {
            let ticket = Ticket(at);
            Request { ticket, op }
        });
        let mut results = vec![None; ops.len()];
        for done in self.run_requests(requests) {
            let slot = usize::try_from(done.ticket.0).ok();
            let slot = slot
                .and_then(|slot| results.get_mut(slot))
                .unwrap_or_else(|| panic!("{done:?} was not asked for"));
            assert!(slot.is_none(), "{:?} ended twice", done.ticket);
            *slot = Some(done.result);
        }
        let ended = results.into_iter();
        ended.map(|result| result.expect("each ended")).collect()
    }

    /// Hands over all `requests` at once and waits until as many have ended; in the order of their ends.
    ///
    /// # Panics
    ///
    /// When more end.
    pub fn run_requests(&mut self, requests: impl IntoIterator<Item = Request>) -> Vec<Completion> {
        let mut ended = Vec::new();
        let mut left = 0;
        for request in requests {
            let ticket = request.ticket;
            match self.channel.queue(request) {
                Queued::Pending => left += 1,
                Queued::Done(result) => ended.push(Completion { ticket, result }),
            }
        }
        let all = ended.len() + left;
        self.channel.submit();
        let started = Instant::now();
        while ended.len() < all {
            self.wait(|done| ended.push(done));
            if started.elapsed() > PATIENCE {
                // No panic: the requests in flight use memory that it would unmap.
                eprintln!(
                    "{} requests have not ended: a lost wake-up, or a lost request",
                    all - ended.len()
                );
                std::process::abort();
            }
        }
        self.channel.reap(&mut |done| ended.push(done));
        assert_eq!(ended.len(), all, "more requests ended than were queued");
        ended
    }

    /// Sleeps until something has ended, and seldom longer or shorter: the thread that delivers may wake us
    /// for what we have just collected.
    fn wait(&mut self, mut done: impl FnMut(Completion)) {
        self.sleeper.arm();
        match self.channel.arm() {
            Armed::Idle => {
                self.sleeps += 1;
                let slept = self.sleeper.sleep(Some(PATIENCE), |_| ());
                slept.expect("one can sleep");
            }
            Armed::Pending => self.sleeper.disarm(),
            Armed::CannotSleep => {
                self.sleeper.disarm();
                std::thread::yield_now();
            }
        }
        self.channel.reap(&mut done);
        self.channel.submit();
    }

    /// Reads `len` bytes.
    ///
    /// # Panics
    ///
    /// When the read fails.
    pub fn read_bytes(&mut self, at: u64, len: usize) -> Vec<u8> {
        let buffer = Buffer::new(len);
        let result = self.run(read(at, &buffer));
        assert_eq!(result, Ok(()), "a read of {len} bytes at {at}");
        buffer.bytes()
    }

    /// Writes `bytes`.
    ///
    /// # Errors
    ///
    /// As the disk says.
    pub fn write_bytes(&mut self, at: u64, bytes: &[u8]) -> Result<(), Failure> {
        self.run(write(at, &Buffer::holding(bytes)))
    }
}
