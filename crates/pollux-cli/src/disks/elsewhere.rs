//! How a daemon opens disks that lie elsewhere.

use std::sync::Arc;

use pollux::Drivers;
use pollux::disk::spec::{DiskOpener, Rbd, VhostUser};
use pollux::disk::{Disk, OpenError, Options};
use pollux::driver::{self, Reconnect};

/// Opens them for guests: where a server is away, requests wait for it as they do for any storage that does not answer.
/// A guest that is told of errors may give up its file system, and keeps no record of what it asked for.
pub struct Elsewhere;

impl DiskOpener for Elsewhere {
    fn vhost_user(&self, disk: &VhostUser, options: &Options) -> Result<Arc<dyn Disk>, OpenError> {
        let driver = driver::Options::default()
            .reconnect(Reconnect::Always)
            .elsewhere(true);
        Drivers.vhost_user_by(driver, disk, options)
    }

    fn rbd(&self, disk: &Rbd, options: &Options) -> Result<Arc<dyn Disk>, OpenError> {
        Drivers.rbd(disk, options)
    }
}
