//! Disks that other daemons serve, or a cluster, for [`Spec::open_with`](pollux_disk::Spec::open_with).

use std::sync::Arc;

use pollux_disk::spec::{DiskOpener, Rbd, VhostUser};
use pollux_disk::{Disk, OpenError, Options};
use pollux_driver::{Driver, Reconnect};

/// Opens `vhost-user:` disks by Pollux's own driver, and `rbd:` ones by Ceph's library.
///
/// A server that goes away is waited for as [`Reconnect`] says, unless the disk does (`reconnect=`).
///
/// ```no_run
/// let spec: pollux::disk::Spec = "vhost-user:path=/run/disk.sock".parse()?;
/// let disk = spec.open_with(&pollux::disk::Options::default(), &pollux::Drivers)?;
/// println!("{} bytes", disk.geometry().bytes);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Drivers;

impl Drivers {
    /// Opens the disk of another daemon by a driver that is as `driver` says where nothing is said of the disk.
    ///
    /// # Errors
    ///
    /// See [`OpenError`].
    pub fn vhost_user_by(
        self,
        driver: pollux_driver::Options,
        disk: &VhostUser,
        options: &Options,
    ) -> Result<Arc<dyn Disk>, OpenError> {
        let path = &disk.path;
        let reconnect = disk.reconnect.map_or(driver.reconnect, Reconnect::Within);
        let driver = driver
            .queues(disk.queues)
            .read_only(options.read_only)
            .reconnect(reconnect);
        let driver = Driver::connect(path, &driver).map_err(|source| OpenError::Elsewhere {
            path: path.clone(),
            source: Box::new(source),
        })?;
        let there = driver.geometry().block;
        match options.block_size {
            Some(asked) if asked != there => Err(OpenError::BlockOfServer {
                path: path.clone(),
                asked,
                there,
            }),
            _ => Ok(Arc::new(driver)),
        }
    }
}

impl DiskOpener for Drivers {
    fn vhost_user(&self, disk: &VhostUser, options: &Options) -> Result<Arc<dyn Disk>, OpenError> {
        self.vhost_user_by(pollux_driver::Options::default(), disk, options)
    }

    fn rbd(&self, disk: &Rbd, options: &Options) -> Result<Arc<dyn Disk>, OpenError> {
        pollux_rbd::open(disk, options)
    }
}
