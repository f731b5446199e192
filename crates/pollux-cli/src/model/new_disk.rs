//! A disk that is to be added while the process runs: the body of `PUT /v1/disks/NAME`, and what the state file keeps.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::fstat;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::export::ExportArgs;
use crate::limits::{BadLimit, DiskLimits, LimitsOption};

/// A disk that is to be added.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "an object of a disk")]
pub struct NewDisk {
    /// What is served, as `pollux serve --disk` takes it: `file:path=/srv/pollux/root.img`.
    pub disk: String,
    /// Does the image come as a descriptor, with this request? Then the path in `disk` is only what it is called.
    #[serde(default, skip_serializing_if = "is_false")]
    pub passed: bool,
    /// Which file that is: device and inode.
    #[serde(skip)]
    pub image: Option<(u64, u64)>,
    /// Where frontends connect; by default NAME.sock in the daemon's first folder for disks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub socket_path: Option<PathBuf>,
    /// Is everything refused that would change the disk?
    #[serde(default, skip_serializing_if = "is_false")]
    pub read_only: bool,
    /// The serial number that the guest sees, at most 20 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// How many queues are offered; 16 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_queues: Option<u16>,
    /// The largest ring, a power of two up to 1024.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_size: Option<u16>,
    /// The logical block size that the guest sees: 512 or 4096.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_size: Option<u32>,
    /// How many requests and bytes a second it may have.
    #[serde(default, skip_serializing_if = "DiskLimits::is_empty")]
    pub limits: DiskLimits,
    /// Are the times of its requests counted?
    #[serde(default, skip_serializing_if = "is_false")]
    pub latencies: bool,
    /// The group of disks with which it shares the limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_group: Option<String>,
    /// Permissions of the socket, in octal: "0660".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_mode: Option<String>,
    /// The number of the user that owns the socket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_uid: Option<u32>,
    /// The number of the group to which the socket belongs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_gid: Option<u32>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks like that")]
fn is_false(value: &bool) -> bool {
    !value
}

impl NewDisk {
    /// With a socket in `folder` if it names none.
    pub fn placed(mut self, name: &str, folder: &Path) -> Self {
        let path = self.socket_path.take();
        self.socket_path = Some(path.unwrap_or_else(|| folder.join(format!("{name}.sock"))));
        self
    }

    /// With the image that was passed, if one was.
    pub fn with_image(mut self, image: Option<&impl AsFd>) -> Self {
        let stat = image.and_then(|image| fstat(image).ok());
        self.image = stat.map(|stat| (stat.st_dev, stat.st_ino));
        self
    }

    /// Does it leave its limits to its group?
    pub fn takes_limits_of_group(&self) -> bool {
        self.limit_group.is_some() && self.limits.is_empty()
    }

    /// As the command line would say it.
    pub fn arguments(&self, name: &str) -> Result<ExportArgs, BadLimit> {
        Ok(ExportArgs {
            socket_path: self.socket_path.clone(),
            name: Some(name.to_owned()),
            disk: Some(self.disk.clone()),
            read_only: self.read_only,
            serial: self.serial.clone(),
            num_queues: self.num_queues,
            queue_size: self.queue_size,
            block_size: self.block_size,
            limits: Some(LimitsOption(self.limits.checked()?)),
            latencies: self.latencies,
            limit_group: self.limit_group.clone(),
            socket_mode: self.socket_mode.clone(),
            socket_owner: self.socket_uid.map(|user| user.to_string()),
            socket_group: self.socket_gid.map(|group| group.to_string()),
            ..ExportArgs::default()
        })
    }

    /// The first field in which it differs from `other`.
    pub fn difference(&self, other: &Self) -> Option<&'static str> {
        // One that was not passed once more is not known to be another.
        let same_image = self.image.is_none() || self.image == other.image;
        let same_limits = self.limits == other.limits || self.takes_limits_of_group();
        let same = [
            ("disk", self.disk == other.disk),
            ("passed", self.passed == other.passed && same_image),
            ("socket_path", self.socket_path == other.socket_path),
            ("read_only", self.read_only == other.read_only),
            ("serial", self.serial == other.serial),
            ("num_queues", self.num_queues == other.num_queues),
            ("queue_size", self.queue_size == other.queue_size),
            ("block_size", self.block_size == other.block_size),
            ("limit_group", self.limit_group == other.limit_group),
            ("socket_mode", self.socket_mode == other.socket_mode),
            ("socket_uid", self.socket_uid == other.socket_uid),
            ("socket_gid", self.socket_gid == other.socket_gid),
            // Last: these two can be changed.
            ("latencies", self.latencies == other.latencies),
            ("limits", same_limits),
        ];
        same.into_iter()
            .find_map(|(field, same)| (!same).then_some(field))
    }
}
