//! `pollux disk remove`.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::listed::{Error, Listed, lossy, one, several, unknown};
use crate::control::client::{delete, each, get, named};
use crate::model::{Disk, Health};

/// What has become of a disk.
#[derive(Debug, Serialize)]
pub struct Removal {
    #[serde(serialize_with = "lossy")]
    control: PathBuf,
    /// Has it gone by now?
    removed: bool,
    #[serde(flatten)]
    was: Was,
}

/// The disk as it was.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Was {
    Served(Box<Disk>),
    /// It was on the list alone.
    Missing {
        name: String,
    },
}

/// Removes the disk called `name`; is one that a frontend uses to be disconnected?
pub fn remove(
    disks: &[Listed],
    asked: Option<&Path>,
    name: &str,
    force: bool,
) -> Result<Removal, Error> {
    let (control, was) = if disks.iter().any(|listed| listed.disk.name == name) {
        let Listed { control, disk } = one(disks, name)?.clone();
        (control, Was::Served(disk.into()))
    } else {
        let name = name.to_owned();
        (misses(asked, &name)?, Was::Missing { name })
    };
    let force = if force { "?force=true" } else { "" };
    let removed = delete(&control, &format!("/v1/disks/{name}{force}"));
    Ok(Removal {
        removed: removed.map_err(|error| named(&control, &error))?,
        control,
        was,
    })
}

/// The daemon that has no such disk and may have it on its list.
fn misses(asked: Option<&Path>, name: &str) -> Result<PathBuf, Error> {
    let (mut daemons, _) = each(asked, |control| {
        let health: Health = get(control, "/v1/health")?;
        Ok((control.to_owned(), health.missing))
    })?;
    // One alone knows best, also of a list that it could not write.
    if daemons.len() > 1 {
        daemons.retain(|(_, missing)| missing.iter().any(|missing| missing == name));
    }
    match &daemons[..] {
        [(control, _)] => Ok(control.clone()),
        [] => Err(unknown(name)),
        _ => Err(several(daemons.iter().map(|(control, _)| &**control), name)),
    }
}

impl Removal {
    /// For people.
    pub fn told(&self) -> String {
        let name = match &self.was {
            Was::Served(disk) => &disk.name,
            Was::Missing { name } => name,
        };
        if self.removed {
            format!("removed {name}\n")
        } else {
            format!("{name} goes once what is in flight has ended and the list is written\n")
        }
    }
}
