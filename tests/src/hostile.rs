//! Attacks on the device end, and what must be true of every one of them.
//!
//! A row of the table is an attack on one disk of a process that serves two. [`run`] brings the process
//! up, drives the other disk all the while, and looks afterwards: the process lives, the other disk has
//! answered, a new session of the attacked disk works, nothing is left behind (descriptors, threads),
//! nobody spins, and SIGTERM is a clean end.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::busy::while_busy;
use crate::frontend::{Code, Driver, Frontend, Plan, Queue, Raw, count, new_eventfd};
use crate::process::{Holdings, Process, eventually};
use crate::server::{Ready, Server, pollux_binary};

/// Bytes of each disk.
pub const DISK: u64 = 16 << 20;

/// One test for each number of queues.
#[macro_export]
macro_rules! row {
    ($name:ident, $attack:expr) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            #[test]
            fn one_queue() {
                pollux_tests::hostile::run(1, "", $attack);
            }

            #[test]
            fn four_queues() {
                pollux_tests::hostile::run(4, "", $attack);
            }
        }
    };
}

/// A process with two disks, of which one is attacked.
pub struct Target {
    /// The process.
    pub server: Server,
    /// The number of queues of either disk, and of the sessions here.
    pub queues: u16,
    folder: TempDir,
}

impl Target {
    /// Starts it; `keys` are more lines for the attacked disk's section of the configuration.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start(queues: u16, keys: &str) -> Self {
        Self::start_by(Command::new(pollux_binary()), queues, keys)
    }

    /// The same by a command that is to be given the arguments.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_by(mut command: Command, queues: u16, keys: &str) -> Self {
        let folder = TempDir::new().expect("a folder");
        let config = folder.path().join("pollux.toml");
        let disk = |name: &str, keys: &str| {
            let socket = folder.path().join(name);
            let socket = socket.display();
            let disk = if keys.contains("disk =") {
                String::new()
            } else {
                format!("disk = \"memory:size={DISK}\"\n")
            };
            format!("[[disk]]\nsocket-path = \"{socket}\"\nnum-queues = {queues}\n{disk}{keys}\n")
        };
        let text = disk("attacked.sock", keys) + &disk("other.sock", "");
        fs::write(&config, text).expect("a configuration");
        command.args(["serve", "--config"]).arg(&config);
        let socket = folder.path().join("attacked.sock");
        let server = Server::start(&mut command, &socket, Ready::LogLine).expect("it starts");
        let both = server.says("other.sock");
        assert!(both, "the second disk is not served: {}", server.log());
        Self {
            server,
            queues,
            folder,
        }
    }

    /// What `/proc` says about it.
    pub fn process(&self) -> Process {
        Process::new(self.server.pid())
    }

    /// Where the attacked disk is.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("attacked.sock")
    }

    /// A session of the attacked disk with all its queues.
    pub fn driver(&self) -> Driver {
        self.driver_of("attacked.sock")
    }

    /// A session of the disk that is not attacked.
    pub fn other(&self) -> Driver {
        self.driver_of("other.sock")
    }

    fn driver_of(&self, name: &str) -> Driver {
        Driver::connect(&self.folder.path().join(name), self.plan()).expect("a session")
    }

    /// What sessions here are like.
    pub const fn plan(&self) -> Plan {
        Plan {
            queues: self.queues,
            without: 0,
        }
    }

    /// A connection to the attacked disk, on which nothing has been said.
    pub fn frontend(&self) -> Frontend {
        Frontend::connect(&self.socket()).expect("a connection")
    }

    /// A new session of the attacked disk works, on all queues.
    pub fn serves_again(&self) {
        let mut driver = self.driver();
        for queue in &mut driver.queues {
            queue.round(0x5a);
        }
    }

    /// Waits until all threads sleep, and stay asleep.
    fn comes_to_rest(&self) {
        eventually(
            || sleeps_soundly(self.process()),
            || "a thread wakes again and again".into(),
        );
    }

    /// Waits until it holds what it held, and is asleep and stays so.
    fn settles(&self, held: Holdings) {
        let process = self.process();
        eventually(
            || process.holdings().ok() == Some(held),
            || format!("it holds {:?}, and held {held:?}", process.holdings()),
        );
        self.comes_to_rest();
    }
}

/// Are all threads asleep, and does none of them wake while this looks for some milliseconds?
fn sleeps_soundly(process: Process) -> bool {
    let before = process.sleeps().ok();
    let asleep = (0..20).all(|_| process.is_asleep().unwrap_or(false));
    asleep && before == process.sleeps().ok()
}

/// Runs one row with that many queues. `keys`: see [`Target::start`]. What the attack returns is left standing
/// until nobody has anything to do any more: a session, for instance, in which somebody might spin.
///
/// # Panics
/// When anything is not as it must be.
pub fn run<T>(queues: u16, keys: &str, attack: impl FnOnce(&Target) -> T) {
    let target = Target::start(queues, keys);
    target.serves_again();
    let mut other = target.other();
    for queue in &mut other.queues {
        queue.round(1);
    }
    let before = Mutex::new(None);
    eventually(
        || {
            let held = target.process().holdings().ok();
            let same = held == *before.lock().expect("nobody panics with it");
            *before.lock().expect("nobody panics with it") = held;
            same && sleeps_soundly(target.process())
        },
        || "the server does not come to rest".into(),
    );
    let held = target.process().holdings().expect("it lives");

    let mut byte = 0;
    let rounds = AtomicU32::new(0);
    let busy = || {
        rounds.fetch_add(1, Ordering::Relaxed);
        for queue in &mut other.queues {
            queue.round(byte);
        }
        byte = byte.wrapping_add(1);
    };
    let begun = || rounds.load(Ordering::Relaxed) > 0;
    let (_, standing) = while_busy(busy, || {
        // However short the attack: it falls into a round.
        eventually(begun, || "the other disk is not driven".into());
        attack(&target)
    });
    target.comes_to_rest();
    drop(standing);

    for queue in &mut other.queues {
        queue.round(byte);
    }
    target.serves_again();
    target.settles(held);
    let (status, log) = target.server.end_by(Signal::TERM).expect("it ends");
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(!log.contains("panicked"), "{log}");
}

/// Queue `index` of `driver` with an error eventfd, which tells when the device gives the queue up.
pub fn watch_for_fault(driver: &Driver, index: usize) -> OwnedFd {
    let error = new_eventfd().expect("an eventfd");
    let number = driver.queues[index].number();
    let frontend = &driver.frontend;
    frontend
        .vring_fd(Code::SetVringErr, number, Some(error.as_fd()))
        .expect("it takes an error descriptor");
    // It is looked at when the queue starts.
    let kick = driver.queues[index].kick.as_fd();
    frontend
        .vring_fd(Code::SetVringKick, number, Some(kick))
        .expect("it takes a kick descriptor");
    error
}

/// The last queue of a session is broken by what `spoil` does to it: its error descriptor is told, the log
/// says `why`, the other queues go on, and once stopped and started it serves again.
///
/// # Panics
/// When it is not so.
pub fn breaks_queue(target: &Target, why: &str, spoil: impl FnOnce(&mut Queue)) {
    let mut driver = target.driver();
    let last = driver.queues.len() - 1;
    let error = watch_for_fault(&driver, last);
    let queue = &mut driver.queues[last];
    let used = queue.used();
    spoil(queue);
    queue.publish_and_kick();
    let mut faults = 0;
    let mut told = || {
        faults += count(&error);
        faults > 0
    };
    eventually(&mut told, || format!("not told: {}", target.server.log()));
    assert!(target.server.says(why), "{}", target.server.log());
    // It is left alone: more kicks change nothing.
    for _ in 0..100 {
        driver.queues[last].publish_and_kick();
    }
    for queue in &mut driver.queues[..last] {
        queue.round(7);
    }
    assert_eq!(driver.queues[last].used(), used, "a broken queue goes on");
    assert_eq!(count(&error), 0, "it is told once");
    driver.stop(last).expect("a broken queue can be stopped");
    driver.queues[last] = driver.anew(last);
    driver.start(last).expect("and started");
    for queue in &mut driver.queues {
        queue.round(8);
    }
}

/// The session is over: the connection is closed, and the log says `why`.
///
/// # Panics
/// When it is not so.
pub fn is_turned_away(target: &Target, frontend: &Frontend, why: &str) {
    frontend.until_closed().expect("the connection is closed");
    assert!(target.server.says(why), "{}", target.server.log());
}

/// The vhost crate's word for what it cannot read.
pub const INVALID: &str = "invalid message";
/// What the log says of every session that was refused.
pub const DISCONNECTED: &str = "a frontend was disconnected";

/// A session is turned away for what it sends.
///
/// # Panics
/// When it is not.
pub fn refused(target: &Target, why: &str, raw: &Raw<'_>) {
    let driver = target.driver();
    driver.frontend.send_raw(raw).expect("it is sent");
    is_turned_away(target, &driver.frontend, why);
}

/// The same before anything was said.
///
/// # Panics
/// When it is not.
pub fn refused_at_once(target: &Target, why: &str, raw: &Raw<'_>) {
    let frontend = target.frontend();
    frontend.send_raw(raw).expect("it is sent");
    is_turned_away(target, &frontend, why);
}

/// Every message that has no body.
pub const EMPTY: [Code; 6] = [
    Code::SetOwner,
    Code::GetFeatures,
    Code::GetProtocolFeatures,
    Code::GetQueueNum,
    Code::GetMaxMemSlots,
    Code::SetBackendReqFd,
];
