//! Where the real peers are that `tests/setup.sh` installs and fetches.
//!
//! A peer that is missing makes its tests print `SKIP`, so that a desk without QEMU can still run the
//! rest; with `REQUIRE_PEERS=1` (as in CI) it is a failure instead.

use std::fmt;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// The folder that `tests/setup.sh` fills: `$POLLUX_PEERS_DIR`, or `target/peers` of this workspace.
pub fn directory() -> PathBuf {
    std::env::var_os("POLLUX_PEERS_DIR").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/peers"),
        PathBuf::from,
    )
}

/// The file `name` below [`directory`], or else what [`missing`] says.
pub fn fetched(name: &str) -> Option<PathBuf> {
    let path = directory().join(name);
    if path.exists() {
        return Some(path);
    }
    missing(&path.display().to_string())
}

/// The program `name` on the `PATH`, or else what [`missing`] says.
pub fn installed(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|program| program.exists())
        .or_else(|| missing(name))
}

/// Says that the test is skipped because this machine does not allow `what`.
///
/// # Panics
///
/// If `REQUIRE_PEERS=1`: then everything has to be allowed.
pub fn denied(what: &str, error: &dyn fmt::Display) {
    assert!(
        !required(),
        "REQUIRE_PEERS=1, and there is no {what}: {error}"
    );
    // Not `println!`, of which a test that passes shows nothing.
    let _ = writeln!(io::stderr(), "SKIP there is no {what}: {error}");
}

fn required() -> bool {
    std::env::var_os("REQUIRE_PEERS").is_some_and(|value| value == "1")
}

/// Says that the test is skipped for want of `what`.
///
/// # Panics
///
/// If `REQUIRE_PEERS=1`: then everything has to be there.
fn missing(what: &str) -> Option<PathBuf> {
    assert!(
        !required(),
        "REQUIRE_PEERS=1, and there is no {what}: run tests/setup.sh"
    );
    let _ = writeln!(io::stderr(), "SKIP {what} is missing: run tests/setup.sh");
    None
}
