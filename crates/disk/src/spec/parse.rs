//! Reading descriptions: which kind, with which options.

use super::options::{FORMATS, Given, LOCKS};
use super::{Spec, SpecError, VhostUser, fault, rbd, stack};
use crate::file::Settings;
use crate::qcow2;

/// The kinds by which a leg is known to be no path.
pub const KIND_NAMES: [&str; 10] = [
    "null",
    "memory",
    "file",
    "qcow2",
    "vhost-user",
    "rbd",
    "fault",
    "linear",
    "striped",
    "table",
];
/// How deep descriptions may be nested: reading them takes stack. Programs may nest disks as deep as they like.
const DEEPEST: u32 = 32;
const NULL: &str = "null:size=2G";
const MEMORY: &str = "memory:size=1G";
const FILE: &str = "file:path=disk.img,cache=writeback";
const QCOW2: &str = "qcow2:path=disk.qcow2";
const VHOST_USER: &str = "vhost-user:path=disk.sock";

/// May `disk` be nested in so many others?
pub fn nested(depth: u32, disk: impl FnOnce() -> String) -> Result<(), SpecError> {
    if depth > DEEPEST {
        let (disk, most) = (disk(), DEEPEST);
        return Err(SpecError::Nested { disk, most });
    }
    Ok(())
}

/// Reads a description that is nested in `depth` others.
pub fn parse(spec: &str, depth: u32) -> Result<Spec, SpecError> {
    let (kind, rest) = match spec.split_once(':') {
        Some(parts) => parts,
        None if spec.is_empty() => return Err(SpecError::Empty),
        // Its options are missing.
        None if KIND_NAMES.contains(&spec) => (spec, ""),
        None => return Err(SpecError::NoKind { spec: spec.into() }),
    };
    nested(depth, || format!("{kind}:"))?;
    match kind {
        "null" => {
            let size = Given::parse("null", NULL, rest)?.size()?;
            Ok(Spec::Null { size })
        }
        "memory" => {
            let size = Given::parse("memory", MEMORY, rest)?.size()?;
            Ok(Spec::Memory { size })
        }
        "file" => {
            let mut given = Given::parse("file", FILE, rest)?;
            let settings = Settings {
                lock: given.choice("lock", &LOCKS)?,
                format: given.choice("format", &FORMATS)?,
                ..given.settings()?
            };
            let path = given.last("path")?.into();
            Ok(Spec::File { path, settings })
        }
        "qcow2" => {
            let mut given = Given::parse("qcow2", QCOW2, rest)?;
            let settings = qcow2::Settings {
                file: Settings {
                    lock: given.choice("lock", &LOCKS)?,
                    ..given.settings()?
                },
                backing: given.backing()?,
            };
            let path = given.last("path")?.into();
            Ok(Spec::Qcow2 { path, settings })
        }
        "vhost-user" => {
            let mut given = Given::parse("vhost-user", VHOST_USER, rest)?;
            let queues = given.number("queues", 1..=u16::MAX)?;
            let reconnect = given.time("reconnect")?;
            let path = given.last("path")?.into();
            Ok(Spec::VhostUser(VhostUser {
                path,
                queues,
                reconnect,
            }))
        }
        "rbd" => Ok(Spec::Rbd(rbd::parse(rest)?)),
        "fault" => fault::parse(rest, depth + 1),
        "linear" => stack::linear(rest, depth + 1),
        "striped" => stack::striped(rest, depth + 1),
        "table" => stack::table(rest, depth + 1),
        _ => Err(SpecError::UnknownKind {
            kind: kind.to_owned(),
        }),
    }
}
