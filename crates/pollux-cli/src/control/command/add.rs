//! `pollux disk add` and `pollux disk remove`.

use std::fs::{self, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use clap::builder::NonEmptyStringValueParser;
use clap::{ArgGroup, Args};
use pollux::disk::Spec;
use pollux::disk::file::Settings;
use pollux::disk::spec::SpecError;
use rustix::fs::OFlags;

use super::listed::{Error, Listed, which};
use crate::control::client::{named, put};
use crate::control::sockets::{Sockets, find};
use crate::export::{ENTRIES, QUEUES, block_size};
use crate::limits::LimitsOption;
use crate::log::chain;
use crate::model::{NAMES, NewDisk, is_name};
use crate::paths::absolute;
use crate::process::{below_zero, from_to};
use crate::socket::Rights;

/// What is added.
#[allow(clippy::doc_markdown, reason = "these are help texts for a terminal")]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is an option of its own"
)]
#[derive(Args, Debug)]
#[command(next_help_heading = "Which disk")]
#[command(mut_args(below_zero))]
#[group(skip)]
#[command(group(ArgGroup::new("image").required(true).args(["blk_file", "disk"])))]
pub struct AddArgs {
    /// What it is called
    #[arg(help_heading = None, value_parser = called)]
    name: String,

    /// Serve this file or block device, as --disk file:path= with its whole path
    #[arg(long, value_name = "PATH")]
    blk_file: Option<PathBuf>,

    /// What to serve, as of `pollux serve`; with whole paths, which lie in the daemon's --disk-folder
    #[arg(long, value_name = "SPEC")]
    disk: Option<String>,

    /// Open the image here and pass it on: it may lie anywhere, and comes back after a restart only by adding it again
    #[arg(long)]
    pass_fd: bool,

    /// Listen on this unix socket [default: NAME.sock in the daemon's first --disk-folder]
    #[arg(long, value_name = "PATH")]
    socket_path: Option<PathBuf>,

    /// Refuse everything that would change the disk
    #[arg(long)]
    read_only: bool,

    /// The serial number that the guest sees, at most 20 bytes
    #[arg(long, value_name = "ID")]
    serial: Option<String>,

    /// Queues offered [default: 16]
    #[arg(long, value_name = "N", value_parser = from_to(QUEUES))]
    num_queues: Option<u16>,

    /// The largest ring a frontend may set up [default: 1024]
    #[arg(long, value_name = "N", value_parser = from_to(ENTRIES))]
    queue_size: Option<u16>,

    /// The logical block size that the guest sees: 512 or 4096 [default: the disk's own]
    #[arg(long, value_name = "BYTES", value_parser = block_size)]
    block_size: Option<u32>,

    /// How many requests and bytes a second the disk may have: iops-total=5000,bps-write=100M
    #[arg(long, value_name = "LIMIT=N[,LIMIT=N]...")]
    limits: Option<LimitsOption>,

    /// Count how long requests take from the start on
    #[arg(long)]
    latencies: bool,

    /// Share the limits with the other disks of this group
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    limit_group: Option<String>,

    /// Permissions of the socket, in octal [default: 0660]
    #[arg(long, value_name = "MODE")]
    socket_mode: Option<String>,

    /// The owner of the socket, by name or number
    #[arg(long, value_name = "USER[:GROUP]")]
    socket_owner: Option<String>,

    /// The group of the socket, by name or number
    #[arg(long, value_name = "GROUP")]
    socket_group: Option<String>,
}

fn called(name: &str) -> Result<String, &'static str> {
    is_name(name).then(|| name.to_owned()).ok_or(NAMES)
}

impl AddArgs {
    fn spec(&self) -> Result<Spec, Error> {
        match (&self.disk, &self.blk_file) {
            (Some(spec), _) => spec
                .parse()
                .map_err(|error: SpecError| format!("--disk {spec:?}: {}", chain(&error)).into()),
            (None, Some(path)) => Ok(Spec::File {
                path: absolute(path),
                settings: Settings::default(),
            }),
            (None, None) => unreachable!("clap wants one"),
        }
    }

    /// What the daemon is asked for. Names of users are looked up here: it may not.
    fn disk(&self, spec: &Spec) -> Result<NewDisk, Error> {
        let (owner, group) = (self.socket_owner.as_deref(), self.socket_group.as_deref());
        let rights = Rights::new(self.socket_mode.as_deref(), owner, group)?;
        Ok(NewDisk {
            disk: spec.to_string(),
            passed: self.pass_fd,
            image: None,
            socket_path: self.socket_path.as_deref().map(absolute),
            read_only: self.read_only,
            serial: self.serial.clone(),
            num_queues: self.num_queues,
            queue_size: self.queue_size,
            block_size: self.block_size,
            limits: self.limits.unwrap_or_default().0.into(),
            latencies: self.latencies,
            limit_group: self.limit_group.clone(),
            socket_mode: self.socket_mode.clone(),
            socket_uid: rights.owner.map(rustix::fs::Uid::as_raw),
            socket_gid: rights.group.map(rustix::fs::Gid::as_raw),
        })
    }
}

/// Adds a disk to the one daemon that is `asked`.
pub fn add(args: &AddArgs, asked: Option<&Path>) -> Result<Listed, Error> {
    let control = one_daemon(asked)?;
    let spec = args.spec()?;
    let image = match &spec {
        _ if !args.pass_fd => None,
        Spec::File { path, .. } => Some(open(path, args.read_only)?),
        _ => {
            return Err(
                "--pass-fd is for one file or block device; say which by --blk-file PATH".into(),
            );
        }
    };
    let path = format!("/v1/disks/{}", args.name);
    let body = serde_json::to_value(args.disk(&spec)?)?;
    let disk = put(&control, &path, &body, image).map_err(|error| named(&control, &error))?;
    Ok(Listed { control, disk })
}

/// Opens an image as the daemon would.
fn open(path: &Path, read_only: bool) -> Result<OwnedFd, Error> {
    let failed = |error| {
        format!(
            "{}: {error}; --pass-fd opens the image here",
            path.display()
        )
    };
    // A pipe would be waited for.
    let kind = fs::metadata(path).map_err(failed)?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err(format!(
            "{} is no file or block device; name an image",
            path.display()
        )
        .into());
    }
    let mut options = OpenOptions::new();
    options.read(true).write(!read_only);
    if kind.is_block_device() && !read_only {
        // Without O_CREAT: fails where it is mounted or part of another device.
        options.custom_flags(OFlags::EXCL.bits().cast_signed());
    }
    Ok(options.open(path).map_err(failed)?.into())
}

fn one_daemon(asked: Option<&Path>) -> Result<PathBuf, Error> {
    match find(asked)? {
        Sockets::One(path) => Ok(path),
        Sockets::Folder(folder, sockets) => match &sockets[..] {
            [path] => Ok(path.clone()),
            [] => Err(Sockets::none_in(&folder).into()),
            _ => {
                let (folder, which) = (folder.display(), which(sockets.iter().map(|path| &**path)));
                Err(format!("several daemons have a control socket in {folder}; {which}").into())
            }
        },
    }
}
