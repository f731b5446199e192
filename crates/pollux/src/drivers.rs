//! Disks that other daemons serve, or a cluster, for [`Spec::open_with`](pollux_disk::Spec::open_with).

use std::sync::Arc;

use pollux_disk::spec::{DiskOpener, Rbd, VhostUser};
use pollux_disk::{Disk, OpenError, Options};
use pollux_driver::Driver;

/// Opens `vhost-user:` disks by Pollux's own driver, and `rbd:` ones by Ceph's library.
///
/// ```no_run
/// let spec: pollux::disk::Spec = "vhost-user:path=/run/disk.sock".parse()?;
/// let disk = spec.open_with(&pollux::disk::Options::default(), &pollux::Drivers)?;
/// println!("{} bytes", disk.geometry().bytes);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Drivers;

impl DiskOpener for Drivers {
    fn vhost_user(&self, disk: &VhostUser, options: &Options) -> Result<Arc<dyn Disk>, OpenError> {
        let path = &disk.path;
        let driver = Driver::builder(path)
            .queues(disk.queues)
            .read_only(options.read_only)
            .connect()
            .map_err(|source| OpenError::Elsewhere {
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

    fn rbd(&self, disk: &Rbd, options: &Options) -> Result<Arc<dyn Disk>, OpenError> {
        pollux_rbd::open(disk, options)
    }
}
