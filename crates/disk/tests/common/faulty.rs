//! Disks that misbehave.

use std::sync::Arc;

use pollux_disk::fault::Faults;
use pollux_disk::file::{Inline, Settings};
use pollux_disk::{Disk, Fault, File, Geometry, Memory, Options, Spec};

pub fn faults(rules: &str) -> Faults {
    match format!("fault:{rules},on=null:size=1").parse() {
        Ok(Spec::Fault { faults, .. }) => faults,
        other => panic!("{rules}: {other:?}"),
    }
}

/// `below`, with the faults that `rules` describe.
pub fn over(below: Arc<dyn Disk>, rules: &str) -> Fault {
    Fault::new(below, &faults(rules)).unwrap()
}

pub fn memory(bytes: u64) -> Arc<Memory> {
    Arc::new(Memory::new(Geometry::plain(bytes)).unwrap())
}

/// A disk that ends nothing before it is reaped.
pub fn file() -> Arc<File> {
    let path = tempfile::NamedTempFile::new().unwrap();
    path.as_file().set_len(1 << 20).unwrap();
    let settings = Settings {
        inline: Inline::Off,
        ..Settings::default()
    };
    Arc::new(File::open(path.path(), settings, &Options::default()).unwrap())
}

pub fn faulty(rules: &str) -> Fault {
    over(memory(1 << 20), rules)
}
