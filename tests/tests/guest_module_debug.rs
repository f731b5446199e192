//! Our own driver, `guest/`, in a kernel that looks for faults in itself: KASAN, lockdep, sleeping in atomic context,
//! leaks; and has some injected. `tests/setup.sh full` builds it.

#[allow(dead_code)] // either kernel has cases of its own
mod module_cases;

use module_cases::Bench;
use pollux_tests::cases;
use pollux_tests::guest::UserModeLinux;

fn bench() -> Bench {
    Bench {
        kernel: UserModeLinux::find_debug(),
        less: 8,
    }
}

cases! {
    "it needs a kernel of its own: make test-full": bench():
    data_survives_in_both_modes_at_once_on_one_queue, polled_load_takes_no_interrupt,
    a_device_is_taken_away_and_given_back_under_load, the_machine_goes_off_under_load,
    server_and_driver_do_not_wait_for_each_other, device_mapper_polls_end_to_end,
    two_drivers_share_the_disks, a_guest_outlives_its_server,
    removal_ends_if_the_device_breaks_meanwhile, faults_while_it_is_bound_leave_nothing_behind,
    faults_under_load_leave_nothing_behind, changes_come_under_load_and_while_the_device_goes,
    requests_of_a_broken_ring_fail, a_request_is_no_longer_than_the_ring,
    what_ends_while_it_is_submitted_waits_for_no_poller
}
