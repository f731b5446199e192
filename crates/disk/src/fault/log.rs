//! The log of what reaches the disk below.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use rustix::io::Errno;

use crate::file::may_append;
use crate::{Failure, Op};

/// How much of what is written the log shows.
const SHOWN: usize = 32;

/// A file that others may append to as well: each line is one write at its end.
#[derive(Debug)]
pub struct Log(File);

impl Log {
    pub fn open(path: &Path) -> io::Result<Self> {
        // What locks a file together with others has to be able to read it.
        let mut options = OpenOptions::new();
        let file = options.read(true).append(true).create(true).open(path)?;
        if may_append(&file)? {
            Ok(Self(file))
        } else {
            let why = "it is an image that a disk is in; name another file";
            Err(io::Error::other(why))
        }
    }

    /// Appends a line about `op`. What cannot be logged is not done.
    pub fn tell(&self, op: &Op) -> Result<(), Failure> {
        let (doing, at, len) = described(op);
        let mut line = format!("{doing} {at} {len}");
        if let Op::Write { from, .. } = op {
            line.push(' ');
            let mut left = SHOWN;
            for span in from.iter() {
                let (shown, _) = span.split_at(span.len().min(left));
                left -= shown.len();
                let mut bytes = [0; SHOWN];
                let bytes = &mut bytes[..shown.len()];
                shown.read(bytes);
                let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
                line.extend(digits.filter_map(|digit| char::from_digit(digit.into(), 16)));
            }
        }
        line.push('\n');
        let told = (&self.0).write_all(line.as_bytes());
        told.map_err(|error| Failure::Io(Errno::from_io_error(&error).unwrap_or(Errno::IO)))
    }
}

/// What `op` does, where, and to how many bytes.
pub fn described(op: &Op) -> (&'static str, u64, u64) {
    match *op {
        Op::Read { at, into } => ("read", at, into.bytes()),
        Op::Write { at, from, .. } => ("write", at, from.bytes()),
        Op::Flush => ("flush", 0, 0),
        Op::Discard { at, len } => ("discard", at, len),
        Op::WriteZeroes { at, len, .. } => ("write-zeroes", at, len),
    }
}
