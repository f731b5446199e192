//! What outlives a session: the workers, the server's thread, the guest's memory and the neighbour.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use pollux_device::{Device, Options, Polling, Tuning, Workers, serve};
use pollux_disk::Spec;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;

use super::guest::Memory;
use super::neighbour::Neighbour;

/// Longer than anything takes.
pub const PATIENCE: Duration = Duration::from_secs(30);
pub const WORKERS: u16 = 2;
/// Bytes on a disk.
pub const DISK: usize = 64 << 10;

/// The stage of this process.
pub struct Stage {
    pub memory: Memory,
    pub neighbour: Neighbour,
    streams: Sender<UnixStream>,
    ended: Receiver<()>,
}

static STAGE: LazyLock<Mutex<Stage>> = LazyLock::new(|| Mutex::new(Stage::new()));

/// Calls `run` with the stage, one call at a time.
pub fn with(run: impl FnOnce(&Stage)) {
    run(&STAGE.lock().expect("a panic ends the run"));
}

/// A disk to serve.
pub fn device(name: &str) -> Arc<Device> {
    let disk = format!("memory:size={DISK}").parse::<Spec>();
    let disk = disk.expect("a disk");
    let disk = disk.open(&pollux_disk::Options::default());
    let options = Options::new(name)
        .num_queues(WORKERS)
        .queue_size(256)
        .serial(name)
        .pipes(true);
    Arc::new(Device::new(disk.expect("memory for a small disk"), options))
}

impl Stage {
    fn new() -> Self {
        end_with_others();
        let tuning = Tuning::default().polling(Polling::Never);
        let workers = Workers::start(WORKERS.into(), &[], tuning);
        let workers = Arc::new(workers.expect("threads can be started"));
        let neighbour = Neighbour::new(&workers);
        let (streams, to_serve) = channel();
        let (end, ended) = channel();
        let device = device("fuzzed");
        std::thread::spawn(move || {
            for stream in to_serve {
                // Most sessions end in a refusal.
                let _ = serve(stream, None, &device, &workers);
                if end.send(()).is_err() {
                    return;
                }
            }
        });
        Self {
            memory: Memory::new(),
            neighbour,
            streams,
            ended,
        }
    }

    /// Serves a session.
    pub fn serve(&self, stream: UnixStream) {
        self.streams.send(stream).expect("the server goes on");
    }

    /// Waits until that session has ended.
    pub fn served(&self) {
        let ended = self.ended.recv_timeout(PATIENCE);
        ended.expect("a session ends when its frontend has gone");
    }
}

/// Ends the process when a thread panics that the one which runs the session waits for. What it said goes
/// past the test harness, which would keep it.
fn end_with_others() {
    let here = std::thread::current().id();
    let told = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        told(info);
        if std::thread::current().id() != here {
            // Nothing is left to do where even that fails.
            let _ = writeln!(std::io::stderr(), "{info}");
            std::process::abort();
        }
    }));
}

/// Waits until `socket` can be read, as an answer or an end makes it.
pub fn wait_for(socket: &UnixStream) {
    let patience = Timespec::try_from(PATIENCE).expect("half a minute");
    let ready = retry_on_intr(|| {
        // The fuzzer's own clock interrupts.
        poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&patience))
    });
    let ready = ready.expect("a socket can be waited for");
    assert!(ready > 0, "the session neither answers nor ends");
}

/// How many descriptors and threads this process has.
pub fn footprint() -> (usize, usize) {
    let count = |folder| std::fs::read_dir(folder).expect("/proc is there").count();
    (count("/proc/self/fd"), count("/proc/self/task"))
}
