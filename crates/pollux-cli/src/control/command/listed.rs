//! Disks, and the daemons that serve them.

use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

use crate::control::client::{NoAnswer, each, get, named};
use crate::model::{Disk, Disks, Health, Status};

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

/// What all daemons that were asked have answered.
#[derive(Debug, Default)]
pub struct Answers {
    pub disks: Vec<Listed>,
    /// Daemons with disks on their lists that they could not open.
    pub missing: Vec<(PathBuf, Vec<String>)>,
    /// How many did not answer.
    pub failed: usize,
}

/// Asks them.
pub fn ask_all(asked: Option<&Path>) -> Result<Answers, Error> {
    let (answers, failed) = each(asked, |control| {
        let Disks { disks } = get(control, "/v1/disks")?;
        Ok((
            control.to_owned(),
            disks,
            get::<Health>(control, "/v1/health")?,
        ))
    })?;
    for why in &failed {
        tracing::error!("{why}");
    }
    let mut all = Answers {
        failed: failed.len(),
        ..Answers::default()
    };
    for (control, disks, health) in answers {
        let listed = |disk| Listed {
            control: control.clone(),
            disk,
        };
        all.disks.extend(disks.into_iter().map(listed));
        // One that ends has closed them.
        if health.status == Status::Serving && !health.missing.is_empty() {
            all.missing.push((control, health.missing));
        }
    }
    Ok(all)
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
