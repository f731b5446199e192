//! Memory that a request reads into or writes from, owned by the request until it has ended.

use std::fmt::Debug;
use std::io;

use pollux_memory::Span;

use crate::memory::buffer::Buffer;
use crate::memory::pool::Pool;

/// Data that can be lent to the device: a [`Buffer`], several of them, or any bytes.
///
/// Plain bytes (`Vec<u8>`) are copied through a buffer on their way: a `memcpy` of the data and a search for
/// free memory each time. The trait is sealed.
pub trait Data: Debug + Send + Sized + 'static + sealed::Lend {}

impl Data for Buffer {}
impl Data for Vec<Buffer> {}
impl Data for Vec<u8> {}
impl Data for () {}

/// Which way data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the device into memory.
    In,
    /// From memory to the device.
    Out,
}

pub mod sealed {
    //! What the driver does with data; not for others to implement.

    use super::{Debug, Direction, Pool, Span, io};

    /// Data as it is lent.
    pub trait Lend: Sized {
        /// What the device works on.
        type Lent: Debug + Send + 'static;

        /// The list of where it lies: in place, unless it is in several pieces.
        type Spans: AsRef<[Span]> + Send + Sync + 'static;

        /// Makes it fit for the device, which reads it if it goes out.
        ///
        /// # Errors
        ///
        /// When there is no room for a copy; it comes back.
        fn lend(self, pool: &Pool, direction: Direction) -> Result<Self::Lent, (Self, io::Error)>;

        /// Where it lies.
        ///
        /// # Safety
        ///
        /// `lent` is kept until the spans are used no more ([`Span::new`]).
        unsafe fn spans(lent: &Self::Lent) -> Self::Spans;

        /// The request has ended.
        fn take_back(lent: Self::Lent, direction: Direction) -> Self;

        /// Is memory of it gone, so that what it holds is not what the device sees?
        fn is_torn(&self) -> bool {
            false
        }

        /// The device is gone, and may still write to it.
        fn retire(lent: Self::Lent);
    }
}

impl sealed::Lend for () {
    type Lent = ();
    type Spans = [Span; 0];

    fn lend(self, _pool: &Pool, _direction: Direction) -> Result<(), (Self, io::Error)> {
        Ok(())
    }

    unsafe fn spans(_lent: &()) -> [Span; 0] {
        []
    }

    fn take_back(_lent: (), _direction: Direction) -> Self {}

    fn retire(_lent: ()) {}
}

impl sealed::Lend for Buffer {
    type Lent = Self;
    type Spans = [Span; 1];

    fn lend(self, _pool: &Pool, _direction: Direction) -> Result<Self, (Self, io::Error)> {
        Ok(self)
    }

    unsafe fn spans(lent: &Self) -> [Span; 1] {
        // SAFETY: by this function's own promise.
        [unsafe { lent.span() }]
    }

    fn take_back(lent: Self, _direction: Direction) -> Self {
        lent
    }

    fn is_torn(&self) -> bool {
        Buffer::is_torn(self)
    }

    fn retire(lent: Self) {
        lent.retire();
    }
}

impl sealed::Lend for Vec<Buffer> {
    type Lent = Self;
    type Spans = Vec<Span>;

    fn lend(self, _pool: &Pool, _direction: Direction) -> Result<Self, (Self, io::Error)> {
        Ok(self)
    }

    unsafe fn spans(lent: &Self) -> Vec<Span> {
        // SAFETY: by this function's own promise.
        let span = |buffer: &Buffer| unsafe { buffer.span() };
        lent.iter().map(span).collect()
    }

    fn take_back(lent: Self, _direction: Direction) -> Self {
        lent
    }

    fn is_torn(&self) -> bool {
        self.iter().any(Buffer::is_torn)
    }

    fn retire(lent: Self) {
        lent.into_iter().for_each(Buffer::retire);
    }
}

impl sealed::Lend for Vec<u8> {
    /// The bytes, and what they are copied from or to.
    type Lent = (Self, Buffer);
    type Spans = [Span; 1];

    fn lend(self, pool: &Pool, direction: Direction) -> Result<(Self, Buffer), (Self, io::Error)> {
        let mut through = match pool.allocate(self.len()) {
            Ok(through) => through,
            Err(error) => return Err((self, error)),
        };
        if direction == Direction::Out {
            through.write(0, &self);
        }
        Ok((self, through))
    }

    unsafe fn spans((_, through): &(Self, Buffer)) -> [Span; 1] {
        // SAFETY: by this function's own promise.
        [unsafe { through.span() }]
    }

    fn take_back((mut bytes, through): (Self, Buffer), direction: Direction) -> Self {
        if direction == Direction::In {
            through.read(0, &mut bytes);
        }
        bytes
    }

    fn retire((_, through): (Self, Buffer)) {
        through.retire();
    }
}
