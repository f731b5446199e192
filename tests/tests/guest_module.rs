//! The guest's end, `guest/`: our own driver in a Linux 7 kernel, whose queues are polled and interrupt-driven at once.
//!
//! In User-Mode Linux: its requests are polled at native speed, and its interrupts are counted. `tests/setup.sh` builds
//! the module with the parameters that only tests want.

use std::path::PathBuf;

use pollux_tests::guest::UserModeLinux;
use pollux_tests::peers;
use pollux_tests::server::Server;
use tempfile::TempDir;

const COMMON: &str = include_str!("../guest/cases/module.sh");
const VERIFY: &str = include_str!("../guest/cases/module_verify.sh");
const COUNTS: &str = include_str!("../guest/cases/module_counts.sh");
const STOPPED: &str = include_str!("../guest/cases/module_stopped.sh");
const UNPLUG: &str = include_str!("../guest/cases/module_unplug.sh");
const LOSE: &str = include_str!("../guest/cases/uml_lose.sh");

/// A kernel that has the module; `None` (and `SKIP` on the output) if either is missing.
fn kernel() -> Option<UserModeLinux> {
    let kernel = UserModeLinux::find()?;
    peers::fetched("uml/pollux_blk.ko").map(|_| kernel)
}

/// A server of a disk in memory with so many queues, and the folder of its socket.
fn serve(queues: &str) -> (Server, PathBuf, TempDir) {
    let folder = tempfile::tempdir().expect("the folder of temporary files is writable");
    let socket = folder.path().join("disk.sock");
    let disk = ["--disk", "memory:size=256M", "--serial", "pollux-guest"];
    let shape = ["--num-queues", queues];
    let server = Server::pollux(&socket, &[disk.as_slice(), &shape].concat()).expect("it serves");
    (server, socket, folder)
}

/// Runs `case` on a disk with one queue, which both kinds of request share.
fn passes(case: &str, variables: &str) {
    let Some(kernel) = kernel() else {
        return;
    };
    let (server, socket, _folder) = serve("1");
    let script = format!("{variables}\n{COMMON}\n{case}");
    let outcome = kernel
        .run(&socket, &script, &["driver=pollux_blk"])
        .expect("the guest powers off");
    assert_eq!(outcome.status, 0, "{}\n{}", outcome.console, server.log());
}

#[test]
fn data_survives_in_both_modes_at_once_on_one_queue() {
    passes(VERIFY, "");
}

#[test]
fn polled_load_takes_no_interrupt() {
    passes(COUNTS, "");
}

#[test]
fn a_stopped_poller_delays_no_plain_read() {
    passes(STOPPED, "RULE=ours");
}

/// That the test above can fail: it does under the rule of the RFC of 2021.
#[test]
fn a_stopped_poller_delays_plain_reads_if_calls_are_off_while_it_polls() {
    passes(STOPPED, "RULE=rfc");
}

#[test]
fn a_device_is_taken_away_and_given_back_under_load() {
    passes(UNPLUG, "");
}

#[test]
fn a_guest_outlives_its_server() {
    let Some(kernel) = kernel() else {
        return;
    };
    let (server, socket, _folder) = serve("2");
    let script = format!("{COMMON}\n{LOSE}\nquiet\n");
    let mut guest = kernel
        .start(&socket, &script, &["driver=pollux_blk"])
        .expect("the guest starts");
    guest.wait_for("reading").expect("it reads");
    drop(server); // by SIGKILL
    let outcome = guest.finish().expect("the guest powers off");
    assert_eq!(outcome.status, 0, "{}", outcome.console);
}
