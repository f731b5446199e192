//! The other users of an image, as errors tell of them.

use std::fmt;
use std::fs;

use crate::Access;

/// Why an image cannot be used beside its other user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// The other writes it.
    Writes,
    /// The other is changing its size.
    Resizes,
    /// The other lets no one do what we want to do.
    Forbids,
    /// The other uses this very open file, of which a descriptor was passed.
    Shares,
}

impl Conflict {
    /// What the other does.
    pub(crate) const fn told(self, access: Access) -> &'static str {
        match (self, access) {
            (Self::Writes, _) => "has it open for writing",
            (Self::Resizes, _) => "is changing its size",
            (Self::Forbids, Access::ReadWrite) => "has it open and lets no other program write it",
            (Self::Forbids, Access::ReadOnly) => "has it open for itself alone",
            (Self::Shares, _) => "has locked it through the very descriptor that was passed",
        }
    }

    /// What to do.
    pub(crate) const fn remedy(self, access: Access) -> &'static str {
        match (self, access) {
            (Self::Writes | Self::Resizes, Access::ReadWrite) => {
                "end that first, as two that write one disk destroy it"
            }
            (Self::Writes | Self::Resizes, Access::ReadOnly) => {
                "end that first, as what it writes would change the disk under its reader"
            }
            (Self::Forbids, Access::ReadWrite) => {
                "end that first, or open the disk read-only (`--read-only`)"
            }
            (Self::Forbids, Access::ReadOnly) => "end that first",
            (Self::Shares, _) => {
                "end that first, or, where both only read it, open it once more and pass that"
            }
        }
    }
}

/// A process that uses an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its number.
    pub pid: u32,
    /// Its name, as the kernel keeps it: at most 15 bytes.
    pub name: String,
}

impl Holder {
    pub(super) fn of(pid: u32) -> Self {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        Self {
            pid,
            name: name.trim_end().to_owned(),
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.as_str() {
            "" => write!(f, "process {}", self.pid)?,
            name => write!(f, "process {} ({name})", self.pid)?,
        }
        if self.pid == std::process::id() {
            f.write_str(", which is this one,")?;
        }
        Ok(())
    }
}
