//! Disks described in one line: `memory:size=1G`, `file:path=disk.img,cache=none`.
//!
//! ```text
//! SPEC   KIND:KEY=VALUE[,KEY=VALUE]...
//!        null:size=SIZE      memory:size=SIZE
//!        file:path=PATH[,cache=writeback|none|writethrough][,engine=auto|io_uring|threads][,inline=on|off]
//!                       [,buffers=plain|registered][,lock=always|running][,format=probe|raw]
//!        qcow2:path=PATH[,cache=writeback|none|writethrough][,engine=...][,inline=...][,buffers=...]
//!                       [,lock=always|running][,backing=named|none|PATH]
//!        vhost-user:path=SOCKET[,queues=N][,reconnect=TIME]
//!                                            the disk of another daemon: see [`DiskOpener`]
//!        rbd:pool=POOL,image=IMAGE[,snapshot=NAME][,namespace=NAME][,id=USER][,conf=PATH]
//!                       [,cache=none|writeback|writethrough][,lock=always|running][,timeout=TIME]
//!                                            an image in a Ceph cluster: see [`DiskOpener`]
//!        fault:RULE[,RULE]...,on=SPEC        misbehaves as the rules say: see [`crate::fault`]
//!        linear:LEG[+LEG]...                 one disk after the other: see [`crate::stack`]
//!        striped:chunk=SIZE:LEG[,LEG]...     in chunks, by turns
//!        table:LINE[;LINE]...                as device-mapper's tables say, for example what `dmsetup table` prints
//! LEG    a path, MAJOR:MINOR of a block device, or a SPEC, in brackets if it holds what would end it
//! SIZE   bytes, or with K, M, G or T: powers of 1024
//! TIME   a whole number with ns, us, ms, s, m or h
//! ```
//! A comma inside a value is written twice, as QEMU does: `file:path=a,,b.img`. What follows `on=` is
//! taken as it stands: `fault:delay=1ms,on=file:path=a,,b.img,cache=none`.

mod error;
mod fault;
mod leg;
mod options;
mod parse;
mod rbd;
mod size;
mod stack;
mod time;

use std::collections::HashSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::fault::Faults;
use crate::file::Settings;
use crate::qcow2;
use crate::stack::{Stack, StackError};
use crate::{Disk, Fault, File, Image, Memory, Null, OpenError, Options};
use options::{FORMATS, LOCKS, escaped, shown, shown_backing, shown_settings};
use parse::parse;
use time::printed_time;

pub use error::SpecError;
pub use rbd::{Rbd, RbdCache};
pub use size::{Size, SizeError};
pub use stack::Table;

/// What disk to open.
///
/// ```
/// use pollux_disk::{Options, Spec};
///
/// let spec: Spec = "memory:size=64M".parse()?;
/// let disk = spec.open(&Options::default())?;
/// assert_eq!(disk.geometry().bytes, 64 << 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Spec {
    /// [`Null`]: nothing is kept, no memory is touched.
    Null {
        /// Its size.
        size: Size,
    },
    /// [`Memory`]: sparse, gone with the process.
    Memory {
        /// Its size.
        size: Size,
    },
    /// [`File`]: a regular file or a block device.
    File {
        /// Where it lies. One that is not UTF-8 can be opened, but not printed exactly.
        path: PathBuf,
        /// How it is used.
        settings: Settings,
    },
    /// [`Image`]: a qcow2 image.
    Qcow2 {
        /// Where it lies. One that is not UTF-8 can be opened, but not printed exactly.
        path: PathBuf,
        /// How it is used.
        settings: qcow2::Settings,
    },
    /// The disk that a vhost-user server offers. Opened by a program that has a driver for it.
    VhostUser(VhostUser),
    /// An image in a Ceph cluster. Opened by a program that has Ceph's client library.
    Rbd(Rbd),
    /// [`Fault`]: misbehaves.
    Fault {
        /// In what ways.
        faults: Faults,
        /// The disk below.
        on: Box<Spec>,
    },
    /// [`linear`](crate::linear): one disk after the other.
    Linear {
        /// They.
        legs: Vec<Spec>,
    },
    /// [`striped`](crate::striped): in chunks, by turns.
    Striped {
        /// Bytes of a chunk.
        chunk: Size,
        /// The disks that take turns.
        legs: Vec<Spec>,
    },
    /// [`table`](crate::stack::table): as device-mapper would lay it out.
    Table(Table),
}

/// A disk that another daemon serves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VhostUser {
    /// The socket on which its server listens.
    pub path: PathBuf,
    /// The most queues to use; `None`: as many as the server offers.
    pub queues: Option<u16>,
    /// How long its server may be away; `None`: as long as what opens it says.
    pub reconnect: Option<Duration>,
}

/// Opens the disks that this crate knows by name only.
pub trait DiskOpener {
    /// Opens the disk of another daemon.
    ///
    /// # Errors
    ///
    /// See [`OpenError`].
    fn vhost_user(&self, disk: &VhostUser, options: &Options) -> Result<Arc<dyn Disk>, OpenError>;

    /// Opens an image in a Ceph cluster.
    ///
    /// # Errors
    ///
    /// See [`OpenError`].
    fn rbd(&self, disk: &Rbd, options: &Options) -> Result<Arc<dyn Disk>, OpenError>;

    /// The file that was opened already for the disk at `path`, if there is one. It is used as it is, and `path` is
    /// only its name.
    fn opened(&self, path: &Path) -> Option<fs::File> {
        let _ = path;
        None
    }
}

/// A program without drivers.
struct NoDrivers;

impl DiskOpener for NoDrivers {
    fn vhost_user(&self, disk: &VhostUser, _: &Options) -> Result<Arc<dyn Disk>, OpenError> {
        let path = disk.path.clone();
        Err(OpenError::NoDriver { path })
    }

    fn rbd(&self, disk: &Rbd, _: &Options) -> Result<Arc<dyn Disk>, OpenError> {
        let path = disk.name().into();
        Err(OpenError::NoDriver { path })
    }
}

impl Spec {
    /// Opens the disk, in a program without drivers for disks of other daemons.
    ///
    /// # Errors
    ///
    /// See [`OpenError`].
    pub fn open(&self, options: &Options) -> Result<Arc<dyn Disk>, OpenError> {
        self.open_with(options, &NoDrivers)
    }

    /// Opens the disk; those of other daemons by `opener`.
    ///
    /// # Errors
    ///
    /// See [`OpenError`].
    pub fn open_with(
        &self,
        options: &Options,
        opener: &dyn DiskOpener,
    ) -> Result<Arc<dyn Disk>, OpenError> {
        Ok(match self {
            Self::Null { size } => Arc::new(Null::new(options.geometry(size.0)?)),
            Self::Memory { size } => {
                let bytes = size.0;
                let memory = Memory::new(options.geometry(bytes)?)
                    .map_err(|source| OpenError::NoMemory { bytes, source })?;
                Arc::new(memory)
            }
            Self::File { path, settings } => Arc::new(match opener.opened(path) {
                Some(file) => File::adopt(file, path, *settings, options)?,
                None => File::open(path, *settings, options)?,
            }),
            Self::Qcow2 { path, settings } => {
                Arc::new(Image::open(path, settings.clone(), options)?)
            }
            Self::VhostUser(disk) => opener.vhost_user(disk, options)?,
            Self::Rbd(disk) => opener.rbd(disk, options)?,
            Self::Fault { faults, on } => {
                Arc::new(Fault::new(on.open_with(options, opener)?, faults)?)
            }
            Self::Linear { legs } => {
                let legs = open_all(legs, options, opener)?;
                self.stacked(crate::stack::linear(legs, options.poll_scope))?
            }
            Self::Striped { chunk, legs } => {
                let legs = open_all(legs, options, opener)?;
                self.stacked(crate::stack::striped(chunk.0, legs, options.poll_scope))?
            }
            Self::Table(Table { targets, legs }) => {
                let (legs, targets) = (open_all(legs, options, opener)?, targets.clone());
                self.stacked(crate::stack::table(targets, legs, options.poll_scope))?
            }
        })
    }

    /// It, and all that it is made of: what is opened with it, but for what images name.
    #[must_use]
    pub fn parts(&self) -> Vec<&Self> {
        let below = self.below().iter().flat_map(Self::parts);
        std::iter::once(self).chain(below).collect()
    }

    fn below(&self) -> &[Self] {
        match self {
            Self::Fault { on, .. } => std::slice::from_ref(&**on),
            Self::Linear { legs } | Self::Striped { legs, .. } => legs,
            Self::Table(table) => &table.legs,
            Self::Null { .. }
            | Self::Memory { .. }
            | Self::File { .. }
            | Self::Qcow2 { .. }
            | Self::VhostUser(_)
            | Self::Rbd(_) => &[],
        }
    }

    fn stacked(&self, stack: Result<Stack, StackError>) -> Result<Arc<dyn Disk>, OpenError> {
        let stack = stack.map_err(|source| OpenError::Stack {
            spec: error::short(&self.to_string()),
            leg: stack::blamed(&source, self.below()).unwrap_or_default(),
            source,
        })?;
        Ok(Arc::new(stack))
    }
}

impl FromStr for Spec {
    type Err = SpecError;

    fn from_str(spec: &str) -> Result<Self, SpecError> {
        parse(spec, 0)
    }
}

fn open_all(
    legs: &[Spec],
    options: &Options,
    opener: &dyn DiskOpener,
) -> Result<Vec<Arc<dyn Disk>>, OpenError> {
    let mut paths = HashSet::new();
    for leg in legs {
        if let Spec::File { path, .. } | Spec::Qcow2 { path, .. } = leg
            && !paths.insert(path)
            && !options.read_only
        {
            let path = path.clone();
            return Err(OpenError::LegTwice { path });
        }
    }
    let open = |leg: &Spec| leg.open_with(options, opener);
    legs.iter().map(open).collect()
}

/// As [`FromStr`] reads it; what is as it is by default is left out.
impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null { size } => write!(f, "null:size={size}"),
            Self::Memory { size } => write!(f, "memory:size={size}"),
            Self::File { path, settings } => {
                write!(f, "file:path={}", escaped(path))?;
                shown_settings(f, *settings)?;
                shown(f, "lock", &LOCKS, &settings.lock)?;
                shown(f, "format", &FORMATS, &settings.format)
            }
            Self::Qcow2 { path, settings } => {
                write!(f, "qcow2:path={}", escaped(path))?;
                shown_settings(f, settings.file)?;
                shown(f, "lock", &LOCKS, &settings.file.lock)?;
                shown_backing(f, &settings.backing)
            }
            Self::VhostUser(VhostUser {
                path,
                queues,
                reconnect,
            }) => {
                write!(f, "vhost-user:path={}", escaped(path))?;
                queues.map_or(Ok(()), |queues| write!(f, ",queues={queues}"))?;
                reconnect.map_or(Ok(()), |time| {
                    write!(f, ",reconnect={}", printed_time(time))
                })
            }
            Self::Rbd(rbd) => rbd::print(rbd, f),
            Self::Fault { faults, on } => fault::print(faults, on, f),
            Self::Linear { legs } => {
                f.write_str("linear:")?;
                stack::print_legs(f, legs, '+')
            }
            Self::Striped { chunk, legs } => {
                write!(f, "striped:chunk={chunk}:")?;
                stack::print_legs(f, legs, ',')
            }
            Self::Table(table) => stack::print_table(f, table),
        }
    }
}

#[cfg(test)]
mod tests;
