//! What a Linux guest must find true of our disks, whichever its kernel.
//!
//! Each case starts servers, boots one guest (or two) and lets a script of `tests/guest/cases` check
//! from within; what only the host can see is checked here. One boot serves several checks, since a boot
//! takes longer than most of them.

mod disks;
pub mod resize;
mod stacks;
mod survival;

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::process::Command;

use pollux_tests::guest::{Export, Lab, System};
use pollux_tests::subject::Program;

pub use disks::{
    a_file_system_keeps_its_files, a_striped_disk_serves, discard_gives_space_back,
    files_of_every_kind_serve, fio_verifies,
};
pub use resize::a_disk_grows_under_load;
pub use stacks::device_mapper_agrees;
pub use survival::{a_guest_reboots, qemu_is_killed};

pub const MIB: u64 = 1 << 20;

/// The driver binds to devices of 1, 2 and 4 queues, and requests and calls go over each queue.
pub fn queues_bind_and_carry(system: impl Into<System>) {
    let Some(mut lab) = Lab::open(system) else {
        return;
    };
    let disks = [1, 2, 4].map(|queues| lab.serve(&Export::memory(64).queues(queues)));
    let guest = lab.guest(include_str!("../../guest/cases/queues.sh"));
    let guest = guest.cpus(4).set("QUEUES", "1 2 4").disks(disks);
    lab.passes(guest);
}

/// Read-only, serial number, block size, size and cache mode arrive in the guest as configured.
pub fn the_configuration_arrives(system: impl Into<System>) {
    let Some(mut lab) = Lab::open(system) else {
        return;
    };
    let image = lab.path("image");
    let mut random = File::open("/dev/urandom")
        .expect("every Linux has /dev/urandom")
        .take(16 * MIB);
    let mut file = File::create(&image).expect("the lab's folder is ours");
    std::io::copy(&mut random, &mut file).expect("the lab's folder takes 16 MiB");
    let contents = sha256(&image);

    let (serial, cache) = match lab.program() {
        Program::Pollux => ("Castor-0123456789abc", "write back"), // all the 20 bytes there are
        Program::QemuStorageDaemon => ("vhost_user_blk", "write through"), // its own, whatever it is told
    };
    let read_only = lab.serve(&Export::file(&image).read_only().serial(serial));
    let large_blocks = lab.serve(&Export::memory(64).block_size(4096));
    let guest = lab
        .guest(include_str!("../../guest/cases/configuration.sh"))
        .set("SERIAL", serial)
        .set("CONTENTS", &contents)
        .set("CACHE", cache)
        .disk(read_only)
        .disk(large_blocks);
    lab.passes(guest);
    assert_eq!(sha256(&image), contents, "a read-only disk changed");
}

/// A queue that the driver polls has no call fd, and completes without interrupts.
pub fn polled_queues_complete(system: impl Into<System>) {
    let Some(mut lab) = Lab::open(system) else {
        return;
    };
    if lab.program() == Program::QemuStorageDaemon {
        lab.skip("qemu-storage-daemon hangs with a queue that has no call fd");
        return;
    }
    let disk = lab.serve(&Export::memory(64).queues(2));
    let guest = lab.guest(include_str!("../../guest/cases/poll.sh"));
    let guest = guest.kernel_argument("virtio_blk.poll_queues=1");
    lab.passes(guest.disk(disk));
}

/// What the frontend leaves out is done without: `EVENT_IDX`, `INDIRECT_DESC`, both.
pub fn features_can_be_left_out(system: impl Into<System>) {
    let Some(mut lab) = Lab::open(system) else {
        return;
    };
    // Without indirect descriptors, a request must fit the ring. Pollux offers no more segments than
    // that; qemu-storage-daemon offers 126 whatever the ring.
    let small = match lab.program() {
        Program::Pollux => 16,
        Program::QemuStorageDaemon => 128,
    };
    let export = Export::memory(64).queue_size(small);
    let no_event_idx = lab.serve(&Export::memory(64)).with("event_idx=off");
    let no_indirect = lab.serve(&export).with("indirect_desc=off");
    let neither = lab.serve(&export).with("indirect_desc=off");
    let guest = lab
        .guest(include_str!("../../guest/cases/features.sh"))
        .set("FEATURES", "1:0 0:1 0:0")
        .disks([no_event_idx, no_indirect, neither.with("event_idx=off")]);
    lab.passes(guest);
}

/// Queues of 16 to 1024 entries, each filled to the brim.
pub fn queues_of_every_size_work(system: impl Into<System>) {
    let Some(mut lab) = Lab::open(system) else {
        return;
    };
    let disks = [16, 64, 256, 1024].map(|size| lab.serve(&Export::memory(64).queue_size(size)));
    let guest = lab.guest(include_str!("../../guest/cases/sizes.sh"));
    lab.passes(guest.set("SIZES", "16 64 256 1024").disks(disks));
}

fn sha256(path: &Path) -> String {
    let output = Command::new("sha256sum")
        .arg(path)
        .output()
        .expect("coreutils are there");
    let text = String::from_utf8(output.stdout).expect("sha256sum prints ASCII");
    text.split_whitespace()
        .next()
        .expect("sha256sum prints a sum")
        .to_owned()
}
