//! Disks, and the daemons that serve them.

use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

use crate::control::client::{NoAnswer, each, get, named};
use crate::model::{Disk, Disks, Health};

/// A path in JSON, which is text: of one that is none, what can be shown.
pub fn lossy<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

pub type Error = Box<dyn std::error::Error>;

/// A disk, and the daemon that serves it.
#[derive(Clone, Debug, Serialize)]
pub struct Listed {
    #[serde(serialize_with = "lossy")]
    pub control: PathBuf,
    #[serde(flatten)]
    pub disk: Disk,
}

impl Listed {
    /// What its daemon has answered of it.
    pub fn told(&self, answer: Result<Disk, NoAnswer>) -> Result<Self, Error> {
        let control = self.control.clone();
        let disk = answer.map_err(|error| named(&control, &error))?;
        Ok(Self { control, disk })
    }
}

/// The disks of all daemons that were asked, and how many of these did not answer.
pub fn ask_all(asked: Option<&Path>) -> Result<(Vec<Listed>, usize), Error> {
    let (disks, failed) = each(asked, |control| {
        let Disks { disks } = get(control, "/v1/disks")?;
        let listed = |disk| Listed {
            control: control.to_owned(),
            disk,
        };
        Ok(disks.into_iter().map(listed).collect::<Vec<_>>())
    })?;
    for why in &failed {
        tracing::error!("{why}");
    }
    Ok((disks.concat(), failed.len()))
}

/// The same daemons, each with the disks on its list that it could not open.
pub fn ask_for_missing(asked: Option<&Path>) -> Result<Vec<(PathBuf, Vec<String>)>, Error> {
    let (daemons, _) = each(asked, |control| {
        let health: Health = get(control, "/v1/health")?;
        Ok((control.to_owned(), health.missing))
    })?;
    Ok(daemons)
}

/// The disk called `name`.
pub fn one<'a>(disks: &'a [Listed], name: &str) -> Result<&'a Listed, Error> {
    let wanted: Vec<_> = disks
        .iter()
        .filter(|listed| listed.disk.name == name)
        .collect();
    match wanted[..] {
        [listed] => Ok(listed),
        [] => Err(unknown(name)),
        _ => Err(several(wanted.iter().map(|listed| &*listed.control), name)),
    }
}

/// No daemon that was asked has a disk called `name`.
pub fn unknown(name: &str) -> Error {
    format!("there is no disk `{name}`; `pollux disk list` shows those that there are").into()
}

/// More than one of them have it.
pub fn several<'a>(daemons: impl Iterator<Item = &'a Path>, name: &str) -> Error {
    format!("several daemons have a disk `{name}`; {}", which(daemons)).into()
}

/// Asks for one of these daemons.
pub fn which<'a>(daemons: impl Iterator<Item = &'a Path>) -> String {
    let options = daemons.map(|control| format!("`--control {}`", control.display()));
    let options: Vec<_> = options.collect();
    format!("say which by {}", options.join(" or "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemons_to_choose_from_are_named() {
        let daemons = ["/run/a.control", "/run/b.control"].map(Path::new);
        assert_eq!(
            several(daemons.into_iter(), "root").to_string(),
            "several daemons have a disk `root`; say which by `--control /run/a.control` or `--control /run/b.control`"
        );
    }
}
