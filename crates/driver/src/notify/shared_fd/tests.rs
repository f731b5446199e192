use std::sync::{Arc, Mutex};

use rustix::fs::{OFlags, fcntl_setfl};

use super::*;

/// The queues by which somebody was held.
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
    fcntl_setfl(&fd.fd, OFlags::NONBLOCK).unwrap();
    while rustix::io::write(&fd.fd, &(u64::MAX - 1).to_ne_bytes()).is_err() {
        let _ = rustix::io::read(&fd.fd, &mut [0; 8]);
    }
}

fn let_it_block(fd: &SharedFd) {
    fcntl_setfl(&fd.fd, OFlags::empty()).unwrap();
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

#[test]
fn what_is_empty_and_blocks_reads_as_empty() {
    let (fd, told) = new();
    let_it_block(&fd);
    assert_eq!(fd.read(), 0);
    fd.signal(3);
    assert_eq!(fd.read(), 3);
    assert!(told.queues().is_empty());
}
