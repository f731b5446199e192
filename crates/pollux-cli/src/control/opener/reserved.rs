//! What belongs to disks that are to come back: they are missing now, and want their images and sockets again when the
//! daemon is next started. A disk that took these would be turned out then, with the guest that uses it.

use std::path::{Path, PathBuf};

use pollux::disk::Spec;

use crate::control::folders::{reached, real};
use crate::disks::Disks;
use crate::model::{NewDisk, Problem, Refused};

/// Fails if a missing disk wants the image of `spec` or the `socket`, for a disk called `name` that is to be added.
///
/// # Errors
///
/// A conflict that names the other disk.
pub fn check(
    disks: &Disks,
    name: &str,
    read_only: bool,
    spec: &Spec,
    socket: &Path,
) -> Result<(), Refused> {
    // Without the list's lock: to look at a path may take a while.
    let missing = disks.list().missing_disks();
    let wanted: Vec<PathBuf> = reached(spec).map(real).collect();
    for (other, kept) in missing.into_iter().filter(|(other, _)| other != name) {
        let is_its_socket = |path: &PathBuf| real(path) == real(socket);
        if kept.socket_path.as_ref().is_some_and(is_its_socket) {
            return Err(taken(&socket.display().to_string(), &other)
                .of("socket_path")
                .into());
        }
        if read_only && kept.read_only {
            continue;
        }
        if let Some(image) = images(&kept).into_iter().find(|path| wanted.contains(path)) {
            return Err(taken(&image.display().to_string(), &other)
                .of("disk")
                .into());
        }
    }
    Ok(())
}

/// The files of a disk that is kept. One that was passed has none that is known.
fn images(kept: &NewDisk) -> Vec<PathBuf> {
    let spec = kept.disk.parse::<Spec>().ok().filter(|_| !kept.passed);
    spec.iter().flat_map(reached).map(real).collect()
}

fn taken(what: &str, other: &str) -> Problem {
    let detail = format!(
        "{what} belongs to the disk `{other}`, which is missing, and is opened again when the daemon is next started"
    );
    let remedy = format!("`pollux disk remove {other}` gives it up; or choose another");
    Problem::conflict(detail, remedy)
}
