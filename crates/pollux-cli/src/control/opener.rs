//! The thread that opens disks while the process runs, and keeps the list of them.
//!
//! It alone may open anything once the process has confined itself, and only in the folders that were named for that. It
//! does one thing after the other, so that the list on disk is always that of one moment. A disk that is slow to open
//! holds up other changes, and nothing else.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::thread::JoinHandle;

use hyper::StatusCode;
use pollux::Drivers;
use pollux::disk::spec::{Elsewhere, Rbd, VhostUser};
use pollux::disk::{Disk, OpenError, Options, Spec};
use pollux_threads::{Birth, Kind};
use tokio::sync::oneshot;

use super::folders::{Folders, Wanted as Reached, reached};
use super::kept::{Added, Kept};
use super::new_disk::NewDisk;
use super::problem::Problem;
use crate::confine;
use crate::export::Endpoint;
use crate::inherited::Inherited;
use crate::limits::Groups;
use crate::log::chain;
use crate::passed::Passed;
use crate::serve::{Common, Disks, Export, NotServed, Wanted};
use crate::socket::SocketError;

/// So many changes may wait.
const MOST_WAITING: usize = 32;

type Refused = Box<Problem>;

/// What became of a disk that was to be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is new.
    Added,
    /// It was there, with other limits.
    Limited,
    /// It was there.
    Unchanged,
}

/// Where the answer to a change goes.
type Answer<T> = oneshot::Sender<Result<T, Refused>>;

/// One change.
enum Job {
    Add {
        name: String,
        disk: Box<NewDisk>,
        image: Option<OwnedFd>,
        answer: Answer<Outcome>,
    },
    /// The disk of this name is not to come back, or with other limits.
    Keep {
        without: Option<String>,
        answer: Answer<()>,
    },
}

/// Asks the thread.
#[derive(Debug)]
pub struct Opener {
    jobs: SyncSender<Job>,
}

/// The thread, before it takes requests.
#[derive(Debug)]
pub struct Starting {
    opener: Opener,
    restored: Receiver<Vec<(Export, NewDisk)>>,
    begin: SyncSender<Common>,
    thread: JoinHandle<()>,
}

impl Starting {
    /// Starts the thread, which confines itself, and has it open the disks that the last process has left in `kept`, but
    /// for those whose names `exports` have.
    pub fn new(
        folders: Folders,
        kept: Option<(Kept, Added)>,
        groups: Groups,
        disks: &Arc<Disks>,
        exports: &[Export],
    ) -> io::Result<Self> {
        let taken: HashSet<String> = exports.iter().map(|export| export.name.clone()).collect();
        let (jobs, asked) = mpsc::sync_channel(MOST_WAITING);
        let (opened, restored) = mpsc::sync_channel(1);
        let (begin, begins) = mpsc::sync_channel(1);
        let (kept, left) = kept.unzip();
        let mut working = Working {
            folders,
            kept,
            groups,
            disks: Arc::clone(disks),
        };
        let birth = Birth::of(Kind::Opener);
        let thread = std::thread::Builder::new().name("opener".to_owned());
        let thread = thread.spawn(move || {
            birth.happens();
            let again = working.restore(left.unwrap_or_default(), &taken);
            // They may not be asked for. If it is not told to begin, the process did not start.
            let _ = opened.send(again);
            if let Ok(common) = begins.recv() {
                working.serve(&asked, &common);
            }
        })?;
        Ok(Self {
            opener: Opener { jobs },
            restored,
            begin,
            thread,
        })
    }

    /// The disks of the last process, opened.
    pub fn restored(&self) -> Vec<(Export, NewDisk)> {
        self.restored.recv().unwrap_or_default()
    }

    /// From now on it opens disks, which are served by `common`.
    pub fn begin(self, common: Common) -> (Opener, JoinHandle<()>) {
        // It waits for that alone.
        let _ = self.begin.send(common);
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
        let name = name.to_owned();
        let disk = Box::new(disk);
        self.ask(|answer| Job::Add {
            name,
            disk,
            image,
            answer,
        })
        .await
    }

    /// Writes the list of disks, without the one of this name.
    pub async fn keep(&self, without: Option<&str>) -> Result<(), Refused> {
        let without = without.map(str::to_owned);
        self.ask(|answer| Job::Keep { without, answer }).await
    }

    async fn ask<T>(&self, job: impl FnOnce(Answer<T>) -> Job) -> Result<T, Refused> {
        let (answer, answered) = oneshot::channel();
        let busy = |detail| {
            let remedy = "ask again, and look which of the disks is slow to open";
            Box::new(Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                detail,
                remedy,
            ))
        };
        self.jobs
            .try_send(job(answer))
            .map_err(|error| match error {
                TrySendError::Full(_) => busy("too many changes wait for their turn"),
                TrySendError::Disconnected(_) => busy("the thread that opens disks has ended"),
            })?;
        let ended = answered.await;
        ended.unwrap_or_else(|_| Err(busy("the thread that opens disks has ended")))
    }
}

/// What the thread works with.
struct Working {
    folders: Folders,
    kept: Option<Kept>,
    groups: Groups,
    disks: Arc<Disks>,
}

impl Working {
    fn serve(&mut self, asked: &Receiver<Job>, common: &Common) {
        // The client may have left meanwhile.
        for job in asked {
            match job {
                Job::Add {
                    name,
                    disk,
                    image,
                    answer,
                } => {
                    let _ = answer.send(self.add(&name, *disk, image, common));
                }
                Job::Keep { without, answer } => {
                    let _ = answer.send(self.keep(without.as_deref(), None));
                }
            }
        }
    }

    /// Opens again what the last process has left. What cannot be is told, and stays on the list.
    fn restore(&mut self, left: Added, taken: &HashSet<String>) -> Vec<(Export, NewDisk)> {
        let mut opened = Vec::new();
        for (name, disk) in left {
            let again = if taken.contains(&name) {
                tracing::warn!(
                    disk = name,
                    "the configuration has taken the place of a disk that was added"
                );
                continue;
            } else if disk.passed {
                let detail = "its image was passed as a descriptor";
                Err(Problem::new(StatusCode::CONFLICT, detail, "add it again").into())
            } else {
                self.open(&name, &disk, None)
            };
            match again {
                Ok(export) => opened.push((export, disk)),
                Err(problem) => {
                    let (why, remedy) = (problem.detail, problem.remedy);
                    tracing::error!(
                        disk = name,
                        "a disk that was added is not served again: {why}; {remedy}"
                    );
                    self.disks.miss(name, disk);
                }
            }
        }
        opened
    }

    fn add(
        &mut self,
        name: &str,
        disk: NewDisk,
        image: Option<OwnedFd>,
        common: &Common,
    ) -> Result<Outcome, Refused> {
        let disk = disk.placed(name, self.folders.first());
        if let Some(outcome) = self.there(name, &disk)? {
            if outcome == Outcome::Limited {
                common.workers.wake();
                self.keep(None, None)?;
            }
            return Ok(outcome);
        }
        let export = self.open(name, &disk, image)?;
        self.keep(None, Some((name, &disk)))?;
        let started = self.disks.serve(export, Some(disk), common);
        started.map_err(|error| {
            let undone = self.keep(Some(name), None);
            let detail = match undone {
                Ok(()) => format!("cannot start a thread: {error}"),
                Err(problem) => format!("cannot start a thread: {error}; and {}", problem.detail),
            };
            let remedy = "see to the machine's limits, then ask again";
            Box::new(Problem::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                detail,
                remedy,
            ))
        })?;
        Ok(Outcome::Added)
    }

    /// What becomes of a disk whose name is known.
    fn there(&self, name: &str, disk: &NewDisk) -> Result<Option<Outcome>, Refused> {
        let conflict =
            |detail: String, remedy| Box::new(Problem::new(StatusCode::CONFLICT, detail, remedy));
        let Some(served) = self.disks.find(name) else {
            if self.disks.knows(name) {
                let detail = format!("the disk `{name}` is being removed");
                return Err(conflict(detail, "ask again once it has gone"));
            }
            return Ok(None);
        };
        if served.stop.stopping() {
            let detail = format!("the disk `{name}` is being removed");
            return Err(conflict(detail, "ask again once it has gone"));
        }
        let Some(added) = served.added() else {
            let detail = format!("the daemon was started with a disk `{name}`");
            let problem = conflict(detail, "choose another name, or change that one by PATCH");
            return Err(Box::new(problem.of("name")));
        };
        match disk.difference(&added) {
            None => Ok(Some(Outcome::Unchanged)),
            Some("latencies" | "limits") => {
                let limits = disk
                    .limits
                    .checked()
                    .map_err(|error| Problem::of_limit(&error))?;
                served.device.limiter().set(limits);
                served.device.observation().set_latencies(disk.latencies);
                Ok(Some(Outcome::Limited))
            }
            Some(field) => {
                let detail = format!("there is a disk `{name}` already, whose {field} differs");
                let problem = conflict(detail, "remove it first (DELETE), or choose another name");
                Err(Box::new(problem.of(field)))
            }
        }
    }

    fn open(
        &mut self,
        name: &str,
        disk: &NewDisk,
        image: Option<OwnedFd>,
    ) -> Result<Export, Refused> {
        let arguments = disk
            .arguments(name)
            .map_err(|error| Problem::of_limit(&error))?;
        let wanted = Wanted::new(&arguments, &mut Passed::default());
        let wanted = wanted.map_err(|error| Problem::of_option(&*error))?;
        within_reach(&wanted.offer.disk)?;
        let images = reached(&wanted.offer.disk);
        let handed = Handed::new(&wanted.offer.disk, disk.passed, image)?;
        if !disk.passed {
            for path in images {
                self.folders.check(path, Reached::Image)?;
            }
        }
        let Endpoint::Path { path, .. } = &wanted.endpoint else {
            unreachable!("a disk that is added has a path");
        };
        self.folders.check(path, Reached::Socket)?;
        let export = wanted.open(&mut Inherited::default(), &mut self.groups, &handed);
        Ok(export.map_err(|why| match why {
            NotServed::Disk(error) => not_opened(&*error),
            NotServed::Socket(error) => not_listened(&error),
        })?)
    }

    /// Writes the list, if there is a file for it: `without` one that leaves, and `with` one that comes.
    fn keep(&self, without: Option<&str>, with: Option<(&str, &NewDisk)>) -> Result<(), Refused> {
        let Some(kept) = &self.kept else {
            return Ok(());
        };
        let mut disks: BTreeMap<_, _> = self.disks.look().added();
        if let Some(name) = without {
            disks.remove(name);
        }
        if let Some((name, disk)) = with {
            disks.insert(name.to_owned(), disk.clone());
        }
        kept.write(disks).map_err(|error| {
            let detail = format!("cannot write {}: {error}", kept.path().display());
            let remedy = "see to the file and its file system, then ask again";
            Box::new(Problem::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                detail,
                remedy,
            ))
        })
    }
}

/// Opens disks, one of them from a descriptor that was passed.
struct Handed {
    image: RefCell<Option<File>>,
}

impl Handed {
    /// Does `image` fit what was said of it?
    fn new(spec: &Spec, passed: bool, image: Option<OwnedFd>) -> Result<Self, Refused> {
        let bad = |detail: &str, remedy| {
            let problem = Problem::new(StatusCode::BAD_REQUEST, detail, remedy);
            Err(Box::new(problem.of("passed")))
        };
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

impl Elsewhere for Handed {
    fn vhost_user(&self, disk: &VhostUser, options: &Options) -> Result<Arc<dyn Disk>, OpenError> {
        Drivers.vhost_user(disk, options)
    }

    fn rbd(&self, disk: &Rbd, options: &Options) -> Result<Arc<dyn Disk>, OpenError> {
        Drivers.rbd(disk, options)
    }

    fn opened(&self, _: &Path) -> Option<File> {
        self.image.take()
    }
}

/// A cluster's library wants files and a network of its own, which the sandbox leaves to it from the start or not at all.
fn within_reach(spec: &Spec) -> Result<(), Refused> {
    if !confine::needs(spec).cluster {
        return Ok(());
    }
    let detail = "images of a cluster are not added while a daemon runs";
    let remedy = "name them when it starts: `rbd:` on its command line or in its configuration";
    let problem = Problem::new(StatusCode::FORBIDDEN, detail, remedy);
    Err(Box::new(problem.of("disk")))
}

fn not_opened(error: &(dyn std::error::Error + 'static)) -> Problem {
    let status = match error.downcast_ref::<OpenError>() {
        Some(OpenError::InUse { .. } | OpenError::Busy { .. } | OpenError::Looped { .. }) => {
            StatusCode::CONFLICT
        }
        Some(OpenError::Permission { .. } | OpenError::ClosedFolder { .. }) => {
            StatusCode::FORBIDDEN
        }
        Some(OpenError::Io { .. } | OpenError::NoMemory { .. }) => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
        _ => StatusCode::BAD_REQUEST,
    };
    Problem::said(status, &chain(error)).of("disk")
}

fn not_listened(error: &SocketError) -> Problem {
    let status = match error {
        SocketError::Live(_) | SocketError::Busy { .. } | SocketError::NotASocket(_) => {
            StatusCode::CONFLICT
        }
        SocketError::Rights { .. } | SocketError::Lock { .. } => StatusCode::FORBIDDEN,
        _ => StatusCode::BAD_REQUEST,
    };
    Problem::said(status, &chain(error)).of("socket_path")
}
