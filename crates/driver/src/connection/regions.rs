//! The regions of memory that the server has been told of.

use std::os::fd::AsRawFd;
use std::sync::Arc;

use pollux_memory::Region;
use vhost::vhost_user::VhostUserFrontend as _;
use vhost::{VhostBackend as _, VhostUserMemoryRegionInfo};

use crate::connection::wire::{Line, Wire};
use crate::error::Refusal;

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
}

/// What the server knows.
pub(crate) struct Regions {
    sending: Sending,
    list: Vec<Added>,
}

struct Added {
    region: Arc<Region>,
    times: usize,
}

impl Regions {
    pub(crate) fn new(sending: Sending) -> Self {
        Self {
            sending,
            list: Vec::new(),
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
        is_away: impl Fn(&Refusal) -> bool,
    ) -> Result<bool, Refusal> {
        if let Some(added) = self.find(region) {
            added.times += 1;
            return Ok(false);
        }
        let limit = self.sending.slots();
        if self.list.len() >= limit {
            return Err(Refusal::NoSlot { limit });
        }
        let told = wire.exchange("to map memory", || {
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
        });
        Ok(true)
    }

    /// Tells another server of everything, in the way that it wants.
    ///
    /// # Errors
    ///
    /// When it cannot take that much, or is gone.
    pub(crate) fn tell_all(
        &mut self,
        wire: &Wire,
        line: &mut Line,
        sending: Sending,
    ) -> Result<(), Refusal> {
        let limit = sending.slots();
        if self.list.len() > limit {
            return Err(Refusal::NoSlot { limit });
        }
        wire.exchange("to map memory", || {
            let mut all = self.described();
            match sending {
                Sending::Each { .. } => {
                    all.try_for_each(|region| line.frontend.add_mem_region(&region).map(drop))
                }
                Sending::Whole { .. } => tell_whole(line, all),
            }?;
            line.settle()
        })?;
        self.sending = sending;
        Ok(())
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
    pub(crate) fn forget(&mut self, region: &Arc<Region>) {
        self.list
            .retain(|added| !Arc::ptr_eq(&added.region, region));
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
        self.list.iter().map(|added| describe(&added.region))
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
