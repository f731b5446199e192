//! Disks, and the daemons that serve them.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::control::client::{NoAnswer, get};
use crate::control::sockets::{Sockets, find};
use crate::log::chain;
use crate::model::{Disk, Disks};

pub type Error = Box<dyn std::error::Error>;

/// A disk, and the daemon that serves it.
#[derive(Debug, Serialize)]
pub struct Listed {
    pub control: PathBuf,
    #[serde(flatten)]
    pub disk: Disk,
}

/// What a daemon did not do, and which.
pub fn named(control: &Path, error: &dyn std::error::Error) -> Error {
    format!("--control {}: {}", control.display(), chain(error)).into()
}

/// The disks of all daemons that were asked, and how many of these did not answer.
pub fn ask_all(asked: Option<&Path>) -> Result<(Vec<Listed>, usize), Error> {
    let found =
        find(asked).map_err(|error| format!("cannot search for control sockets: {error}"))?;
    let (folder, sockets) = match found {
        Sockets::One(path) => {
            let disks: Disks = get(&path, "/v1/disks").map_err(|error| named(&path, &error))?;
            return Ok((of(&path, disks), 0));
        }
        Sockets::Folder(folder, sockets) => (folder, sockets),
    };
    if sockets.is_empty() {
        return Err(Sockets::none_in(&folder).into());
    }
    let (mut all, mut failed) = (Vec::new(), 0);
    for path in sockets {
        match get(&path, "/v1/disks") {
            Ok(disks) => all.extend(of(&path, disks)),
            // It was killed, and has left its socket.
            Err(NoAnswer::Absent(_)) => {
                tracing::info!(path = %path.display(), "no server listens there");
            }
            Err(error) => {
                tracing::error!("{}", named(&path, &error));
                failed += 1;
            }
        }
    }
    Ok((all, failed))
}

fn of(control: &Path, disks: Disks) -> Vec<Listed> {
    let listed = |disk| Listed {
        control: control.to_owned(),
        disk,
    };
    disks.disks.into_iter().map(listed).collect()
}

/// The disk called `name`.
pub fn one<'a>(disks: &'a [Listed], name: &str) -> Result<&'a Listed, Error> {
    let wanted: Vec<_> = disks
        .iter()
        .filter(|listed| listed.disk.name == name)
        .collect();
    match wanted[..] {
        [listed] => Ok(listed),
        [] => Err(format!(
            "there is no disk `{name}`; `pollux disk list` shows those that there are"
        )
        .into()),
        _ => {
            let found = wanted.len();
            Err(format!("{found} daemons have a disk `{name}`; say which by --control PATH").into())
        }
    }
}
