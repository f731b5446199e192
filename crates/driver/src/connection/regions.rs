//! The regions of memory that the server has been told of.

use std::os::fd::AsRawFd;
use std::sync::Arc;

use pollux_memory::Region;
use vhost::vhost_user::VhostUserFrontend as _;
use vhost::{VhostBackend as _, VhostUserMemoryRegionInfo};

use crate::connection::wire::{Line, Wire};
use crate::error::Refusal;
use crate::memory::known_regions::KnownRegions;

/// What the server is asked.
const MAP: &str = "to map memory";

/// How regions reach the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sending {
    /// One at a time, up to so many (`ADD_MEM_REG`, `REM_MEM_REG`).
    Each { slots: usize },
    /// All anew whenever one comes or goes, up to so many (`SET_MEM_TABLE`).
    Whole { slots: usize },
}

impl Sending {
    fn slots(self) -> usize {
        match self {
            Self::Each { slots } | Self::Whole { slots } => slots,
        }
    }

    /// How many regions of users there may be, beside so many of the driver's `own`. Some slots stay free for it, which
    /// may need more memory while requests wait for that. (It needs none where the server takes all of it at once.)
    fn for_users(self, own: usize) -> usize {
        let kept = match self {
            Self::Each { slots } => KEPT.min(slots / 4),
            Self::Whole { .. } => 0,
        };
        self.slots() - own.max(kept).min(self.slots())
    }
}

/// So many slots are the driver's, where the server has many.
const KEPT: usize = 4;

/// What the server knows.
pub(crate) struct Regions {
    sending: Sending,
    list: Vec<Added>,
    /// How many attempts have ended over memory of users, since one has succeeded.
    tries: u32,
}

struct Added {
    region: Arc<Region>,
    times: usize,
    origin: Origin,
    standing: Standing,
}

/// Does the server know a region? What is in one that it does not know is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It does, or is to be told of it.
    Known,
    /// It is being told, and what is in it is copied until then.
    Offered,
    /// It did not take it. The next may.
    Refused,
    /// It may have ended servers, or is cut. None is told of it any more.
    Condemned,
}

/// Where memory comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// It is the driver's own, without which there is no queue.
    Pool,
    /// A user's, which can make it unfit for the server at any moment.
    User,
}

/// So many attempts to go on at another server may end over memory of users, before the server is told of none.
const TRIES: u32 = 3;

impl Regions {
    pub(crate) fn new(sending: Sending) -> Self {
        Self {
            sending,
            list: Vec::new(),
            tries: 0,
        }
    }

    pub(crate) fn are_sent_whole(&self) -> bool {
        matches!(self.sending, Sending::Whole { .. })
    }

    /// Counts `region`, and tells the server the first time, or, if it `is_away`, later. Was it the first?
    pub(crate) fn add(
        &mut self,
        wire: &Wire,
        line: &mut Line,
        region: &Arc<Region>,
        origin: Origin,
        is_away: impl Fn(&Refusal) -> bool,
    ) -> Result<bool, Refusal> {
        if let Some(added) = self.find(region) {
            added.times += 1;
            return Ok(false);
        }
        let limit = self.sending.slots();
        let has_slot = match origin {
            Origin::Pool => self.described().count() < limit,
            Origin::User => self.users().count() < self.sending.for_users(self.own()),
        };
        if !has_slot {
            return Err(Refusal::NoSlot { limit });
        }
        let told = wire.exchange(MAP, || {
            match self.sending {
                Sending::Each { .. } => line.frontend.add_mem_region(&describe(region)).map(drop),
                Sending::Whole { .. } => {
                    tell_whole(line, self.described().chain([describe(region)]))
                }
            }?;
            // Requests that point there may reach the server sooner than a message does.
            line.settle()
        });
        if let Err(refusal) = told
            && !is_away(&refusal)
        {
            return Err(refusal);
        }
        self.list.push(Added {
            region: Arc::clone(region),
            times: 1,
            origin,
            standing: Standing::Known,
        });
        Ok(true)
    }

    /// Tells another server of everything, in the way that it wants.
    ///
    /// Memory of a user's that it does not take is `known` no more, and copied: a user may share what no other process
    /// can map, or more than one server takes, and must not keep the disk from all others by that. What only the server
    /// before did not take is known again.
    ///
    /// # Errors
    ///
    /// When it cannot take the driver's own memory, or is gone.
    pub(crate) fn tell_all(
        &mut self,
        wire: &Wire,
        line: &mut Line,
        sending: Sending,
        known: &KnownRegions,
    ) -> Result<(), Refusal> {
        let limit = sending.slots();
        // The driver's own first: what others share takes no room from it.
        self.list.sort_by_key(|added| added.origin);
        let own = self.own();
        if own > limit {
            return Err(Refusal::NoSlot { limit });
        }
        // Not by the very server that may have ended the last attempt over it.
        if self.tries == 0 {
            for added in self.all(Standing::Refused) {
                added.standing = Standing::Offered;
            }
        }
        let before = self.described().count();
        let are_too_many = self.tries >= TRIES;
        for added in self.users() {
            if are_too_many || added.region.is_cut() {
                added.copy(Standing::Condemned, known);
            }
        }
        for added in self.users().skip(sending.for_users(own)) {
            added.copy(Standing::Refused, known);
        }
        let told = match sending {
            Sending::Each { .. } => self.tell_each(wire, line, known),
            Sending::Whole { .. } => self.tell_table(wire, line, known),
        };
        match before - self.described().count() {
            0 => {}
            regions => {
                tracing::warn!(
                    regions,
                    "the server that is back does not take memory: requests in it are copied"
                );
            }
        }
        for added in self.all(Standing::Offered) {
            added.standing = match told {
                Ok(()) => Standing::Known,
                Err(_) => Standing::Refused,
            };
            if told.is_ok() {
                known.add(added.region.addresses());
            }
        }
        told?;
        self.tries = 0;
        self.sending = sending;
        Ok(())
    }

    /// Tells it of one region after the other.
    fn tell_each(
        &mut self,
        wire: &Wire,
        line: &mut Line,
        known: &KnownRegions,
    ) -> Result<(), Refusal> {
        let tries = self.tries;
        let mut has_refused = false;
        for added in self.list.iter_mut().filter(|added| added.is_known()) {
            let is_users = added.origin == Origin::User;
            if is_users {
                self.tries = tries + 1;
            }
            let told = wire.exchange(MAP, || {
                let region = describe(&added.region);
                line.frontend.add_mem_region(&region).map(drop)
            });
            match told {
                Err(Refusal::Refused { .. }) if is_users => {
                    added.copy(Standing::Refused, known);
                    has_refused = true;
                }
                told => told?,
            }
        }
        wire.exchange(MAP, || {
            if has_refused {
                // It may have ended the session over that. Then it shows here, and not as if it were over a queue.
                return line.frontend.get_features().map(drop);
            }
            line.settle()
        })
    }

    /// Tells it of all of them at once, of which it then does not say which it does not take.
    fn tell_table(
        &mut self,
        wire: &Wire,
        line: &mut Line,
        known: &KnownRegions,
    ) -> Result<(), Refusal> {
        let has_users = self.users().next().is_some();
        if has_users {
            self.tries += 1;
        }
        let told = self.tell_described(wire, line);
        match told {
            Err(Refusal::Refused { .. }) if has_users => {
                self.users()
                    .for_each(|added| added.copy(Standing::Refused, known));
                self.tell_described(wire, line)
            }
            told => told,
        }
    }

    fn tell_described(&self, wire: &Wire, line: &mut Line) -> Result<(), Refusal> {
        wire.exchange(MAP, || {
            tell_whole(line, self.described())?;
            line.settle()
        })
    }

    fn all(&mut self, standing: Standing) -> impl Iterator<Item = &mut Added> {
        let all = self.list.iter_mut();
        all.filter(move |added| added.standing == standing)
    }

    /// How many regions are the driver's own.
    fn own(&self) -> usize {
        let own = |added: &&Added| added.origin == Origin::Pool;
        self.list.iter().filter(own).count()
    }

    /// What users have shared, and the server knows or is to know.
    fn users(&mut self) -> impl Iterator<Item = &mut Added> {
        let known = self.list.iter_mut().filter(|added| added.is_known());
        known.filter(|added| added.origin == Origin::User)
    }

    /// Counts `region` off. Was that the last time, so that it is to be [forgotten](Self::forget)?
    pub(crate) fn release(&mut self, region: &Arc<Region>) -> bool {
        // One that there was no slot for was never added, and its owner need not know.
        self.find(region).is_some_and(|added| {
            added.times -= 1;
            added.times == 0
        })
    }

    /// No server is told of `region` any more.
    ///
    /// Was the last one?
    pub(crate) fn forget(&mut self, region: &Arc<Region>) -> bool {
        let is_known = self.find(region).is_some_and(|added| added.is_known());
        self.list
            .retain(|added| !Arc::ptr_eq(&added.region, region));
        is_known
    }

    /// Has the server forget `region`, which is forgotten here.
    pub(crate) fn tell_gone(
        &self,
        wire: &Wire,
        line: &mut Line,
        region: &Arc<Region>,
    ) -> Result<(), Refusal> {
        wire.exchange("to unmap memory", || {
            match self.sending {
                Sending::Each { .. } => line.frontend.remove_mem_region(&describe(region)),
                Sending::Whole { .. } => tell_whole(line, self.described()),
            }?;
            line.settle()
        })
    }

    fn find(&mut self, region: &Arc<Region>) -> Option<&mut Added> {
        self.list
            .iter_mut()
            .find(|added| Arc::ptr_eq(&added.region, region))
    }

    fn described(&self) -> impl Iterator<Item = VhostUserMemoryRegionInfo> {
        let known = self.list.iter().filter(|added| added.is_known());
        known.map(|added| describe(&added.region))
    }
}

impl Added {
    fn is_known(&self) -> bool {
        matches!(self.standing, Standing::Known | Standing::Offered)
    }

    /// Requests in it are copied from now on.
    fn copy(&mut self, why: Standing, known: &KnownRegions) {
        self.standing = why;
        known.remove(self.region.addresses());
        if self.region.is_cut() {
            self.region.ring_alarm();
        }
    }
}

fn tell_whole(
    line: &Line,
    table: impl Iterator<Item = VhostUserMemoryRegionInfo>,
) -> vhost::Result<()> {
    let table: Vec<_> = table.collect();
    // There is no empty table: the server keeps the last region until another comes, or the session ends.
    if table.is_empty() {
        return Ok(());
    }
    line.frontend.set_mem_table(&table).map(drop)
}

/// A region as the server is to see it: where it lies in this process.
fn describe(region: &Region) -> VhostUserMemoryRegionInfo {
    let (file, offset) = region.file();
    let at = region.addresses().start as u64;
    VhostUserMemoryRegionInfo {
        guest_phys_addr: at,
        memory_size: region.len(),
        userspace_addr: at,
        mmap_offset: offset,
        mmap_handle: file.as_raw_fd(),
    }
}
