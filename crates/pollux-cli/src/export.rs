//! One disk and how it is offered: on the command line and in the configuration file alike.

use std::io::ErrorKind;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};
use pollux::device::{Device, Limits, Options};
use pollux::disk::file::Settings;
use pollux::disk::spec::{DiskOpener, SpecError};
use pollux::disk::{OpenError, PollScope, Spec};
use serde::Deserialize;

use crate::limits::{Groups, LimitsOption};
use crate::log::chain;
use crate::paths::text;
use crate::process::{MECHANISMS, from_to};
use crate::socket::{Endpoint, Passed, Rights};

type Error = Box<dyn std::error::Error>;

/// What one disk is and how it is offered.
#[allow(clippy::doc_markdown, reason = "these are help texts for a terminal")]
#[derive(Args, Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
#[command(next_help_heading = "Which disk")]
pub struct ExportArgs {
    /// Where all this is written.
    #[arg(skip)]
    #[serde(skip, default = "Origin::file")]
    pub origin: Origin,

    /// Listen on this unix socket; PATH.lock exists beside it meanwhile
    #[arg(long, value_name = "PATH", conflicts_with = "fd")]
    pub socket_path: Option<PathBuf>,

    /// Use this inherited unix stream socket: one that listens, or one that is connected
    #[arg(long, value_name = "N", value_parser = from_to(0_i32..=i32::MAX))]
    pub fd: Option<i32>,

    /// Use the socket of this name that the service manager passes: systemd's FileDescriptorName=. Without
    /// any of these three, one disk is served on the one socket that is passed
    #[arg(long, value_name = "NAME", conflicts_with_all = ["fd", "socket_path"])]
    pub fd_name: Option<String>,

    /// What the control socket calls the disk [default: the socket's file name without its ending]
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// Serve this file or block device: short for --disk file:path=PATH
    #[arg(long, value_name = "PATH", conflicts_with = "disk")]
    pub blk_file: Option<PathBuf>,

    /// What to serve: null:size=2G | memory:size=1G | file:path=F[,cache=none][,OPTION]... |
    /// qcow2:path=F[,OPTION]... | rbd:pool=P,image=I[,OPTION]... | vhost-user:path=SOCKET[,reconnect=TIME], the disk of
    /// another daemon | fault:RULE[,RULE]...,on=SPEC, which misbehaves over another one | linear:LEG+LEG... |
    /// striped:chunk=64K:LEG,LEG... | table:LINE, disks made of disks (see below)
    #[arg(long, value_name = "SPEC")]
    pub disk: Option<String>,

    /// Serve the disk that this file describes in device-mapper's language, as `dmsetup table` prints it:
    /// short for --disk table:
    #[arg(long, value_name = "FILE", conflicts_with_all = ["disk", "blk_file"])]
    pub table: Option<PathBuf>,

    /// Which legs of a disk made of disks are polled: those with requests of the polling worker in flight, or all of
    /// them, to measure against [default: own-in-flight]
    #[arg(long, value_enum, value_name = "SCOPE", help_heading = MECHANISMS)]
    pub poll_scope: Option<Scope>,

    /// Refuse everything that would change the disk
    #[arg(long)]
    #[serde(default)]
    pub read_only: bool,

    /// The serial number that the guest sees, at most 20 bytes
    #[arg(long, value_name = "ID")]
    pub serial: Option<String>,

    /// Queues offered; a frontend uses as many as it likes, and those it does not use cost nothing
    /// [default: 16]
    #[arg(long, value_name = "N", value_parser = from_to(QUEUES))]
    pub num_queues: Option<u16>,

    /// The largest ring a frontend may set up, a power of two up to 1024 [default: 1024]
    #[arg(long, value_name = "N", value_parser = from_to(ENTRIES))]
    pub queue_size: Option<u16>,

    /// The logical block size that the guest sees: 512 or 4096 [default: the disk's own]
    #[arg(long, value_name = "BYTES", value_parser = block_size)]
    pub block_size: Option<u32>,

    /// How many requests and bytes a second the disk may have: iops-total=5000,bps-write=100M, also iops-read,
    /// iops-write, bps-total and bps-read; with -max, how many at once after a pause [default: as many as it can]
    #[arg(long, value_name = "LIMIT=N[,LIMIT=N]...")]
    pub limits: Option<LimitsOption>,

    /// Share the limits with the other disks of this group, one of which says what they are
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub limit_group: Option<String>,

    /// Count how long requests take from the start on, as `pollux disk latencies` does later
    #[arg(long)]
    #[serde(default)]
    pub latencies: bool,

    /// Permissions of the socket, in octal [default: 0660]
    #[arg(long, value_name = "MODE")]
    pub socket_mode: Option<String>,

    /// Owner of the socket, by name or number [default: the user that runs this, and that user's group]
    #[arg(long, value_name = "USER[:GROUP]")]
    pub socket_owner: Option<String>,

    /// The group of the socket, by name or number
    #[arg(long, value_name = "GROUP")]
    pub socket_group: Option<String>,
}

/// Where a disk is described, in whose language errors tell what to write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// By options.
    #[default]
    CommandLine,
    /// In a section of the configuration file.
    File,
}

impl Origin {
    fn file() -> Self {
        Self::File
    }

    /// How `value` is written there for `key`.
    pub fn says(self, key: &str, value: &str) -> String {
        match self {
            Self::CommandLine => format!("--{key} {value}"),
            Self::File => format!("{key} = {value:?}"),
        }
    }
}

/// Which legs of a stacked disk are polled.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Those on which the polling queue has requests in flight.
    OwnInFlight,
    /// All of them.
    EveryQueue,
}

const DEFAULT_QUEUES: u16 = 16;

/// How many queues a disk may offer.
pub const QUEUES: RangeInclusive<u16> = 1..=256;

/// How many entries the largest ring may have, of which it is a power of two.
pub const ENTRIES: RangeInclusive<u16> = 1..=1024;

/// Reads a logical block size.
pub fn block_size(text: &str) -> Result<u32, String> {
    let size = text.parse().ok().filter(|size| BLOCK_SIZES.contains(size));
    size.ok_or_else(|| "give 512 or 4096".into())
}

const BLOCK_SIZES: [u32; 2] = [512, 4096];

impl ExportArgs {
    /// Where to listen: that may be on a socket that was `passed`, which is taken from there.
    pub fn endpoint(&self, passed: &mut Passed) -> Result<Endpoint, Error> {
        let rights = Rights::new(
            self.socket_mode.as_deref(),
            self.socket_owner.as_deref(),
            self.socket_group.as_deref(),
        )?;
        if self.socket_path.is_none() && rights != Rights::default() {
            return Err(
                "--socket-mode, --socket-owner and --socket-group are for --socket-path; leave them out, as the \
                 program that passes a socket decides which users may connect to it"
                    .into(),
            );
        }
        match (&self.socket_path, self.fd, &self.fd_name) {
            (Some(path), None, None) => Ok(Endpoint::Path {
                path: path.clone(),
                rights,
            }),
            (None, Some(fd), None) => Ok(Endpoint::Fd(fd)),
            (None, None, Some(name)) => Ok(passed.named(name, self.origin)?),
            (None, None, None) => Ok(passed.only(self.origin)?),
            _ => {
                Err("--socket-path, --fd and --fd-name exclude each other; give one of them".into())
            }
        }
    }

    /// The first key that has an empty text, and what it is to have.
    pub fn empty(&self) -> Option<(&'static str, &'static str)> {
        let paths = [
            ("socket-path", &self.socket_path),
            ("blk-file", &self.blk_file),
            ("table", &self.table),
        ];
        let names = [
            ("fd-name", &self.fd_name),
            ("name", &self.name),
            ("limit-group", &self.limit_group),
        ];
        let is_empty = |path: &Option<PathBuf>| path.as_deref() == Some(Path::new(""));
        let path = paths.iter().find(|(_, path)| is_empty(path));
        let name = names.iter().find(|(_, name)| name.as_deref() == Some(""));
        path.map(|&(key, _)| (key, "a path"))
            .or_else(|| name.map(|&(key, _)| (key, "a name")))
    }

    /// What is served, as it was written.
    pub fn written(&self) -> String {
        match (&self.disk, &self.blk_file, &self.table) {
            (Some(spec), _, _) => spec.clone(),
            (_, Some(path), _) | (_, _, Some(path)) => path.display().to_string(),
            (None, None, None) => "nothing".to_owned(),
        }
    }

    fn spec(&self) -> Result<Spec, Error> {
        match (&self.disk, &self.blk_file, &self.table) {
            (Some(spec), None, None) => spec
                .parse()
                .map_err(|error: SpecError| format!("--disk {spec:?}: {}", chain(&error)).into()),
            (None, Some(path), None) => Ok(Spec::File {
                path: path.clone(),
                settings: Settings::default(),
            }),
            (None, None, Some(path)) => {
                let spec = table(path).and_then(|table| {
                    let spec = format!("table:{table}").parse();
                    spec.map_err(|error: SpecError| chain(&error))
                });
                spec.map_err(|why| format!("--table {}: {why}", path.display()).into())
            }
            (None, None, None) => Err(format!(
                "what to serve is missing; give {}, {} or {}, for example {}",
                self.origin.says("blk-file", "PATH"),
                self.origin.says("disk", "SPEC"),
                self.origin.says("table", "FILE"),
                self.origin.says("disk", "memory:size=1G")
            )
            .into()),
            _ => Err("disk, blk-file and table exclude each other; give one of them".into()),
        }
    }

    /// The disk and how it is offered, once all that is said of either has been checked.
    pub fn offer(&self, name: String) -> Result<Offer, Error> {
        let most = *ENTRIES.end();
        let queue_size = self.queue_size.unwrap_or(most);
        if !queue_size.is_power_of_two() || queue_size > most {
            return Err(format!(
                "--queue-size {queue_size}: a ring cannot have that many entries; give a power of two, at most {most}"
            )
            .into());
        }
        let num_queues = self.num_queues.unwrap_or(DEFAULT_QUEUES);
        if !QUEUES.contains(&num_queues) {
            return Err(format!(
                "--num-queues {num_queues}: this many cannot be offered; give 1 to 256"
            )
            .into());
        }
        let serial = self.serial.clone().unwrap_or_default();
        if serial.len() > pollux::blk::SERIAL_BYTES {
            let most = pollux::blk::SERIAL_BYTES;
            return Err(format!(
                "--serial {serial:?} has {} bytes; give at most {most}, which is what a guest sees",
                serial.len()
            )
            .into());
        }
        if let Some(block) = self.block_size.filter(|block| !BLOCK_SIZES.contains(block)) {
            return Err(format!(
                "--block-size {block}: a disk has no such blocks; give 512 or 4096"
            )
            .into());
        }
        Ok(Offer {
            disk: self.spec()?,
            how: pollux::disk::Options::default()
                .read_only(self.read_only)
                .block_size(self.block_size)
                .poll_scope(match self.poll_scope {
                    None | Some(Scope::OwnInFlight) => PollScope::OwnInFlight,
                    Some(Scope::EveryQueue) => PollScope::EveryQueue,
                }),
            options: Options::new(name)
                .num_queues(num_queues)
                .queue_size(queue_size)
                .serial(serial),
            limits: self.limits.unwrap_or_default().0,
            limit_group: self.limit_group.clone(),
            latencies: self.latencies,
        })
    }
}

/// The table that the file at `path` holds.
fn table(path: &Path) -> Result<String, String> {
    text(path).map_err(|error| match error.kind() {
        ErrorKind::InvalidData => {
            let path = path.display();
            format!(
                "this is no table of device-mapper; to serve the file itself, give --blk-file {path}"
            )
        }
        _ => format!("{error}; it is to be a file that holds what `dmsetup table` prints"),
    })
}

/// A disk that has not been opened, and how it is to be offered.
#[derive(Clone, Debug)]
pub struct Offer {
    /// The disk.
    pub disk: Spec,
    /// How it is opened.
    pub how: pollux::disk::Options,
    /// How it is offered.
    pub options: Options,
    /// How many requests and bytes a second it may have.
    pub limits: Limits,
    /// The disks that share them.
    pub limit_group: Option<String>,
    /// Are the times of its requests counted from the start on?
    pub latencies: bool,
}

impl Offer {
    /// Opens the disk, by `opener` where that knows how, and has it share the limits of its group in `groups`.
    ///
    /// # Errors
    ///
    /// When it cannot be opened.
    pub fn open(self, groups: &mut Groups, opener: &dyn DiskOpener) -> Result<Arc<Device>, Error> {
        let limiter = groups.limiter(self.limit_group.as_deref(), self.limits)?;
        let disk = self.disk.open_with(&self.how, opener);
        let disk = disk.map_err(|error| match error {
            // Those of files name them.
            OpenError::PartialBlock { .. } | OpenError::NoMemory { .. } => {
                format!("--disk {}: {}", self.disk, chain(&error)).into()
            }
            error => Error::from(error),
        })?;
        let device = Device::new(disk, self.options).limited_by(limiter);
        device.observation().set_latencies(self.latencies);
        Ok(Arc::new(device))
    }
}

#[cfg(test)]
mod tests;
