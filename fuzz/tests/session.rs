//! The corpus of sessions once more, in a process of its own: it counts the process's descriptors.

use std::path::Path;

#[test]
fn session() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus-seed/session");
    let mut files = 0;
    for file in std::fs::read_dir(folder).expect("the target has a corpus") {
        let path = file.expect("a folder can be read").path();
        // Shown if it fails.
        println!("{}", path.display());
        pollux_fuzz::session::run(&std::fs::read(path).expect("a file can be read"));
        files += 1;
    }
    assert!(files >= 10, "{files} files are no corpus");
}
