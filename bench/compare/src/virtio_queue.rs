//! The crate `virtio-queue`.

use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};

use crate::guest::{Guest, RING, WRITTEN};
use crate::{Device, Part};

/// `virtio_queue::Queue` over `vm_memory::GuestMemoryMmap`.
///
/// Used as fast as it can be: the memory by reference rather than through an `Arc`, the index looked
/// at once for a batch, each buffer resolved by `get_slice`, which expects it in one region.
pub struct VirtioQueue {
    queue: Queue,
    memory: GuestMemoryMmap,
    parts: Vec<(*mut u8, usize)>,
    heads: Vec<u16>,
}

impl Part for (*mut u8, usize) {
    fn place(&self) -> (*mut u8, usize) {
        *self
    }
}

impl Device for VirtioQueue {
    const NAME: &'static str = "virtio-queue";
    type Part = (*mut u8, usize);

    fn open(guest: &Guest) -> Self {
        let regions = guest.regions().map(|(file, start, len)| {
            let len = usize::try_from(len).expect("a region fits into the address space");
            (GuestAddress(start), len, Some(FileOffset::new(file, 0)))
        });
        let memory =
            GuestMemoryMmap::from_ranges_with_files(regions).expect("the regions can be mapped");
        let [descriptors, available, used] = Guest::ring().map(GuestAddress);
        let mut queue = Queue::new(RING).expect("the size is legal");
        let set = [
            queue.try_set_desc_table_address(descriptors),
            queue.try_set_avail_ring_address(available),
            queue.try_set_used_ring_address(used),
        ];
        assert!(set.iter().all(Result::is_ok), "the ring is aligned");
        queue.set_event_idx(true);
        queue.set_ready(true);
        assert!(queue.is_valid(&memory));
        Self {
            queue,
            memory,
            parts: Vec::new(),
            heads: Vec::new(),
        }
    }

    #[inline]
    fn turn(
        &mut self,
        batch: u16,
        mut each: impl FnMut(u16, &[Self::Part], &[Self::Part]),
    ) -> bool {
        let mut chains = self
            .queue
            .iter(&self.memory)
            .expect("the index is right")
            .take(usize::from(batch));
        self.heads.clear();
        for chain in &mut chains {
            let head = chain.head_index();
            self.parts.clear();
            let mut readable = None;
            for descriptor in chain {
                if descriptor.is_write_only() && readable.is_none() {
                    readable = Some(self.parts.len());
                }
                let slice = self
                    .memory
                    .get_slice(descriptor.addr(), descriptor.len() as usize)
                    .expect("the buffer is in memory");
                self.parts
                    .push((slice.ptr_guard_mut().as_ptr(), slice.len()));
            }
            let (readable, writable) = self.parts.split_at(readable.unwrap_or(self.parts.len()));
            each(head, readable, writable);
            self.heads.push(head);
        }
        assert_eq!(
            self.heads.len(),
            usize::from(batch),
            "the driver offered them"
        );
        for head in &self.heads {
            self.queue
                .add_used(&self.memory, *head, WRITTEN)
                .expect("the used ring is in memory");
        }
        self.queue
            .needs_notification(&self.memory)
            .expect("the ring is in memory")
    }
}
