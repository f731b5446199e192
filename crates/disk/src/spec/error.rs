//! What is wrong with a description, and what to write instead.

use super::SizeError;

/// How much of a text a message quotes: a file that was named by mistake may be one long line.
const QUOTED: usize = 80;

const KINDS: &str = "write `null:size=2G`, `memory:size=1G`, `file:path=disk.img`, \
    `qcow2:path=disk.qcow2`, `vhost-user:path=disk.sock`, `rbd:pool=rbd,image=disk`, `fault:...,on=` one of these, or \
    `linear:`, `striped:` or `table:` over several";

/// What is wrong with a description of a disk.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the fields are what the messages say they are")]
#[non_exhaustive]
pub enum SpecError {
    /// It says nothing.
    #[error("no disk is described; {KINDS}")]
    Empty,
    /// It does not say what kind of disk.
    #[error("`{0}` does not begin with a kind of disk and a colon; for a file write `file:path={0}`, else {KINDS}", short(.spec))]
    NoKind { spec: String },
    /// There is no such kind.
    #[error("there is no disk of the kind `{}`; {KINDS}", short(.kind))]
    UnknownKind { kind: String },
    /// An option without a value.
    #[error(
        "`{}` is not KEY=VALUE; write for example `{example}` (a comma in a value twice: `,,`)",
        short(.option)
    )]
    NoValue {
        option: String,
        example: &'static str,
    },
    /// There is no such option.
    #[error(
        "a disk of the kind `{kind}` has no `{key}`; it has {}: write for example `{example}`",
        keys.join(", ")
    )]
    UnknownKey {
        kind: &'static str,
        key: String,
        keys: Vec<&'static str>,
        example: &'static str,
    },
    /// The same option twice.
    #[error("`{key}` is given twice; leave out one")]
    Twice { key: String },
    /// Nothing stands behind its `=`.
    #[error("`{key}=` is empty; leave it out, or give it a value as in `{example}`")]
    EmptyValue {
        key: &'static str,
        example: &'static str,
    },
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
    /// What only the other engine can do.
    #[error("`buffers=registered` needs `engine=io_uring`; threads register no memory")]
    NothingRegistered,
    /// A disk made of disks made of disks, and so on.
    #[error("`{disk}` is nested more than {most} deep; write fewer disks into each other")]
    Nested { disk: String, most: u32 },
    /// Not a part of such a disk.
    #[error("`{}` {remedy}", short(.option))]
    Part {
        option: String,
        remedy: &'static str,
    },
    /// Not a line of a table.
    #[error("`{}` {wrong}; write for example `{example}`, in sectors of 512 bytes", short(.line))]
    Line {
        line: String,
        wrong: &'static str,
        example: &'static str,
    },
}

/// The beginning of `text`.
pub fn short(text: &str) -> String {
    match text.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
