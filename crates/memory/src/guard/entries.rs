//! The list of regions that the handler walks.

use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::Alarm;

/// One mapped region as the handler sees it.
pub struct Entry {
    /// Odd while the rest is changed.
    version: AtomicUsize,
    start: AtomicUsize,
    /// In bytes; 0: of a free entry.
    len: AtomicUsize,
    /// What may be mapped anew at least.
    pub page: AtomicUsize,
    pub torn: AtomicBool,
    /// Null, or what `Guard::alarm` keeps alive.
    pub alarm: AtomicPtr<Alarm>,
}

impl Entry {
    const fn new() -> Self {
        Self {
            version: AtomicUsize::new(0),
            start: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            page: AtomicUsize::new(0),
            torn: AtomicBool::new(false),
            alarm: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Describes another region. One thread at a time: the entry's owner, or the one that takes it off the free list.
    pub fn set(&self, region: &Range<usize>, page: usize) {
        let version = self.version.load(Ordering::Relaxed);
        self.version
            .store(version.wrapping_add(1), Ordering::Relaxed);
        // Pairs with the fence in `region`: a thread that reads any of what follows reads a changed version, too.
        fence(Ordering::Release);
        self.start.store(region.start, Ordering::Relaxed);
        self.len.store(region.len(), Ordering::Relaxed);
        self.page.store(page, Ordering::Relaxed);
        self.torn.store(false, Ordering::Relaxed);
        self.alarm.store(ptr::null_mut(), Ordering::Relaxed);
        self.version
            .store(version.wrapping_add(2), Ordering::Release);
    }

    /// The region, unless it is changing, and so cannot be the one that the caller keeps.
    pub fn region(&self) -> Option<Range<usize>> {
        let version = self.version.load(Ordering::Acquire);
        let start = self.start.load(Ordering::Relaxed);
        let len = self.len.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let stable = version.is_multiple_of(2) && version == self.version.load(Ordering::Relaxed);
        stable.then(|| start..start + len)
    }

    /// The region is lost: the handler has put zeroes in its place.
    pub fn tear(&self) {
        self.torn.store(true, Ordering::Release);
        // SAFETY: null, or the alarm of a guard that exists as long as its region, which the thread that made
        // the access keeps.
        if let Some(alarm) = unsafe { self.alarm.load(Ordering::Acquire).as_ref() } {
            alarm.ring();
        }
    }
}

/// Entries, and where there are more of them. Never freed, as the handler may be reading.
pub struct Block {
    entries: [Entry; Block::ENTRIES],
    pub next: OnceLock<&'static Self>,
}

impl Block {
    pub const ENTRIES: usize = 128;

    const fn new() -> Self {
        Self {
            entries: [const { Entry::new() }; Self::ENTRIES],
            next: OnceLock::new(),
        }
    }
}

pub static FIRST: Block = Block::new();

/// Free entries, and the last block, which a further one is appended to. The handler never
/// reads this.
static FREE: Mutex<Free> = Mutex::new(Free {
    entries: Vec::new(),
    last: None,
});

pub struct Free {
    pub entries: Vec<&'static Entry>,
    last: Option<&'static Block>,
}

impl Free {
    pub fn take(&mut self) -> &'static Entry {
        if let Some(entry) = self.entries.pop() {
            return entry;
        }
        let block = match self.last {
            None => &FIRST,
            Some(last) => last.next.get_or_init(|| Box::leak(Box::new(Block::new()))),
        };
        self.last = Some(block);
        self.entries.extend(&block.entries);
        self.entries.pop().expect("a block has entries")
    }
}

pub fn free() -> std::sync::MutexGuard<'static, Free> {
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The entry in whose region `address` lies. Called by the handler.
pub fn find(address: usize) -> Option<(&'static Entry, Range<usize>)> {
    let mut block = Some(&FIRST);
    while let Some(this) = block {
        for entry in &this.entries {
            if let Some(region) = entry.region().filter(|region| region.contains(&address)) {
                return Some((entry, region));
            }
        }
        block = this.next.get().copied();
    }
    None
}
