//! What belongs to disks that are to come back: they are missing now, and want their images and sockets again when the
//! daemon is next started. A disk that took these would be turned out then, with the guest that uses it.

use std::path::{Path, PathBuf};

use pollux::disk::Spec;
use pollux::disk::file::Locked;

use crate::control::folders::{reached, real};
use crate::disks::Disks;
use crate::model::{NewDisk, Problem, Refused};

/// Fails if a missing disk wants what `new`, which is to be added as `name`, names.
///
/// # Errors
///
/// A conflict that names the other disk.
pub fn check(disks: &Disks, name: &str, new: &NewDisk) -> Result<(), Refused> {
    // Without the list's lock: to look at a path may take a while.
    let missing = disks.list().missing_disks();
    let (wants, images) = (Wants::of(new), images(new));
    for (other, kept) in missing.iter().filter(|(other, _)| *other != name) {
        let socket = new.socket_path.as_deref().zip(kept.socket_path.as_deref());
        if let Some((socket, _)) = socket.filter(|(ours, its)| are_same(ours, its)) {
            return Err(taken(socket, other).of("socket_path").into());
        }
        let its = self::images(kept);
        let is_its = |image: &&PathBuf| its.iter().any(|path| are_same(image, path));
        if !wants.goes_with(Wants::of(kept))
            && let Some(image) = images.iter().find(is_its)
        {
            return Err(taken(image, other).of("disk").into());
        }
    }
    Ok(())
}

/// How a disk uses its images.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wants {
    ToRead,
    /// As long as a frontend uses it (`lock=running`).
    WhileItRuns,
    Alone,
}

impl Wants {
    fn of(disk: &NewDisk) -> Self {
        let runs = |part: &&Spec| match part {
            Spec::File { settings, .. } => settings.lock == Locked::Running,
            Spec::Qcow2 { settings, .. } => settings.file.lock == Locked::Running,
            _ => false,
        };
        match disk.disk.parse::<Spec>() {
            _ if disk.read_only => Self::ToRead,
            Ok(spec) if spec.parts().iter().any(runs) => Self::WhileItRuns,
            _ => Self::Alone,
        }
    }

    fn goes_with(self, other: Self) -> bool {
        self == other && self != Self::Alone
    }
}

/// The files that a disk names. One that was passed has none that is known.
fn images(disk: &NewDisk) -> Vec<PathBuf> {
    let spec = disk.disk.parse::<Spec>().ok().filter(|_| !disk.passed);
    spec.iter().flat_map(reached).map(Path::to_owned).collect()
}

/// Do both paths lead to one file? What lies elsewhere may not answer, and is not asked.
fn are_same(ours: &Path, its: &Path) -> bool {
    let ours = real(ours);
    ours == its || (ours.file_name() == its.file_name() && ours == real(its))
}

fn taken(what: &Path, other: &str) -> Problem {
    let detail = format!(
        "{} belongs to the disk `{other}`, which is missing, and is opened again when the daemon is next started",
        what.display()
    );
    let remedy = format!("`pollux disk remove {other}` gives it up; or choose another");
    Problem::conflict(detail, remedy)
}
