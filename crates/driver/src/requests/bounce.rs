//! Data on its way through a buffer of ours, because the device cannot use the memory it lies in.
//!
//! It costs a copy of every byte and a search for a free buffer. Register memory that is used often.

use std::io;

use pollux_disk::{Failure, Op};
use pollux_memory::{Span, Spans};

use crate::device::limits::Part;
use crate::device::limits::within;
use crate::memory::buffer::Buffer;
use crate::memory::pool::Pool;
use crate::requests::command::{Command, data_of};

/// A buffer in the place of a part of a request's memory.
#[derive(Debug)]
pub struct Bounce {
    through: Buffer,
    /// Of a read: what it is copied to in the end.
    back: Option<(Spans, Part)>,
}

impl Bounce {
    /// One for `part` of `command`, filled if the device is to read it; none where none is needed.
    ///
    /// # Errors
    ///
    /// When there is no room for another buffer.
    pub fn new(pool: &Pool, command: &Command, part: Part) -> io::Result<Option<Self>> {
        let (true, Some(spans)) = (part.bounced, data_of(command)) else {
            return Ok(None);
        };
        let len = usize::try_from(part.len).expect("pieces are small");
        let through = pool.allocate(len)?;
        let back = match command {
            Command::Op(Op::Write { .. }) => {
                pair(&spans, part, &through, |here, there| there.copy_from(here));
                None
            }
            _ => Some((spans, part)),
        };
        Ok(Some(Self { through, back }))
    }

    /// What the device uses.
    ///
    /// # Safety
    ///
    /// As for [`Buffer::span`], with this in the buffer's place.
    pub unsafe fn span(&self) -> Span {
        // SAFETY: by this function's own promise.
        unsafe { self.through.span() }
    }

    /// The device is done with it.
    pub fn end(self, result: Result<(), Failure>) {
        if let (Ok(()), Some((spans, part))) = (result, self.back) {
            pair(&spans, part, &self.through, Span::copy_from);
        }
    }

    /// The memory, which the device may still write to.
    pub fn into_buffer(self) -> Buffer {
        self.through
    }
}

/// Hands each span of the part to `each`, with its place in the buffer.
fn pair(spans: &Spans, part: Part, through: &Buffer, each: impl Fn(Span, Span)) {
    // SAFETY: the buffer is borrowed until this returns, and `each` only copies.
    let mut rest = unsafe { through.span() };
    for span in within(spans, part.skip, part.len) {
        let (there, after) = rest.split_at(span.len());
        each(span, there);
        rest = after;
    }
}
