use std::process::Stdio;

use super::*;

/// Does a kernel come up whose console and end are those of `script`?
fn is_up(script: &str) -> io::Result<bool> {
    let mut qemu = Command::new("sh");
    qemu.args(["-c", script]).stdin(Stdio::piped());
    qemu.stdout(Stdio::piped()).stderr(Stdio::piped());
    let patience = Duration::from_secs(60);
    Running::start(&mut qemu, tempfile::tempdir()?, patience, None)?.is_up(patience)
}

#[test]
fn a_machine_that_resets_itself_has_not_come_up() {
    assert!(is_up("echo guest: up").unwrap());
    assert!(!is_up("echo 'tsc: Unable to calibrate against PIT'").unwrap());
}

#[test]
fn an_end_of_qemu_by_an_error_or_a_panic_is_no_other_boot() {
    for (script, says) in [
        ("echo 'no server' >&2; exit 1", "before it said 'up'"),
        ("kill -SEGV $$", "before it said 'up'"),
        ("echo 'Kernel panic - not syncing'", "kernel panicked"),
    ] {
        let error = is_up(script).unwrap_err();
        assert!(error.to_string().contains(says), "{script}: {error}");
    }
}
