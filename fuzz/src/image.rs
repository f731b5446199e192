//! Images in QEMU's format that came from anywhere: what is not refused is read, written, freed and closed, and its
//! guest does not reach its header.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use pollux_disk::file::{Engine, Settings as FileSettings};
use pollux_disk::qcow2::{Backing, Settings};
use pollux_disk::{Disk, Image, Op, Options, Unmap};
use pollux_disk_conformance::{Buffer, Client, pattern, read, write, zeroes};

/// The header's fields of version 2, of which those from the version to the size of clusters and the kind of encryption
/// never change while an image is open.
const FIELDS: usize = 24;

/// One image.
pub fn run(data: &[u8]) {
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let folder = folder.expect("a folder for an image");
    let path = folder.path().join("image.qcow2");
    for read_only in [true, false] {
        fs::write(&path, data).expect("an image is written");
        let settings = Settings {
            file: FileSettings {
                engine: Engine::Threads,
                ..FileSettings::default()
            },
            backing: Backing::None,
        };
        let options = Options::default().read_only(read_only);
        match Image::open(&path, settings, &options) {
            Ok(image) => use_it(&image, &path, data, read_only),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

/// Whatever fails, it ends, and nothing panics.
fn use_it(image: &Image, path: &Path, data: &[u8], read_only: bool) {
    const LEN: u64 = 8192;
    let bytes = image.geometry().bytes;
    let len = usize::try_from(LEN.min(bytes)).expect("a few kilobytes");
    let places = [
        0,
        (bytes / 2) & !511,
        bytes.saturating_sub(len as u64) & !511,
    ];
    let mut client = Client::new(image);
    for at in places.into_iter().filter(|at| at + len as u64 <= bytes) {
        let _ = client.run(read(at, &Buffer::new(len)));
        if read_only {
            continue;
        }
        let buffer = Buffer::holding(&pattern(at, 4096.min(len)));
        let len = len as u64;
        let _ = client.run(write(at, &buffer));
        let _ = client.run(Op::Discard { at, len });
        let _ = client.run(zeroes(at, len, Unmap::Allowed));
        let _ = client.run(write(at, &buffer));
        let _ = client.run(zeroes(at, len, Unmap::Forbidden));
        let _ = client.run(write(at, &buffer));
        let _ = client.run(Op::Flush);
    }
    drop(client);
    let mut now = [0; FIELDS];
    let file = fs::File::open(path).expect("the image is there");
    file.read_exact_at(&mut now, 0).expect("it has a header");
    // The place of a backing file's name may move, as the header is written anew where features were cleared.
    assert_eq!(now[..8], data[..8], "the header is not written");
    assert_eq!(
        now[20..FIELDS],
        data[20..FIELDS],
        "the header is not written"
    );
}
