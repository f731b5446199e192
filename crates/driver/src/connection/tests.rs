//! Against our own device end, over a real socket; other servers are in package `pollux-tests`.

use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread::JoinHandle;

use pollux_blk::feature;
use pollux_device::{Device, Tuning, Workers};
use pollux_disk::{Geometry, Null};
use pollux_ring::Suppression;
use vhost::vhost_user::message::VhostUserProtocolFeatures as Protocol;

use super::*;
use crate::connection::backoff::{Failed, Progress};
use crate::connection::monitor::{Monitor, Observer};
use crate::connection::queues::QueueFds;
use crate::device::rings::Rings;
use crate::memory::known_regions::RegionView;
use crate::memory::memfd::memfd_region;
use crate::memory::pool::Pool;
use crate::notify::call::Call;
use crate::notify::shared_fd::SharedFd;
use crate::options::Experiment;

const QUEUES: u16 = 3;

/// A disk of 1 MiB, served to one frontend.
struct Server {
    folder: tempfile::TempDir,
    /// The server's end of the connection, once there is one.
    accepted: mpsc::Receiver<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        let (accept, accepted) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            accept.send(stream.try_clone().unwrap()).unwrap();
            let options = pollux_device::Options::new("test")
                .num_queues(QUEUES)
                .queue_size(256);
            let disk = Arc::new(Null::new(Geometry::plain(1 << 20)));
            let device = Arc::new(Device::new(disk, options));
            let workers = Arc::new(Workers::start(1, &[], Tuning::default()).unwrap());
            pollux_device::serve(stream, None, &device, &workers).unwrap();
        });
        Self {
            folder,
            accepted,
            thread: Some(thread),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    fn connect(&self, options: &Options) -> Arc<Connection> {
        Arc::new(Connection::open(&self.path(), options).unwrap())
    }

    /// Closes the connection from the server's side.
    fn hang_up(&self) {
        let stream = self.accepted.recv().unwrap();
        stream.shutdown(Shutdown::Both).unwrap();
    }

    /// Once nobody is connected any more: the session has ended without complaint.
    fn join(mut self) {
        let thread = self.thread.take().unwrap();
        thread.join().unwrap();
    }
}

/// As if the server lacked these features of virtio and of vhost-user.
fn without(without: u64, without_protocol: u64) -> Options {
    Options::default().experiment(Experiment {
        without,
        without_protocol,
        ..Experiment::default()
    })
}

fn fds() -> QueueFds {
    let fd = || SharedFd::new().unwrap();
    QueueFds {
        kick: Arc::new(fd()),
        call: Arc::new(Call::new(fd(), Arc::default())),
    }
}

fn holds(connection: &Connection, region: &Region) -> bool {
    // SAFETY: nobody touches what it names.
    let span = unsafe { region.span() };
    RegionView::default().of(connection.known()).holds(span)
}

#[test]
fn what_is_offered_is_taken_and_what_is_unwanted_is_not() {
    let server = Server::start();
    let connection = server.connect(&Options::default());
    let wanted = feature::VERSION_1 | feature::EVENT_IDX | feature::INDIRECT_DESC | feature::MQ;
    assert_eq!(connection.features() & wanted, wanted);
    assert_eq!(connection.config().capacity, 2048);
    assert_eq!(connection.reread_config().unwrap().capacity, 2048);
    assert_eq!(connection.queues(), QUEUES);
    assert_eq!(connection.server(), Some(std::process::id()));
    assert!(!connection.replaces_memory());
    drop(connection);
    server.join();

    let server = Server::start();
    let connection = server.connect(&without(feature::EVENT_IDX, 0).queues(2));
    assert_eq!(connection.features() & wanted, wanted & !feature::EVENT_IDX);
    assert_eq!(connection.queues(), 2);
    drop(connection);
    server.join();
}

#[test]
fn a_server_that_lacks_what_matters_is_told_so() {
    for (features, without_protocol, lacks) in [
        (feature::VERSION_1, 0, "VERSION_1"),
        (feature::PROTOCOL_FEATURES, 0, "PROTOCOL_FEATURES"),
        (0, Protocol::CONFIG.bits(), "CONFIG"),
    ] {
        let server = Server::start();
        let options = without(features, without_protocol);
        let error = Connection::open(&server.path(), &options).unwrap_err();
        let named = matches!(&error, ConnectError::Lacks { what, .. } if what.contains(lacks));
        assert!(named, "{error}");
        server.join();
    }
}

#[test]
fn queues_start_and_stop_whatever_the_server_acknowledges() {
    for without_protocol in [
        0,
        Protocol::REPLY_ACK.bits(),
        Protocol::CONFIGURE_MEM_SLOTS.bits(),
        Protocol::all().difference(Protocol::CONFIG).bits(),
    ] {
        let server = Server::start();
        let connection = server.connect(&without(0, without_protocol));
        let registers = Arc::clone(&connection);
        let pool = Pool::new(Box::new(move |region| {
            Ok(registers.add_region(region, Origin::Pool)?)
        }));
        let rings = Rings::new(&pool, 16, Suppression::EventIdx, None).unwrap();
        for index in 0..connection.queues() {
            let fds = fds();
            connection.start_queue(index, &fds, &rings).unwrap();
            assert_eq!(connection.stop_queue(index).unwrap(), 0);
            connection.start_queue(index, &fds, &rings).unwrap();
            assert_eq!(connection.stop_queue(index).unwrap(), 0);
        }
        drop((pool, connection));
        server.join();
    }
}

#[test]
fn a_region_is_known_until_it_is_removed_as_often_as_it_was_added() {
    for without_protocol in [0, Protocol::CONFIGURE_MEM_SLOTS.bits()] {
        let server = Server::start();
        let connection = server.connect(&without(0, without_protocol));
        assert_eq!(connection.replaces_memory(), without_protocol != 0);
        let [one, other] = [(); 2].map(|()| memfd_region("test", 1 << 16).unwrap());
        connection.add_region(&one, Origin::User).unwrap();
        connection.add_region(&other, Origin::User).unwrap();
        connection.add_region(&one, Origin::User).unwrap();
        connection.remove_region(&one, true).unwrap();
        assert!(holds(&connection, &one) && holds(&connection, &other));
        connection.remove_region(&one, true).unwrap();
        assert!(!holds(&connection, &one) && holds(&connection, &other));
        connection.add_region(&one, Origin::User).unwrap();
        assert!(holds(&connection, &one));
        drop(connection);
        server.join();
    }
}

#[test]
fn a_server_out_of_slots_is_an_error_of_its_own() {
    let whole = Protocol::CONFIGURE_MEM_SLOTS.bits();
    for (without_protocol, slots, kept) in [(0, 509, 4), (whole, 8, 0)] {
        let server = Server::start();
        let connection = server.connect(&without(0, without_protocol));
        let region = || memfd_region("test", 1).unwrap();
        let first = region();
        connection.add_region(&first, Origin::User).unwrap();
        for _ in 1..slots - kept {
            connection.add_region(&region(), Origin::User).unwrap();
        }
        let is_refused = |origin| {
            let refused = connection.add_region(&region(), origin).unwrap_err();
            assert!(matches!(refused, Refusal::NoSlot { limit } if limit == slots));
        };
        is_refused(Origin::User);
        for _ in 0..kept {
            connection.add_region(&region(), Origin::Pool).unwrap();
        }
        is_refused(Origin::Pool);
        connection.remove_region(&first, true).unwrap();
        connection.add_region(&region(), Origin::User).unwrap();
        drop(connection);
        server.join();
    }
}

/// One that hears of loss alone.
struct Hears<F>(F);

impl<F: Fn(Lost) + Send + Sync> Observer for Hears<F> {
    fn away(&self) {}

    fn changed(&self, _config: &Config) {}

    fn lost(&self, why: Lost) {
        (self.0)(why);
    }

    fn back(&self, _opened: Opened) -> Result<(), Failed> {
        unreachable!("nobody looks for it")
    }

    fn progress(&self) -> Progress {
        unreachable!("nobody looks for it")
    }
}

fn never() -> Options {
    Options {
        reconnect: Reconnect::Never,
        ..Options::default()
    }
}

#[test]
fn loss_is_told_once_and_ends_whatever_is_asked_later() {
    let server = Server::start();
    let connection = server.connect(&never());
    let (tell, told) = mpsc::channel();
    let hears = Arc::new(Hears(move |lost| tell.send(lost).unwrap()));
    let monitor = Monitor::start(Arc::clone(&connection), Arc::downgrade(&hears));
    server.hang_up();
    assert_eq!(told.recv(), Ok(Lost::Closed));
    assert_eq!(connection.lost(), Some(Lost::Closed));
    let refused = connection.reread_config().unwrap_err();
    assert!(matches!(refused, Refusal::Lost(Lost::Closed)));
    drop((monitor.unwrap(), hears));
    told.recv().unwrap_err();
    server.join();
}

#[test]
fn the_reason_that_is_found_first_is_the_one_that_is_told() {
    let server = Server::start();
    let connection = server.connect(&Options::default());
    let (tell, told) = mpsc::channel();
    let hears = Arc::new(Hears(move |lost| tell.send(lost).unwrap()));
    let monitor = Monitor::start(Arc::clone(&connection), Arc::downgrade(&hears));
    let fault = pollux_ring::PeerFault::IndexJump { jump: 9, size: 8 };
    let lost = Lost::Ring { queue: 1, fault };
    connection.lose(lost.clone());
    assert_eq!(told.recv(), Ok(lost));
    drop(monitor);
    server.join();
}

#[test]
fn a_control_thread_ends_with_its_owner_even_from_within() {
    let server = Server::start();
    let connection = server.connect(&never());
    let quiet = Arc::new(Hears(|lost| panic!("nothing was {lost}")));
    drop(Monitor::start(Arc::clone(&connection), Arc::downgrade(&quiet)).unwrap());

    let (give, given) = mpsc::channel::<Monitor>();
    let (tell, told) = mpsc::channel();
    let given = Mutex::new(given);
    let hears = Arc::new(Hears(move |_| {
        drop(given.lock().unwrap().recv().unwrap());
        tell.send(()).unwrap();
    }));
    let monitor = Monitor::start(Arc::clone(&connection), Arc::downgrade(&hears));
    give.send(monitor.unwrap()).unwrap();
    server.hang_up();
    told.recv().unwrap();
    server.join();
}

#[test]
fn a_server_that_never_answers_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let _listener = UnixListener::bind(&path).unwrap();
    let patience = Duration::from_millis(10);
    let options = Options {
        patience,
        ..Options::default()
    };
    let silent = Connection::open(&path, &options).unwrap_err();
    let ConnectError::Lost { source, .. } = silent else {
        panic!("{silent}");
    };
    let message = "its features";
    assert_eq!(source, Lost::Silent { message, patience });
}

#[test]
fn a_server_that_hangs_up_is_told_from_one_that_is_silent() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let server = std::thread::spawn(move || drop(listener.accept().unwrap()));
    let lost = Connection::open(&path, &Options::default()).unwrap_err();
    let closed = matches!(
        lost,
        ConnectError::Lost {
            source: Lost::Closed,
            ..
        }
    );
    assert!(closed, "{lost}");
    server.join().unwrap();
}
