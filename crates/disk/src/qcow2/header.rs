//! What the header of a qcow2 image says, read before anything is allocated for it.
//!
//! The format is QEMU's `docs/interop/qcow2.txt`. What cannot be served is refused here by its name; what passes keeps
//! what the tables take in memory within bounds.

use std::fmt;
use std::fs::File;
use std::io;

use crate::Access;
use crate::file::fill;

/// What an image begins with.
pub const MAGIC: &[u8; 4] = b"QFI\xfb";
/// The parts of the header that every version 3 has.
const BASE: usize = 104;
const V2_BASE: usize = 72;
/// QEMU's own limits, which are what bounds our memory too.
const MAX_L1_BYTES: u64 = 32 << 20;
const MAX_REFTABLE_BYTES: u64 = 8 << 20;
const MAX_NAME: u32 = 1023;

const DIRTY: u64 = 1;
const CORRUPT: u64 = 1 << 1;
const EXTERNAL_DATA: u64 = 1 << 2;
const COMPRESSION: u64 = 1 << 3;
const EXTENDED_L2: u64 = 1 << 4;
const KNOWN: u64 = DIRTY | CORRUPT | EXTERNAL_DATA | COMPRESSION | EXTENDED_L2;

const END: u32 = 0;
const BACKING_FORMAT: u32 = 0xe279_2aca;
const DATA_FILE: u32 = 0x4441_5441;

/// Why an image is not served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields are what the messages say they are")]
pub enum Refusal {
    /// It is none.
    #[error("is no qcow2 image; serve a raw disk as `file:path=...`")]
    NotQcow2,
    /// A version that does not exist yet, or damage.
    #[error("is of qcow2's version {0}, and only 2 and 3 are known")]
    Version(u32),
    /// `encryption=on`, LUKS or the old AES.
    #[error("is encrypted, which is not served; convert it with `qemu-img convert -O qcow2`")]
    Encrypted,
    /// `extended_l2=on`.
    #[error(
        "has subclusters (`extended_l2=on`), which are not served; convert it with \
         `qemu-img convert -O qcow2 -o extended_l2=off`"
    )]
    ExtendedL2,
    /// `compression_type=zstd`.
    #[error(
        "is compressed with another method than zlib, which is not served; convert it with \
         `qemu-img convert -O qcow2 -o compression_type=zlib`"
    )]
    Compression,
    /// A bit that is to stop programs that do not know it.
    #[error(
        "needs features that are not known here (incompatible bits {0:#x}); convert it with `qemu-img convert`"
    )]
    Features(u64),
    /// Marked by QEMU after it found damage.
    #[error(
        "is marked corrupt; repair it with `qemu-img check -r all`, or open it read-only (`--read-only`) to save what it \
         holds"
    )]
    Corrupt,
    /// Left open with `lazy_refcounts=on`.
    #[error(
        "was not closed, and its reference counts may be stale (`lazy_refcounts=on`); repair it with \
         `qemu-img check -r all`, or open it read-only (`--read-only`)"
    )]
    Dirty,
    /// With `backing=none`.
    #[error(
        "names the backing file `{0}`, which `backing=none` forbids; leave that out if you trust the image"
    )]
    Backing(String),
    /// With `backing=PATH`.
    #[error("has no backing file; leave `backing=` out")]
    NoBacking,
    /// With `backing=none`.
    #[error(
        "names the data file `{0}`, which `backing=none` forbids; leave that out if you trust the image"
    )]
    DataFile(String),
    /// `data_file=`, without a name.
    #[error(
        "keeps its data in another file and does not name it; name it with `qemu-img amend -o data_file=...`"
    )]
    NoDataFile,
    /// Not `raw`, and not `qcow2`.
    #[error(
        "has a backing file of the format `{0}`, and only raw and qcow2 are served; convert it with `qemu-img convert`"
    )]
    BackingFormat(String),
    /// Neither raw nor said to be qcow2.
    #[error(
        "is the backing file of an image that does not say of which format it is, and looks like qcow2, which its guest \
         may have made of it; if it is, say so with `qemu-img rebase -u -F qcow2 -b BACKING IMAGE`"
    )]
    Unnamed,
    /// A block driver of QEMU's.
    #[error(
        "refers to `{0}`, which is no plain path of a file; change it with `qemu-img rebase -u -b PATH -F FORMAT`"
    )]
    Protocol(String),
    /// It comes up again in its own chain.
    #[error("is its own backing file, or named twice; change it with `qemu-img rebase`")]
    Loop,
    /// Too many images on each other.
    #[error(
        "stands on more than {0} images; shorten the chain with `qemu-img commit` or `qemu-img rebase`"
    )]
    TooDeep(usize),
    /// With `lock=running`.
    #[error(
        "lies on {0}, where the tables that another machine wrote are not sure to be seen, as `lock=running` takes; put \
         it on a file system whose page cache shows them, or leave `lock=running` out"
    )]
    Incoherent(&'static str),
    /// With `lock=running`.
    #[error("is another image than the one that was opened; start anew to serve it")]
    Changed,
    /// With `cache=none`, or large blocks.
    #[error(
        "has clusters of {cluster} bytes, and `cache=none` or its `--block-size` takes {block} at least; use \
         `cache=writeback`, or smaller blocks"
    )]
    SmallClusters { cluster: u64, block: u32 },
    /// A field without sense.
    #[error("is damaged: {0}; see what `qemu-img check` says")]
    Damaged(String),
}

/// What there is to know of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub version: u32,
    pub cluster_bits: u32,
    /// Bytes that the guest sees.
    pub size: u64,
    pub l1_at: u64,
    pub l1_entries: u32,
    pub reftable_at: u64,
    pub reftable_clusters: u32,
    /// How many states of the disk it keeps.
    pub snapshots: u32,
    /// Bits of a reference count: 2 to this power.
    pub refcount_order: u32,
    /// The backing file, as the image names it.
    pub backing: Option<String>,
    pub backing_format: Option<String>,
    pub external_data: bool,
    /// The external data file, as the image names it.
    pub data_file: Option<String>,
}

impl Header {
    /// Bytes of a cluster.
    pub const fn cluster(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// Is it of the same image, whatever was written to that meanwhile?
    pub fn is_same_image(&self, other: &Self) -> bool {
        let written = Self {
            size: other.size,
            l1_at: other.l1_at,
            l1_entries: other.l1_entries,
            reftable_at: other.reftable_at,
            reftable_clusters: other.reftable_clusters,
            snapshots: other.snapshots,
            ..self.clone()
        };
        written == *other
    }

    /// Reads that of `file`, which is to be opened for `access`.
    ///
    /// # Errors
    ///
    /// What the machine says; inside, why the image is not served.
    pub fn read(file: &File, access: Access) -> io::Result<Result<Self, Refusal>> {
        let mut first = vec![0; 64 << 10];
        let mut read = fill(file, &mut first, 0)?;
        if let Some(bits) = field32(&first[..read], 20).filter(|bits| (17..=21).contains(bits)) {
            first.resize(1 << bits, 0);
            read = fill(file, &mut first, 0)?;
        }
        first.truncate(read);
        Ok(Self::parse(&first, access))
    }

    /// Of the first cluster of an image, or as much of it as there is.
    pub fn parse(first: &[u8], access: Access) -> Result<Self, Refusal> {
        if !first.starts_with(MAGIC) {
            return Err(Refusal::NotQcow2);
        }
        let mut fixed = [0; BASE];
        let there = first.len().min(BASE);
        fixed[..there].copy_from_slice(&first[..there]);
        let u32_at = |at| field32(&fixed, at).unwrap_or(0);
        let u64_at = |at| field64(&fixed, at).unwrap_or(0);
        let version = u32_at(4);
        let (features, refcount_order, length) = match version {
            2 => (0, 4, V2_BASE),
            3 => (u64_at(72), u32_at(96), u32_at(100) as usize),
            other => return Err(Refusal::Version(other)),
        };
        if u32_at(32) != 0 {
            return Err(Refusal::Encrypted);
        }
        allowed(features, access)?;
        let header = Self {
            version,
            cluster_bits: u32_at(20),
            size: u64_at(24),
            l1_at: u64_at(40),
            l1_entries: u32_at(36),
            reftable_at: u64_at(48),
            reftable_clusters: u32_at(56),
            snapshots: u32_at(60),
            refcount_order,
            backing: None,
            backing_format: None,
            external_data: features & EXTERNAL_DATA != 0,
            data_file: None,
        };
        header.check(length)?;
        let cluster = usize::try_from(header.cluster()).expect("at most 2 MiB");
        let first = &first[..first.len().min(cluster)];
        let extensions = Extensions::read(first, length)?;
        Ok(Self {
            backing: name(first, u64_at(8), u32_at(16))?,
            backing_format: extensions.backing_format,
            data_file: extensions.data_file,
            ..header
        })
    }

    fn check(&self, length: usize) -> Result<(), Refusal> {
        let damaged = |what: fmt::Arguments<'_>| Err(Refusal::Damaged(what.to_string()));
        if !(9..=21).contains(&self.cluster_bits) {
            return damaged(format_args!("clusters of 2^{} bytes", self.cluster_bits));
        }
        if self.refcount_order > 6 {
            return damaged(format_args!(
                "reference counts of 2^{} bits",
                self.refcount_order
            ));
        }
        let least = if self.version == 2 { V2_BASE } else { BASE };
        if length < least || length as u64 > self.cluster() {
            return damaged(format_args!("a header of {length} bytes"));
        }
        for (what, at) in [("L1", self.l1_at), ("refcount", self.reftable_at)] {
            if at % self.cluster() != 0 || at == 0 || at >= 1 << 56 {
                return damaged(format_args!("its {what} table lies at {at:#x}"));
            }
        }
        let l1_bytes = u64::from(self.l1_entries) * 8;
        if l1_bytes > MAX_L1_BYTES {
            return damaged(format_args!("an L1 table of {l1_bytes} bytes"));
        }
        let reftable = u64::from(self.reftable_clusters) << self.cluster_bits;
        if reftable > MAX_REFTABLE_BYTES || reftable == 0 {
            return damaged(format_args!("a refcount table of {reftable} bytes"));
        }
        // One L1 entry covers a cluster of L2 entries, of 8 bytes each.
        let covers = 2 * self.cluster_bits - 3;
        let needed = self.size.div_ceil(1 << covers);
        if self.size > 1 << 62 || needed > u64::from(self.l1_entries) {
            return damaged(format_args!(
                "its L1 table of {} entries is too small for {} bytes",
                self.l1_entries, self.size
            ));
        }
        Ok(())
    }
}

/// May an image with such incompatible features be opened so?
fn allowed(features: u64, access: Access) -> Result<(), Refusal> {
    if features & EXTENDED_L2 != 0 {
        return Err(Refusal::ExtendedL2);
    }
    if features & COMPRESSION != 0 {
        return Err(Refusal::Compression);
    }
    if features & !KNOWN != 0 {
        return Err(Refusal::Features(features & !KNOWN));
    }
    match access {
        Access::ReadWrite if features & CORRUPT != 0 => Err(Refusal::Corrupt),
        Access::ReadWrite if features & DIRTY != 0 => Err(Refusal::Dirty),
        _ => Ok(()),
    }
}

/// The extensions that matter here.
#[derive(Default)]
struct Extensions {
    backing_format: Option<String>,
    data_file: Option<String>,
}

impl Extensions {
    fn read(first: &[u8], mut at: usize) -> Result<Self, Refusal> {
        let mut found = Self::default();
        while let (Some(kind), Some(length)) = (field32(first, at), field32(first, at + 4)) {
            if kind == END {
                break;
            }
            let body = (at + 8)..(at + 8).saturating_add(length as usize);
            let Some(bytes) = first.get(body.clone()) else {
                let what = format!("an extension of its header has {length} bytes");
                return Err(Refusal::Damaged(what));
            };
            match kind {
                BACKING_FORMAT => found.backing_format = Some(text(bytes)?),
                DATA_FILE => found.data_file = Some(text(bytes)?),
                _ => {}
            }
            at = body.end.next_multiple_of(8);
        }
        Ok(found)
    }
}

fn name(first: &[u8], at: u64, length: u32) -> Result<Option<String>, Refusal> {
    if at == 0 || length == 0 {
        return Ok(None);
    }
    let start = usize::try_from(at).unwrap_or(usize::MAX);
    let end = start.saturating_add(length as usize);
    match first.get(start..end) {
        Some(bytes) if length <= MAX_NAME => text(bytes).map(Some),
        _ => Err(Refusal::Damaged(format!(
            "the name of its backing file has {length} bytes at {at:#x}"
        ))),
    }
}

fn text(bytes: &[u8]) -> Result<String, Refusal> {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(text.to_owned()),
        _ => Err(Refusal::Damaged(
            "a name in its header is no text".to_owned(),
        )),
    }
}

/// A number of `bytes`, if they reach that far.
pub fn field32(bytes: &[u8], at: usize) -> Option<u32> {
    let end = at.checked_add(4)?;
    Some(u32::from_be_bytes(bytes.get(at..end)?.try_into().ok()?))
}

/// A number of `bytes`, if they reach that far.
pub fn field64(bytes: &[u8], at: usize) -> Option<u64> {
    let end = at.checked_add(8)?;
    Some(u64::from_be_bytes(bytes.get(at..end)?.try_into().ok()?))
}

/// Hides from `bytes`, which were read at `at`, that an image is marked as dirty or corrupt: as it is opened for
/// reading alone, that is nothing to stop for.
pub fn unmark(bytes: &mut [u8], at: u64) {
    const LOW_BYTE: u64 = 79;
    if let Some(at) = LOW_BYTE.checked_sub(at)
        && let Some(byte) = usize::try_from(at).ok().and_then(|at| bytes.get_mut(at))
    {
        *byte &= !0b11;
    }
}
