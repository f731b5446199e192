//! Memory of a thread's own, registered with the device, for its requests on a shared queue.

use std::collections::HashMap;

use pollux_driver::Buffer;

/// Parts of registered memory, by their lengths: most requests are of few lengths.
#[derive(Default)]
pub struct Own {
    /// What was never used.
    rest: Option<Buffer>,
    free: HashMap<usize, Vec<Buffer>>,
}

impl Own {
    /// Parts of `memory`, at any address.
    pub fn new(mut memory: Buffer, first: usize) -> Self {
        Self {
            rest: Some(memory.split_off(first)),
            free: HashMap::new(),
        }
    }

    /// `len` bytes, if there are any left.
    pub(super) fn take(&mut self, len: usize) -> Option<Buffer> {
        if let Some(buffer) = self.free.get_mut(&len).and_then(Vec::pop) {
            return Some(buffer);
        }
        let mut part = self.rest.take_if(|rest| rest.len() >= len)?;
        self.rest = Some(part.split_off(len));
        Some(part)
    }

    /// The request has ended.
    pub(super) fn give_back(&mut self, buffer: Buffer) {
        self.free.entry(buffer.len()).or_default().push(buffer);
    }
}
