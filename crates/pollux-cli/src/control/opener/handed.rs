//! An image that was passed as a descriptor, and is opened by that.

use std::cell::RefCell;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use pollux::disk::spec::{DiskOpener, Rbd, VhostUser};
use pollux::disk::{Disk, OpenError, Options, Spec};

use crate::disks::Elsewhere;
use crate::model::{Problem, Refused};

/// Opens disks, one of them from a descriptor that was passed.
pub struct Handed {
    image: RefCell<Option<File>>,
}

impl Handed {
    /// Does `image` fit what was said of it?
    pub fn new(spec: &Spec, passed: bool, image: Option<OwnedFd>) -> Result<Self, Refused> {
        let bad =
            |detail: &str, remedy| Err(Problem::bad_request(detail, remedy).of("passed").into());
        match (passed, &image) {
            (true, None) => {
                return bad(
                    "no descriptor came with this request",
                    "send one by SCM_RIGHTS, as `pollux disk add --pass-fd` does",
                );
            }
            (false, Some(_)) => {
                return bad(
                    "a descriptor came with this request",
                    "send \"passed\": true as well",
                );
            }
            (true, Some(_)) if !matches!(spec, Spec::File { .. }) => {
                return bad(
                    "a descriptor can be passed for one file only",
                    "write \"disk\": \"file:path=NAME\"",
                );
            }
            _ => {}
        }
        let image = RefCell::new(image.map(File::from));
        Ok(Self { image })
    }
}

impl DiskOpener for Handed {
    fn vhost_user(&self, disk: &VhostUser, options: &Options) -> Result<Arc<dyn Disk>, OpenError> {
        Elsewhere.vhost_user(disk, options)
    }

    fn rbd(&self, disk: &Rbd, options: &Options) -> Result<Arc<dyn Disk>, OpenError> {
        Elsewhere.rbd(disk, options)
    }

    fn opened(&self, _: &Path) -> Option<File> {
        self.image.take()
    }
}
