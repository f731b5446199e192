//! Where the three parts of a virtqueue lie, and the two lanes they make (VIRTIO 1.3, 2.7.2).
//!
//! ```text
//!  descriptor area   16 · size bytes        driver writes
//!  driver area       flags idx ring[size] used_event      6 + 2 · size
//!  device area       flags idx ring[size] avail_event     6 + 8 · size
//! ```

use std::ptr::NonNull;

use pollux_memory::Span;

use crate::descriptor::Descriptor;
use crate::lane::{Lane, Suppression, Words};
use crate::sync::Ordering;
use crate::wire::{Entry, Head, MAX_SIZE, UsedElem};

/// Why three spans do not make a virtqueue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AreaError {
    /// The size is no power of two, or too large.
    #[error("a ring of {0} entries; it must be a power of two of at most {MAX_SIZE}")]
    Size(u32),
    /// A part is shorter than the ring's size demands.
    #[error("the {area} area has {len} bytes; it must have {needed}")]
    Short {
        /// Which part.
        area: &'static str,
        /// The bytes that are there.
        len: usize,
        /// The bytes it must have.
        needed: usize,
    },
    /// A part lies at an address that its words cannot have.
    #[error("the {area} area is not aligned to {alignment} bytes")]
    Alignment {
        /// Which part.
        area: &'static str,
        /// What its address must be a multiple of.
        alignment: usize,
    },
}

/// How many bytes each part of a ring needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Of the descriptor table.
    pub descriptor: usize,
    /// Of the driver area: the available ring.
    pub driver: usize,
    /// Of the device area: the used ring.
    pub device: usize,
}

impl Layout {
    /// Of a ring with `size` entries.
    #[must_use]
    pub const fn of(size: u16) -> Self {
        let size = size as usize;
        Self {
            descriptor: Descriptor::SIZE * size,
            driver: 6 + 2 * size,
            device: 6 + 8 * size,
        }
    }
}

/// The memory of one virtqueue: parts that are long enough and aligned.
#[derive(Clone, Copy, Debug)]
pub struct Areas {
    pub(crate) descriptors: Span,
    driver: Span,
    device: Span,
    size: u16,
}

impl Areas {
    /// A ring of `size` entries in these parts, each of which may be longer than needed.
    ///
    /// # Errors
    ///
    /// When the size is illegal, or a part is too short or misaligned.
    pub fn new(
        size: u32,
        descriptors: Span,
        driver: Span,
        device: Span,
    ) -> Result<Self, AreaError> {
        let size = u16::try_from(size)
            .ok()
            .filter(|size| size.is_power_of_two() && *size <= MAX_SIZE)
            .ok_or(AreaError::Size(size))?;
        let layout = Layout::of(size);
        for (area, span, needed, alignment) in [
            ("descriptor", descriptors, layout.descriptor, 16),
            ("driver", driver, layout.driver, 2),
            ("device", device, layout.device, 4),
        ] {
            if span.len() < needed {
                return Err(AreaError::Short {
                    area,
                    len: span.len(),
                    needed,
                });
            }
            if !span.as_ptr().addr().is_multiple_of(alignment) {
                return Err(AreaError::Alignment { area, alignment });
            }
        }
        Ok(Self {
            descriptors,
            driver,
            device,
            size,
        })
    }

    pub(crate) fn size(&self) -> u16 {
        self.size
    }

    /// Has the driver shown chains that the device has not handed back, as far as these words tell?
    #[must_use]
    pub fn are_in_use(&self) -> bool {
        let available = self.available(Suppression::Flags);
        let used = self.used(Suppression::Flags);
        available.idx().load(Ordering::Acquire) != used.idx().load(Ordering::Acquire)
    }

    /// Has the driver shown no chain yet?
    #[must_use]
    pub fn are_fresh(&self) -> bool {
        let available = self.available(Suppression::Flags);
        available.idx().load(Ordering::Acquire) == 0
    }

    /// The lane of heads, driver to device: the available ring, answered at the end of the used ring.
    pub(crate) fn available(&self, suppression: Suppression) -> Lane<Head> {
        let answer = Layout::of(self.size).device - 2;
        self.lane(self.driver, self.device, answer, suppression)
    }

    /// The lane of used elements, device to driver: the used ring, answered at the end of the
    /// available ring.
    pub(crate) fn used(&self, suppression: Suppression) -> Lane<UsedElem> {
        let answer = Layout::of(self.size).driver - 2;
        self.lane(self.device, self.driver, answer, suppression)
    }

    /// A lane from `writer` to `reader`, whose event lies `event` bytes into its own area.
    fn lane<E: Entry>(
        &self,
        writer: Span,
        reader: Span,
        event: usize,
        suppression: Suppression,
    ) -> Lane<E> {
        let words = Words {
            entries: address(writer, 4),
            idx: address(writer, 2),
            flags: address(reader, 0),
            event: address(reader, event),
        };
        // SAFETY: the parts are long enough and aligned (checked in `new`), and `Span::new`'s caller keeps them mapped
        // while what was made of them is in use: this lane, and index views.
        unsafe { Lane::new(words, self.size, suppression) }
    }
}

/// The address of what lies `at` bytes into `area`.
fn address<T>(area: Span, at: usize) -> NonNull<T> {
    let (_, from) = area.split_at(at);
    NonNull::new(from.as_ptr().cast()).expect("no span starts at address 0")
}
