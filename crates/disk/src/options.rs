//! What is said when a disk is opened, and why opening fails.

use std::io;
use std::path::{Path, PathBuf};

use os_display::Quotable;

use crate::file::{Conflict, Holder};
use crate::stack::{PollScope, StackError};
use crate::{Access, Geometry};

/// What holds for every kind of disk.
///
/// ```
/// # use pollux_disk::Options;
/// let options = Options::default().read_only(true).block_size(4096);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Refuse everything that changes data; a file is opened read-only.
    pub read_only: bool,
    /// Logical block size in bytes, a power of two from 512 to 65536. Without one it is the storage's
    /// own, or 512.
    pub block_size: Option<u32>,
    /// Which legs of a stacked disk the owners of its channels poll.
    pub poll_scope: PollScope,
    /// The folders in which files and devices have to be, those too that images name; `None`: anywhere. Their paths
    /// have no links.
    pub within: Option<&'static [PathBuf]>,
}

/// Why a disk cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields are what the messages say they are")]
pub enum OpenError {
    /// There is nothing of that name.
    #[error("{path} does not exist; {}", missing_remedy(.path))]
    Missing { path: PathBuf },
    /// It lies in none of the folders that are for disks.
    #[error(
        "{path} {} outside of the folders for disks; put it into one of them, or name {} as \
         well (`--disk-folder`)",
        lies(.path, .real), .real.parent().unwrap_or(.real).display()
    )]
    Outside { path: PathBuf, real: PathBuf },
    /// It can hold no disk.
    #[error("{path} is {what}; a disk is a regular file or a block device")]
    NotADisk { path: PathBuf, what: &'static str },
    /// A folder on the way to it is closed.
    #[error(
        "{path} cannot be reached; give this user the right to enter the folder {folder} (`chmod +x`)"
    )]
    ClosedFolder {
        path: PathBuf,
        folder: PathBuf,
        source: io::Error,
    },
    /// It may not be opened that way.
    #[error("{path} cannot be {}; {}", access_verb(*.access), access_remedy(*.access))]
    Permission {
        path: PathBuf,
        access: Access,
        source: io::Error,
    },
    /// Another program works on it, or this one does already.
    #[error("{path} is in use: {}", in_use(.path, *.access, *.conflict, .holder.as_ref()))]
    InUse {
        path: PathBuf,
        access: Access,
        conflict: Conflict,
        holder: Option<Holder>,
    },
    /// The kernel uses it.
    #[error(
        "{path} is in use, mounted for example or part of another device; end that use, or open it \
         read-only (`--read-only`)"
    )]
    Busy { path: PathBuf, source: io::Error },
    /// Its file system cannot bypass the page cache.
    #[error("{path} cannot bypass the page cache, as `cache=none` asks; use `cache=writeback`")]
    NoDirect { path: PathBuf, source: io::Error },
    /// It holds an image of another format, which raw access would destroy.
    #[error(
        "{path} is a {format} image, which a guest that writes its raw bytes would destroy; \
         {}, or add `,format=raw` to `--disk file:path={path}` where its raw bytes are meant",
        format_remedy(.format, .path)
    )]
    Format { path: PathBuf, format: &'static str },
    /// An image that is not served.
    #[error("{path} {why}")]
    Image {
        path: PathBuf,
        why: crate::qcow2::Refusal,
    },
    /// What an image stands on is gone.
    #[error(
        "{of} has a backing file that does not exist: {path}; put it back, or name it by `backing=PATH`"
    )]
    NoBacking { of: PathBuf, path: PathBuf },
    /// What an image stands on.
    #[error("{of} has a backing file that cannot be opened")]
    Backing { of: PathBuf, source: Box<OpenError> },
    /// A loop device makes another device of it.
    #[error(
        "{path} is in use: it lies behind {device}; detach that first with `losetup --detach {device}`"
    )]
    Looped { path: PathBuf, device: String },
    /// With `lock=running`, on storage of which another machine's writes are not seen.
    #[error(
        "{path}, on {storage}, could serve stale data with `lock=running`: the page cache does not see what \
         another machine has written; add `cache=none`"
    )]
    Incoherent {
        path: PathBuf,
        storage: &'static str,
    },
    /// `cache=none` needs larger blocks.
    #[error(
        "{path} cannot be read past the page cache in blocks of {asked} bytes; use blocks of {needed}, \
         or `cache=writeback`"
    )]
    BlockBelowStorage {
        path: PathBuf,
        asked: u32,
        needed: u32,
    },
    /// `engine=io_uring`, and there is none.
    #[error(
        "{path} is to be used through io_uring, which is missing or forbidden here; use `engine=auto`"
    )]
    NoIoUring { path: PathBuf, source: io::Error },
    /// The log of a `fault:` disk.
    #[error(
        "{path} cannot be written as the log of the `fault` disk; name a file in a folder that this user may write"
    )]
    Log { path: PathBuf, source: io::Error },
    /// No disk has such blocks.
    #[error(
        "a block size of {asked} bytes is impossible; use 512 or 4096 (any power of two to 65536)"
    )]
    BlockSize { asked: u32 },
    /// A size that the blocks do not fill.
    #[error(
        "{bytes} bytes are not a whole number of blocks of {block}; take {}",
        whole_blocks_near(*.bytes, *.block)
    )]
    PartialBlock { bytes: u64, block: u32 },
    /// Not even one block.
    #[error(
        "{path} holds {bytes} bytes, less than a block; enlarge it, for example with `truncate --size=10G {}`",
        .path.maybe_quote()
    )]
    Empty { path: PathBuf, bytes: u64 },
    /// There is not enough memory for a memory disk.
    #[error("there is no room for {bytes} bytes in memory; use a smaller size")]
    NoMemory { bytes: u64, source: io::Error },
    /// This program has no driver for disks of other daemons, or of a cluster.
    #[error("this program cannot open {path}: it has no driver for disks that lie elsewhere")]
    NoDriver { path: PathBuf },
    /// The image of a Ceph cluster cannot be opened.
    #[error("cannot open the image {image} in a Ceph cluster")]
    Rbd {
        image: String,
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The disk of another daemon cannot be opened.
    #[error("cannot open the disk that is served on {path}")]
    Elsewhere {
        path: PathBuf,
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Two legs of a disk that is written, and one file.
    #[error(
        "{path} is named as two legs of one disk, and a write to one would change the other; name each file once, or \
         open the disk read-only (`--read-only`)"
    )]
    LegTwice { path: PathBuf },
    /// Those disks cannot be stacked like that.
    #[error("cannot stack `{spec}`{leg}")]
    Stack {
        /// Its beginning.
        spec: String,
        /// Which leg `source` counts, if it is about one.
        leg: String,
        source: StackError,
    },
    /// The server decides how large its blocks are.
    #[error(
        "{path} has blocks of {there} bytes, not of {asked}; leave out the block size, or have its \
         server offer such blocks"
    )]
    BlockOfServer {
        path: PathBuf,
        asked: u32,
        there: u32,
    },
    /// The machine said no.
    #[error("cannot {doing} {path}")]
    Io {
        doing: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

fn in_use(path: &Path, access: Access, conflict: Conflict, holder: Option<&Holder>) -> String {
    // Of a passed descriptor's file, the remedy is the same whichever process has locked it.
    let is_own = holder.is_some_and(|holder| holder.pid == std::process::id());
    if is_own && conflict != Conflict::Shares {
        return "this process has it open already, as a disk or as a part of one; give each disk an image of its own, \
                or open all of them read-only (`--read-only`; `read-only = true` in a file)"
            .to_owned();
    }
    // Inside the sandbox no other process can be inspected.
    let unknown = || {
        format!(
            "another program, or another disk of this daemon (`fuser {}` names the process),",
            path.maybe_quote()
        )
    };
    let user = holder.map_or_else(unknown, ToString::to_string);
    let (told, remedy) = (conflict.told(access), conflict.remedy(access));
    format!("{user} {told}; {remedy}")
}

/// The next number of bytes that blocks of `block` fill; of the last ones, the one before.
pub fn whole_blocks_near(bytes: u64, block: u32) -> u64 {
    let block = u64::from(block);
    let next = bytes.checked_next_multiple_of(block);
    next.unwrap_or(bytes - bytes % block)
}

fn format_remedy(format: &str, path: &Path) -> String {
    match format {
        "qcow2" => {
            let path = path.display();
            format!("serve it with `--disk qcow2:path={path}`, as a leg `[qcow2:path={path}]`")
        }
        _ => "convert it with `qemu-img convert -O raw`".to_owned(),
    }
}

/// Where a file is that has this path, if that leads over links.
fn lies(path: &Path, real: &Path) -> String {
    if path == real {
        "lies".to_owned()
    } else {
        format!("is {},", real.display())
    }
}

/// What to do about a path that begins with a tilde.
#[doc(hidden)]
pub const NO_TILDE: &str =
    "a shell replaces `~` only where a word begins with it: write the whole path";

fn missing_remedy(path: &Path) -> String {
    let quoted = path.maybe_quote();
    if path.extension().is_some_and(|name| name == "qcow2") {
        return format!(
            "correct the path, or create it, for example with `qemu-img create -f qcow2 {quoted} 10G`"
        );
    }
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let text = path.to_string_lossy();
    if path.starts_with("~") {
        NO_TILDE.to_owned()
    } else if path.starts_with("/dev/block") {
        "it is a link that udev makes; write the path of the device, as `lsblk --paths` shows it"
            .to_owned()
    } else if path.starts_with("/dev") && !path.starts_with("/dev/shm") {
        "`lsblk` lists the block devices that do".to_owned()
    } else if text.contains("path=") {
        "if it is a SPEC and no path, give it with `--disk`".to_owned()
    } else if let Some(folder) = folder.filter(|folder| !folder.exists()) {
        format!("correct the path: there is no folder {}", folder.display())
    } else if text.contains([',', ';']) {
        "if options follow the path, write it as `file:path=PATH,cache=none`".to_owned()
    } else if text.contains(':') && text.contains('=') {
        "options are separated by commas: `file:path=PATH,cache=none`".to_owned()
    } else if text.contains('=') {
        "if it is an option of a leg, put brackets around the leg: `[file:path=PATH,cache=none]`"
            .to_owned()
    } else {
        format!("correct the path, or create it, for example with `truncate --size=10G {quoted}`")
    }
}

fn access_verb(access: Access) -> &'static str {
    match access {
        Access::ReadOnly => "read",
        Access::ReadWrite => "written",
    }
}

fn access_remedy(access: Access) -> &'static str {
    match access {
        Access::ReadOnly => "give this user the right to read it",
        Access::ReadWrite => {
            "give this user the right to write it, or open it read-only (`--read-only`)"
        }
    }
}

impl Options {
    /// These with this [`read_only`](#structfield.read_only).
    #[must_use]
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }

    /// These with this [`block_size`](#structfield.block_size); `None` is the storage's own.
    #[must_use]
    pub fn block_size(mut self, bytes: impl Into<Option<u32>>) -> Self {
        self.block_size = bytes.into();
        self
    }

    /// These with this [`poll_scope`](#structfield.poll_scope).
    #[must_use]
    pub fn poll_scope(mut self, scope: PollScope) -> Self {
        self.poll_scope = scope;
        self
    }

    /// These with this [`within`](#structfield.within).
    #[must_use]
    pub fn within(mut self, folders: &'static [PathBuf]) -> Self {
        self.within = Some(folders);
        self
    }

    pub(crate) fn access(self) -> Access {
        if self.read_only {
            Access::ReadOnly
        } else {
            Access::ReadWrite
        }
    }

    /// The block size asked for, or the storage's `own`.
    pub(crate) fn block(self, own: u32) -> Result<u32, OpenError> {
        let asked = self.block_size.unwrap_or(own);
        if asked.is_power_of_two() && (512..=65536).contains(&asked) {
            Ok(asked)
        } else {
            Err(OpenError::BlockSize { asked })
        }
    }

    /// The geometry of a disk of `bytes` that is made, not found.
    ///
    /// # Errors
    ///
    /// When the block size is impossible, or `bytes` not a multiple of it.
    pub fn geometry(self, bytes: u64) -> Result<Geometry, OpenError> {
        let block = self.block(512)?;
        if !bytes.is_multiple_of(u64::from(block)) {
            return Err(OpenError::PartialBlock { bytes, block });
        }
        Ok(Geometry {
            access: self.access(),
            block,
            physical_block: block,
            ..Geometry::plain(bytes)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_made_disk_has_whole_blocks() {
        let options = Options::default().block_size(4096);
        assert_eq!(options.geometry(1 << 20).unwrap().block, 4096);
        let refused = options.geometry(512).unwrap_err().to_string();
        assert!(refused.ends_with("take 4096"), "{refused}");
        for asked in [0, 256, 513, 131_072] {
            let options = Options {
                block_size: Some(asked),
                ..options
            };
            let refused = options.geometry(1 << 20);
            assert!(matches!(refused, Err(OpenError::BlockSize { .. })));
        }
    }
}
