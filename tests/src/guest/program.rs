//! A program of this machine, with what it needs to run in a guest.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

/// A file for the guest: its name there, without a leading slash, and its contents.
pub type GuestFile = (String, Vec<u8>);

/// The program at `path`, which becomes one of the guest's `/bin`, and the libraries that the dynamic linker
/// would load for it, under the paths they have here.
pub fn with_libraries(path: &Path) -> io::Result<Vec<GuestFile>> {
    let name = path.file_name().unwrap_or_default().display();
    let mut files = vec![(format!("bin/{name}"), fs::read(path)?)];
    let libraries = Command::new("ldd").arg(path).output()?;
    let libraries = String::from_utf8_lossy(&libraries.stdout);
    for library in libraries.split_whitespace() {
        if let Some(name) = library.strip_prefix('/') {
            files.push((name.to_owned(), fs::read(library)?));
        }
    }
    Ok(files)
}
