//! `--disk SPEC`: the server inside this process, behind a real vhost-user socket.

use std::fs::File;
use std::io;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use os_display::Quotable;
use pollux::disk::Spec;
use pollux::disk::file::Cache;
use rustix::fs::{SeekFrom, seek};
use tempfile::TempDir;

use super::cpu::Server;
use super::options::BenchArgs;
use crate::export::ExportArgs;
use crate::limits::Groups;
use crate::log::chain;

type Error = Box<dyn std::error::Error>;

/// A server for one frontend.
pub struct Inside {
    /// Goes, with the socket in it, when this is dropped.
    _folder: TempDir,
    socket: PathBuf,
    session: JoinHandle<()>,
    threads: Option<Server>,
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
        let offer = export.offer(spec.to_owned())?;
        if args.rw.reads() && args.verify.is_none() {
            warn_of_holes(&offer.disk);
        }
        let threads = whose_threads_are_known(&offer.disk);
        let device = offer.open(&mut Groups::default(), &pollux::Drivers)?;
        let tuning = args.process.tuning()?;
        let workers = Arc::new(args.process.start_workers(cpus, tuning)?);
        let failed = |error: io::Error| format!("cannot make a socket for --disk: {error}");
        let folder = tempfile::tempdir().map_err(failed)?;
        let socket = folder.path().join("disk.sock");
        let listener = UnixListener::bind(&socket).map_err(failed)?;
        let session = move || {
            let served = listener
                .accept()
                .and_then(|(stream, _)| pollux::device::serve(stream, None, &device, &workers));
            if let Err(error) = served {
                tracing::warn!(error = chain(&error), "the session ended");
            }
        };
        let builder = std::thread::Builder::new().name("session".to_owned());
        Ok(Self {
            _folder: folder,
            socket,
            session: builder.spawn(session)?,
            threads,
        })
    }

    /// Where it listens.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Whose processor time is the server's, if that is known.
    pub fn server(&self) -> Option<Server> {
        self.threads.clone()
    }

    /// Waits until all is ended, after the frontend has disconnected.
    pub fn end(self) {
        // If it panicked, it has said so.
        let _ = self.session.join();
    }
}

/// The threads of Ceph's library do most of the work for its images, and cannot be told from others by their names.
fn whose_threads_are_known(disk: &Spec) -> Option<Server> {
    let is_known = |part: &&Spec| !matches!(part, Spec::Rbd(_));
    disk.parts().iter().all(is_known).then_some(Server::Inside)
}

/// Holes are read without the storage, at many times its speed.
fn warn_of_holes(disk: &Spec) {
    let Spec::File { path, settings } = disk else {
        return;
    };
    if settings.cache == Cache::None && has_holes(path).unwrap_or(false) {
        tracing::warn!(
            path = %path.display(),
            "this file has holes, whose reads do not reach the storage; fill it first, which overwrites all of it: \
             `pollux bench {}`", filling(path)
        );
    }
}

/// The options that fill a file: before reads can be verified, every block is written once.
fn filling(path: &Path) -> String {
    format!(
        "--filename {} --direct=1 --bs 64k --iodepth 16 --verify crc32c --runtime 1s",
        path.maybe_quote()
    )
}

fn has_holes(path: &Path) -> io::Result<bool> {
    let file = File::open(path)?;
    Ok(seek(&file, SeekFrom::Hole(0))? < file.metadata()?.len())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::bench::target::tests::measured;

    #[test]
    fn a_file_with_holes_is_known() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 20).unwrap();
        assert!(has_holes(file.path()).unwrap());
        file.as_file().write_all_at(&vec![1; 1 << 20], 0).unwrap();
        assert!(!has_holes(file.path()).unwrap());
    }

    #[test]
    fn a_fraction_of_the_servers_time_is_not_told_as_all_of_it() {
        for (disk, is_known) in [
            ("memory:size=1M", true),
            ("linear:memory:size=1M+null:size=1M", true),
            ("rbd:pool=p,image=i", false),
            ("fault:delay=1ms,on=rbd:pool=p,image=i", false),
        ] {
            let server = whose_threads_are_known(&disk.parse().unwrap());
            assert_eq!(server.is_some(), is_known, "{disk}");
        }
    }

    #[test]
    fn a_shell_takes_the_path_for_one_word() {
        for (path, word) in [
            (&b"disk.img"[..], "disk.img"),
            (b"my disk.img", "'my disk.img'"),
            (b"a\xff", r"$'a\xFF'"),
        ] {
            let told = filling(Path::new(OsStr::from_bytes(path)));
            assert!(told.starts_with(&format!("--filename {word} --")), "{told}");
        }
    }

    #[test]
    fn what_is_told_to_fill_a_file_fills_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(8 << 20).unwrap();
        assert!(has_holes(file.path()).unwrap());
        // Not every folder for temporary files takes direct I/O.
        measured(&filling(file.path()).replace("--direct=1", ""));
        assert!(!has_holes(file.path()).unwrap());
    }
}
