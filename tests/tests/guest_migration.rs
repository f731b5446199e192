//! A guest moves from one QEMU, and one server of its disk, to another.
//!
//! Under QEMU 10 alone: the emulator of QEMU 7.2 loses some of a guest's memory on the way, even without any disk
//! (a guest that copied 32 MiB in memory found other bytes, or its kernel broke, in each of three runs of up to
//! eight migrations; none in twenty under QEMU 10).

use std::fs::File;

use pollux_tests::guest::{Export, Kernel, Lab};
use pollux_tests::subject::Program;

#[test]
fn a_guest_migrates_there_and_back() {
    a_guest_migrates(2);
}

#[test]
#[ignore = "it takes minutes: make test-full"]
fn a_guest_migrates_again_and_again() {
    a_guest_migrates(12);
}

fn a_guest_migrates(migrations: usize) {
    let Some(mut lab) = Lab::open(Kernel::Linux612) else {
        return;
    };
    if lab.program() == Program::QemuStorageDaemon {
        lab.skip("qemu-storage-daemon locks an image as long as it exports it");
        return;
    }
    let image = lab.path_in_memory("disk.img");
    File::create(&image)
        .and_then(|file| file.set_len(64 << 20))
        .expect("the lab's folder is ours");
    let export = Export::file_with(&image, "lock=running").queues(2);
    let devices = [lab.serve(&export), lab.serve(&export)];
    lab.migrates_to_and_fro(&devices, migrations);
}
