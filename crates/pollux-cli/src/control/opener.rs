//! The thread that opens disks while the process runs.
//!
//! It alone may open anything once the process has confined itself, and only in the folders that were named for that.
//! It opens one disk after the other. One that is slow to open holds up other additions, and nothing else: what is
//! written down of a change, another thread writes (`keeper`).

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::thread::JoinHandle;
use std::time::Duration;

use pollux::device::Workers;
use pollux_threads::{Kind, spawn};
use tokio::sync::oneshot;

use super::folders::Folders;
use super::keeper::Keeper;
use super::kept::{Added, Kept};
use crate::disks::{Disks, Export};
use crate::limits::Groups;
use crate::model::{NewDisk, Problem, Refused};
use working::Working;

mod handed;
mod refusals;
mod reserved;
mod working;

pub use working::Outcome;

/// So many disks may wait.
const MOST_WAITING: usize = 32;
/// How long an answer waits for what takes time: less than a connection lives.
pub const PATIENCE: Duration = Duration::from_secs(8);

/// A disk that is to be added.
struct Addition {
    name: String,
    disk: NewDisk,
    image: Option<OwnedFd>,
    answer: oneshot::Sender<Result<Outcome, Refused>>,
}

/// Asks the thread.
#[derive(Debug)]
pub struct Opener {
    additions: SyncSender<Addition>,
    keeper: Keeper,
}

/// The thread, before it takes requests.
#[derive(Debug)]
pub struct Starting {
    opener: Opener,
    restored: Receiver<Vec<(Export, NewDisk)>>,
    begin: SyncSender<Arc<Workers>>,
    thread: JoinHandle<()>,
}

impl Starting {
    /// Starts the thread, and the one that keeps the list of disks, which confine themselves; and has it open the disks
    /// that the last process has left in `kept`, but for those whose names `exports` have.
    pub fn new(
        folders: Folders,
        kept: Option<(Kept, Added)>,
        groups: Groups,
        disks: &Arc<Disks>,
        exports: &[Export],
    ) -> io::Result<Self> {
        let taken: HashSet<String> = exports.iter().map(|export| export.name.clone()).collect();
        let (additions, asked) = mpsc::sync_channel(MOST_WAITING);
        let (opened, restored) = mpsc::sync_channel(1);
        let (begin, begins) = mpsc::sync_channel(1);
        let (kept, left) = kept.unzip();
        let (keeper, keeping) = Keeper::start(kept, disks)?;
        let mut working = Working {
            folders,
            keeper: keeper.clone(),
            groups,
            disks: Arc::clone(disks),
        };
        let thread = spawn(Kind::Opener, "opener", move || {
            let again = working.restore(left.unwrap_or_default(), &taken);
            // They may not be asked for. If it is not told to begin, the process did not start.
            let _ = opened.send(again);
            if let Ok(workers) = begins.recv() {
                serve(&mut working, &asked, &workers);
            }
            drop(working);
            if let Some(keeping) = keeping {
                // It has told of its panic.
                let _ = keeping.join();
            }
        })?;
        Ok(Self {
            opener: Opener { additions, keeper },
            restored,
            begin,
            thread,
        })
    }

    /// The disks of the last process, opened.
    pub fn restored(&self) -> Vec<(Export, NewDisk)> {
        self.restored.recv().unwrap_or_default()
    }

    /// From now on it opens disks, which are served by `workers`. The thread ends once it can be asked for nothing.
    pub fn begin(self, workers: Arc<Workers>) -> (Opener, JoinHandle<()>) {
        // It waits for that alone.
        let _ = self.begin.send(workers);
        (self.opener, self.thread)
    }
}

impl Opener {
    /// Adds a disk. One that is there already, as it is to be, stays as it is.
    pub async fn add(
        &self,
        name: &str,
        disk: NewDisk,
        image: Option<OwnedFd>,
    ) -> Result<Outcome, Refused> {
        let (answer, answered) = oneshot::channel();
        let addition = Addition {
            name: name.to_owned(),
            disk,
            image,
            answer,
        };
        let ended = "the thread that opens disks has ended";
        self.additions
            .try_send(addition)
            .map_err(|error| match error {
                TrySendError::Full(_) => busy("too many disks wait to be opened"),
                TrySendError::Disconnected(_) => busy(ended),
            })?;
        match tokio::time::timeout(PATIENCE, answered).await {
            Ok(answered) => answered.map_err(|_| busy(ended))?,
            Err(_) => Err(busy("it, or another one before it, is slow to open").into()),
        }
    }

    /// Writes the list of disks as it is now.
    pub async fn keep(&self) -> Result<(), Refused> {
        self.keeper.keep().await
    }
}

fn busy(detail: &str) -> Problem {
    let remedy = "ask again, and look which of the disks is slow to open";
    Problem::unavailable(detail, remedy)
}

fn serve(working: &mut Working, asked: &Receiver<Addition>, workers: &Arc<Workers>) {
    for addition in asked {
        let Addition {
            name,
            disk,
            image,
            answer,
        } = addition;
        // A client that did not wait was not told that the disk is there.
        if !answer.is_closed() {
            // It may leave meanwhile.
            let _ = answer.send(working.add(&name, disk, image, workers));
        }
    }
}
