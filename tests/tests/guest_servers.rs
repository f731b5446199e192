//! The drivers of a Linux 7 guest, ours and the kernel's own, in front of other servers than Pollux.

#[allow(dead_code)] // the cases in front of Pollux
mod module_cases;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use module_cases::Bench;
use pollux_tests::guest::{Driver, Export, UserModeLinux};
use pollux_tests::peers;
use pollux_tests::server::{Ready, Server};
use pollux_tests::spdk;

const MIB: u64 = 1 << 20;

/// Data survives by `driver` in front of the server that `serve` starts.
fn data_survives(driver: Driver, serve: impl FnOnce(&Path) -> Server) {
    let bench = Bench {
        kernel: UserModeLinux::find(),
        less: 1,
    };
    let folder = tempfile::tempdir().expect("the folder of temporary files is writable");
    let server = serve(&folder.path().join("disk.sock"));
    bench.data_survives_in_front_of(&server, driver);
}

fn by_storage_daemon(daemon: Option<PathBuf>, driver: Driver) {
    if let Some(daemon) = daemon {
        let disk = Export::memory(256).queues(2);
        data_survives(driver, |socket| {
            disk.by_qemu(&daemon, socket).expect("it serves")
        });
    }
}

/// Nothing here builds SPDK: the variable [`spdk::PROGRAM`] names its program.
fn by_spdk(driver: Driver) {
    let Some(program) = spdk::program() else {
        let name = spdk::PROGRAM;
        // Not `println!`, of which a test that passes shows nothing.
        let _ = writeln!(
            std::io::stderr(),
            "SKIP SPDK was not asked for: {name} is not set"
        );
        return;
    };
    let disk = spdk::Disk::of_size("bdev_malloc_create", 256 * MIB);
    data_survives(driver, |socket| {
        let command = spdk::command(&program, &disk, socket, 0);
        let mut command = command.expect("its folder is writable");
        Server::start(&mut command, socket, Ready::Listening).expect("it serves")
    });
}

mod ours {
    use super::{Driver, by_spdk, by_storage_daemon, peers};

    #[test]
    fn data_survives_in_front_of_the_storage_daemon_of_qemu_10() {
        let daemon = peers::fetched("qemu10/bin/qemu-storage-daemon");
        by_storage_daemon(daemon, Driver::PolluxBlk);
    }

    #[test]
    fn data_survives_in_front_of_the_storage_daemon_of_qemu_7() {
        by_storage_daemon(peers::installed("qemu-storage-daemon"), Driver::PolluxBlk);
    }

    #[test]
    fn data_survives_in_front_of_spdk() {
        by_spdk(Driver::PolluxBlk);
    }
}

mod the_kernels_own {
    use super::{Driver, by_spdk, by_storage_daemon, peers};

    #[test]
    fn data_survives_in_front_of_the_storage_daemon_of_qemu_10() {
        let daemon = peers::fetched("qemu10/bin/qemu-storage-daemon");
        by_storage_daemon(daemon, Driver::VirtioBlk);
    }

    #[test]
    fn data_survives_in_front_of_the_storage_daemon_of_qemu_7() {
        by_storage_daemon(peers::installed("qemu-storage-daemon"), Driver::VirtioBlk);
    }

    #[test]
    fn data_survives_in_front_of_spdk() {
        by_spdk(Driver::VirtioBlk);
    }
}
