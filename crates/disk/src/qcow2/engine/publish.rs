//! What is told to threads that do not wait: where clusters lie.

use imago::Mapping;

use super::Engine;
use crate::qcow2::map::{CLUSTERS, Data, Mapped};
use crate::qcow2::node::Node;

impl Engine {
    /// Tells threads that do not wait where the range lies, if that is in the file.
    pub fn publish(&self, at: u64, len: u64) {
        if len == 0 || !self.changed.is_nothing() {
            return;
        }
        let (clusters, mut from) = (self.clusters(at, len), *self.clusters(at, len).start());
        while from <= *clusters.end() {
            let chunk_end = (from / CLUSTERS + 1) * CLUSTERS;
            let to = if self.map.keeps(from) {
                chunk_end.min(clusters.end() + 1)
            } else if self.map.keep(from) {
                from -= from % CLUSTERS;
                chunk_end
            } else {
                // In use by another: this is looked up again next time.
                from = chunk_end;
                continue;
            };
            self.publish_some(from, to);
            from = to;
        }
    }

    /// From cluster to cluster, in one chunk.
    fn publish_some(&self, mut from: u64, to: u64) {
        let size = self.image.size();
        let end = (to << self.bits).min(size);
        while from << self.bits < end {
            let at = from << self.bits;
            let Ok((mapping, len)) = self.image.get_mapping(at, end - at) else {
                return;
            };
            let last = at + len == size;
            let whole = if last {
                len.div_ceil(self.cluster())
            } else {
                len >> self.bits
            };
            for number in 0..whole {
                let mapped = self.mapped(&mapping, number << self.bits);
                // Another writable place would be one that requests may still be on their way to.
                if !matches!(
                    self.map.get(from + number),
                    Mapped::Data(Data { writable: true, .. })
                ) {
                    self.map.set(from + number, mapped);
                }
            }
            from += whole.max(1);
        }
    }

    /// Where the cluster lies that begins `skip` bytes into `mapping`; unknown where it cannot be used directly.
    fn mapped(&self, mapping: &Mapping<'_, Node>, skip: u64) -> Mapped {
        let (leg, at, writable) = match mapping {
            Mapping::Zero { .. } => return Mapped::Zero,
            Mapping::Raw {
                storage,
                offset,
                writable,
                ..
            } => (storage.leg, offset + skip, *writable),
            _ => return Mapped::Unknown,
        };
        let direct = at % self.block.max(512) == 0
            && match (&self.order, leg) {
                (Some(order), 0) => order.is_data(at),
                (Some(_), leg) if leg == self.data => true,
                _ => at + self.cluster() <= self.lengths[leg],
            };
        if !direct {
            return Mapped::Unknown;
        }
        let writable = writable && self.order.is_some();
        Mapped::Data(Data { leg, at, writable })
    }
}
