//! What a daemon will need once it serves.

use std::path::PathBuf;

/// How much of a sandbox is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// None.
    Off,
    /// What the kernel can do; what it cannot is said.
    #[default]
    On,
    /// All of `no_new_privs`, Landlock and seccomp, or the daemon does not start.
    Require,
}

/// What threads do beyond serving queues: only that is allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "any combination makes sense")]
pub struct Needs {
    /// Files and block devices are served.
    pub files: bool,
    /// Images are among them, whose tables a thread reads and writes, and whose files it makes longer.
    pub images: bool,
    /// `io_uring` may be used for them.
    pub io_uring: bool,
    /// Disks of other daemons are served.
    pub driver: bool,
    /// A control socket is served.
    pub control: bool,
    /// Images of a cluster are served, by its own library.
    pub cluster: bool,
    /// Disks may be added while the process runs.
    pub opener: bool,
}

/// What the daemon will need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Calls.
    pub needs: Needs,
    /// Folders from which sockets of its own are removed in the end.
    pub removes_in: Vec<PathBuf>,
    /// Folders with sockets on which other daemons serve.
    pub connects_in: Vec<PathBuf>,
    /// Files and folders that a cluster's library reads.
    pub reads: Vec<PathBuf>,
    /// Folders with the images and sockets of disks that are added later.
    pub opens_in: Vec<PathBuf>,
    /// The folder of the file that lists these disks, in which no disk may lie: one thread may write there, which opens
    /// none.
    pub keeps_in: Option<PathBuf>,
}
