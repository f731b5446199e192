use pollux_disk::wait::Sleeper;
use rustix::fs::{OFlags, fcntl_setfl};

use super::*;

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
fn what_is_full_and_blocks_holds_nobody() {
    let fd = SharedFd::new().unwrap();
    fill(&fd);
    let_it_block(&fd);
    fd.signal();
    assert_eq!(fd.read(), u64::from(u32::MAX), "as few calls");
    assert_eq!(fd.read(), 0);
}

#[test]
fn what_is_empty_and_blocks_reads_as_empty() {
    let fd = SharedFd::new().unwrap();
    let_it_block(&fd);
    assert_eq!(fd.read(), 0);
    fd.signal();
    fd.signal();
    assert_eq!(fd.read(), 2);
}

#[test]
fn one_that_is_new_is_none_of_the_servers_that_had_the_old() {
    let fd = SharedFd::new().unwrap();
    let (theirs, mut sleeper) = (fd.copy().unwrap(), Sleeper::new().unwrap());
    fill(&fd);
    let_it_block(&fd);
    drop(fd.renew(SharedFd::fresh().unwrap()));
    fd.watched_by(sleeper.point()).unwrap();
    fd.signal();
    sleeper.sleep(None, |_| ()).unwrap();
    fcntl_setfl(&theirs, OFlags::NONBLOCK).unwrap();
    rustix::io::read(&theirs, &mut [0; 8]).unwrap();
    assert_eq!(
        rustix::io::read(&theirs, &mut [0; 8]),
        Err(rustix::io::Errno::AGAIN)
    );
    assert_eq!(fd.read(), 1);
}
