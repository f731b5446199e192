//! What a disk did, in which order, and what its user saw of it, over the lives of several daemons.
//!
//! The disk is a `fault:log=` one: it appends a line for each request before that reaches the image. The
//! test appends lines of its own to the same file: that the daemon was killed, and (if it is the user) that
//! it saw a write complete. So one file has all in one order, and outlives everybody who is killed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::records::Record;

/// The log of a disk of records.
#[derive(Debug)]
pub struct Executions {
    path: PathBuf,
    file: File,
}

/// What a log tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Writes that reached the disk.
    pub executed: usize,
    /// Of those, writes that a daemon before had executed, whose end nobody had seen.
    pub repeated: usize,
    /// How often the daemon was killed.
    pub kills: usize,
}

/// What must be true of a log and is not.
#[derive(Debug, PartialEq, Eq)]
pub struct Wrong(String);

impl Executions {
    /// The log `path`, which is made if need be.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        let path = path.to_owned();
        Ok(Self { path, file })
    }

    /// The disk that logs here and has `rules`, over `on`.
    pub fn spec(&self, rules: &str, on: &str) -> String {
        format!("fault:log={},{rules}on={on}", self.path.display())
    }

    /// The user sees that `record` is written.
    pub fn seen(&mut self, record: Record) -> io::Result<()> {
        let Record {
            place, sequence, ..
        } = record;
        self.file
            .write_all(format!("seen {place} {sequence}\n").as_bytes())
    }

    /// The daemon has been killed.
    pub fn killed(&mut self) -> io::Result<()> {
        // Whoever is killed while a line of theirs crosses into another page has written the first part of it, and not
        // done what it was to tell.
        let text = std::fs::read(&self.path)?;
        let whole = text.iter().rposition(|byte| *byte == b'\n');
        self.file.set_len(whole.map_or(0, |at| at as u64 + 1))?;
        self.file.write_all(b"killed\n")
    }

    /// Bytes so far.
    pub fn size(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Checks the log of writers who have one write at a time in flight each, and begin the next when they
    /// have seen the last to end; `writer` tells whose a record is.
    ///
    /// # Errors
    /// The first write that a daemon executed twice, or executed after its end was seen, or that ended
    /// without or ended twice.
    pub fn check(&self, writer: impl Fn(&Record) -> u64) -> Result<Tally, Wrong> {
        let text = std::fs::read_to_string(&self.path).map_err(|e| Wrong(e.to_string()))?;
        check(&text, writer)
    }
}

fn check(text: &str, writer: impl Fn(&Record) -> u64) -> Result<Tally, Wrong> {
    let mut tally = Tally::default();
    let mut seen = BTreeSet::new();
    // The last write of each writer, and in the how-manieth life of the daemon it was executed.
    let mut last: BTreeMap<u64, (u64, usize)> = BTreeMap::new();
    let mut executed = BTreeSet::new();
    for line in text.lines() {
        let wrong = |what: &str| Err(Wrong(format!("{what}: {line}")));
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["killed"] => tally.kills += 1,
            ["seen", place, sequence] => {
                let write = (number(place), number(sequence));
                if !executed.contains(&write) {
                    return wrong("seen without having been executed");
                }
                if !seen.insert(write) {
                    return wrong("seen twice");
                }
            }
            ["write", at, _, head] => {
                let Some(record) = Record::from_header(&bytes(head)) else {
                    return wrong("no record");
                };
                let write = (record.place, record.sequence);
                if number(at) != record.place * crate::records::RECORD as u64 {
                    return wrong("misplaced");
                }
                if seen.contains(&write) {
                    return wrong("executed again after its end was seen");
                }
                tally.executed += 1;
                let this = (record.sequence, tally.kills);
                match last.insert(writer(&record), this) {
                    Some((before, _)) if before > this.0 => {
                        return wrong("executed after a later one of its writer");
                    }
                    Some(before) if before == this => return wrong("executed twice by one daemon"),
                    Some((before, _)) if before == this.0 => tally.repeated += 1,
                    _ => {}
                }
                executed.insert(write);
            }
            _ => {}
        }
    }
    Ok(tally)
}

fn number(text: &str) -> u64 {
    text.parse().expect("the log has numbers")
}

fn bytes(hexadecimal: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&hexadecimal[at..at + 2], 16).expect("hexadecimal");
    (0..hexadecimal.len()).step_by(2).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(place: u64, sequence: u64) -> String {
        let seed = 7;
        let record = Record {
            seed,
            place,
            sequence,
        };
        let head: Vec<_> = record.encode()[..32]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        format!("write {} 4096 {}", place * 4096, head.concat())
    }

    fn told(lines: &[&str]) -> Result<Tally, Wrong> {
        check(&lines.join("\n"), |record| record.place)
    }

    #[test]
    fn a_line_that_a_killed_daemon_has_not_finished_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut executions = Executions::open(&path).unwrap();
        let line = write(1, 1);
        std::fs::write(&path, format!("{line}\n{}", &line[..20])).unwrap();
        executions.killed().unwrap();
        let told = std::fs::read_to_string(&path).unwrap();
        assert_eq!(told, format!("{line}\nkilled\n"));
    }

    #[test]
    fn a_repetition_that_nobody_had_seen_is_right() {
        let lines = [
            &write(1, 1),
            "killed",
            &write(1, 1),
            "seen 1 1",
            &write(1, 2),
        ];
        let tally = Tally {
            executed: 3,
            repeated: 1,
            kills: 1,
        };
        assert_eq!(told(&lines), Ok(tally));
    }

    #[test]
    fn every_other_repetition_is_wrong() {
        for (lines, what) in [
            (
                vec![&*write(1, 1), "seen 1 1", "killed", &write(1, 1)],
                "after its end was seen",
            ),
            (vec![&*write(1, 1), &write(1, 1)], "twice by one daemon"),
            (
                vec![&*write(1, 2), "killed", &write(1, 1)],
                "after a later one",
            ),
            (vec![&*write(1, 1), "seen 1 1", "seen 1 1"], "seen twice"),
            (vec!["seen 1 1"], "without having been executed"),
        ] {
            let Err(Wrong(told)) = told(&lines) else {
                panic!("{lines:?} is accepted")
            };
            assert!(told.contains(what), "{told}");
        }
    }
}
