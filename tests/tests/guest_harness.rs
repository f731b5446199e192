//! Does the harness of the guest tests bite? What goes wrong in a guest must not pass for right.

use std::path::Path;
use std::time::Duration;

use pollux_tests::guest::{Guest, Kernel};

#[test]
fn a_failed_check_is_the_outcome() {
    let Some(machine) = Kernel::Linux61.machine() else {
        return;
    };
    let script = "equal 'one' 1 1\nequal 'one more' 2 1\nsay 'not reached'";
    let outcome = Guest::new(&machine, script)
        .run()
        .expect("the guest powers off all the same");
    assert_eq!(outcome.status, 1);
    assert!(outcome.console.contains("ok: one is 1"));
    assert!(outcome.console.contains("FAIL: one more is '2', not '1'"));
    assert!(!outcome.console.contains("guest: not reached"));
}

#[test]
fn a_kernel_panic_is_an_error() {
    let Some(machine) = Kernel::Linux61.machine() else {
        return;
    };
    // It would reboot for ever, were the panic not noticed.
    let script = "echo 1 >/proc/sys/kernel/sysrq\necho c >/proc/sysrq-trigger";
    let error = Guest::new(&machine, script)
        .reboots()
        .run()
        .expect_err("the kernel panics");
    assert!(error.to_string().contains("kernel panicked"), "{error}");
}

/// A kernel that fails to come up is booted again, but not where it was QEMU that failed, over a disk for instance.
#[test]
fn what_qemu_cannot_start_is_an_error_at_once() {
    let Some(machine) = Kernel::Linux61.machine() else {
        return;
    };
    let error = Guest::new(&machine, "")
        .own_disk(Path::new("/nonexistent"), "num-queues=1")
        .run()
        .expect_err("the disk is not there");
    assert!(error.to_string().contains("before it said 'up'"), "{error}");
}

#[test]
fn a_stuck_guest_is_killed() {
    let Some(machine) = Kernel::Linux61.machine() else {
        return;
    };
    // Long enough to boot on a slow day; this test always takes as long.
    let patience = Duration::from_secs(15);
    let error = Guest::new(&machine, "say 'alive'\nwhile :; do :; done")
        .patience(patience)
        .run()
        .expect_err("the script never ends");
    assert!(error.to_string().contains("the guest is stuck"), "{error}");
    assert!(error.to_string().contains("guest: alive"), "{error}");
}
