//! The cache mode of a session: is a write complete once it is done, or once it is stable (VIRTIO 1.3, 5.2.6.2)?
//!
//! A driver that has switched to write-through sends no flushes any more, so its mode must outlive the session: after a
//! reconnection, an upgrade or a migration it is not repeated. QEMU sends `SET_CONFIG` when the guest writes another
//! value than it wrote last, and at no other time; a reset of the guest changes neither what QEMU remembers nor what it
//! shows to the guest. So a session knows the mode
//!
//! 1. from `SET_CONFIG`, or else
//! 2. from the in-flight record, which travels with the guest, or else
//! 3. it is write-back for a driver that begins: its frontend has read the configuration in this session, where that is
//!    what it says, before a queue has run; all its rings start at 0, and were not used before; and its record is blank.
//!    Or else
//! 4. another back end has told this driver, another daemon or one on another host. It is write-through until the
//!    driver says more: a driver that does flush only loses time by that, one that does not would lose data.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pollux_blk::{Cache, Config, feature};

use super::config;
use crate::inflight::Inflight;

/// Where a session's rings start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rings {
    /// Each at 0 and never used before, or where it stopped in this session.
    Begin,
    /// Some of them were used before, elsewhere.
    GoOn,
}

/// What a session knows of its cache mode.
#[derive(Debug)]
pub struct CacheMode {
    known: Option<Cache>,
    /// Is it known because the driver seemed to begin?
    guessed: bool,
    /// What queues of a driver that can switch go by: true is write-back.
    writeback: Arc<AtomicBool>,
    /// Was the mode read in this session?
    read: bool,
}

impl Default for CacheMode {
    fn default() -> Self {
        Self {
            known: None,
            guessed: false,
            writeback: Arc::new(AtomicBool::new(true)),
            read: false,
        }
    }
}

impl CacheMode {
    /// What the configuration space says.
    pub fn shown(&self) -> Cache {
        self.known.unwrap_or(Cache::Writeback)
    }

    /// The frontend reads `len` bytes at `offset` of the configuration space.
    pub fn is_read(&mut self, offset: u32, len: u32) {
        let start = config::local(offset) as usize;
        self.read |= (start..start + len as usize).contains(&Config::WRITEBACK_OFFSET);
    }

    /// The mode is `cache` from now on, which `inflight` keeps for the next session.
    pub fn switch(&mut self, cache: Cache, inflight: Option<&Inflight>) {
        (self.known, self.guessed) = (Some(cache), false);
        let writeback = cache == Cache::Writeback;
        self.writeback.store(writeback, Ordering::Relaxed);
        if let Some(inflight) = inflight {
            inflight.set_cache(cache);
        }
    }

    /// Finds the mode, if it is not known, before a queue runs: by the rules above. True where it is the last of them.
    ///
    /// That the driver begins may turn out to be wrong: a frontend may start a queue before it describes the next.
    pub fn settle(&mut self, inflight: Option<&Inflight>, rings: Rings) -> bool {
        if self.guessed && rings == Rings::GoOn {
            self.switch(Cache::Writethrough, inflight);
            return true;
        }
        let recorded = inflight.and_then(Inflight::cache);
        let blank = inflight.is_none_or(Inflight::is_blank);
        let begins = self.read && blank && rings == Rings::Begin;
        let known = self.known.or(recorded);
        let otherwise = if begins {
            Cache::Writeback
        } else {
            Cache::Writethrough
        };
        let guessed = self.guessed || known.is_none() && begins;
        self.switch(known.unwrap_or(otherwise), inflight);
        self.guessed = guessed;
        known.is_none() && !begins
    }

    /// What a queue goes by whose driver has accepted `features`: true is write-back. A driver that cannot switch was
    /// told nothing, and relies on flushes if it can send some.
    pub fn for_queue(&self, features: u64) -> Arc<AtomicBool> {
        if features & feature::CONFIG_WCE == 0 {
            return Arc::new(AtomicBool::new(true));
        }
        Arc::clone(&self.writeback)
    }
}

#[cfg(test)]
mod tests;
