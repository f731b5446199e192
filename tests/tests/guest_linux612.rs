//! A Debian 6.12 guest under QEMU 10: a smoke test always, all the rest with `--include-ignored`.

mod guest_cases;

use guest_cases::{MIB, resize};
use pollux_tests::guest::Kernel;
use pollux_tests::storage::{Medium, Storage};
use serde_json::json;

#[test]
fn queues_bind_and_carry() {
    guest_cases::queues_bind_and_carry(Kernel::Linux612);
}

#[test]
#[ignore = "the full set takes minutes: make test-full"]
fn fio_verifies() {
    guest_cases::fio_verifies(Kernel::Linux612);
}

#[test]
#[ignore = "the full set takes minutes: make test-full"]
fn a_file_system_keeps_its_files() {
    guest_cases::a_file_system_keeps_its_files(Kernel::Linux612);
}

#[test]
#[ignore = "the full set takes minutes: make test-full"]
fn discard_gives_space_back() {
    guest_cases::discard_gives_space_back(Kernel::Linux612);
}

#[test]
#[ignore = "the full set takes minutes: make test-full"]
fn files_of_every_kind_serve() {
    guest_cases::files_of_every_kind_serve(Kernel::Linux612, ["threads", "io_uring"]);
}

#[test]
#[ignore = "the full set takes minutes: make test-full"]
fn the_configuration_arrives() {
    guest_cases::the_configuration_arrives(Kernel::Linux612);
}

#[test]
#[ignore = "the full set takes minutes: make test-full"]
fn polled_queues_complete() {
    guest_cases::polled_queues_complete(Kernel::Linux612);
}

#[test]
#[ignore = "the full set takes minutes: make test-full"]
fn features_can_be_left_out() {
    guest_cases::features_can_be_left_out(Kernel::Linux612);
}

#[test]
#[ignore = "the full set takes minutes: make test-full"]
fn queues_of_every_size_work() {
    guest_cases::queues_of_every_size_work(Kernel::Linux612);
}

#[test]
#[ignore = "the full set takes minutes: make test-full"]
fn a_guest_reboots() {
    guest_cases::a_guest_reboots(Kernel::Linux612);
}

#[test]
#[ignore = "the full set takes minutes: make test-full"]
fn qemu_is_killed() {
    guest_cases::qemu_is_killed(Kernel::Linux612);
}

#[test]
#[ignore = "the full set takes minutes: make test-full"]
fn a_striped_disk_serves() {
    guest_cases::a_striped_disk_serves(Kernel::Linux612);
}

#[test]
#[ignore = "the full set takes minutes: make test-full"]
fn device_mapper_agrees() {
    guest_cases::device_mapper_agrees(Kernel::Linux612);
}

#[test]
#[ignore = "the full set takes minutes: make test-full"]
fn a_disk_grows_under_load() {
    guest_cases::a_disk_grows_under_load(Kernel::Linux612);
}

#[test]
#[ignore = "the full set takes minutes: make test-full"]
fn a_block_device_grows_under_load() {
    let Some(lab) = resize::opened(Kernel::Linux612) else {
        return;
    };
    let Some(storage) = Storage::new(Medium::BlockDevice, 64 * MIB) else {
        return;
    };
    resize::grows(lab, storage.disk(), |mib| {
        let enlarged = storage.enlarge_device(mib * MIB);
        enlarged.expect("it takes a sparse file");
        json!({})
    });
}
