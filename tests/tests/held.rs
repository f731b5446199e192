//! A disk that others may use at other times: it is taken with the first queue, and let go of with the last.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use pollux::device::{self, Device, Options, Tuning, Workers};
use pollux::disk::{Channel, Disk, Events, Geometry, Spec, WaitPoint};
use pollux_tests::frontend::{Driver, Plan};
use pollux_tests::server::Server;
use tempfile::TempDir;

const TWO_QUEUES: Plan = Plan {
    queues: 2,
    without: 0,
};

/// Counts how often it is taken, and let go of.
struct Counted {
    disk: Arc<dyn Disk>,
    taken: AtomicU32,
    let_go: AtomicU32,
    is_refused: bool,
}

impl Counted {
    fn new(is_refused: bool) -> Arc<Self> {
        let disk = "memory:size=16M".parse::<Spec>().unwrap();
        Arc::new(Self {
            disk: disk.open(&pollux::disk::Options::default()).unwrap(),
            taken: AtomicU32::new(0),
            let_go: AtomicU32::new(0),
            is_refused,
        })
    }

    /// Serves one frontend, which does that.
    fn serve(self: &Arc<Self>, frontend: impl FnOnce(&Path)) {
        let folder = TempDir::new().unwrap();
        let socket = folder.path().join("socket");
        let options = Options::new("counted").num_queues(2);
        let device = Arc::new(Device::new(Arc::clone(self) as Arc<dyn Disk>, options));
        let workers = Arc::new(Workers::start(1, &[], Tuning::default()).unwrap());
        let listener = UnixListener::bind(&socket).unwrap();
        std::thread::scope(|scope| {
            let session = scope.spawn(|| {
                let (stream, _) = listener.accept().unwrap();
                device::serve(stream, Some(listener.as_fd()), &device, &workers)
            });
            frontend(&socket);
            assert_eq!(session.join().unwrap().is_err(), self.is_refused);
        });
    }

    fn counts(&self) -> (u32, u32) {
        let [taken, let_go] = [&self.taken, &self.let_go].map(|count| count.load(Ordering::SeqCst));
        (taken, let_go)
    }
}

impl Disk for Counted {
    fn geometry(&self) -> Geometry {
        self.disk.geometry()
    }

    fn open_channel(&self, wait: &WaitPoint) -> io::Result<Box<dyn Channel>> {
        self.disk.open_channel(wait)
    }

    fn acquire(&self) -> io::Result<()> {
        self.taken.fetch_add(1, Ordering::SeqCst);
        if self.is_refused {
            return Err(io::Error::other("it may be taken later"));
        }
        Ok(())
    }

    fn release(&self) -> io::Result<()> {
        self.let_go.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    fn events(&self) -> &Events {
        self.disk.events()
    }
}

/// A disk that asks others for it each time might be refused it while a queue writes.
#[test]
fn a_disk_is_taken_once_for_all_queues() {
    let disk = Counted::new(false);
    disk.serve(|socket| {
        let mut driver = Driver::connect(socket, TWO_QUEUES).unwrap();
        for round in 1..3 {
            for queue in &mut driver.queues {
                queue.round(round);
            }
        }
        assert_eq!(disk.counts(), (1, 0));
        driver.stop(0).unwrap();
        driver.queues[1].round(3);
        assert_eq!(disk.counts(), (1, 0));
        driver.stop(1).unwrap();
        assert_eq!(disk.counts(), (1, 1));
        drop(driver);
    });
    assert_eq!(disk.counts(), (1, 1));
}

/// It may be taken all the same: some of it, or once a cluster answers that was too slow.
#[test]
fn a_disk_that_is_refused_is_let_go_of() {
    let disk = Counted::new(true);
    disk.serve(|socket| drop(Driver::connect(socket, TWO_QUEUES)));
    assert_eq!(disk.counts(), (1, 1));
}

/// A guest migrates from a daemon in front of another one: what the one behind has locked is free once the last queue
/// of the guest has stopped, though its frontend is still there.
#[test]
fn a_disk_of_another_daemon_is_let_go_of_with_the_last_queue() {
    let folder = TempDir::new().unwrap();
    let image = folder.path().join("disk.img");
    std::fs::File::create(&image)
        .unwrap()
        .set_len(16 << 20)
        .unwrap();
    let locked = format!("file:path={},lock=running", image.display());
    let serve = |name: &str, disk: &str| {
        let options = ["--num-queues", "2", "--disk", disk];
        Server::pollux(&folder.path().join(name), &options).unwrap()
    };
    let behind = serve("behind", &locked);
    let in_front = serve(
        "front",
        &format!("vhost-user:path={}", behind.socket().display()),
    );
    let elsewhere = serve("elsewhere", &locked);
    let mut driver = Driver::connect(in_front.socket(), TWO_QUEUES).unwrap();
    driver.queues[0].round(1);
    assert!(Driver::connect(elsewhere.socket(), TWO_QUEUES).is_err());
    driver.stop(0).unwrap();
    driver.queues[1].round(2);
    assert!(Driver::connect(elsewhere.socket(), TWO_QUEUES).is_err());
    driver.stop(1).unwrap();
    let mut other = Driver::connect(elsewhere.socket(), TWO_QUEUES).unwrap();
    other.queues[0].round(3);
    drop((driver, other));
    for daemon in [in_front, behind, elsewhere] {
        let (status, log) = daemon.terminate().unwrap();
        assert!(status.success(), "{status}: {log}");
    }
}
