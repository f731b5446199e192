//! Waits until what was written is on stable storage, on a thread that may block.

use std::io;

use crate::file::Raw;
use crate::inbox::Inbox;
use crate::wait::Sleeper;
use crate::{Completion, Failure, Ticket};

/// Syncs files as a guest's flush does, together with those that come at the same time.
#[derive(Debug)]
pub struct Barrier {
    files: Vec<Raw>,
    inbox: Inbox,
    sleeper: Sleeper,
    /// Of the sync that was asked for last. One that was left, as the thread could not sleep, may answer later.
    ticket: Ticket,
}

impl Barrier {
    /// For these files.
    ///
    /// # Errors
    ///
    /// Where the machine has no more file descriptors.
    pub fn new(files: Vec<Raw>) -> io::Result<Self> {
        let sleeper = Sleeper::new()?;
        let inbox = Inbox::new(sleeper.point());
        Ok(Self {
            files,
            inbox,
            sleeper,
            ticket: Ticket(0),
        })
    }

    /// Returns once all that was written is on stable storage.
    ///
    /// # Errors
    ///
    /// Where that failed, now or before.
    pub fn pass(&mut self) -> io::Result<()> {
        for at in 0..self.files.len() {
            self.ticket.0 += 1;
            if self.files[at].settle(self.ticket, self.inbox.address())? {
                self.wait()?;
            }
        }
        Ok(())
    }

    fn wait(&mut self) -> io::Result<()> {
        let mut told: Option<Result<(), Failure>> = None;
        loop {
            let wanted = self.ticket;
            self.inbox.collect(&mut |Completion { ticket, result }| {
                if ticket == wanted {
                    told = Some(result);
                }
            });
            if let Some(result) = told {
                return Ok(result?);
            }
            self.sleeper.arm();
            if self.inbox.is_empty() {
                self.sleeper.sleep(None, |_| ())?;
            } else {
                self.sleeper.disarm();
            }
        }
    }
}
