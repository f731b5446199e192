//! What holds for every disk, whatever is behind it: one script after the other goes over all that a
//! guest has.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::time::Duration;

use pollux_tests::guest::{Export, Guest, Lab, Running, System, VhostUserBlk};
use pollux_tests::process::Process;
use pollux_tests::storage::{Medium, Storage, allocated};
use pollux_tests::subject::Program;

use super::MIB;

const VERIFY: &str = include_str!("../../guest/cases/verify.sh");
const FILE_SYSTEM: &str = include_str!("../../guest/cases/filesystem.sh");
const DISCARD: &str = include_str!("../../guest/cases/discard.sh");

/// How long a guest may take that goes over many disks: it takes about ten seconds for each.
const PATIENCE: Duration = Duration::from_secs(400);

/// fio verifies what it wrote: libaio and `io_uring`, several jobs, depth 32.
pub fn fio_verifies(system: impl Into<System>) {
    let Some(mut lab) = Lab::open(system) else {
        return;
    };
    let disk = lab.serve(&Export::memory(512).queues(2));
    let guest = lab.guest(VERIFY).set("DISKS", "vda");
    lab.passes(guest.set("MIB", "1 12 24").disk(disk));
}

/// ext4 keeps a tree of files over unmounting, `e2fsck` finds it whole, and `fstrim` gives its space back.
pub fn a_file_system_keeps_its_files(system: impl Into<System>) {
    let Some(lab) = Lab::open(system) else {
        return;
    };
    let mut shelf = Shelf::new(lab);
    shelf.add(Held::Memory, &Export::memory(256).queues(2));
    let mut guest = shelf.boot(FILE_SYSTEM);
    shelf.keeps_a_file_system(&mut guest);
    shelf.lab.ends_well(guest);
}

/// Discarded and zeroed ranges read as zeroes, and the server gives their space back.
pub fn discard_gives_space_back(system: impl Into<System>) {
    let Some(lab) = Lab::open(system) else {
        return;
    };
    let image = lab.path("image");
    File::create(&image)
        .and_then(|file| file.set_len(32 * MIB))
        .expect("the lab's folder is ours");
    let mut shelf = Shelf::new(lab);
    shelf.add(Held::File(image.clone()), &Export::file(&image));
    shelf.add(Held::Memory, &Export::memory(32));
    let mut guest = shelf.boot(DISCARD);
    shelf.discards(&mut guest);
    shelf.lab.ends_well(guest);

    let mut discarded = Vec::new();
    let mut file = File::open(&image).expect("the image is ours");
    file.seek(SeekFrom::Start(2 * MIB))
        .and_then(|_| file.take(28 * MIB).read_to_end(&mut discarded))
        .expect("the image is 32 MiB long");
    assert!(
        discarded.iter().all(|&byte| byte == 0),
        "the file behind the disk holds other bytes than zeroes where the guest saw zeroes"
    );
}

/// A striped disk, nested in a linear one and over files that are opened in different ways, passes the whole set.
pub fn a_striped_disk_serves(system: impl Into<System>) {
    let Some(lab) = Lab::open(system) else {
        return;
    };
    if lab.program() != Program::Pollux {
        return lab.skip("QEMU has no such disk");
    }
    let legs = ["a", "b", "c"].map(|leg| lab.path(leg));
    for leg in &legs {
        let file = File::create(leg).expect("the lab's folder is ours");
        file.set_len(80 * MIB).expect("it takes a sparse file");
    }
    let [a, b, c] = legs.each_ref().map(|leg| leg.display());
    let spec = format!("linear:[striped:chunk=64K:{a},[file:path={b},engine=threads]]+{c}");
    let mut shelf = Shelf::new(lab);
    shelf.add(Held::Files(legs.to_vec()), &Export::spec(&spec).queues(2));
    let mut guest = shelf.boot(&[VERIFY, FILE_SYSTEM, DISCARD].concat());
    shelf.keeps_a_file_system(&mut guest);
    shelf.discards(&mut guest);
    shelf.lab.ends_well(guest);
}

/// Where a disk's file lies.
#[derive(Clone, Copy)]
enum Place {
    Tmpfs,
    Stored(Medium),
}

/// Files of every kind, each opened in its own way, pass the whole set in one guest. The two `engines` take
/// turns.
pub fn files_of_every_kind_serve(system: impl Into<System>, engines: [&str; 2]) {
    const EXT4: Place = Place::Stored(Medium::FileOnExt4);
    const DEVICE: Place = Place::Stored(Medium::BlockDevice);
    const DISKS: [(Place, &str, u32); 7] = [
        (Place::Tmpfs, "cache=writeback", 512),
        (EXT4, "cache=writeback", 512),
        (EXT4, "cache=none", 512),
        (EXT4, "cache=none", 4096),
        (EXT4, "cache=writethrough", 4096),
        (DEVICE, "cache=writeback", 4096),
        (DEVICE, "cache=none", 512),
    ];
    let Some(lab) = Lab::open(system) else {
        return;
    };
    let mut shelf = Shelf::new(lab);
    for ((place, cache, block), engine) in DISKS.into_iter().zip(engines.into_iter().cycle()) {
        let keys = format!("{cache},engine={engine}");
        if !shelf.add_file(place, &keys, block) {
            return;
        }
    }
    let mut guest = shelf.boot(&[VERIFY, FILE_SYSTEM, DISCARD].concat());
    shelf.keeps_a_file_system(&mut guest);
    shelf.discards(&mut guest);
    shelf.lab.ends_well(guest);
}

/// What of a disk takes up space on this machine.
enum Held {
    /// Memory of its server.
    Memory,
    File(PathBuf),
    Files(Vec<PathBuf>),
    Storage(Storage),
}

/// The disks of one guest, and what they hold.
struct Shelf {
    lab: Lab,
    devices: Vec<VhostUserBlk>,
    held: Vec<Held>,
}

impl Shelf {
    fn new(lab: Lab) -> Self {
        Self {
            lab,
            devices: Vec::new(),
            held: Vec::new(),
        }
    }

    fn add(&mut self, held: Held, export: &Export) {
        self.devices.push(self.lab.serve(export));
        self.held.push(held);
    }

    /// Adds a file of 160 MiB; false where this machine does not allow it.
    fn add_file(&mut self, place: Place, keys: &str, block: u32) -> bool {
        const SIZE: u64 = 160 * MIB;
        let (path, held) = match place {
            Place::Stored(medium) => {
                let Some(storage) = Storage::new(medium, SIZE) else {
                    return false;
                };
                (storage.disk().to_owned(), Held::Storage(storage))
            }
            Place::Tmpfs => {
                let path = self.lab.path_in_memory("disk.img");
                File::create(&path)
                    .and_then(|file| file.set_len(SIZE))
                    .expect("the lab's folder is ours");
                (path.clone(), Held::File(path))
            }
        };
        let export = Export::file_with(&path, keys).block_size(block).queues(2);
        self.add(held, &export);
        true
    }

    fn boot(&self, script: &str) -> Running {
        let names: Vec<String> = ('a'..)
            .take(self.devices.len())
            .map(|letter| format!("vd{letter}"))
            .collect();
        let guest: Guest = self.lab.guest(script).set("DISKS", &names.join(" "));
        let guest = guest.set("MIB", "1 2 4").patience(PATIENCE);
        self.lab.starts(guest.disks(self.devices.clone()))
    }

    /// Follows `filesystem.sh`, which removes 24 MiB of noise and more.
    fn keeps_a_file_system(&self, guest: &mut Running) {
        self.gives_back(guest, ["full", "trimmed"], 24 * MIB);
    }

    /// Follows `discard.sh`, which discards 24 MiB; a file system may keep a block at either end.
    fn discards(&self, guest: &mut Running) {
        self.gives_back(guest, ["written", "discarded"], 23 * MIB);
    }

    /// Between these two words of `guest`, every disk gives back `enough` bytes.
    fn gives_back(&self, guest: &mut Running, [first, second]: [&str; 2], enough: u64) {
        let mut bytes = [Vec::new(), Vec::new()];
        for (bytes, words) in bytes.iter_mut().zip([first, second]) {
            self.lab.hears(guest, words);
            *bytes = self.bytes_held();
            self.lab.tells(guest, "go on");
        }
        let [before, after] = bytes;
        for (disk, (before, after)) in before.into_iter().zip(after).enumerate() {
            let (Some(before), Some(after)) = (before, after) else {
                continue;
            };
            let given = before.saturating_sub(after);
            println!("disk {disk} held {before} bytes when {first} and {after} when {second}");
            if given < enough {
                self.lab
                    .fail(&format!("disk {disk} gave back {given} bytes of {before}"));
            }
        }
    }

    /// Of each disk, where that can be known.
    fn bytes_held(&self) -> Vec<Option<u64>> {
        let bytes = |(index, held): (usize, &Held)| match held {
            Held::Memory if !self.lab.has_memory_disks() => None,
            Held::Memory => Some(
                // What it shares with a guest does not count.
                Process::new(self.lab.server(index).pid())
                    .anonymous_memory()
                    .expect("the server runs as long as its lab"),
            ),
            Held::File(path) => Some(allocated(path).expect("the file is ours")),
            Held::Files(paths) => {
                let bytes = |path: &PathBuf| allocated(path).expect("the file is ours");
                Some(paths.iter().map(bytes).sum())
            }
            Held::Storage(storage) => Some(storage.allocated().expect("the file is ours")),
        };
        self.held.iter().enumerate().map(bytes).collect()
    }
}
