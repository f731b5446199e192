//! A Debian 6.12 guest under QEMU 10: a smoke test always, all the rest with `--include-ignored`.

mod guest_cases;

use guest_cases::{MIB, resize};
use pollux_tests::cases;
use pollux_tests::guest::Kernel;
use pollux_tests::storage::{Medium, Storage};
use serde_json::json;

cases! {
    guest_cases(Kernel::Linux612):
    queues_bind_and_carry
}

cases! {
    "the full set takes minutes: make test-full": guest_cases(Kernel::Linux612):
    fio_verifies, a_file_system_keeps_its_files, discard_gives_space_back,
    the_configuration_arrives, polled_queues_complete, features_can_be_left_out,
    queues_of_every_size_work, a_guest_reboots, qemu_is_killed, a_striped_disk_serves,
    device_mapper_agrees, a_disk_grows_under_load
}

#[test]
#[ignore = "the full set takes minutes: make test-full"]
fn files_of_every_kind_serve() {
    guest_cases::files_of_every_kind_serve(Kernel::Linux612, ["threads", "io_uring"]);
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
