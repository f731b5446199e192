//! What is wrong with a description, and what to write instead.

use super::SizeError;

const KINDS: &str = "write `null:size=2G`, `memory:size=1G`, `file:path=disk.img`, \
    `qcow2:path=disk.qcow2`, `vhost-user:path=disk.sock`, `rbd:pool=rbd,image=disk`, `fault:...,on=` one of these, or \
    `linear:`, `striped:` or `table:` over several";

/// What is wrong with a description of a disk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the fields are what the messages say they are")]
#[non_exhaustive]
pub enum SpecError {
    /// It does not say what kind of disk.
    #[error("`{spec}` does not begin with a kind of disk and a colon; {KINDS}")]
    NoKind { spec: String },
    /// There is no such kind.
    #[error("there is no disk of the kind `{kind}`; {KINDS}")]
    UnknownKind { kind: String },
    /// An option without a value.
    #[error(
        "`{option}` is not KEY=VALUE; write for example `{example}` (a comma in a value twice: `,,`)"
    )]
    NoValue {
        option: String,
        example: &'static str,
    },
    /// There is no such option.
    #[error("a disk of the kind `{kind}` has no `{key}`; write for example `{example}`")]
    UnknownKey {
        kind: &'static str,
        key: String,
        example: &'static str,
    },
    /// The same option twice.
    #[error("`{key}` is given twice; leave out one")]
    Twice { key: String },
    /// An option that cannot be left out.
    #[error("`{key}` is missing; write for example `{example}`")]
    Missing {
        key: &'static str,
        example: &'static str,
    },
    /// Not a size.
    #[error("`{key}={value}` is not a size; write for example `{example}`")]
    Size {
        key: &'static str,
        value: String,
        example: &'static str,
        source: SizeError,
    },
    /// Not one of the values that an option has.
    #[error("there is no `{key}={value}`; use {values}")]
    Choice {
        key: &'static str,
        value: String,
        values: String,
    },
    /// A disk made of disks made of disks, and so on.
    #[error("`{disk}` is nested more than {most} deep; write fewer disks into each other")]
    Nested { disk: String, most: u32 },
    /// Not a part of such a disk.
    #[error("`{option}` {remedy}")]
    Part {
        option: String,
        remedy: &'static str,
    },
}
