//! Our own driver, `guest/`, in a kernel that looks for faults in itself: KASAN, lockdep, sleeping in atomic context,
//! leaks; and has some injected. `tests/setup.sh full` builds it.

#[allow(dead_code)] // either kernel has cases of its own
mod module_cases;

use module_cases::Bench;
use pollux_tests::guest::UserModeLinux;

fn bench() -> Bench {
    Bench {
        kernel: UserModeLinux::find_debug(),
        less: 8,
    }
}

#[test]
#[ignore = "it needs a kernel of its own: make test-full"]
fn data_survives_in_both_modes_at_once_on_one_queue() {
    bench().data_survives_in_both_modes_at_once_on_one_queue();
}

#[test]
#[ignore = "it needs a kernel of its own: make test-full"]
fn polled_load_takes_no_interrupt() {
    bench().polled_load_takes_no_interrupt();
}

#[test]
#[ignore = "it needs a kernel of its own: make test-full"]
fn a_device_is_taken_away_and_given_back_under_load() {
    bench().a_device_is_taken_away_and_given_back_under_load();
}

#[test]
#[ignore = "it needs a kernel of its own: make test-full"]
fn the_machine_goes_off_under_load() {
    bench().the_machine_goes_off_under_load();
}

#[test]
#[ignore = "it needs a kernel of its own: make test-full"]
fn server_and_driver_do_not_wait_for_each_other() {
    bench().server_and_driver_do_not_wait_for_each_other();
}

#[test]
#[ignore = "it needs a kernel of its own: make test-full"]
fn device_mapper_polls_end_to_end() {
    bench().device_mapper_polls_end_to_end();
}

#[test]
#[ignore = "it needs a kernel of its own: make test-full"]
fn two_drivers_share_the_disks() {
    bench().two_drivers_share_the_disks();
}

#[test]
#[ignore = "it needs a kernel of its own: make test-full"]
fn a_guest_outlives_its_server() {
    bench().a_guest_outlives_its_server();
}

#[test]
#[ignore = "it needs a kernel of its own: make test-full"]
fn removal_ends_if_the_device_breaks_meanwhile() {
    bench().removal_ends_if_the_device_breaks_meanwhile();
}

#[test]
#[ignore = "it needs a kernel of its own: make test-full"]
fn faults_while_it_is_bound_leave_nothing_behind() {
    bench().faults_while_it_is_bound_leave_nothing_behind();
}

#[test]
#[ignore = "it needs a kernel of its own: make test-full"]
fn faults_under_load_leave_nothing_behind() {
    bench().faults_under_load_leave_nothing_behind();
}

#[test]
#[ignore = "it needs a kernel of its own: make test-full"]
fn changes_come_under_load_and_while_the_device_goes() {
    bench().changes_come_under_load_and_while_the_device_goes();
}

#[test]
#[ignore = "it needs a kernel of its own: make test-full"]
fn requests_of_a_broken_ring_fail() {
    bench().requests_of_a_broken_ring_fail();
}
