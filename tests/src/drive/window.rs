//! Memory that a request is made of, of every kind that a driver takes.

use std::io;
use std::ptr::NonNull;

use fastrand::Rng;
use pollux_driver::{Buffer, Driver};
use pollux_memory::Span;

use super::Registered;

/// What memory holds before a read: no request may leave it where data should be, none may touch it
/// elsewhere.
const UNTOUCHED: u8 = 0xee;

/// Memory for one request.
pub struct Window {
    span: Span,
    /// Where the pieces of the request lie that it is lent to.
    pieces: Vec<Span>,
    /// What was there before, with a gap in front of each piece and one behind.
    used: usize,
    /// Held, for as long as the device may use it.
    _owner: Owner,
}

/// Whose memory it is.
#[expect(dead_code, reason = "held for its drop")]
enum Owner {
    Buffer(Buffer),
    Registered(Registered),
    Plain(Plain),
    Elsewhere,
}

/// Memory that the device does not know.
struct Plain(NonNull<[u8]>);

// SAFETY: it has one owner, who gives it back to the allocator from whatever thread.
unsafe impl Send for Plain {}

impl Plain {
    fn new(len: usize) -> Self {
        let bytes = Box::into_raw(vec![0; len].into_boxed_slice());
        Self(NonNull::new(bytes).expect("a box is not at 0"))
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        // SAFETY: it came out of a box, and goes back once.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl Window {
    /// `len` bytes of one kind or another.
    pub fn new(driver: &Driver, len: usize, random: &mut Rng) -> io::Result<Self> {
        let (span, owner) = match random.u64(..3) {
            0 => {
                let plain = Plain::new(len);
                // SAFETY: the memory lives as long as the window, which outlives the requests it is
                // lent to (`Slots`), and is only ever reached by this span.
                let span = unsafe { Span::new(plain.0.cast(), len) };
                (span, Owner::Plain(plain))
            }
            1 => {
                let registered = Registered::new(driver, len)?;
                // SAFETY: as for plain memory.
                (unsafe { registered.span() }, Owner::Registered(registered))
            }
            _ => {
                let buffer = driver.allocate(len)?;
                // SAFETY: as for plain memory.
                (unsafe { buffer.span() }, Owner::Buffer(buffer))
            }
        };
        let window = Self::of(span);
        Ok(Self {
            _owner: owner,
            ..window
        })
    }

    /// In `span`, which is kept elsewhere.
    pub fn of(span: Span) -> Self {
        Self {
            span,
            pieces: vec![],
            used: 0,
            _owner: Owner::Elsewhere,
        }
    }

    /// Lays out pieces of these lengths at any address, with gaps between them.
    pub fn lay_out(&mut self, lens: &[usize], random: &mut Rng) {
        let data: usize = lens.iter().sum();
        let spare = (self.span.len() - data) / (lens.len() + 1);
        self.pieces.clear();
        let mut at = 0;
        for len in lens {
            at += random.usize(..=spare.min(700));
            let piece = self.span.slice(at, *len);
            self.pieces.push(piece.expect("the gaps leave room"));
            at += len;
        }
        self.used = (at + 700).min(self.span.len());
        self.all().write(&vec![UNTOUCHED; self.used]);
    }

    fn all(&self) -> Span {
        self.span.slice(0, self.used).expect("it was laid out")
    }

    /// The pieces.
    pub fn pieces(&self) -> &[Span] {
        &self.pieces
    }

    /// Where the pieces begin in the window, and how long they are.
    pub fn places(&self) -> impl Iterator<Item = (usize, usize)> {
        let base = self.span.as_ptr().addr();
        let place = move |piece: &Span| (piece.as_ptr().addr() - base, piece.len());
        self.pieces.iter().map(place)
    }

    /// Puts `data` into the pieces.
    pub fn fill(&self, data: &[u8]) {
        let mut rest = data;
        for piece in &self.pieces {
            let (now, later) = rest.split_at(piece.len());
            piece.write(now);
            rest = later;
        }
    }

    /// What the pieces hold.
    ///
    /// # Panics
    ///
    /// When something else has changed.
    pub fn data(&self) -> Vec<u8> {
        let mut all = vec![0; self.used];
        self.all().read(&mut all);
        let mut data = vec![];
        let mut end = 0;
        for (at, len) in self.places() {
            let untouched = |gap: &[u8]| gap.iter().all(|byte| *byte == UNTOUCHED);
            assert!(untouched(&all[end..at]), "memory before {at} has changed");
            end = at + len;
            data.extend_from_slice(&all[at..end]);
        }
        assert!(all[end..].iter().all(|byte| *byte == UNTOUCHED));
        data
    }
}
