//! For fuzzers: requests to the control socket, past the parser of HTTP, which is not ours.

use std::path::Path;

use hyper::{Method, Request, Uri};

use crate::control::{Reach, Said, TestDaemon};

/// A daemon that is asked.
pub struct Daemon(TestDaemon);

impl Default for Daemon {
    fn default() -> Self {
        Self(TestDaemon::new())
    }
}

impl Daemon {
    /// Where disks may be.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.0.folder()
    }

    /// Status, content type and body of the answer; `None` where this is no request.
    #[must_use]
    pub fn ask(&self, method: &[u8], uri: &[u8], body: &[u8]) -> Option<Said> {
        let method = Method::from_bytes(method).ok()?;
        let uri = Uri::try_from(uri).ok()?;
        let changed = self.0.change(Reach::Everything, &method, &uri, body);
        changed.or_else(|| {
            let request = Request::builder().method(method).uri(uri).body(());
            Some(self.0.answer(Reach::Everything, &request.ok()?))
        })
    }

    /// The names and sizes of its disks.
    #[must_use]
    pub fn disks(&self) -> Vec<(String, u64)> {
        let disks = self.0.state().disks();
        let size = |disk: &crate::disks::Served| disk.device.disk().geometry().bytes;
        disks
            .iter()
            .map(|disk| (disk.name.clone(), size(disk)))
            .collect()
    }
}
