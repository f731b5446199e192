//! `--disk SPEC`: the server inside this process, behind a real vhost-user socket.

use std::io;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use pollux_device::Workers;
use tempfile::TempDir;

use super::options::BenchArgs;
use crate::export::ExportArgs;
use crate::log::chain;

type Error = Box<dyn std::error::Error>;

/// A server for one frontend.
pub struct Inside {
    /// Goes, with the socket in it, when this is dropped.
    _folder: TempDir,
    socket: PathBuf,
    session: JoinHandle<()>,
}

impl Inside {
    /// Serves the disk `spec` with so many queues; the workers run on `cpus`, one each in turn.
    pub fn start(spec: &str, args: &BenchArgs, queues: u16, cpus: &[usize]) -> Result<Self, Error> {
        let export = ExportArgs {
            disk: Some(spec.to_owned()),
            num_queues: Some(queues),
            poll_scope: args.poll_scope,
            ..ExportArgs::default()
        };
        let device = export.open(spec.to_owned())?;
        let tuning = args.process.tuning()?;
        let threads = usize::from(args.process.threads.unwrap_or(1));
        let workers = Workers::start(threads, cpus, tuning);
        let workers = Arc::new(workers.map_err(|error| match &args.process.cpus {
            Some(list) => format!("--cpus {list}: {error}"),
            None => format!("cannot start the workers: {error}"),
        })?);
        let failed = |error: io::Error| format!("cannot make a socket for --disk: {error}");
        let folder = tempfile::tempdir().map_err(failed)?;
        let socket = folder.path().join("disk.sock");
        let listener = UnixListener::bind(&socket).map_err(failed)?;
        let session = move || {
            let served = listener
                .accept()
                .and_then(|(stream, _)| pollux_device::serve(stream, &device, &workers, tuning));
            if let Err(error) = served {
                tracing::warn!(error = chain(&error), "the session ended");
            }
        };
        let builder = std::thread::Builder::new().name("session".to_owned());
        Ok(Self {
            _folder: folder,
            socket,
            session: builder.spawn(session)?,
        })
    }

    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Waits until all is ended, after the frontend has disconnected.
    pub fn end(self) {
        // If it panicked, it has said so.
        let _ = self.session.join();
    }
}
