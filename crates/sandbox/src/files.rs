//! Files, ports and processes: what is out of reach from now on, by Landlock.
//!
//! Images, sockets and devices are open by then, and what is open stays so. So no file at all can be opened,
//! made or changed; all that is left is to remove the daemon's own sockets, and to connect to other daemons
//! again. Anonymous pipes and memory lie outside of any folder, and are not restricted. One thread, which opens disks
//! that are added later, reaches the folders that were named for that; those it starts do not. Another one keeps the
//! list of these disks, and reaches the folder of that alone: what an image names would be opened there, too.

use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, LandlockStatus, PathBeneath, PathFd,
    RestrictionStatus, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError,
    RulesetStatus, Scope,
};

use crate::plan::Plan;

/// The newest Landlock that is known here. Of an older one, all that it can do is used.
const NEWEST: ABI = ABI::V9;

/// What `plan` leaves to all threads but the one that opens disks.
pub fn ruleset(plan: &Plan) -> Result<RulesetCreated, RulesetError> {
    let mut ruleset = nothing()?;
    for folder in plan.removes_in.iter().chain(&plan.opens_in) {
        ruleset = allow(ruleset, folder, AccessFs::RemoveFile)?;
    }
    for folder in plan.connects_in.iter().chain(&plan.opens_in) {
        ruleset = allow(ruleset, folder, AccessFs::ResolveUnix)?;
    }
    Ok(ruleset)
}

/// What `plan` leaves to the thread that opens disks.
pub fn ruleset_of_opener(plan: &Plan) -> Result<RulesetCreated, RulesetError> {
    let mut ruleset = ruleset(plan)?;
    for folder in &plan.opens_in {
        let access = AccessFs::ReadFile
            | AccessFs::WriteFile
            | AccessFs::Truncate
            | AccessFs::IoctlDev
            | AccessFs::MakeReg
            | AccessFs::MakeSock;
        ruleset = allow(ruleset, folder, access)?;
    }
    // What a device can do and what lies above it, and which process holds a lock.
    for told in ["/sys/block", "/sys/dev/block", "/sys/devices"] {
        let access = AccessFs::ReadFile | AccessFs::ReadDir;
        ruleset = allow(ruleset, Path::new(told), access)?;
    }
    allow(ruleset, Path::new("/proc/locks"), AccessFs::ReadFile)
}

/// What `plan` leaves to the thread that keeps the list of disks.
pub fn ruleset_of_keeper(plan: &Plan) -> Result<RulesetCreated, RulesetError> {
    let mut ruleset = nothing()?;
    if let Some(folder) = &plan.keeps_in {
        let access = AccessFs::ReadDir
            | AccessFs::WriteFile
            // A process that was killed may have left a part of the next list.
            | AccessFs::Truncate
            | AccessFs::MakeReg
            | AccessFs::RemoveFile;
        ruleset = allow(ruleset, folder, access)?;
    }
    Ok(ruleset)
}

fn nothing() -> Result<RulesetCreated, RulesetError> {
    Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()
}

/// What `plan` leaves to the threads of a cluster's library: they read its configuration, and connect to any address.
pub fn of_cluster(plan: &Plan) -> Result<RulesetCreated, RulesetError> {
    let mut ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::BindTcp)?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    for path in &plan.reads {
        let access = if path.is_dir() {
            AccessFs::ReadFile | AccessFs::ReadDir
        } else {
            AccessFs::ReadFile.into()
        };
        ruleset = allow(ruleset, path, access)?;
    }
    Ok(ruleset)
}

fn allow(
    ruleset: RulesetCreated,
    folder: &Path,
    access: impl Into<BitFlags<AccessFs>>,
) -> Result<RulesetCreated, RulesetError> {
    let mut access = access.into();
    if !folder.is_dir() {
        access &= AccessFs::from_file(NEWEST);
    }
    match PathFd::new(folder) {
        Ok(folder) if !access.is_empty() => ruleset.add_rule(PathBeneath::new(folder, access)),
        // What needs that folder will say so.
        _ => Ok(ruleset),
    }
}

/// What the kernel made of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landlock {
    /// It is in force, in this version.
    InForce { abi: u32 },
    /// It was before this thread began.
    Inherited,
    /// It is not, for this reason.
    Missing { why: &'static str },
}

impl From<RestrictionStatus> for Landlock {
    fn from(status: RestrictionStatus) -> Self {
        let why = match status.landlock {
            LandlockStatus::Available { effective_abi, .. } => {
                if status.ruleset != RulesetStatus::NotEnforced {
                    let abi = (effective_abi as i32).unsigned_abs();
                    return Self::InForce { abi };
                }
                "the kernel did not take the rules"
            }
            LandlockStatus::NotEnabled => "it is switched off (see the kernel's `lsm=`)",
            LandlockStatus::NotImplemented => "this kernel has none (Linux 5.13 has)",
        };
        Self::Missing { why }
    }
}

impl Landlock {
    /// What it keeps away.
    pub fn reach(abi: u32) -> &'static str {
        match abi {
            ..4 => "files",
            4..6 => "files, TCP",
            _ => "files, TCP, signals and abstract sockets of others",
        }
    }
}
