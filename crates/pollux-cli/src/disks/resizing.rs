//! A resize: it takes as long as the disk's storage likes, and the list of disks stays free meanwhile.

use std::sync::Arc;

use pollux::device::Device;
use pollux::disk::ResizeError;

use super::Disks;
use crate::model::Disk;

/// A disk that is being resized. While this lives, the disk is not closed, and no other can have its name.
pub struct Resizing {
    /// Let go of before the mark: the last to do so is the thread that has served the disk.
    device: Arc<Device>,
    mark: Mark,
}

/// It is on the list of those that are being resized.
struct Mark {
    disks: Arc<Disks>,
    name: String,
}

/// A disk cannot be resized now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotResized {
    /// There is none.
    Unknown,
    /// It is being resized.
    Already,
}

impl Disks {
    /// The disk called `name`, to be resized.
    pub fn resizing(self: &Arc<Self>, name: &str) -> Result<Resizing, NotResized> {
        let mut list = self.lock();
        let served = list.served.iter().find(|disk| disk.name == name);
        let device = Arc::clone(&served.ok_or(NotResized::Unknown)?.device);
        if list.resizing.iter().any(|resizing| resizing == name) {
            return Err(NotResized::Already);
        }
        list.resizing.push(name.to_owned());
        let mark = Mark {
            disks: Arc::clone(self),
            name: name.to_owned(),
        };
        Ok(Resizing { device, mark })
    }
}

impl Resizing {
    /// Resizes it, by a thread that may wait: see [`Disk::resize`](pollux::disk::Disk::resize). What it is then;
    /// `None`: it was removed meanwhile. Where nothing has changed, frontends are told all the same.
    pub fn resize(self, bytes: Option<u64>) -> Result<Option<Disk>, ResizeError> {
        let disk = self.device.disk();
        let before = disk.geometry().bytes;
        disk.resize(bytes)?;
        if disk.geometry().bytes == before {
            self.device.tell_size();
        }
        let served = self.mark.disks.find(&self.mark.name);
        Ok(served.map(|served| served.disk()))
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        let name = &self.name;
        self.disks
            .lock()
            .resizing
            .retain(|resizing| resizing != name);
        self.disks.shorter.notify_all();
    }
}
