//! What daemons tell at one moment.

use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::control::client::{NoAnswer, get};
use crate::control::sockets::{Sockets, find};
use crate::log::chain;
use crate::model::{Disk, DiskStats, Disks, Worker, Workers};

/// All that were asked.
#[derive(Clone, Debug)]
pub struct Sample {
    pub daemons: Vec<Daemon>,
    /// Those that did not answer, and why.
    pub failed: Vec<String>,
}

/// One daemon.
#[derive(Clone, Debug)]
pub struct Daemon {
    pub control: PathBuf,
    pub at: Instant,
    pub disks: Vec<(Disk, DiskStats)>,
    pub workers: Vec<Worker>,
}

/// Asks the daemon at `asked`, or all of a folder.
pub fn take(asked: Option<&Path>) -> Result<Sample, String> {
    let found = find(asked).map_err(|error| format!("cannot look for control sockets: {error}"))?;
    let sockets = match found {
        Sockets::One(path) => {
            let daemon = ask(&path).map_err(|error| named(&path, &error))?;
            return Ok(Sample {
                daemons: vec![daemon],
                failed: Vec::new(),
            });
        }
        Sockets::Folder(folder, sockets) if sockets.is_empty() => {
            return Err(Sockets::none_in(&folder));
        }
        Sockets::Folder(_, sockets) => sockets,
    };
    let mut sample = Sample {
        daemons: Vec::new(),
        failed: Vec::new(),
    };
    for path in sockets {
        match ask(&path) {
            Ok(daemon) => sample.daemons.push(daemon),
            // It was killed, and has left its socket.
            Err(NoAnswer::Absent(_)) => {}
            Err(error) => sample.failed.push(named(&path, &error)),
        }
    }
    Ok(sample)
}

fn named(path: &Path, error: &NoAnswer) -> String {
    format!("--control {}: {}", path.display(), chain(error))
}

fn ask(control: &Path) -> Result<Daemon, NoAnswer> {
    let Disks { disks } = get(control, "/v1/disks")?;
    let at = Instant::now();
    let Workers { workers } = get(control, "/v1/workers")?;
    let mut counted = Vec::new();
    for disk in disks {
        match get(control, &format!("/v1/disks/{}/stats", disk.name)) {
            Ok(stats) => counted.push((disk, stats)),
            // It was removed just now.
            Err(NoAnswer::Problem(problem)) if problem.status == 404 => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Daemon {
        control: control.to_owned(),
        at,
        disks: counted,
        workers,
    })
}
