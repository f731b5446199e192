//! Our own driver, `guest/`, on stock kernels: Debian's 6.1 under QEMU 7.2, and 6.12 under QEMU 10.
//!
//! It has to pass what `virtio_blk` passes, in the same cases, and some that are its own. What takes minutes is left to
//! `make test-full`.

#[allow(dead_code)] // queues set aside for polling are not ours
mod guest_cases;

use std::fs::File;
use std::path::PathBuf;

use pollux_tests::cases;
use pollux_tests::guest::{Driver, Export, Kernel, Lab, System};

/// The switch and the statistics come with the driver.
fn tool(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    folder.join("../guest").join(name)
}

/// Both modes on one, two and four queues, counters and tracepoints, removal under load.
fn both_modes_share_the_queues(system: System) {
    let Some(mut lab) = Lab::open(system) else {
        return;
    };
    let bare = lab.serve(&Export::memory(64).queues(4).queue_size(64));
    let disks = [1, 2].map(|queues| lab.serve(&Export::memory(64).queues(queues)));
    let guest = lab.guest(include_str!("../guest/cases/driver_modes.sh"));
    let guest = guest.program(tool("pollux-blk-stat")).disks(disks);
    lab.passes_on_bad_disks(guest.disk(bare.with("event_idx=off").with("indirect_desc=off")));
}

/// An image of 64 MiB for a disk of QEMU's own.
fn sparse(path: PathBuf) -> PathBuf {
    let file = File::create(&path).expect("the lab's folder is ours");
    file.set_len(64 << 20).expect("it takes a sparse file");
    path
}

fn a_guest_sleeps_under_load(system: System) {
    let Some(mut lab) = Lab::open(system) else {
        return;
    };
    let disk = lab.serve(&Export::memory(64));
    let image = sparse(lab.path("cached"));
    let guest = lab.guest(include_str!("../guest/cases/driver_suspend.sh"));
    let guest = guest.set("HOW", "mem").sleeps().disk(disk);
    let mut guest = lab.starts(guest.own_disk(&image, "num-queues=1"));
    lab.hears(&mut guest, "falling asleep");
    if let Err(error) = guest.wake() {
        let console = guest.kill().unwrap_or_default();
        lab.fail(&format!("it does not sleep: {error}\n{console}"));
    }
    lab.ends_well(guest);
}

/// Of disks that QEMU serves, as Pollux offers neither packed rings nor a geometry.
fn packed_rings_and_geometries_work(system: System) {
    let Some(lab) = Lab::open(system) else {
        return;
    };
    let image = |name: &str| sparse(lab.path(name));
    let shape =
        "cyls=100,heads=12,secs=34,physical_block_size=4096,min_io_size=4096,opt_io_size=65536";
    let guest = lab.guest(include_str!("../guest/cases/driver_packed.sh"));
    let guest = guest
        .set("GEOMETRY", "12 34")
        .own_disk(&image("packed"), "packed=on,num-queues=1")
        .own_disk(&image("shaped"), &format!("serial=qemu-serves,{shape}"));
    lab.passes(guest);
}

mod linux61 {
    use super::{Driver, Kernel, System, cases, guest_cases};

    const SYSTEM: System = Kernel::Linux61.driven_by(Driver::PolluxBlk);

    cases! {
        super(SYSTEM):
        both_modes_share_the_queues, a_guest_sleeps_under_load, packed_rings_and_geometries_work
    }

    cases! {
        guest_cases(SYSTEM):
        features_can_be_left_out, the_configuration_arrives, a_disk_grows_under_load
    }

    cases! {
        "the full set takes minutes: make test-full": guest_cases(SYSTEM):
        a_striped_disk_serves, queues_bind_and_carry, fio_verifies, a_file_system_keeps_its_files,
        discard_gives_space_back, queues_of_every_size_work, a_guest_reboots, qemu_is_killed,
        device_mapper_agrees
    }

    #[test]
    #[ignore = "the full set takes minutes: make test-full"]
    fn files_of_every_kind_serve() {
        guest_cases::files_of_every_kind_serve(SYSTEM, ["io_uring", "threads"]);
    }
}

mod linux612 {
    use super::{Driver, Kernel, System, cases, guest_cases};

    const SYSTEM: System = Kernel::Linux612.driven_by(Driver::PolluxBlk);

    cases! {
        super(SYSTEM):
        both_modes_share_the_queues
    }

    cases! {
        "the full set takes minutes: make test-full": super(SYSTEM):
        a_guest_sleeps_under_load, packed_rings_and_geometries_work
    }

    cases! {
        "the full set takes minutes: make test-full": guest_cases(SYSTEM):
        features_can_be_left_out, the_configuration_arrives, a_disk_grows_under_load,
        queues_bind_and_carry, fio_verifies, a_file_system_keeps_its_files,
        discard_gives_space_back, qemu_is_killed
    }
}
