//! A Linux 7 guest at native speed: User-Mode Linux, whose frontend is not QEMU's.

use std::path::PathBuf;

use pollux_tests::guest::UserModeLinux;
use pollux_tests::server::Server;
use tempfile::TempDir;

const VERIFY: &str = include_str!("../guest/cases/uml.sh");
const LOSE: &str = include_str!("../guest/cases/uml_lose.sh");
const LOSE_READING: &str = include_str!("../guest/cases/uml_lose_reading.sh");

/// A server of a disk in memory with two queues, and the folder of its socket.
fn serve() -> (Server, PathBuf, TempDir) {
    let folder = tempfile::tempdir().expect("the folder of temporary files is writable");
    let socket = folder.path().join("disk.sock");
    let disk = ["--disk", "memory:size=256M", "--num-queues", "2"];
    let server = Server::pollux(&socket, &disk).expect("pollux serves");
    (server, socket, folder)
}

fn passes(arguments: &[&str], variables: &str) {
    let Some(kernel) = UserModeLinux::find() else {
        return;
    };
    let (server, socket, _folder) = serve();
    let script = format!("{variables}\n{VERIFY}");
    let outcome = kernel
        .run(&socket, &script, arguments)
        .expect("the guest powers off");
    assert_eq!(outcome.status, 0, "{}\n{}", outcome.console, server.log());
}

#[test]
fn data_survives_by_interrupts() {
    passes(&[], "POLLS=0");
}

#[test]
fn data_survives_polled() {
    passes(&["virtio_blk.poll_queues=1"], "POLLS=1");
}

#[test]
fn a_guest_outlives_its_server() {
    let Some(kernel) = UserModeLinux::find() else {
        return;
    };
    let (server, socket, _folder) = serve();
    let mut guest = kernel.start(&socket, LOSE, &[]).expect("the guest starts");
    guest.wait_for("idle").expect("it has read");
    drop(server); // by SIGKILL
    let outcome = guest.finish().expect("the guest powers off");
    assert_eq!(outcome.status, 0, "{}", outcome.console);
}

/// It does not power off after that, as the kernel waits for the disk's requests; so it is ended.
#[test]
fn a_guest_goes_on_when_its_server_dies_under_load() {
    let Some(kernel) = UserModeLinux::find() else {
        return;
    };
    let (server, socket, _folder) = serve();
    let mut guest = kernel
        .start(&socket, LOSE_READING, &[])
        .expect("the guest starts");
    guest.wait_for("reading").expect("it reads");
    drop(server); // by SIGKILL
    guest.tell("the server is gone").expect("it listens");
    guest.wait_for("it goes on").expect("it goes on");
}
