//! Another disk on the same workers, which is read and written all the time.

use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use pollux_device::{Workers, serve};
use pollux_disk::Durability;
use pollux_disk_conformance::pattern;
use pollux_driver::{Buffer, CompletionMode, Driver, Pending, Queue};

use super::stage::{DISK, PATIENCE, WORKERS, device};

/// A queue on each worker has its part of the disk, in two halves: all of the disk is somebody's.
const HALF: usize = DISK / (2 * WORKERS as usize);

/// The neighbour: a thread that looks at its disk when it is told to. It waits as drivers do, for ever.
pub struct Neighbour {
    look: Sender<()>,
    looked: Receiver<()>,
}

/// A queue and its part of the disk.
struct Part {
    queue: Queue,
    /// The first is being written while the second is read.
    halves: [Half; 2],
    rounds: u64,
}

struct Half {
    at: u64,
    /// What it holds, or will once what is in flight has ended.
    holds: Vec<u8>,
    in_flight: Option<Pending<Buffer>>,
}

impl Neighbour {
    pub fn new(workers: &Arc<Workers>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).expect("a socket");
        let (device, workers) = (device("neighbour"), Arc::clone(workers));
        std::thread::spawn(move || {
            let (stream, _) = listener.accept().expect("the driver connects");
            serve(stream, None, &device, &workers)
        });
        let options = pollux_driver::Options::default();
        let driver = Driver::connect(&path, &options).expect("a disk is served there");
        let part = |index| Part::new(&driver, index);
        let mut parts: Vec<_> = (0..WORKERS).map(part).collect();
        let (look, to_look) = channel();
        let (done, looked) = channel();
        std::thread::spawn(move || {
            let _driver = driver;
            for () in to_look {
                parts.iter_mut().for_each(Part::check);
                if done.send(()).is_err() {
                    return;
                }
            }
        });
        Self { look, looked }
    }

    /// All of its disk, and of its memory, is as it wrote it. Then the next requests are in flight.
    pub fn check(&self) {
        self.look.send(()).expect("the neighbour goes on");
        let looked = self.looked.recv_timeout(PATIENCE);
        looked.expect("the neighbour's requests end");
    }
}

impl Part {
    fn new(driver: &Driver, index: u16) -> Self {
        let queue = driver.queue(index).expect("a queue");
        let first = 2 * u64::from(index);
        let halves = [first, first + 1].map(|number| {
            let mut half = Half {
                at: number * HALF as u64,
                holds: vec![0; HALF],
                in_flight: None,
            };
            half.read(&queue, driver.allocate(HALF).expect("memory for a block"));
            half
        });
        Self {
            queue,
            halves,
            rounds: 0,
        }
    }

    fn check(&mut self) {
        let look = |half: &mut Half| half.look(&self.queue);
        let [written, read] = self.halves.each_mut().map(look);
        self.halves.swap(0, 1);
        self.rounds += 1;
        let [to_write, to_read] = &mut self.halves;
        to_write.write(&self.queue, read, self.rounds);
        to_read.read(&self.queue, written);
    }
}

impl Half {
    /// What is in flight ends well, and then the disk is read: before it is written again, which would hide what others
    /// did to it.
    fn look(&mut self, queue: &Queue) -> Buffer {
        let block = self.ended();
        self.read(queue, block);
        self.ended()
    }

    /// After a read as after a write, the memory is what the disk holds.
    fn ended(&mut self) -> Buffer {
        let pending = self
            .in_flight
            .take()
            .expect("something is always in flight");
        let block = pending.wait().expect("the neighbour's requests end well");
        let mut seen = vec![0; HALF];
        block.read(0, &mut seen);
        assert!(
            seen == self.holds,
            "the neighbour's bytes from {} on",
            self.at
        );
        block
    }

    fn write(&mut self, queue: &Queue, mut block: Buffer, round: u64) {
        self.holds = pattern(round * DISK as u64 + self.at, HALF);
        block.write(0, &self.holds);
        let write = queue.write(self.at, block, Durability::Volatile, CompletionMode::Call);
        self.in_flight = Some(write);
    }

    fn read(&mut self, queue: &Queue, mut block: Buffer) {
        block.write(0, &[0; HALF]);
        self.in_flight = Some(queue.read(self.at, block, CompletionMode::Polled));
    }
}
