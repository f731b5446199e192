//! Guest memory that is registered with the rings of all channels of a disk: `buffers=registered`.
//!
//! The same memory has the same index in every ring. Memory comes and goes on the thread of the session, while
//! workers transfer: they find an index in a copy of the table, made anew when its generation changes.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use pollux_memory::uring::{Buffers, Ring};
use pollux_memory::{Region, Span};
use pollux_threads::lock;

/// Guest memory could not be registered.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot pin {bytes} bytes of the guest's memory; raise the limit on locked memory (LimitMEMLOCK= of a service, \
     ulimit -l), or leave out `buffers=registered`"
)]
struct NotPinned {
    bytes: u64,
    source: io::Error,
}

/// Memory and its index among the registered buffers.
#[derive(Clone, Copy, Debug)]
struct Piece {
    span: Span,
    index: u16,
}

impl Piece {
    fn start(&self) -> usize {
        self.span.as_ptr().addr()
    }

    fn holds(&self, span: Span) -> bool {
        let at = span.as_ptr().addr();
        at >= self.start() && at - self.start() + span.len() <= self.span.len()
    }
}

/// All registered memory of a disk.
#[derive(Debug, Default)]
pub struct Registered {
    generation: AtomicU64,
    state: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// What the pieces are pieces of. Kept, whatever its owner does: the kernel's pages are those of this mapping, so
    /// no other may have its addresses.
    regions: Vec<Arc<Region>>,
    /// In the order of their addresses.
    pieces: Vec<Piece>,
    rings: Vec<Buffers>,
}

/// One channel's view of it.
#[derive(Debug)]
pub struct View {
    registered: Arc<Registered>,
    buffers: Buffers,
    generation: u64,
    pieces: Vec<Piece>,
}

impl Registered {
    /// Registers `region` with every ring.
    pub fn map(&self, region: &Arc<Region>) -> io::Result<()> {
        let mut state = lock(&self.state);
        state.regions.push(Arc::clone(region));
        #[expect(unsafe_code, reason = "memory is registered by its address")]
        // SAFETY: the region is kept until its pieces have been taken out (`unmap`). They lie in `pieces`, in the
        // rings, of which each is set to nothing then, and in the views, which only compare their addresses.
        let mut rest = unsafe { region.span() };
        while !rest.is_empty() {
            let (span, later) = rest.split_at(rest.len().min(Buffers::LONGEST));
            if let Err(source) = state.add(span) {
                drop(state);
                self.unmap(region);
                return Err(io::Error::new(
                    source.kind(),
                    NotPinned {
                        bytes: region.len(),
                        source,
                    },
                ));
            }
            rest = later;
        }
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Takes [`Registered::map`] back. Its indices are not asked for any more.
    pub fn unmap(&self, region: &Arc<Region>) {
        let whole = region.addresses();
        let mut state = lock(&self.state);
        let Table {
            regions,
            pieces,
            rings,
        } = &mut *state;
        pieces.retain(|piece| {
            let gone = whole.contains(&piece.start());
            if gone {
                for ring in &*rings {
                    // There is such an index: it was set before.
                    let _ = ring.set(piece.index, None);
                }
            }
            !gone
        });
        regions.retain(|kept| !Arc::ptr_eq(kept, region));
        self.generation.fetch_add(1, Ordering::Release);
    }
}

impl Table {
    fn add(&mut self, span: Span) -> io::Result<()> {
        let taken = |index: &u16| self.pieces.iter().any(|piece| piece.index == *index);
        let index = (0..Buffers::SLOTS).find(|index| !taken(index));
        let index = index.ok_or(io::ErrorKind::QuotaExceeded)?;
        let piece = Piece { span, index };
        let at = self
            .pieces
            .partition_point(|other| other.start() < piece.start());
        // First, so that `unmap` finds it, in whichever rings it is.
        self.pieces.insert(at, piece);
        for ring in &self.rings {
            ring.set(index, Some(span))?;
        }
        Ok(())
    }
}

impl View {
    /// Registers all memory with `ring` as well, and all that comes.
    pub fn new(registered: &Arc<Registered>, ring: &Ring) -> io::Result<Self> {
        let buffers = ring.buffers()?;
        let mut state = lock(&registered.state);
        for piece in &state.pieces {
            buffers.set(piece.index, Some(piece.span))?;
        }
        state.rings.push(buffers.clone());
        drop(state);
        Ok(Self {
            registered: Arc::clone(registered),
            buffers,
            generation: 0,
            pieces: Vec::new(),
        })
    }

    /// The index of the memory that `span` lies in.
    #[inline]
    pub fn find(&mut self, span: Span) -> Option<u16> {
        let generation = self.registered.generation.load(Ordering::Acquire);
        if generation != self.generation {
            self.pieces.clone_from(&lock(&self.registered.state).pieces);
            self.generation = generation;
        }
        let at = span.as_ptr().addr();
        let after = self.pieces.partition_point(|piece| piece.start() <= at);
        let piece = self.pieces[..after].last()?;
        piece.holds(span).then_some(piece.index)
    }
}

impl Drop for View {
    fn drop(&mut self) {
        let mut state = lock(&self.registered.state);
        state.rings.retain(|ring| !ring.is(&self.buffers));
        for piece in &state.pieces {
            // The pages are let go of now, not when the kernel has taken the ring apart.
            let _ = self.buffers.set(piece.index, None);
        }
    }
}
