//! What needs the tables of an image, done one after the other by a thread that may wait.

mod extent;
mod publish;
mod ranges;

use std::io;
use std::sync::Arc;

use imago::FormatAccess;
use imago::format::PreallocateMode;
use pollux_memory::{Loan, Span, Spans};
use rustix::io::Errno;

use self::extent::{Extent, What};
use super::build::Built;
use super::chain::Chain;
use super::map::{Map, Mapped};
use super::node::Node;
use super::order::{Link, Order};
use crate::Failure;
use crate::file::{Buffer, Raw};

/// So much that was freed is kept from use before it is settled what the storage holds.
const SETTLE_EVERY: u64 = 64 << 20;

/// The tables, and what they refer to.
pub struct Engine {
    image: FormatAccess<Node>,
    /// Unless it is only read.
    order: Option<Arc<Order>>,
    files: Vec<Raw>,
    /// How long the files are that are only read.
    lengths: Vec<u64>,
    /// The blocks of the largest size among the files, in which they are read and written directly.
    block: u64,
    /// Which file has the data that is written.
    data: usize,
    bits: u32,
    /// Can a cluster be nothing but zeroes? Not in version 2.
    zero_clusters: bool,
    has_backing: bool,
    backing_size: u64,
    map: Arc<Map>,
    /// How much was freed that the storage may refer to still.
    freed: u64,
    /// What is not in the file: no one may rely on where it lies.
    changed: Changed,
}

/// What has changed since all was in the file.
#[derive(Debug)]
enum Changed {
    /// New clusters, and the entries of L2 tables that refer to them; or nothing.
    Links(Vec<Link>),
    /// Anything.
    Tables,
}

impl Changed {
    fn is_nothing(&self) -> bool {
        matches!(self, Self::Links(links) if links.is_empty())
    }
}

impl Engine {
    pub fn new(chain: &Chain, built: Built, map: Arc<Map>, block: u32) -> Self {
        let header = chain.header();
        Self {
            backing_size: built.backing_size,
            has_backing: header.backing.is_some(),
            zero_clusters: header.version > 2,
            bits: header.cluster_bits,
            data: usize::from(header.external_data),
            image: built.image,
            order: built.order,
            files: chain.files.clone(),
            lengths: chain.lengths.clone(),
            block: block.into(),
            map,
            freed: 0,
            changed: Changed::Links(Vec::new()),
        }
    }

    fn cluster(&self) -> u64 {
        1 << self.bits
    }

    fn clusters(&self, at: u64, len: u64) -> std::ops::RangeInclusive<u64> {
        at >> self.bits..=(at + len - 1) >> self.bits
    }

    fn order(&self) -> io::Result<&Arc<Order>> {
        let none = || io::Error::from(io::ErrorKind::ReadOnlyFilesystem);
        self.order.as_ref().ok_or_else(none)
    }

    /// Reads, wherever it lies.
    pub fn read(&self, at: u64, into: Spans) -> io::Result<()> {
        let len = into.bytes();
        let mut piece = Buffer::new(len);
        let mut done = 0;
        while done < len {
            piece.truncate(usize::try_from(len - done).unwrap_or(usize::MAX));
            self.image.read(&mut piece[..], at + done)?;
            piece.scatter(&into.skip(done));
            done += piece.len() as u64;
        }
        Ok(())
    }

    /// Writes, after it has found room.
    pub fn write(&mut self, at: u64, from: Spans) -> io::Result<()> {
        let len = from.bytes();
        let mut done = 0;
        while done < len {
            let rest = from.skip(done);
            done += self.write_some(at + done, &rest, len - done)?;
        }
        Ok(())
    }

    /// Writes the first part that lies in one piece; how much was that?
    fn write_some(&mut self, at: u64, from: &[Span], most: u64) -> io::Result<u64> {
        let Extent {
            mut len, mut what, ..
        } = self.extent(at, most)?;
        if let What::Own(leg, there) = what {
            self.check_data(leg, there, len)?;
            self.put(leg, there, from, len)?;
            if leg == 0 {
                self.order()?.holds(there, len);
            }
            return Ok(len);
        }
        if self.freed > 0 {
            self.forget_freed()?;
        }
        // Also if this fails half-way.
        let before = std::mem::replace(&mut self.changed, Changed::Tables);
        if what == What::Hidden {
            // A cluster that is kept is used, where it alone is asked for; several are to lie in one piece, for which
            // others may be given back.
            len = len.min(self.cluster() - at % self.cluster());
        }
        if matches!(what, What::Below | What::Zero) {
            // Below, an extent may end within a sector; the cluster that is made goes on, over whatever is there.
            let end = (at + len).next_multiple_of(self.cluster());
            let whole = (end - at).min(most);
            if whole > len {
                (len, what) = (whole, What::Below);
            }
        }
        let clusters = self.clusters(at, len);
        let forget = |map: &Map| clusters.clone().for_each(|at| map.set(at, Mapped::Unknown));
        if matches!(what, What::Below | What::Zero | What::Hidden) {
            forget(&self.map);
            let made = self.allocate(at, from, len, what)?;
            if let (Changed::Links(mut links), What::Own(0, there)) = (before, made.what)
                && what != What::Hidden
            {
                links.extend(self.links(made, there));
                self.changed = Changed::Links(links);
            }
            return Ok(made.len);
        }
        // What lies there may be given back: it is read no more by then.
        if self.gives_back(what)? {
            self.freed += len;
        }
        let map = Arc::clone(&self.map);
        map.closed(clusters.clone(), || {
            forget(&map);
            self.allocate(at, from, len, what).map(|made| made.len)
        })
    }

    /// May what lies there be given back once something else is written? What no snapshot keeps, clusters of the disk
    /// may share all the same: the last of them gives it back.
    fn gives_back(&self, what: What) -> io::Result<bool> {
        Ok(match what {
            What::Compressed => true,
            What::Snapshot => !self.order()?.has_snapshots(),
            _ => false,
        })
    }

    /// The clusters of an extent, which begins at `there` in the file.
    fn links(&self, extent: Extent, there: u64) -> impl Iterator<Item = Link> + use<> {
        let (first, bits) = (there >> self.bits, self.bits);
        let clusters = self.clusters(extent.at, extent.len).zip(first..);
        clusters.map(move |(cluster, at)| Link {
            cluster,
            at: at << bits,
        })
    }

    /// Writes to clusters that it makes for that, in place of what was there; what is there now?
    fn allocate(&self, at: u64, from: &[Span], len: u64, what: What) -> io::Result<Extent> {
        let order = self.order()?;
        let prepared = self.image.prepare_data_mapping(at, len, true)?;
        let (leg, there, len) = (
            prepared.storage().leg,
            prepared.offset(),
            prepared.length().min(len),
        );
        self.check_data(leg, there, len)?;
        // Before, as a write that fails half-way leaves something, too.
        if leg == 0 {
            order.writes(there, len);
        }
        // What was durable must not become the zeroes of a hole.
        if leg != 0 || !matches!(what, What::Zero | What::Hidden) {
            order.depends();
        }
        self.put(leg, there, from, len)?;
        self.image.commit_data_mapping(prepared)?;
        let what = What::Own(leg, there);
        Ok(Extent { at, len, what })
    }

    fn put(&self, leg: usize, there: u64, from: &[Span], len: u64) -> io::Result<()> {
        let loan = Loan::first(from, len);
        #[expect(unsafe_code, reason = "a part is lent on")]
        // SAFETY: the loan is kept until the write has returned.
        let spans = unsafe { loan.spans() };
        Ok(self.files[leg].write(there, spans)?)
    }

    /// Data of this image has to be where data can be: it could say that a table is data.
    fn check_data(&self, leg: usize, there: u64, len: u64) -> io::Result<()> {
        let order = self.order()?;
        let first = there & !(self.cluster() - 1);
        let mut clusters = (first..there + len).step_by(1 << self.bits.min(30));
        if leg == 0 && clusters.any(|at| order.is_table(at)) {
            return Err(damaged(there));
        }
        Ok(())
    }

    /// What was freed may be used anew after this: the storage does not refer to it any more.
    fn forget_freed(&mut self) -> io::Result<()> {
        self.write_back()?;
        let order = self.order()?;
        order.pass()?;
        order.settle()?;
        self.freed = 0;
        Ok(())
    }

    /// What was changed is in the file, in order.
    fn write_back(&self) -> io::Result<()> {
        let order = self.order()?;
        order.prepare()?;
        self.image.flush()?;
        order.commit()
    }

    /// What was changed is in the file, and survives this process.
    ///
    /// # Errors
    ///
    /// Where it is not. Nothing that was changed since the last time may be told as done.
    pub fn commit(&mut self) -> io::Result<()> {
        let linked = match &self.changed {
            Changed::Links(links) => self.order()?.link(links)?,
            Changed::Tables => false,
        };
        if !linked {
            self.write_back()?;
        }
        if self.freed > SETTLE_EVERY {
            self.forget_freed()?;
        }
        self.changed = Changed::Links(Vec::new());
        Ok(())
    }

    /// Keeps what is held back within bounds, between the requests that are committed together.
    pub fn bound(&self) -> io::Result<()> {
        match &self.order {
            Some(order) if order.is_crowded() => self.write_back(),
            _ => Ok(()),
        }
    }

    /// What was written is on stable storage.
    pub fn sync(&self) -> io::Result<()> {
        self.order()?.pass()
    }

    /// Gives the disk `bytes` in all.
    pub fn grow(&mut self, bytes: u64) -> io::Result<()> {
        if self.backing_size > self.image.size() {
            return Err(io::Error::other(
                "its backing file is longer, and what lies there would show; use `qemu-img resize`",
            ));
        }
        if self.freed > 0 {
            // The new table may come to lie there.
            self.forget_freed()?;
        }
        self.changed = Changed::Tables;
        let last = self.image.size() >> self.bits;
        self.image.resize_grow(bytes, PreallocateMode::None)?;
        // Of the cluster in which the disk ended, the backing file may have more than the disk shows from now on. Requests
        // on their way there end before that: they may go on, and their owner may be the one that waits for this.
        self.map.set(last, Mapped::Unknown);
        self.commit()?;
        self.sync()
    }

    /// Leaves the image as one that is closed: all that was written is on stable storage.
    pub fn close(&mut self) -> io::Result<()> {
        let Some(order) = self.order.clone() else {
            return Ok(());
        };
        self.write_back()?;
        order.pass()?;
        order.close()
    }

    /// How large the disk is.
    pub fn bytes(&self) -> u64 {
        self.image.size()
    }
}

fn damaged(at: u64) -> io::Error {
    io::Error::other(format!(
        "the image is damaged: a guest's data would go to {at:#x}, where there is none; see what \
         `qemu-img check` says"
    ))
}

/// What a guest hears of `error`.
pub fn failure(error: &io::Error) -> Failure {
    Failure::Io(Errno::from_io_error(error).unwrap_or(Errno::IO))
}
