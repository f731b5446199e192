//! What daemons tell at one moment.

use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::control::client::{NoAnswer, each, get};
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
    let (daemons, failed) = each(asked, ask)?;
    Ok(Sample { daemons, failed })
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
