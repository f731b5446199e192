//! One split virtqueue (2.7), from the device's side.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;

use super::memory::{Memory, Place};
use super::plan::feature;
use super::request::{Part, Request};

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
/// In the flags of the available ring: do not call.
const NO_INTERRUPT: u16 = 1;

/// A queue as the messages have set it up.
#[derive(Default)]
pub(super) struct Queue {
    pub size: u16,
    pub descriptors: u64,
    pub available: u64,
    pub used: u64,
    pub kick: Option<OwnedFd>,
    pub call: Option<Arc<OwnedFd>>,
    /// Kicks wait for ever, and are not read.
    kicks_block: bool,
    pub started: bool,
    pub enabled: bool,
    /// What was negotiated.
    pub features: u64,
    /// The next available entry to take.
    pub next_available: u16,
    next_used: u16,
    /// What was taken and has not ended, in the order in which it came.
    pub taken: Vec<Request>,
    since: Option<Instant>,
}

impl Queue {
    /// Is there anything to look at?
    pub const fn is_live(&self) -> bool {
        self.started && self.enabled
    }

    const fn has(&self, feature: u64) -> bool {
        self.features & feature != 0
    }

    /// What a kick is read from.
    pub fn kick_fd(&self) -> Option<BorrowedFd<'_>> {
        self.kick
            .as_ref()
            .filter(|_| self.is_live() && !self.kicks_block)
            .map(AsFd::as_fd)
    }

    /// Has kicks wait for ever.
    pub fn block_kicks(&mut self) -> io::Result<()> {
        if let Some(kick) = &self.kick {
            fill(kick)?;
            fcntl_setfl(kick, OFlags::empty())?;
            self.kicks_block = true;
        }
        Ok(())
    }

    /// What it calls by takes no more.
    pub fn fill_calls(&self) -> io::Result<()> {
        self.call.as_ref().map_or(Ok(()), fill)
    }

    /// It starts where the driver has left it.
    pub fn start(&mut self, memory: &Memory) -> Result<(), String> {
        if !self.started {
            self.next_used = self.word(memory, self.used, 2)?.load(Ordering::Acquire);
            self.started = true;
        }
        Ok(())
    }

    /// It stops; what was taken is forgotten.
    pub fn stop(&mut self) -> u16 {
        self.started = false;
        self.taken.clear();
        self.next_available
    }

    fn place<'memory>(
        &self,
        memory: &'memory Memory,
        area: u64,
        offset: u64,
        len: usize,
    ) -> Result<Place<'memory>, String> {
        let place = memory.user(area + offset, len);
        place.ok_or_else(|| {
            format!(
                "no memory for a ring of {} at {area:#x}+{offset:#x}",
                self.size
            )
        })
    }

    fn word<'memory>(
        &self,
        memory: &'memory Memory,
        area: u64,
        offset: u64,
    ) -> Result<&'memory std::sync::atomic::AtomicU16, String> {
        let place = self.place(memory, area, offset, 2)?;
        place
            .word()
            .ok_or_else(|| format!("the ring at {area:#x} is not aligned"))
    }

    /// Takes all that is available, and asks for a kick after it. Chains that break the rules are named.
    pub fn take(&mut self, memory: &Memory) -> Result<(usize, Vec<String>), String> {
        let (mut count, mut wrong) = (0, vec![]);
        loop {
            let index = self
                .word(memory, self.available, 2)?
                .load(Ordering::Acquire);
            let new = index.wrapping_sub(self.next_available);
            if new == 0 {
                return Ok((count, wrong));
            }
            if new > self.size {
                return Err(format!(
                    "{new} entries in an available ring of {}",
                    self.size
                ));
            }
            for _ in 0..new {
                match self.take_one(memory) {
                    Ok(request) => self.taken.push(request),
                    Err(complaint) => wrong.push(complaint),
                }
                count += 1;
            }
            self.since.get_or_insert_with(Instant::now);
            self.ask_for_kick(memory)?;
        }
    }

    fn take_one(&mut self, memory: &Memory) -> Result<Request, String> {
        let entry = 4 + 2 * u64::from(self.next_available % self.size);
        let head = self
            .word(memory, self.available, entry)?
            .load(Ordering::Relaxed);
        self.next_available = self.next_available.wrapping_add(1);
        if self.taken.iter().any(|other| other.head == head) {
            return Err(format!("head {head} is made available twice"));
        }
        self.walk(memory, head)
    }

    /// Asks for a kick after what has been taken; whoever does that looks once more.
    fn ask_for_kick(&self, memory: &Memory) -> Result<(), String> {
        if self.has(feature::EVENT_IDX) {
            let event = self.word(memory, self.used, 4 + 8 * u64::from(self.size))?;
            event.store(self.next_available, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
        Ok(())
    }

    fn descriptor(
        &self,
        memory: &Memory,
        table: Option<u64>,
        index: u16,
    ) -> Result<Descriptor, String> {
        let offset = 16 * u64::from(index);
        let place = match table {
            None => self.place(memory, self.descriptors, offset, 16)?,
            Some(table) => (memory.guest(table + offset, 16))
                .ok_or_else(|| format!("the indirect table at {table:#x} is nowhere"))?,
        };
        Ok(Descriptor::parse(&place.get()))
    }

    /// Follows the chain from `head` (2.7.5), to its end or to what is wrong with it.
    fn walk(&self, memory: &Memory, head: u16) -> Result<Request, String> {
        let wrong = |what: &str| format!("chain {head}: {what}");
        let (mut table, mut size, mut index) = (None, self.size, head);
        let mut request = Request::new(head);
        let mut count = 0;
        loop {
            if index >= size {
                return Err(wrong(&format!("descriptor {index} of {size}")));
            }
            if count == self.size {
                return Err(wrong("longer than the queue"));
            }
            let found = self.descriptor(memory, table, index)?;
            if found.flags & INDIRECT != 0 {
                if !self.has(feature::INDIRECT_DESC)
                    || table.is_some()
                    || count > 0
                    || found.flags & NEXT != 0
                {
                    return Err(wrong("an indirect table that may not be there"));
                }
                if found.len == 0 || !found.len.is_multiple_of(16) {
                    return Err(wrong(&format!("an indirect table of {} bytes", found.len)));
                }
                table = Some(found.address);
                size = u16::try_from(found.len / 16).map_err(|_| wrong("a table too long"))?;
                index = 0;
                continue;
            }
            count += 1;
            if found.len == 0
                || memory
                    .guest(found.address, usize::try_from(found.len).expect("32 bits"))
                    .is_none()
            {
                return Err(wrong(&format!(
                    "{found:x?} is nowhere in {:x?}",
                    memory.extents()
                )));
            }
            let part = Part {
                address: found.address,
                len: found.len,
            };
            if found.flags & WRITE != 0 {
                request.writable.push(part);
            } else if request.writable.is_empty() {
                request.readable.push(part);
            } else {
                return Err(wrong("read-only after write-only descriptors"));
            }
            if found.flags & NEXT == 0 {
                return Ok(request);
            }
            index = found.next;
        }
    }

    /// How long until those that wait for company have waited for `patience`.
    pub fn left(&self, patience: Duration) -> Option<Duration> {
        let since = self.since.filter(|_| !self.taken.is_empty())?;
        Some(patience.saturating_sub(since.elapsed()))
    }

    /// All that was taken, to be ended.
    pub fn take_taken(&mut self) -> Vec<Request> {
        self.since = None;
        std::mem::take(&mut self.taken)
    }

    /// Writes a used element, which nobody sees yet.
    pub fn stage(&mut self, memory: &Memory, id: u32, written: u32) -> Result<(), String> {
        let entry = 4 + 8 * u64::from(self.next_used % self.size);
        let element = [id.to_le_bytes(), written.to_le_bytes()].concat();
        self.place(memory, self.used, entry, 8)?.put(&element);
        self.next_used = self.next_used.wrapping_add(1);
        Ok(())
    }

    /// Lets the used index jump with the next publication.
    pub const fn jump(&mut self, by: u16) {
        self.next_used = self.next_used.wrapping_add(by);
    }

    /// Shows the driver what was staged. Has it asked to be called for that?
    pub fn publish(&self, memory: &Memory) -> Result<bool, String> {
        let index = self.word(memory, self.used, 2)?;
        let old = index.swap(self.next_used, Ordering::Release);
        fence(Ordering::SeqCst);
        if !self.has(feature::EVENT_IDX) {
            let flags = self
                .word(memory, self.available, 0)?
                .load(Ordering::Relaxed);
            return Ok(flags & NO_INTERRUPT == 0);
        }
        let event = self.word(memory, self.available, 4 + 2 * u64::from(self.size))?;
        let event = event.load(Ordering::Relaxed);
        // 2.7.7.2: did the index step over the event?
        let (new, step) = (self.next_used, self.next_used.wrapping_sub(old));
        Ok(new.wrapping_sub(event).wrapping_sub(1) < step)
    }
}

/// Writes to an eventfd until it takes no more.
fn fill(fd: impl AsFd) -> io::Result<()> {
    let mut most = u64::MAX - 1;
    while most > 0 {
        match rustix::io::write(&fd, &most.to_ne_bytes()) {
            Ok(_) => {}
            Err(Errno::AGAIN) => most /= 2,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[derive(Debug)]
struct Descriptor {
    address: u64,
    len: u32,
    flags: u16,
    next: u16,
}

impl Descriptor {
    fn parse(bytes: &[u8]) -> Self {
        fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
            std::array::from_fn(|byte| bytes[at + byte])
        }
        Self {
            address: u64::from_le_bytes(field(bytes, 0)),
            len: u32::from_le_bytes(field(bytes, 8)),
            flags: u16::from_le_bytes(field(bytes, 12)),
            next: u16::from_le_bytes(field(bytes, 14)),
        }
    }
}
