//! The frontend goes away, politely or not, and the disk stays.

use pollux_tests::guest::{Export, Lab, System};
use pollux_tests::process::{Holdings, Process};
use pollux_tests::subject::Program;

/// A guest reboots within one QEMU: once when idle, once with writes in flight.
pub fn a_guest_reboots(system: impl Into<System>) {
    let Some(mut lab) = Lab::open(system) else {
        return;
    };
    let disk = lab.serve(&Export::memory(128).queues(2));
    let guest = lab.guest(include_str!("../../guest/cases/reboot.sh"));
    let outcome = lab.passes(guest.reboots().disk(disk));
    assert!(outcome.console.contains("guest: was booted three times"));
}

/// QEMU dies by SIGKILL while its guest writes; a new one gets the disk from the same server process,
/// finds all that was synced, and the server holds no more than it did for the first.
pub fn qemu_is_killed(system: impl Into<System>) {
    let Some(mut lab) = Lab::open(system) else {
        return;
    };
    let disk = lab.serve(&Export::memory(512).queues(2));
    let guest = lab.guest(include_str!("../../guest/cases/killed.sh"));
    let mut guest = lab.starts(guest.disk(disk.clone()));
    lab.hears(&mut guest, "steady");
    let before = holdings(&lab);
    lab.tells(&mut guest, "now write");
    lab.hears(&mut guest, "writing");
    let console = guest.kill().unwrap_or_else(|error| panic!("{error}"));
    assert!(
        !console.contains("guest: the storm ended"),
        "QEMU was to be killed while the guest wrote:\n{console}"
    );

    let guest = lab.guest(include_str!("../../guest/cases/survivor.sh"));
    let mut guest = lab.starts(guest.disk(disk));
    lab.hears(&mut guest, "steady");
    let after = holdings(&lab);
    lab.tells(&mut guest, "that was all");
    lab.ends_well(guest);
    assert_eq!(before.fds, after.fds, "open fds of the server");
    // qemu-storage-daemon starts and ends threads of its pool as it likes.
    if lab.program() == Program::Pollux {
        assert_eq!(before.threads, after.threads, "threads of the server");
    }
}

/// What the lab's first server holds.
fn holdings(lab: &Lab) -> Holdings {
    Process::new(lab.server(0).pid())
        .holdings()
        .expect("the server runs as long as its lab")
}
