use std::sync::{Arc, Mutex};

use pollux_disk::wait::Sleeper;
use rustix::fs::{OFlags, fcntl_setfl};

use super::*;

/// The queues whose eventfds had a thread wait.
#[derive(Debug, Default)]
struct Told(Mutex<Vec<u16>>);

impl Told {
    fn queues(&self) -> Vec<u16> {
        self.0.lock().unwrap().clone()
    }
}

impl OnBlocked for Told {
    fn blocked(&self, index: u16) {
        self.0.lock().unwrap().push(index);
    }
}

fn new() -> (SharedFd, Arc<Told>) {
    watchdog::start().unwrap();
    let told = Arc::<Told>::default();
    let weak: Weak<Told> = Arc::downgrade(&told);
    (SharedFd::new(weak, 7).unwrap(), told)
}

/// The server writes as often as it can.
fn fill(fd: &SharedFd) {
    let theirs = fd.copy().unwrap();
    fcntl_setfl(&theirs, OFlags::NONBLOCK).unwrap();
    while rustix::io::write(&theirs, &(u64::MAX - 1).to_ne_bytes()).is_err() {
        let _ = rustix::io::read(&theirs, &mut [0; 8]);
    }
}

fn let_it_block(fd: &SharedFd) {
    fcntl_setfl(fd.copy().unwrap(), OFlags::empty()).unwrap();
}

#[test]
fn what_is_full_and_blocks_holds_nobody_and_is_told() {
    let (fd, told) = new();
    fill(&fd);
    assert_eq!(fd.add(1), Err(Errno::AGAIN));
    assert!(told.queues().is_empty());
    let_it_block(&fd);
    assert_eq!(fd.add(1), Err(Errno::INTR));
    assert_eq!(told.queues(), [7]);
    drop(told);
    assert_eq!(fd.add(1), Err(Errno::INTR), "nobody is there to be told");
}

/// What was read from one server's may be signalled by the next one's, which has to have room.
#[test]
fn what_a_server_fills_counts_as_few_calls() {
    let (fd, _told) = new();
    fill(&fd);
    assert_eq!(fd.read(), u64::from(u32::MAX));
}

#[test]
fn what_is_empty_and_blocks_reads_as_empty() {
    let (fd, told) = new();
    let_it_block(&fd);
    assert_eq!(fd.read(), 0);
    fd.signal(3);
    assert_eq!(fd.read(), 3);
    assert!(told.queues().is_empty());
}

#[test]
fn one_that_is_new_is_none_of_the_servers_that_had_the_old() {
    let (fd, told) = new();
    let (theirs, mut sleeper) = (fd.copy().unwrap(), Sleeper::new().unwrap());
    fill(&fd);
    let_it_block(&fd);
    drop(fd.renew(SharedFd::fresh().unwrap()));
    fd.watched_by(sleeper.point()).unwrap();
    fd.signal(3);
    sleeper.sleep(None, |_| ()).unwrap();
    fcntl_setfl(&theirs, OFlags::NONBLOCK).unwrap();
    rustix::io::read(&theirs, &mut [0; 8]).unwrap();
    assert_eq!(rustix::io::read(&theirs, &mut [0; 8]), Err(Errno::AGAIN));
    assert_eq!(fd.read(), 3);
    assert!(told.queues().is_empty());
}
