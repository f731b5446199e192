//! A disk served from inside the test, over a real socket.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]
#![allow(dead_code, reason = "no test uses all of it")]

use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Wake;
use std::thread::JoinHandle;

use pollux_device::{Device, Tuning, Workers};
use pollux_disk::{Options as DiskOptions, Spec};
use pollux_driver::{Driver, Options};

/// Has a task been woken?
#[derive(Default)]
pub struct Woken(pub AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A disk that is served to one frontend after the other.
pub struct Served {
    folder: tempfile::TempDir,
    thread: Option<JoinHandle<()>>,
    /// The server's ends of all connections.
    streams: Arc<Mutex<Vec<UnixStream>>>,
    pub device: Arc<Device>,
}

/// The device of the disk that `spec` describes.
fn device(spec: &str) -> Arc<Device> {
    let disk = spec.parse::<Spec>().unwrap();
    let disk = disk.open(&DiskOptions::default()).unwrap();
    let options = pollux_device::Options::new("test")
        .num_queues(QUEUES)
        .queue_size(1024)
        .serial("a-serial-number");
    Arc::new(Device::new(disk, options))
}

/// Queues that are offered.
pub const QUEUES: u16 = 4;

impl Served {
    /// Serves the disk that `spec` describes to `frontends` frontends.
    pub fn disk(spec: &str, frontends: usize) -> Self {
        Self::tuned(spec, frontends, Tuning::default())
    }

    /// The same by a worker of that kind.
    pub fn tuned(spec: &str, frontends: usize, tuning: Tuning) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        let device = device(spec);
        let served = Arc::clone(&device);
        let streams = Arc::<Mutex<Vec<UnixStream>>>::default();
        let accepted = Arc::clone(&streams);
        let thread = std::thread::spawn(move || {
            let workers = Arc::new(Workers::start(1, &[], tuning).unwrap());
            for _ in 0..frontends {
                let (stream, _) = listener.accept().unwrap();
                accepted.lock().unwrap().push(stream.try_clone().unwrap());
                pollux_device::serve(stream, None, &served, &workers).unwrap();
            }
        });
        Self {
            folder,
            thread: Some(thread),
            streams,
            device,
        }
    }

    /// Serves each frontend by a device of its own, whatever has become of the one before: for disks that
    /// hang, whose sessions never end. Each of `specs` is for a frontend, and the last for all after that.
    pub fn devices<const N: usize>(specs: [&'static str; N]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("socket")).unwrap();
        let streams = Arc::<Mutex<Vec<UnixStream>>>::default();
        let accepted = Arc::clone(&streams);
        let device_of = move |frontend: usize| device(specs[frontend.min(N - 1)]);
        std::thread::spawn(move || {
            for (frontend, stream) in listener.incoming().enumerate() {
                let stream = stream.unwrap();
                accepted.lock().unwrap().push(stream.try_clone().unwrap());
                std::thread::spawn(move || {
                    let workers = Arc::new(Workers::start(1, &[], Tuning::default()).unwrap());
                    // It ends in the middle of anything.
                    let _ = pollux_device::serve(stream, None, &device_of(frontend), &workers);
                });
            }
        });
        Self {
            folder,
            thread: None,
            streams,
            device: device_of(0),
        }
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    pub fn connect(&self, options: &Options) -> Driver {
        Driver::connect(self.socket(), options).unwrap()
    }

    /// Closes all connections from the server's side.
    pub fn hang_up(&self) {
        for stream in self.streams.lock().unwrap().iter() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Waits until all frontends have come and gone, without a complaint.
    pub fn join(mut self) {
        self.thread.take().unwrap().join().unwrap();
    }
}
