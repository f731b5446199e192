//! A Debian 6.1 guest under QEMU 7.2.

mod guest_cases;

use pollux_tests::guest::Kernel;

#[test]
fn queues_bind_and_carry() {
    guest_cases::queues_bind_and_carry(Kernel::Linux61);
}

#[test]
fn fio_verifies() {
    guest_cases::fio_verifies(Kernel::Linux61);
}

#[test]
fn a_file_system_keeps_its_files() {
    guest_cases::a_file_system_keeps_its_files(Kernel::Linux61);
}

#[test]
fn discard_gives_space_back() {
    guest_cases::discard_gives_space_back(Kernel::Linux61);
}

#[test]
fn files_of_every_kind_serve() {
    guest_cases::files_of_every_kind_serve(Kernel::Linux61, ["io_uring", "threads"]);
}

#[test]
fn the_configuration_arrives() {
    guest_cases::the_configuration_arrives(Kernel::Linux61);
}

#[test]
fn polled_queues_complete() {
    guest_cases::polled_queues_complete(Kernel::Linux61);
}

#[test]
fn features_can_be_left_out() {
    guest_cases::features_can_be_left_out(Kernel::Linux61);
}

#[test]
fn queues_of_every_size_work() {
    guest_cases::queues_of_every_size_work(Kernel::Linux61);
}

#[test]
fn a_guest_reboots() {
    guest_cases::a_guest_reboots(Kernel::Linux61);
}

#[test]
fn qemu_is_killed() {
    guest_cases::qemu_is_killed(Kernel::Linux61);
}

#[test]
fn a_striped_disk_serves() {
    guest_cases::a_striped_disk_serves(Kernel::Linux61);
}

#[test]
fn device_mapper_agrees() {
    guest_cases::device_mapper_agrees(Kernel::Linux61);
}

#[test]
fn a_disk_grows_under_load() {
    guest_cases::a_disk_grows_under_load(Kernel::Linux61);
}
