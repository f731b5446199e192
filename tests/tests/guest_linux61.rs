//! A Debian 6.1 guest under QEMU 7.2.

mod guest_cases;

use pollux_tests::cases;
use pollux_tests::guest::Kernel;

cases! {
    guest_cases(Kernel::Linux61):
    queues_bind_and_carry, fio_verifies, a_file_system_keeps_its_files, discard_gives_space_back,
    the_configuration_arrives, polled_queues_complete, features_can_be_left_out,
    queues_of_every_size_work, a_guest_reboots, qemu_is_killed, a_striped_disk_serves,
    device_mapper_agrees, a_disk_grows_under_load
}

#[test]
fn files_of_every_kind_serve() {
    guest_cases::files_of_every_kind_serve(Kernel::Linux61, ["io_uring", "threads"]);
}
