//! The disks that are served, which come and go while the process runs.

use std::collections::BTreeMap;
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pollux::device::{Limiter, Limits, Workers};
use pollux::disk::Event;
use pollux_threads::{Kind, lock, spawn};
use tokio::sync::watch;

use crate::model::NewDisk;
use crate::news::{Happening, tell};
use stop::InUse;

mod elsewhere;
mod resizing;
mod served;
mod sessions;
mod stop;
mod wanted;

pub use elsewhere::Elsewhere;
pub use resizing::{NotResized, Resizing};
pub use served::Served;
#[cfg(any(test, feature = "fuzzing"))]
pub use stop::Stop;
pub use wanted::{Export, NotServed, Wanted};

/// How long the end of the process waits for a resize.
const PATIENCE: Duration = Duration::from_secs(5);

/// All of them.
///
/// A thread that reads them holds a lock meanwhile, so the thread that has served a disk is the last to let go of it:
/// that takes system calls which others may not make.
pub struct Disks {
    list: Mutex<List>,
    /// The list has become shorter, a resize has ended, or the process is to end.
    shorter: Condvar,
    /// Can disks be added? Then the process stays without any.
    stays: bool,
}

#[derive(Default)]
struct List {
    served: Vec<Served>,
    /// The names of those that are being closed.
    leaving: Vec<String>,
    /// The names of those that are being resized: they are not closed meanwhile.
    resizing: Vec<String>,
    /// One that was opened, and is to be served once that was written down.
    announced: Option<Announced>,
    /// Those that were added, were not removed, and are not served: they could not be opened again when the process
    /// started, or have been closed as it ends.
    missing: BTreeMap<String, NewDisk>,
    ending: bool,
}

/// A disk that is not served yet.
struct Announced {
    name: String,
    disk: NewDisk,
    limiter: Arc<Limiter>,
}

/// The disks at one moment, in the order in which they came. None comes or goes while this lives.
pub struct DiskList<'a>(MutexGuard<'a, List>);

/// One of them.
pub struct One<'a> {
    all: DiskList<'a>,
    index: usize,
}

/// A disk that was removed, and may not have ended yet.
#[derive(Debug)]
#[must_use]
pub struct Removed(Option<watch::Receiver<()>>);

impl Removed {
    /// Waits until it has. Another one may have its name by then.
    pub async fn ended(self) {
        if let Some(mut ended) = self.0 {
            // It says nothing before it goes.
            let _ = ended.changed().await;
        }
    }
}

/// A disk cannot be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotRemoved {
    /// There is none.
    Unknown,
    /// A frontend uses it.
    InUse,
    /// The process would end with it.
    Last,
}

impl Deref for DiskList<'_> {
    type Target = [Served];

    fn deref(&self) -> &[Served] {
        &self.0.served
    }
}

impl DiskList<'_> {
    /// The names of those that were added, and are not served.
    pub fn missing(&self) -> Vec<String> {
        self.0.missing.keys().cloned().collect()
    }

    /// Those, as they are to be opened again.
    pub fn missing_disks(&self) -> BTreeMap<String, NewDisk> {
        self.0.missing.clone()
    }

    /// Was the process told to end?
    pub fn ending(&self) -> bool {
        self.0.ending
    }

    /// All that were added and not removed: what is to come back after a restart.
    pub fn added(&mut self) -> BTreeMap<String, NewDisk> {
        let List {
            served,
            announced,
            missing,
            ..
        } = &mut *self.0;
        if let Some(Announced { disk, limiter, .. }) = announced {
            disk.limits = limiter.limits().into();
        }
        // What is not there has the limits that its group has by now, and keeps them when no other is left of that.
        for disk in missing
            .values_mut()
            .filter(|disk| disk.limit_group.is_some())
        {
            let of_served = served
                .iter()
                .map(|disk| (&disk.limit_group, disk.device.limiter()));
            let of_announced = announced
                .iter()
                .map(|new| (&new.disk.limit_group, &new.limiter));
            let mut limiters = of_served.chain(of_announced);
            if let Some((_, limiter)) = limiters.find(|(group, _)| **group == disk.limit_group) {
                disk.limits = limiter.limits().into();
            }
        }
        let mut all = missing.clone();
        all.extend(
            announced
                .iter()
                .map(|new| (new.name.clone(), new.disk.clone())),
        );
        let served = served.iter().filter(|disk| !disk.removed);
        all.extend(served.filter_map(|disk| Some((disk.name.clone(), disk.added()?))));
        all
    }

    /// The limits of `limiter` are others: those that listen are told which disks have them.
    pub fn tell_limited(&self, limiter: &Arc<Limiter>) {
        let shares = |disk: &&Served| Arc::ptr_eq(disk.device.limiter(), limiter);
        for disk in self.iter().filter(shares) {
            tell(Happening::Limited, &disk.name);
        }
    }
}

impl Deref for One<'_> {
    type Target = Served;

    fn deref(&self) -> &Served {
        &self.all[self.index]
    }
}

impl DerefMut for One<'_> {
    fn deref_mut(&mut self) -> &mut Served {
        &mut self.all.0.served[self.index]
    }
}

impl One<'_> {
    /// Limits it, and with it those that share its limits.
    pub fn limit(&self, limits: Limits) {
        let limiter = self.device.limiter();
        if limiter.limits() == limits {
            return;
        }
        limiter.set(limits);
        self.all.tell_limited(limiter);
    }
}

/// A disk is closed however its thread ends.
struct Closing {
    disks: Arc<Disks>,
    name: String,
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.disks.close(&self.name);
    }
}

impl Disks {
    /// None yet. If it `stays`, they may be added later.
    pub fn new(stays: bool) -> Arc<Self> {
        Arc::new(Self {
            list: Mutex::default(),
            shorter: Condvar::new(),
            stays,
        })
    }

    fn lock(&self) -> MutexGuard<'_, List> {
        lock(&self.list)
    }

    /// All of them.
    pub fn list(&self) -> DiskList<'_> {
        DiskList(self.lock())
    }

    /// The disk called `name`.
    pub fn find(&self, name: &str) -> Option<One<'_>> {
        let all = self.list();
        let index = all.iter().position(|disk| disk.name == name)?;
        Some(One { all, index })
    }

    /// Is a disk called `name`, or one that is being closed?
    pub fn knows(&self, name: &str) -> bool {
        let list = self.lock();
        let mut names = list.served.iter().map(|disk| &disk.name);
        names.any(|known| known == name) || list.leaving.iter().any(|known| known == name)
    }

    /// This disk is to be served: from now on it is among those that were added. Not if the process is to end: then it
    /// may have an image only because its disk was closed.
    #[must_use]
    pub fn announce(&self, name: &str, disk: &NewDisk, limiter: &Arc<Limiter>) -> bool {
        let mut list = self.lock();
        if !list.ending {
            list.announced = Some(Announced {
                name: name.to_owned(),
                disk: disk.clone(),
                limiter: Arc::clone(limiter),
            });
        }
        !list.ending
    }

    /// It is not served.
    pub fn withdraw(&self, name: &str) {
        let announced = &mut self.lock().announced;
        announced.take_if(|announced| announced.name == name);
    }

    /// Serves a disk in a thread of its own.
    pub fn serve(
        self: &Arc<Self>,
        export: Export,
        added: Option<NewDisk>,
        workers: &Arc<Workers>,
    ) -> io::Result<()> {
        let name = export.name.clone();
        let events = export.device.disk().events();
        let of = name.clone();
        let resizes = events.subscribe(move |event| {
            if event == Event::Changed {
                tell(Happening::Resized, &of);
            }
        });
        let served = export.served(added, Some(resizes));
        let closing = Closing {
            disks: Arc::clone(self),
            name: name.clone(),
        };
        {
            let mut list = self.lock();
            if list.ending {
                served.stop.stop();
            }
            list.missing.remove(&name);
            list.announced.take_if(|announced| announced.name == name);
            list.served.push(served);
        }
        tell(Happening::Added, &name);
        let workers = Arc::clone(workers);
        let started = spawn(Kind::Session, "session", move || {
            // Last, and with a thread that could not be started as well.
            let _closing = closing;
            sessions::serve(export, &workers);
        });
        started.map(drop)
    }

    /// Lets go of a disk that is not served any more. Only then can another one have its name. Unless it was removed,
    /// it is to come back.
    fn close(&self, name: &str) {
        let (served, ended) = {
            let mut list = self.lock();
            let index = list.served.iter().position(|disk| disk.name == name);
            list.leaving.push(name.to_owned());
            let served = index.map(|index| list.served.remove(index));
            let stays = served.as_ref().filter(|disk| !disk.removed);
            if let Some(disk) = stays.and_then(Served::added) {
                list.missing.insert(name.to_owned(), disk);
            }
            self.shorter.notify_all();
            // The thread that resizes it must not be the last to let go of it.
            let resizes = |list: &mut List| list.resizing.iter().any(|resizing| resizing == name);
            let list = self.shorter.wait_while(list, resizes);
            drop(list.unwrap_or_else(PoisonError::into_inner));
            let ended = served.as_ref().map(|disk| disk.ended.clone());
            (served, ended)
        };
        // Without the lock: to close a disk may take a while.
        drop(served);
        self.lock().leaving.retain(|leaving| leaving != name);
        tell(Happening::Removed, name);
        self.shorter.notify_all();
        drop(ended);
    }

    /// Has a disk ended, which does not come back; one in use only by force. Its frontend is disconnected once all is
    /// done that it has asked for.
    pub fn remove(&self, name: &str, force: bool) -> Result<Removed, NotRemoved> {
        let mut list = self.lock();
        let is_missing = list.missing.remove(name).is_some();
        let is_last = !self.stays && list.served.len() == 1;
        let Some(disk) = list.served.iter_mut().find(|disk| disk.name == name) else {
            if !is_missing {
                return Err(NotRemoved::Unknown);
            }
            tell(Happening::Removed, name);
            return Ok(Removed(None));
        };
        if is_last {
            return Err(NotRemoved::Last);
        }
        if force {
            disk.stop.stop();
            // What it has in flight may be at a server that never comes back.
            disk.device.disk().give_up();
        } else {
            disk.stop.stop_unused().map_err(|InUse| NotRemoved::InUse)?;
        }
        disk.removed = true;
        Ok(Removed(Some(disk.ended.subscribe())))
    }

    /// This disk could not be opened again.
    pub fn miss(&self, name: String, disk: NewDisk) {
        self.lock().missing.insert(name, disk);
    }

    /// Ends all disks, those too that are on their way.
    pub fn end(&self) {
        let mut list = self.lock();
        list.ending = true;
        for disk in &list.served {
            disk.stop.stop();
        }
        drop(list);
        self.shorter.notify_all();
    }

    /// Waits until there is nothing left to serve; for resizes that go on then, not for long.
    pub fn wait(&self) {
        let is_resized = |list: &List, name: &String| list.resizing.contains(name);
        let closes = |list: &mut List| list.leaving.iter().any(|name| !is_resized(list, name));
        let goes_on = |list: &mut List| {
            !list.served.is_empty() || closes(list) || (self.stays && !list.ending)
        };
        let resizes = |list: &mut List| list.leaving.iter().any(|name| is_resized(list, name));
        let list = self.shorter.wait_while(self.lock(), goes_on);
        let list = list.unwrap_or_else(PoisonError::into_inner);
        let list = self.shorter.wait_timeout_while(list, PATIENCE, resizes);
        let (list, _) = list.unwrap_or_else(PoisonError::into_inner);
        let list = self.shorter.wait_while(list, closes);
        let mut list = list.unwrap_or_else(PoisonError::into_inner);
        for disk in list.leaving.drain(..) {
            tracing::warn!(disk, "it is being resized, which is not waited for");
        }
    }
}

#[cfg(test)]
mod tests;
