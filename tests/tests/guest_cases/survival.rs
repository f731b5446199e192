//! The frontend goes away, politely or not, and the disk stays.

use pollux_tests::guest::{Export, Kernel, Lab};
use pollux_tests::subject::Program;

/// A guest reboots within one QEMU: once when idle, once with writes in flight.
pub fn a_guest_reboots(kernel: Kernel) {
    let Some(mut lab) = Lab::open(kernel) else {
        return;
    };
    let disk = lab.serve(&Export::memory(128).queues(2));
    let guest = lab.guest(include_str!("../../guest/cases/reboot.sh"));
    let outcome = lab.passes(guest.reboots().disk(disk));
    assert!(outcome.console.contains("guest: was booted three times"));
}

/// QEMU dies by SIGKILL while its guest writes; a new one gets the disk from the same server process,
/// finds all that was synced, and the server holds no more than it did for the first.
pub fn qemu_is_killed(kernel: Kernel) {
    let Some(mut lab) = Lab::open(kernel) else {
        return;
    };
    let disk = lab.serve(&Export::memory(512).queues(2));
    let guest = lab.guest(include_str!("../../guest/cases/killed.sh"));
    let mut guest = lab.starts(guest.disk(disk.clone()));
    lab.hears(&mut guest, "steady");
    let before = Holdings::of(&lab);
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
    let after = Holdings::of(&lab);
    lab.tells(&mut guest, "that was all");
    lab.ends_well(guest);
    assert_eq!(before.fds, after.fds, "open fds of the server, by target");
    // qemu-storage-daemon starts and ends threads of its pool as it likes.
    if lab.program() == Program::Pollux {
        assert_eq!(before.threads, after.threads, "threads of the server");
    }
}

/// What the lab's first server holds: its open fds by what they refer to, sorted, and its threads.
struct Holdings {
    fds: Vec<String>,
    threads: usize,
}

impl Holdings {
    fn of(lab: &Lab) -> Self {
        let process = format!("/proc/{}", lab.server(0).pid());
        let list = |folder: &str| {
            std::fs::read_dir(format!("{process}/{folder}"))
                .expect("the server runs as long as its lab")
                .map(|entry| entry.expect("proc(5) can be listed").path())
        };
        let mut fds: Vec<String> = list("fd")
            .filter_map(|fd| std::fs::read_link(fd).ok())
            .map(|target| kind(&target.display().to_string()).to_owned())
            .collect();
        fds.sort_unstable();
        Self {
            fds,
            threads: list("task").count(),
        }
    }
}

/// `socket:[4711]` and `socket:[4712]` are the same kind of thing.
fn kind(target: &str) -> &str {
    target.split_once(":[").map_or(target, |(kind, _)| kind)
}
