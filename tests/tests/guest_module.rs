//! The guest's end, `guest/`: our own driver in a Linux 7 kernel, whose queues are polled and interrupt-driven at once.
//!
//! In User-Mode Linux: its requests are polled at native speed, and its interrupts are counted. `tests/setup.sh` builds
//! the module with the parameters that only tests want.

use std::path::{Path, PathBuf};
use std::process::Command;

use pollux_tests::guest::{Running, UserModeLinux};
use pollux_tests::peers;
use pollux_tests::server::Server;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const COMMON: &str = include_str!("../guest/cases/module.sh");
const STOPPED: &str = include_str!("../guest/cases/module_stopped.sh");
const SWITCH: &str = include_str!("../../guest/pollux-blk-switch");

/// Servers of disks in memory, named vda, vdb, …, and the folder of their sockets.
struct Disks {
    servers: Vec<Server>,
    sockets: Vec<PathBuf>,
    _folder: TempDir,
}

impl Disks {
    /// One disk for each serial, with so many queues.
    fn serve(serials: &[&str], queues: &str) -> Self {
        let folder = tempfile::tempdir().expect("the folder of temporary files is writable");
        let sockets = serials.iter().map(|serial| folder.path().join(serial));
        let sockets: Vec<PathBuf> = sockets.collect();
        let serve = |(socket, serial): (&PathBuf, &&str)| {
            let disk = ["--disk", "memory:size=256M", "--serial", serial];
            let shape = ["--num-queues", queues];
            Server::pollux(socket, &[disk.as_slice(), &shape].concat()).expect("it serves")
        };
        Self {
            servers: sockets.iter().zip(serials).map(serve).collect(),
            sockets,
            _folder: folder,
        }
    }

    /// Starts a guest with these disks, which loads `driver` and runs `case`; `None` (and `SKIP` on the output) if there
    /// is no kernel.
    fn start(&self, case: &str, driver: &str) -> Option<Running> {
        let switch = format!("cat >/run/pollux-blk-switch <<'THE_END'\n{SWITCH}\nTHE_END\n");
        let script = format!("{switch}{COMMON}\n{case}");
        let sockets: Vec<&Path> = self.sockets.iter().map(PathBuf::as_path).collect();
        let driver = format!("driver={driver}");
        let guest = UserModeLinux::find()?.start_with(&sockets, &script, &[&driver]);
        Some(guest.expect("the guest starts"))
    }

    /// Waits until `guest` has powered off; its script must have ended with status 0.
    fn ends_well(&self, guest: Running) {
        let outcome = guest.finish().expect("the guest powers off");
        let logs: Vec<String> = self.servers.iter().map(Server::log).collect();
        assert_eq!(outcome.status, 0, "{}\n{logs:?}", outcome.console);
    }

    fn passes(&self, case: &str, driver: &str) {
        if let Some(guest) = self.start(case, driver) {
            self.ends_well(guest);
        }
    }
}

/// Runs `case` on a disk with one queue, which both kinds of request share.
fn passes(case: &str) {
    Disks::serve(&["pollux-guest"], "1").passes(case, "pollux_blk");
}

#[test]
fn data_survives_in_both_modes_at_once_on_one_queue() {
    passes(include_str!("../guest/cases/module_verify.sh"));
}

#[test]
fn polled_load_takes_no_interrupt() {
    passes(include_str!("../guest/cases/module_counts.sh"));
}

#[test]
fn a_stopped_poller_delays_no_plain_read() {
    passes(&format!("RULE=ours\n{STOPPED}"));
}

/// That the test above can fail: it does under the rule of the RFC of 2021.
#[test]
fn a_stopped_poller_delays_plain_reads_if_calls_are_off_while_it_polls() {
    passes(&format!("RULE=rfc\n{STOPPED}"));
}

#[test]
fn a_device_is_taken_away_and_given_back_under_load() {
    passes(include_str!("../guest/cases/module_unplug.sh"));
}

#[test]
fn server_and_driver_do_not_wait_for_each_other() {
    passes(include_str!("../guest/cases/module_hold.sh"));
}

#[test]
fn device_mapper_polls_end_to_end() {
    let disks = Disks::serve(&["first", "second", "third"], "1");
    disks.passes(
        include_str!("../guest/cases/module_mapper.sh"),
        "pollux_blk",
    );
}

#[test]
fn two_drivers_share_the_disks() {
    let disks = Disks::serve(&["first", "second", "third"], "1");
    disks.passes(include_str!("../guest/cases/module_both.sh"), "virtio_blk");
}

#[test]
fn a_guest_outlives_its_server() {
    let mut disks = Disks::serve(&["pollux-guest"], "2");
    let case = include_str!("../guest/cases/uml_lose.sh");
    let Some(mut guest) = disks.start(&format!("{case}\nquiet\n"), "pollux_blk") else {
        return;
    };
    guest.wait_for("reading").expect("it reads");
    disks.servers.clear(); // by SIGKILL
    disks.ends_well(guest);
}

#[test]
fn removal_ends_if_the_device_breaks_meanwhile() {
    let mut disks = Disks::serve(&["pollux-guest"], "2");
    let case = include_str!("../guest/cases/module_gone.sh");
    let Some(mut guest) = disks.start(case, "pollux_blk") else {
        return;
    };
    guest.wait_for("under load").expect("it has load");
    let server = i32::try_from(disks.servers[0].pid()).expect("a process id fits");
    let server = Pid::from_raw(server).expect("it is not 0");
    kill_process(server, Signal::STOP).expect("the server is ours");
    guest.tell("the server is stopped").expect("it listens");
    guest.wait_for("removal waits").expect("removal waits");
    disks.servers.clear(); // by SIGKILL
    disks.ends_well(guest);
}

/// By that kernel's own `checkpatch.pl`. What it says of every header of tracepoints is left out, and an allocator that
/// older kernels lack.
#[test]
fn the_sources_are_written_as_the_kernel_wants_them() {
    let Some(checkpatch) = peers::fetched("uml/build/source/scripts/checkpatch.pl") else {
        return;
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest");
    let files = std::fs::read_dir(folder).expect("the driver is there");
    let files = files.map(|file| file.expect("it can be read").path());
    let is_source = |path: &PathBuf| path.extension().is_some_and(|end| end == "c" || end == "h");
    for source in files.filter(is_source) {
        let ignored = if source.ends_with("trace.h") {
            "PARENTHESIS_ALIGNMENT,OPEN_ENDED_LINE"
        } else {
            "ALLOC_WITH_SIZEOF"
        };
        let mut command = Command::new("perl");
        command.arg(&checkpatch);
        command.args(["--strict", "--no-tree", "--terse", "--show-types"]);
        command.args(["--max-line-length=120", "--ignore", ignored, "-f"]);
        let output = command.arg(&source).output().expect("perl is installed");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{}:\n{said}", source.display());
    }
}
