//! The thread that keeps the list of disks that were added, in the file of `--state`.
//!
//! It alone may write in the folder of that file once the process has confined itself, and may write nowhere else: the
//! thread that opens disks opens what images name, and one could name the list. Each time it writes all disks that
//! there are then, so that the file is always of one moment, and of a later one than the last.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::thread::JoinHandle;

use pollux_threads::{Kind, spawn};
use tokio::sync::oneshot;

use super::kept::Kept;
use crate::disks::Disks;
use crate::model::{Problem, Refused};

/// So many changes may wait for it.
const MOST_WAITING: usize = 32;

type Answer = oneshot::Sender<Result<(), Refused>>;

/// Asks the thread, if there is a file.
#[derive(Clone, Debug)]
pub struct Keeper(Option<SyncSender<Answer>>);

impl Keeper {
    /// Starts the thread, which confines itself. It ends with the last of those that ask it.
    pub fn start(
        kept: Option<Kept>,
        disks: &Arc<Disks>,
    ) -> io::Result<(Self, Option<JoinHandle<()>>)> {
        let Some(kept) = kept else {
            return Ok((Self(None), None));
        };
        let (jobs, asked) = mpsc::sync_channel(MOST_WAITING);
        let disks = Arc::clone(disks);
        let thread = spawn(Kind::Keeper, "keeper", move || serve(&asked, &kept, &disks))?;
        Ok((Self(Some(jobs)), Some(thread)))
    }

    /// Writes the list as it is now, or later.
    pub async fn keep(&self) -> Result<(), Refused> {
        let Some(jobs) = &self.0 else { return Ok(()) };
        let (answer, answered) = oneshot::channel();
        jobs.try_send(answer).map_err(|error| match error {
            TrySendError::Full(_) => busy("too many changes wait for the list of disks"),
            TrySendError::Disconnected(_) => ended(),
        })?;
        answered.await.map_err(|_| ended())?
    }

    /// The same, by a thread that may wait.
    pub fn keep_now(&self) -> Result<(), Refused> {
        let Some(jobs) = &self.0 else { return Ok(()) };
        let (answer, answered) = oneshot::channel();
        jobs.send(answer).map_err(|_| ended())?;
        answered.blocking_recv().map_err(|_| ended())?
    }
}

fn serve(asked: &Receiver<Answer>, kept: &Kept, disks: &Disks) {
    for answer in asked {
        let added = disks.list().added();
        let written = kept.write(added).map_err(|error| {
            let detail = format!("cannot write {}: {error}", kept.path().display());
            // The client that asked may not have waited.
            tracing::error!("the list of disks is not that of now: {detail}");
            let remedy = "see to the file and its file system, then ask again";
            Problem::failed(detail, remedy).into()
        });
        let _ = answer.send(written);
    }
}

fn busy(detail: &str) -> Problem {
    let remedy = "ask again, and see to the file system of the list (--state)";
    Problem::unavailable(detail, remedy)
}

fn ended() -> Problem {
    busy("the thread that keeps the list of disks has ended")
}
