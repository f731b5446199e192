//! What fails is told to whoever asked for it, to nobody else, and in the log.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::path::Path;

use blkio::ReqFlags;
use fastrand::Rng;
use pollux_tests::client::{Client, Memory, Queue, Shape};
use pollux_tests::guest::{Driver, Export, Kernel, Lab, System};
use pollux_tests::load::{Limits, Load};
use pollux_tests::process::eventually;
use pollux_tests::random::seed;
use pollux_tests::server::{Ready, Server, pollux_binary};
use pollux_tests::storage::{Medium, SmallTmpfs, Storage};
use pollux_tests::subject::Program;
use rustix::io::Errno;
use rustix::process::Signal;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
const BLOCK: usize = 4096;
const ENGINES: [&str; 2] = ["io_uring", "threads"];

/// A disk that one request after the other goes to.
struct Disk {
    server: Server,
    queue: Queue,
    memory: Memory,
    _folder: TempDir,
}

impl Disk {
    fn serve(spec: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let socket = folder.path().join("disk.sock");
        let server = Server::pollux(&socket, &["--disk", spec]).unwrap();
        let (client, mut queues) = Client::connect(&socket, Shape::blocking(1, 64)).unwrap();
        Self {
            server,
            queue: queues.remove(0),
            memory: client.memory(BLOCK).unwrap(),
            _folder: folder,
        }
    }

    fn file(path: &Path, engine: &str) -> Self {
        Self::serve(&format!("file:path={},engine={engine}", path.display()))
    }

    /// Writes a block of `byte` at `offset`.
    fn write(&mut self, offset: u64, byte: u8) -> Result<(), Errno> {
        self.memory.fill(0..BLOCK, byte);
        self.queue
            .write(offset, &self.memory, 0..BLOCK, 0, ReqFlags::empty());
        self.queue.finish().unwrap()
    }

    /// Reads the block at `offset`.
    fn read(&mut self, offset: u64) -> Vec<u8> {
        self.queue.read(offset, &self.memory, 0..BLOCK, 0);
        self.queue.finish().unwrap().unwrap();
        let mut block = vec![0; BLOCK];
        self.memory.get(0, &mut block);
        block
    }

    fn flush(&mut self) -> Result<(), Errno> {
        self.queue.flush(0);
        self.queue.finish().unwrap()
    }

    fn discard(&mut self, offset: u64, len: u64) {
        self.queue.discard(offset, len, 0);
        self.queue.finish().unwrap().unwrap();
    }

    /// The log tells all `words` in one line.
    fn tells(&self, words: &[&str]) {
        let told = |line: &str| words.iter().all(|word| line.contains(word));
        eventually(
            || self.server.log().lines().any(told),
            || format!("{words:?} are not told: {}", self.server.log()),
        );
    }
}

#[test]
fn a_full_file_system_fails_writes_until_there_is_room_again() {
    for engine in ENGINES {
        let Some(full) = SmallTmpfs::new(MIB) else {
            return;
        };
        let path = full.file(8 * MIB).unwrap();
        let mut disk = Disk::file(&path, engine);
        let block = BLOCK as u64;
        let mut blocks = (0..8 * MIB / block).map(|index| index * block);
        let (at, failed) = blocks
            .find_map(|at| Some((at, disk.write(at, 0x11).err()?)))
            .expect("there is no room for all of the disk");
        assert_eq!(failed, Errno::IO);
        let name = path.to_str().unwrap();
        let place = format!("at={at}");
        disk.tells(&["cannot write", name, &place, "No space left"]);

        assert!(disk.read(0) == [0x11; BLOCK], "what was written is there");
        assert!(disk.read(at) == [0; BLOCK], "what was not is not");
        disk.write(0, 0x22).unwrap();
        disk.discard(0, MIB / 2);
        disk.write(at, 0x33).unwrap();
        assert!(disk.read(at) == [0x33; BLOCK], "there is room again");
    }
}

/// The kernel tells once that the page cache could not be written, and then no more.
#[test]
fn a_failed_flush_fails_for_ever() {
    for engine in ENGINES {
        let Some(full) = SmallTmpfs::new(MIB) else {
            return;
        };
        let device = full.device(8 * MIB).unwrap();
        let mut disk = Disk::file(device.path(), engine);
        disk.flush().unwrap();
        for at in (0..4 * MIB).step_by(BLOCK) {
            disk.write(at, 0x11).unwrap();
        }
        for _ in 0..3 {
            assert_eq!(disk.flush(), Err(Errno::IO), "{engine}");
        }
        let name = device.path().to_str().unwrap();
        disk.tells(&["cannot put data on stable storage", name]);
        disk.server.terminate().unwrap();
        // Opened anew, it begins anew.
        Disk::file(device.path(), engine).flush().unwrap();
    }
}

#[test]
fn a_file_system_that_fails_fails_flushes_and_writes() {
    for engine in ENGINES {
        let Some(storage) = Storage::new(Medium::FileOnExt4, MIB) else {
            return;
        };
        let mut disk = Disk::file(storage.disk(), engine);
        disk.write(0, 0x11).unwrap();
        disk.flush().unwrap();
        disk.write(0, 0x22).unwrap();
        storage.fail().unwrap();
        assert_eq!(disk.flush(), Err(Errno::IO), "{engine}");
        let name = storage.disk().to_str().unwrap();
        disk.tells(&["cannot put data on stable storage", name]);
        assert_eq!(disk.write(BLOCK as u64, 0x33), Err(Errno::IO));
        disk.server.terminate().unwrap();
        // It was told that this is lost, and nothing else is.
        let survived = storage.cut_power().unwrap();
        assert!([[0x11; BLOCK], [0x22; BLOCK]].contains(survived.first_chunk().unwrap()));
    }
}

#[test]
fn a_torn_write_fails_and_half_of_it_is_there() {
    let mut disk = Disk::serve("fault:torn=512,every=2,on=memory:size=1M");
    disk.write(0, 0x11).unwrap();
    assert_eq!(disk.write(0, 0x22), Err(Errno::IO));
    let block = disk.read(0);
    assert!(block[..512] == [0x22; 512] && block[512..] == [0x11; BLOCK - 512]);
}

#[test]
fn a_disk_that_answers_no_more_holds_up_nobody_else() {
    let folder = TempDir::new().unwrap();
    let [silent, healthy] = ["silent", "healthy"].map(|name| folder.path().join(name));
    let specs = ["fault:hang=device,on=memory:size=1M", "memory:size=64M"];
    let disks = [&silent, &healthy].into_iter().zip(specs);
    let section = |(socket, spec): (&std::path::PathBuf, &str)| {
        format!("[[disk]]\nsocket-path = {socket:?}\ndisk = {spec:?}\n")
    };
    let config = folder.path().join("pollux.toml");
    std::fs::write(&config, disks.map(section).collect::<String>()).unwrap();
    let mut command = std::process::Command::new(pollux_binary());
    command.args(["serve", "--threads", "1", "--config"]);
    let server = Server::start(command.arg(&config), &healthy, Ready::LogLine).unwrap();
    for socket in [&silent, &healthy] {
        assert!(server.says(&format!("serving disk={socket:?}")));
    }

    let (_one, mut queues) = Client::connect(&silent, Shape::blocking(1, 64)).unwrap();
    queues[0].flush(0);
    queues[0].wait(0).unwrap();

    let (client, mut others) = Client::connect(&healthy, Shape::blocking(1, 128)).unwrap();
    let limits = Limits::of(&client, 128, 16).unwrap();
    let mut load = Load::new(&client, limits, &(0..64 * MIB), Rng::with_seed(seed())).unwrap();
    load.run(&mut others[0], 500).unwrap();
    load.verify(&mut others[0]).unwrap();
    queues[0].wait(0).unwrap();
    assert_eq!(queues[0].take(), None, "nobody answers");

    // Asked politely it waits for what is in flight, which never ends; asked again it does not.
    server.signal(Signal::TERM).unwrap();
    assert!(server.says("told to end"));
    let (status, log) = server.end_by(Signal::INT).unwrap();
    assert_eq!(status.code(), Some(1), "{log}");
}

fn is_told_what_fails(system: impl Into<System>) {
    let Some(mut lab) = Lab::open(system) else {
        return;
    };
    if lab.program() != Program::Pollux {
        lab.skip("only Pollux has disks that misbehave on demand");
        return;
    }
    let Some(full) = SmallTmpfs::new(4 * MIB) else {
        return;
    };
    let Some(storage) = Storage::new(Medium::FileOnExt4, 8 * MIB) else {
        return;
    };
    let disks = [
        Export::file(&full.file(32 * MIB).unwrap()),
        Export::spec("fault:error=EIO,op=flush,after=1,on=memory:size=8M"),
        Export::spec("fault:torn=512,after=1,times=1,on=memory:size=8M"),
        Export::file(storage.disk()),
    ]
    .map(|export| lab.serve(&export));
    let guest = lab.guest(include_str!("../guest/cases/faults.sh"));
    let mut guest = lab.starts(guest.disks(disks));
    lab.hears(&mut guest, "steady");
    storage.fail().unwrap();
    lab.tells(&mut guest, "it has failed");
    lab.ends_well_on_bad_disks(guest);
}

#[test]
fn a_guest_is_told_what_fails() {
    is_told_what_fails(Kernel::Linux61);
}

#[test]
fn a_guest_with_our_driver_is_told_what_fails() {
    is_told_what_fails(Kernel::Linux61.driven_by(Driver::PolluxBlk));
}
