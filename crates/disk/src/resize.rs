//! Why a disk keeps its size although another was asked for.

use std::io;
use std::path::PathBuf;

use os_display::Quotable;

use crate::options::whole_blocks_near;

/// Why [`Disk::resize`](crate::Disk::resize) changed nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields are what the messages say they are")]
pub enum ResizeError {
    /// It is what it was made as.
    #[error(
        "a disk of this kind keeps its size; use a file, an image or a block device, alone or as a leg of another disk"
    )]
    Fixed,
    /// What is stacked is as large as its parts.
    #[error(
        "a stacked disk is as large as its legs; enlarge the last leg of a linear disk, or all legs of a striped one, \
         then ask without a size"
    )]
    Stacked,
    /// Where a linear disk is opened anew, what follows this leg lies elsewhere.
    #[error(
        "leg {leg} of this linear disk has grown from {before} bytes to {now}, and is not the last: when the disk is \
         opened again, all that follows that leg will lie elsewhere; before that, cut the leg back to {before} bytes, \
         and enlarge the last one"
    )]
    Moves { leg: usize, before: u64, now: u64 },
    /// Another daemon's disk.
    #[error(
        "another daemon serves this disk; resize it there, and the change is passed on by itself"
    )]
    Elsewhere,
    /// Guests may use more than that.
    #[error("guests may use all {now} bytes of the disk, and {asked} are fewer; ask for more")]
    Smaller { now: u64, asked: u64 },
    /// The file is shorter than what guests may use.
    #[error(
        "{path} has {found} bytes, and guests may use {now}; enlarge it with `truncate --size={now} {}` or the like",
        .path.maybe_quote()
    )]
    Shrunk { path: PathBuf, now: u64, found: u64 },
    /// A size that the blocks do not fill.
    #[error(
        "{asked} bytes are not a whole number of blocks of {block}; take {}",
        whole_blocks_near(*.asked, *.block)
    )]
    PartialBlock { asked: u64, block: u32 },
    /// Nobody but its own tools can do it.
    #[error(
        "{path} is a block device, which only its own tools enlarge, as `lvextend`; use them, then ask without a size"
    )]
    BlockDevice { path: PathBuf },
    /// It has no size to read.
    #[error("{path} is a qcow2 image, which is enlarged to a size that is asked for; name one")]
    NoSize { path: PathBuf },
    /// It was opened for reading.
    #[error(
        "{path} is served read-only; enlarge the file with `truncate`, then ask without a size"
    )]
    ReadOnly { path: PathBuf },
    /// With `lock=running`, while others may use it.
    #[error(
        "{path} is not locked, as `lock=running` says and no guest runs; its size is read anew when one starts"
    )]
    NotHeld { path: PathBuf },
    /// The machine said no.
    #[error("cannot {doing} {path}")]
    Io {
        doing: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}
