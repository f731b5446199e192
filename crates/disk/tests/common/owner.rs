//! An owner of a channel, which sleeps over it as workers do.

use std::time::Duration;

use pollux_disk::wait::Sleeper;
use pollux_disk::{Armed, Channel, Completion, Disk, Op, Queued, Request, Ticket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The owner of a channel.
pub struct Owner {
    sleeper: Sleeper,
    pub channel: Box<dyn Channel>,
}

impl Owner {
    pub fn new(disk: &dyn Disk) -> Self {
        let sleeper = Sleeper::new().unwrap();
        let channel = disk.open_channel(sleeper.point()).unwrap();
        Self { sleeper, channel }
    }

    pub fn queue(&mut self, ticket: u64, op: Op) {
        let ticket = Ticket(ticket);
        let queued = self.channel.queue(Request { ticket, op });
        assert_eq!(queued, Queued::Pending);
        self.channel.submit();
    }

    pub fn reap(&mut self) -> Vec<Completion> {
        let mut ended = Vec::new();
        self.channel.reap(&mut |done| ended.push(done));
        self.channel.submit();
        ended
    }

    /// Until another thread wakes it; a timeout would wake it for what is late, whether it was told or not.
    fn sleep(&mut self) {
        let minute = Timespec {
            tv_sec: 60,
            tv_nsec: 0,
        };
        let mut woken = [PollFd::new(self.sleeper.point(), PollFlags::IN)];
        let told = poll(&mut woken, Some(&minute)).unwrap();
        assert_eq!(told, 1, "nobody wakes the owner of what is late");
        let nothing = Some(Duration::ZERO);
        self.sleeper.sleep(nothing, |_| ()).unwrap();
    }

    /// The first `count` that end, and how often it has slept until then.
    pub fn sleep_until_ended(&mut self, count: usize) -> (Vec<Completion>, u32) {
        let (mut ended, mut slept) = (self.reap(), 0);
        while ended.len() < count {
            self.sleeper.arm();
            match self.channel.arm() {
                Armed::Idle => {
                    slept += 1;
                    self.sleep();
                }
                _ => self.sleeper.disarm(),
            }
            ended.extend(self.reap());
        }
        (ended, slept)
    }

    /// Nothing is there, nothing will come, and nothing will wake us.
    pub fn is_idle(&mut self) {
        assert!(self.reap().is_empty());
        assert_eq!(self.channel.arm(), Armed::Idle);
    }
}
