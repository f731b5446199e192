//! Opening one disk: what is checked before, and what is told of it after.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use pollux::device::Workers;
use pollux::disk::Spec;

use super::handed::Handed;
use super::refusals::{not_listened, not_opened};
use super::reserved;
use crate::control::folders::{Folders, Wanted as Reached, reached};
use crate::control::keeper::Keeper;
use crate::control::kept::Added;
use crate::disks::{Disks, Export, NotServed, Wanted};
use crate::limits::{DiskLimits, Groups};
use crate::model::{NewDisk, Problem, Refused};
use crate::socket::{Endpoint, Inherited, Passed};

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

/// What the thread works with.
pub struct Working {
    pub folders: Folders,
    pub keeper: Keeper,
    pub groups: Groups,
    pub disks: Arc<Disks>,
}

/// What was in memory is gone, and a guest that comes back is not told.
fn tell_of_memory(export: &Export) {
    let is_memory = |part: &Spec| matches!(part, Spec::Memory { .. });
    if export.spec.parts().into_iter().any(is_memory) {
        let disk = &export.name;
        tracing::warn!(
            disk,
            "what this disk had in memory is gone: end the guest that used it"
        );
    }
}

impl Working {
    /// Opens again what the last process has left. What cannot be is told, and stays on the list.
    pub fn restore(&mut self, left: Added, taken: &HashSet<String>) -> Vec<(Export, NewDisk)> {
        let mut opened = Vec::new();
        for (name, disk) in left {
            // All disks of a group were kept with its limits. The first has set them, or the configuration has.
            let mut opens = disk.clone();
            let limits = self.groups.limits(disk.limit_group.as_deref());
            if limits.is_some_and(|limits| !limits.is_empty()) {
                opens.limits = DiskLimits::default();
            }
            let again = if taken.contains(&name) {
                tracing::warn!(
                    disk = name,
                    "the configuration has taken the place of a disk that was added"
                );
                continue;
            } else if disk.passed {
                let detail = "its image was passed as a descriptor".to_owned();
                Err(Problem::conflict(detail, "add it again").into())
            } else {
                self.open(&name, &opens, None)
            };
            match again {
                Ok(export) => {
                    tell_of_memory(&export);
                    opened.push((export, opens));
                }
                Err(problem) => {
                    tracing::error!(
                        disk = name,
                        "a disk that was added is not served again: {problem}"
                    );
                    self.disks.miss(name, disk);
                }
            }
        }
        opened
    }

    pub fn add(
        &mut self,
        name: &str,
        disk: NewDisk,
        image: Option<OwnedFd>,
        workers: &Arc<Workers>,
    ) -> Result<Outcome, Refused> {
        if self.disks.list().ending() {
            return Err(ending().into());
        }
        let disk = disk
            .placed(name, self.folders.first())
            .with_image(image.as_ref());
        if let Some(outcome) = self.there(name, &disk)? {
            if outcome == Outcome::Limited {
                workers.wake();
            }
            // Also of one that is as it is to be: the list may not have been written when it became so.
            self.keeper.keep_now()?;
            return Ok(outcome);
        }
        reserved::check(&self.disks, name, &disk)?;
        // It may limit the others of its group.
        let before = self.groups.limits(disk.limit_group.as_deref());
        let export = self.open(name, &disk, image)?;
        let limiter = Arc::clone(export.device.limiter());
        let before = before.filter(|before| *before != limiter.limits());
        if before.is_some() {
            self.disks.list().tell_limited(&limiter);
        }
        let kept = if self.disks.announce(name, &disk, &limiter) {
            self.keeper.keep_now()
        } else {
            Err(ending().into())
        };
        if let Err(problem) = kept {
            self.disks.withdraw(name);
            if let Some(before) = before {
                limiter.set(before);
                self.disks.list().tell_limited(&limiter);
                workers.wake();
            }
            return Err(problem);
        }
        let started = self.disks.serve(export, Some(disk), workers);
        started.map_err(|error| {
            // It is missing by now, and that alone is undone.
            let _ = self.disks.remove(name, true);
            let detail = match self.keeper.keep_now() {
                Ok(()) => format!("cannot start a thread: {error}"),
                Err(problem) => format!("cannot start a thread: {error}; and {}", problem.detail),
            };
            let remedy = "see to the machine's limits, then ask again";
            Problem::failed(detail, remedy)
        })?;
        Ok(Outcome::Added)
    }

    /// What becomes of a disk whose name is known.
    fn there(&self, name: &str, disk: &NewDisk) -> Result<Option<Outcome>, Refused> {
        let leaving = || {
            let detail = format!("the disk `{name}` is being removed");
            Err(Problem::conflict(detail, "ask again once it has gone").into())
        };
        let Some(served) = self.disks.find(name) else {
            if self.disks.knows(name) {
                return leaving();
            }
            return Ok(None);
        };
        if served.stop.stopping() {
            return leaving();
        }
        let Some(added) = served.added() else {
            let detail = format!("the daemon was started with a disk `{name}`");
            let problem =
                Problem::conflict(detail, "choose another name, or change that one by PATCH");
            return Err(problem.of("name").into());
        };
        match disk.difference(&added) {
            None => Ok(Some(Outcome::Unchanged)),
            Some("latencies" | "limits") => {
                let limits = disk
                    .limits
                    .checked()
                    .map_err(|error| Problem::of_limit(&error))?;
                if !disk.takes_limits_of_group() {
                    served.limit(limits);
                }
                served.device.observation().set_latencies(disk.latencies);
                Ok(Some(Outcome::Limited))
            }
            Some(field) => {
                let detail = match field {
                    "passed" => format!("there is a disk `{name}` already, with another image"),
                    _ => format!("there is a disk `{name}` already, whose `{field}` differs"),
                };
                let problem = Problem::conflict(detail, "remove it first, or choose another name");
                Err(problem.of(field).into())
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
        let mut wanted = wanted.map_err(|error| Problem::of_option(&*error))?;
        let handed = Handed::new(&wanted.offer.disk, disk.passed, image)?;
        if !disk.passed {
            self.within_reach(&wanted.offer.disk)?;
        }
        let Endpoint::Path { path, .. } = &wanted.endpoint else {
            unreachable!("a disk that is added has a path");
        };
        self.folders.check(path, Reached::Socket)?;
        // What an image names is known once that is open.
        wanted.offer.how = wanted.offer.how.within(self.folders.all());
        let export = wanted.open(&mut Inherited::default(), &mut self.groups, &handed);
        Ok(export.map_err(|why| match why {
            NotServed::Disk(error) => not_opened(&*error, &self.disks),
            NotServed::Socket(error) => not_listened(&error, &self.disks),
        })?)
    }

    /// May all that `spec` names be opened? Nothing is asked of the machine that the sandbox forbids, such as the
    /// working directory.
    fn within_reach(&self, spec: &Spec) -> Result<(), Refused> {
        if spec.parts().iter().any(|part| matches!(part, Spec::Rbd(_))) {
            // Its library wants files and a network of its own, which the sandbox leaves to it from the start or not at
            // all.
            let detail = "images of a cluster are not added while a daemon runs";
            let remedy =
                "name them when it starts: `rbd:` on its command line or in its configuration";
            return Err(Problem::forbidden(detail, remedy).of("disk").into());
        }
        for path in reached(spec) {
            self.folders.check(path, Reached::Image)?;
        }
        Ok(())
    }
}

fn ending() -> Problem {
    let detail = "the daemon is ending, and takes no disks any more";
    Problem::unavailable(detail, "ask the next one")
}
