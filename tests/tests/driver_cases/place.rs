//! Where servers of one image follow each other.

use std::fs::File;
use std::path::{Path, PathBuf};

use pollux_tests::server::Server;
use tempfile::TempDir;

/// A folder with an image in it, and where its server listens.
pub struct Place {
    pub folder: TempDir,
}

impl Place {
    /// With an image of so many bytes.
    pub fn new(size: u64) -> Self {
        let place = Self {
            folder: TempDir::new().unwrap(),
        };
        File::create(place.image()).unwrap().set_len(size).unwrap();
        place
    }

    /// The image.
    pub fn image(&self) -> PathBuf {
        self.folder.path().join("disk.img")
    }

    /// The socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("disk.sock")
    }

    /// `pollux serve` of the image, with these `options`.
    pub fn pollux(&self, options: &[&str]) -> Server {
        let spec = format!("file:path={}", self.image().display());
        let all = [&["--disk", &spec], options].concat();
        Server::pollux(&self.socket(), &all).unwrap()
    }

    /// `qemu-storage-daemon` of the image.
    pub fn storage_daemon(&self, program: &Path) -> Server {
        let image = self.image();
        let blockdev = format!("driver=file,filename={},discard=unmap", image.display());
        Server::qemu_storage_daemon(program, &self.socket(), &blockdev, 4).unwrap()
    }
}
