//! What fuzzing has found worth keeping, once more.

use std::path::PathBuf;

/// Gives every file of the target's corpus to it.
fn replay(target: &str, run: impl Fn(&[u8])) {
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "corpus-seed", target]
        .iter()
        .collect();
    let mut files: Vec<_> = std::fs::read_dir(&folder)
        .expect("every target has a corpus")
        .map(|file| file.expect("a folder can be read").path())
        .collect();
    files.sort();
    assert!(files.len() >= 10, "{} is no corpus", folder.display());
    for file in files {
        // Shown if it fails.
        println!("{}", file.display());
        run(&std::fs::read(file).expect("a file can be read"));
    }
}

#[test]
fn chain() {
    replay("chain", pollux_fuzz::chain::run);
}

#[test]
fn config() {
    replay("config", pollux_fuzz::config::run);
}

#[test]
fn image() {
    replay("image", pollux_fuzz::image::run);
}

#[test]
fn request() {
    replay("request", pollux_fuzz::request::run);
}

#[test]
fn spec() {
    replay("spec", pollux_fuzz::spec::run);
}
