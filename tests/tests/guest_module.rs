//! The guest's end, `guest/`: our own driver in a Linux 7 kernel, whose queues are polled and interrupt-driven at once.

#[allow(dead_code)] // either kernel has cases of its own
mod module_cases;

use std::path::{Path, PathBuf};
use std::process::Command;

use module_cases::Bench;
use pollux_tests::guest::UserModeLinux;
use pollux_tests::{cases, peers};

fn bench() -> Bench {
    Bench {
        kernel: UserModeLinux::find(),
        less: 1,
    }
}

cases! {
    bench():
    data_survives_in_both_modes_at_once_on_one_queue, flushes_reach_the_device,
    polled_load_takes_no_interrupt,
    polls_do_not_have_interrupts_turned_off, a_device_is_taken_away_and_given_back_under_load,
    the_machine_goes_off_under_load, server_and_driver_do_not_wait_for_each_other,
    device_mapper_polls_end_to_end, two_drivers_share_the_disks, a_guest_outlives_its_server,
    removal_ends_if_the_device_breaks_meanwhile, secure_erase_erases,
    changes_come_under_load_and_while_the_device_goes, processors_may_be_fewer_than_queues,
    a_request_is_no_longer_than_the_ring, what_ends_while_it_is_submitted_waits_for_no_poller,
    a_zoned_disk_is_refused,
    requests_of_a_broken_ring_fail
}

#[test]
fn a_stopped_poller_delays_no_plain_read() {
    bench().a_stopped_poller_delays_no_plain_read("ours");
}

/// That the test above can fail: it does under the rule of the RFC of 2021.
#[test]
fn a_stopped_poller_delays_plain_reads_if_calls_are_off_while_it_polls() {
    bench().a_stopped_poller_delays_no_plain_read("rfc");
}

/// The driver's files of C.
fn sources() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest");
    let files = std::fs::read_dir(folder).expect("the driver is there");
    let files = files.map(|file| file.expect("it can be read").path());
    let is_source = |path: &PathBuf| path.extension().is_some_and(|end| end == "c" || end == "h");
    files.filter(is_source).collect()
}

/// By that kernel's own `checkpatch.pl`. What it says of every header of tracepoints is left out, and an allocator that
/// older kernels lack.
#[test]
fn the_sources_are_written_as_the_kernel_wants_them() {
    let Some(checkpatch) = peers::fetched("uml/build/source/scripts/checkpatch.pl") else {
        return;
    };
    for source in sources() {
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

/// Address spaces, byte orders, locks that are not let go. By the headers of 6.12: newer ones want a newer sparse.
#[test]
#[ignore = "it needs sparse: make test-full"]
fn sparse_finds_nothing_in_the_sources() {
    let (Some(_), Some(kernel)) = (peers::installed("sparse"), peers::fetched("linux612/build"))
    else {
        return;
    };
    let kernel = kernel.canonicalize().expect("it was found");
    let folder = tempfile::tempdir().expect("the folder of temporary files is writable");
    let kbuild = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest/Kbuild");
    for file in sources().into_iter().chain([kbuild]) {
        let name = file.file_name().expect("a file has a name");
        std::fs::copy(&file, folder.path().join(name)).expect("it can be copied");
    }
    let mut command = Command::new("make");
    command.arg("-C").arg(kernel);
    command.arg(format!("M={}", folder.path().display()));
    command.args(["C=2", "CONFIG_DEBUG_INFO_BTF_MODULES=", "modules"]);
    let output = command.output().expect("make is installed");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("CHECK"), "sparse was not called:\n{said}");
    let is_finding = |line: &&str| line.contains("warning:") || line.contains("error:");
    let findings: Vec<&str> = said.lines().filter(is_finding).collect();
    assert!(findings.is_empty(), "{findings:#?}");
}
