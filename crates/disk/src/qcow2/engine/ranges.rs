//! Zeroes and discards: what changes where a range of the disk lies.

use std::io;
use std::sync::Arc;

use super::{Changed, Engine, Extent, What};
use crate::Unmap;
use crate::file::Buffer;
use crate::qcow2::map::Mapped;

/// As many clusters are given back before it is looked at how much is held back.
const AT_ONCE: u64 = 64;

impl Engine {
    /// Makes a range zero. What is allocated is allocated before anything is freed.
    pub fn zero(&mut self, at: u64, len: u64, unmap: Unmap) -> io::Result<()> {
        let mut extents = self.extents(at, len)?;
        extents.retain(|extent| !extent.is_zero());
        self.change(at, len, &extents, |engine| {
            let mut whole = Vec::new();
            for extent in &extents {
                let [head, middle, tail] = engine.cut(*extent);
                for part in [head, tail] {
                    engine.overwrite(part)?;
                }
                whole.push(middle);
            }
            whole.into_iter().try_for_each(|extent| {
                // What is given back in any case is not kept under zeroes, where it would not be known any more.
                let frees = engine.zero_clusters
                    && (unmap == Unmap::Allowed || engine.gives_back(extent.what)?);
                let done = if frees { engine.free(extent)? } else { 0 };
                let [_, rest] = extent.split(done);
                engine.overwrite(rest)
            })
        })
    }

    /// The parts of an extent before, in and after whole clusters.
    fn cut(&self, extent: Extent) -> [Extent; 3] {
        let Extent { at, len, .. } = extent;
        let (end, mask) = (at + len, self.cluster() - 1);
        let from = ((at + mask) & !mask).min(end);
        let last = if end == self.image.size() {
            end
        } else {
            end & !mask
        };
        let to = last.max(from);
        let [head, rest] = extent.split(from - at);
        let [middle, tail] = rest.split(to - from);
        [head, middle, tail]
    }

    /// Makes an extent zero by its tables where that can be, else by zeroes.
    fn overwrite(&mut self, Extent { at, len, what }: Extent) -> io::Result<()> {
        if let (What::Own(leg, there), 1..) = (what, len) {
            self.check_data(leg, there, len)?;
        }
        let end = at + len;
        let mut from = at;
        while from < end {
            if self.freed > 0 {
                self.forget_freed()?;
            }
            let gives_back = self.gives_back(what)?;
            // What is given back is not to be used anew for what comes next.
            let to = if gives_back {
                (from + 1).next_multiple_of(self.cluster()).min(end)
            } else {
                end
            };
            self.put_zeroes(from, to - from)?;
            if gives_back {
                self.freed += to - from;
            }
            from = to;
        }
        Ok(())
    }

    fn put_zeroes(&self, at: u64, len: u64) -> io::Result<()> {
        if self.zero_clusters {
            return self.image.write_zeroes(at, len);
        }
        let mut zeroes = Buffer::new(len);
        let mut done = 0;
        while done < len {
            zeroes.truncate(usize::try_from(len - done).unwrap_or(usize::MAX));
            self.image.write(&zeroes[..], at + done)?;
            done += zeroes.len() as u64;
        }
        Ok(())
    }

    /// Gives back what whole clusters of a range have.
    pub fn discard(&mut self, at: u64, len: u64) -> io::Result<()> {
        let mut extents = self.extents(at, len)?;
        // What is below would have to be hidden: that costs, and gives nothing back.
        extents.retain(|extent| !extent.is_zero() && extent.what != What::Below);
        self.change(at, len, &extents, |engine| {
            let mut extents = extents.iter();
            extents.try_for_each(|extent| engine.free(engine.cut(*extent)[1]).map(drop))
        })
    }

    /// Changes a range while no request uses it.
    fn change(
        &mut self,
        at: u64,
        len: u64,
        extents: &[Extent],
        body: impl FnOnce(&mut Self) -> io::Result<()>,
    ) -> io::Result<()> {
        if extents.is_empty() {
            return Ok(());
        }
        self.changed = Changed::Tables;
        let map = Arc::clone(&self.map);
        let clusters = self.clusters(at, len);
        map.closed(clusters.clone(), || {
            clusters.for_each(|cluster| map.set(cluster, Mapped::Unknown));
            body(self)
        })
    }

    /// Takes whole clusters out of the image: they are zero from then on. How much of them could be taken out?
    fn free(&mut self, Extent { at, len, what }: Extent) -> io::Result<u64> {
        if len == 0 {
            return Ok(0);
        }
        if let What::Own(leg, there) = what {
            self.check_data(leg, there, len)?;
        }
        let mut done = 0;
        while done < len {
            let rest = (at + done, (len - done).min(AT_ONCE << self.bits));
            // That of a snapshot, or none, is not the table that says so from now on: room for one is made, which must
            // not be where the storage has data of a guest still.
            if self.freed > 0 && !matches!(what, What::Own(..)) {
                self.forget_freed()?;
            }
            self.freed += rest.1;
            #[expect(
                unsafe_code,
                reason = "imago cannot know that the mapping is not in use"
            )]
            // SAFETY: the chunks of the range are closed, so that nothing is read or written by a mapping of it.
            let freed = unsafe { self.take_out(rest.0, rest.1) }?;
            let Some((from, freed)) = freed.filter(|(_, freed)| *freed > 0) else {
                break;
            };
            if let What::Own(leg, there) = what {
                // It can be read no more, and what is not given back to the storage is merely not given back.
                let _ = self.files[leg].discard(there + (from - at), freed);
            }
            done = from + freed - at;
            self.bound()?;
        }
        Ok(done)
    }

    /// Takes the whole clusters of a range out, as far as one table goes: from where, and how much. None where the
    /// version of the image cannot.
    ///
    /// # Safety
    ///
    /// No request uses a mapping of the range.
    #[expect(unsafe_code, reason = "as imago's")]
    unsafe fn take_out(&self, at: u64, len: u64) -> io::Result<Option<(u64, u64)>> {
        let image = self.image.inner();
        if self.zero_clusters {
            // SAFETY: the caller's.
            unsafe { image.discard_to_zero_unsafe(at, len) }.map(Some)
        } else if self.has_backing {
            Ok(None)
        } else {
            // SAFETY: the caller's.
            unsafe { image.discard_to_backing_unsafe(at, len) }.map(Some)
        }
    }
}
