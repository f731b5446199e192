//! The device's end of a virtqueue: takes chains, hands back used elements.

use pollux_memory::{Memory, Span};

use crate::areas::Areas;
use crate::chain::Chain;
use crate::descriptor::Descriptor;
use crate::fault::PeerFault;
use crate::index::RingIndex;
use crate::lane::{Armed, Notify, Suppression};
use crate::reader::Reader;
use crate::sync::Ordering;
use crate::wire::{Head, UsedElem};
use crate::writer::Writer;

/// The device's end.
#[derive(Debug)]
pub struct DeviceEnd {
    available: Reader<Head>,
    used: Writer<UsedElem>,
    descriptors: Span,
    size: u16,
    indirect: bool,
}

impl DeviceEnd {
    /// The end that takes entry `next` of the available ring first and goes on in the used ring where
    /// that stands. `indirect`: was `VIRTIO_F_INDIRECT_DESC` negotiated?
    #[must_use]
    pub fn new(areas: &Areas, next: RingIndex, suppression: Suppression, indirect: bool) -> Self {
        let used = areas.used(suppression);
        let used_next = RingIndex(u16::from_le(used.idx().load(Ordering::Relaxed)));
        let table = Descriptor::SIZE * usize::from(areas.size());
        Self {
            available: Reader::new(areas.available(suppression), next),
            used: Writer::new(used, used_next),
            descriptors: areas.descriptors.split_at(table).0,
            size: areas.size(),
            indirect,
        }
    }

    /// How many entries the ring has.
    #[must_use]
    pub fn size(&self) -> u16 {
        self.size
    }

    /// Looks at the available ring's index, once: how many chains can be taken.
    ///
    /// # Errors
    ///
    /// When the driver broke the ring. It stays broken: the queue is to be stopped.
    #[inline]
    pub fn look(&mut self) -> Result<u16, PeerFault> {
        self.available.look()
    }

    /// Takes the next of the chains that the last [`DeviceEnd::look`] saw, and walks it into `chain`.
    ///
    /// # Errors
    ///
    /// As for [`DeviceEnd::look`].
    ///
    /// # Safety
    ///
    /// `memory`, or another table that shares its regions, is kept until the spans of `chain` are used no more
    /// ([`Memory::span`]).
    #[inline]
    pub unsafe fn take(
        &mut self,
        memory: &Memory,
        chain: &mut Chain,
    ) -> Result<Option<Head>, PeerFault> {
        let Some(head) = self.available.take() else {
            return Ok(None);
        };
        // SAFETY: by this function's own promise.
        unsafe { self.walk(head, memory, chain) }?;
        Ok(Some(head))
    }

    /// Gives the chain back that was taken last, while this end asks for no kicks: it is the next one again, and is
    /// walked anew.
    pub fn give_back(&mut self) {
        self.available.give_back();
    }

    /// Walks the chain at `head` into `chain`: one that was taken before this end was made, and did
    /// not hand back. What the driver has written there meanwhile is judged anew.
    ///
    /// # Errors
    ///
    /// As for [`DeviceEnd::look`].
    ///
    /// # Safety
    ///
    /// As for [`DeviceEnd::take`].
    #[inline]
    pub unsafe fn walk(
        &mut self,
        head: Head,
        memory: &Memory,
        chain: &mut Chain,
    ) -> Result<(), PeerFault> {
        if head.0 >= self.size {
            return Err(PeerFault::HeadOutOfRange {
                head: head.0,
                size: self.size,
            });
        }
        // SAFETY: by this function's own promise.
        unsafe { chain.walk(head, self.descriptors, self.indirect, memory) }
    }

    /// Hands back the chain at `head`, into which `written` bytes were written. The driver sees it once
    /// it is published.
    #[inline]
    pub fn stage(&mut self, head: Head, written: u32) {
        self.used.stage(UsedElem {
            id: u32::from(head.0),
            len: written,
        });
    }

    /// How many used elements are staged and not published.
    #[inline]
    #[must_use]
    pub fn staged(&self) -> u16 {
        self.used.staged()
    }

    /// Shows the driver what is staged, if it polls. Whether it must be called is for
    /// [`DeviceEnd::publish`] to tell, later, for all that was shown.
    #[inline]
    pub fn show(&mut self) {
        self.used.show();
    }

    /// Shows the driver what is staged; tells whether it must be called.
    #[inline]
    pub fn publish(&mut self) -> Notify {
        self.used.publish()
    }

    /// Asks for a kick by the next chain, then polls once more.
    ///
    /// # Errors
    ///
    /// As for [`DeviceEnd::look`].
    pub fn arm(&mut self) -> Result<Armed, PeerFault> {
        self.available.arm()
    }

    /// Asks for no kicks: this end polls.
    #[inline]
    pub fn disarm(&mut self) {
        self.available.disarm();
    }

    /// Will the next chain cause a kick? See [`Reader::is_armed`].
    #[inline]
    #[must_use]
    pub fn is_armed(&self) -> bool {
        self.available.is_armed()
    }

    /// The index of the used element to be staged next; where the used ring stands, once all that was
    /// staged is published.
    #[inline]
    #[must_use]
    pub fn used(&self) -> RingIndex {
        self.used.next()
    }

    /// Goes on with entry `next` of the available ring, whatever was said when this end was made.
    pub fn go_on_with(&mut self, next: RingIndex) {
        self.available.go_on_with(next);
    }

    /// Is there no sign that a driver ever wrote to this ring, neither a descriptor nor an index?
    #[must_use]
    pub fn is_untouched(&mut self) -> bool {
        let mut table = vec![0; self.descriptors.len()];
        self.descriptors.read(&mut table);
        self.next() == RingIndex(0) && self.look() == Ok(0) && table.iter().all(|byte| *byte == 0)
    }

    /// The index of the chain to be taken next: what a stopped queue goes on with.
    #[must_use]
    pub fn next(&self) -> RingIndex {
        self.available.next()
    }
}
