//! Is a file also behind a loop device, mounted perhaps? No lock tells: the kernel takes none.

use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::Access;

/// The loop device over the file that `image` is of, where it must not be used beside it with such access: two that
/// only read do no harm.
pub fn over(image: &Metadata, access: Access) -> Option<String> {
    within(Path::new("/sys/block"), image, access)
}

fn within(devices: &Path, image: &Metadata, access: Access) -> Option<String> {
    // Without `/sys` there is nothing to be known.
    let devices = fs::read_dir(devices).into_iter().flatten().flatten();
    let mut names = devices.filter_map(|device| {
        if !device.file_name().as_bytes().starts_with(b"loop") {
            return None;
        }
        let folder = device.path();
        // Only a device that has a file has this entry.
        let path = fs::read(folder.join("loop/backing_file")).ok()?;
        let path = path.strip_suffix(b"\n").unwrap_or(&path);
        let there = fs::metadata(Path::new(std::ffi::OsStr::from_bytes(path))).ok()?;
        let same = (there.dev(), there.ino()) == (image.dev(), image.ino());
        let reads = fs::read_to_string(folder.join("ro")).is_ok_and(|ro| ro.trim() == "1");
        let harmless = reads && access == Access::ReadOnly;
        (same && !harmless).then(|| format!("/dev/{}", device.file_name().display()))
    });
    names.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_over_an_image_is_named_unless_both_only_read() {
        let folder = tempfile::tempdir().unwrap();
        let devices = folder.path().join("block");
        let files = ["one", "other"].map(|name| folder.path().join(name));
        for (file, name, ro) in [(0, "loop3", "0"), (1, "loop4", "1")] {
            fs::write(&files[file], "").unwrap();
            let device = devices.join(name);
            fs::create_dir_all(device.join("loop")).unwrap();
            let path = format!("{}\n", files[file].display());
            fs::write(device.join("loop/backing_file"), path).unwrap();
            fs::write(device.join("ro"), format!("{ro}\n")).unwrap();
        }
        // One without a file, and one that is none.
        fs::create_dir_all(devices.join("loop0")).unwrap();
        fs::create_dir_all(devices.join("sda")).unwrap();
        let found = |file: usize, access| {
            let image = fs::metadata(&files[file]).unwrap();
            within(&devices, &image, access)
        };
        let named = |name: &str| Some(format!("/dev/{name}"));
        assert_eq!(found(0, Access::ReadWrite), named("loop3"));
        assert_eq!(found(0, Access::ReadOnly), named("loop3"));
        assert_eq!(found(1, Access::ReadWrite), named("loop4"));
        assert_eq!(found(1, Access::ReadOnly), None);
        let image = fs::metadata(folder.path()).unwrap();
        assert_eq!(within(&devices, &image, Access::ReadWrite), None);
        let nothing = folder.path().join("no sysfs");
        assert_eq!(within(&nothing, &image, Access::ReadWrite), None);
    }
}
