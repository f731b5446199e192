//! Names that other commands and programs have for what is called otherwise here. Each is refused with what to write,
//! as the nearest name here may do something else.

use std::ffi::{OsStr, OsString};

use clap::builder::{StyledStr, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory, Error, FromArgMatches};

use super::Cli;
use crate::bench;

/// All spellings of an option, and what to write instead.
pub type Names = (&'static [&'static str], &'static str);

/// Of `pollux serve` and `pollux disk add`.
const OF_A_DISK: [Names; 6] = [
    (&["--socket", "--socket_path"], "write --socket-path PATH"),
    (
        &["--file", "--filename", "--blk_file"],
        "write --blk-file PATH, or --disk SPEC for a disk of another kind",
    ),
    (&["--readonly", "--read_only"], "write --read-only"),
    (&["--queues", "--num_queues"], "write --num-queues N"),
    (&["--queue_size"], "write --queue-size N"),
    (
        &["--cache", "--direct", "--engine", "--format", "--lock"],
        "this is an option of an image; write it after the path: --disk file:path=PATH,cache=none",
    ),
];

/// What follows `pollux` or `pollux disk`, and the command that is meant.
const COMMANDS: [(&str, &str); 5] = [
    ("stat", "disk stats"),
    ("ls", "disk list"),
    ("rm", "disk remove"),
    ("limits", "disk limit"),
    ("latency", "disk latencies"),
];

/// Of a word that no option of `pollux bench` takes.
const JOB_FILE: &str = "job files are not read; write their lines as options: --rw randread";

impl Cli {
    /// Reads the words of a command line.
    pub fn read<W>(words: impl IntoIterator<Item = W>) -> Result<Self, Error>
    where
        W: Into<OsString> + Clone,
    {
        // They are no part of `command()`, from which completions and manual pages are made.
        let mut command = Self::command()
            .mut_subcommand("serve", |serve| serve.args(refused(&OF_A_DISK)))
            .mut_subcommand("disk", |disk| {
                disk.mut_subcommand("add", |add| add.args(refused(&OF_A_DISK)))
            })
            .mut_subcommand("bench", |bench| bench.args(bench::foreign()));
        let mut matches = command.try_get_matches_from_mut(words).map_err(hinted)?;
        Self::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut command))
    }
}

/// These options.
pub fn refused(names: &'static [Names]) -> impl Iterator<Item = Arg> {
    let option = |name, instead| option(name).value_parser(Refusal { name, instead });
    names
        .iter()
        .flat_map(move |(all, instead)| all.iter().map(move |name| option(*name, *instead)))
}

/// An option that no help shows, with a value or without.
pub fn option(name: &'static str) -> Arg {
    // One of ours may have it for an id, but for the hyphens in front.
    Arg::new(name)
        .long(name.trim_start_matches('-'))
        .hide(true)
        .num_args(0..=1)
        .default_missing_value("1")
}

/// Takes no value, given or not: none may have been typed.
#[derive(Clone)]
struct Refusal {
    name: &'static str,
    instead: &'static str,
}

impl TypedValueParser for Refusal {
    type Value = String;

    fn parse_ref(&self, command: &Command, _: Option<&Arg>, _: &OsStr) -> Result<String, Error> {
        let Self { name, instead } = self;
        let told = format!("{name}: {instead}\n");
        Err(Error::raw(ErrorKind::UnknownArgument, told).with_cmd(command))
    }
}

/// One letter that is wrong, missing or exchanged is a slip. What is further from a name may mean another one: to clap,
/// `--direct` is nearly `--reconnect`.
const SLIP: usize = 1;

/// Leaves of clap's suggestions those that a slip has missed. Of values none: all that there are are listed, and
/// `randwrite`, which destroys data, is near to others.
fn drop_far_suggestions(error: &mut Error) {
    error.remove(ContextKind::SuggestedValue);
    for (typed, suggested) in [
        (ContextKind::InvalidArg, ContextKind::SuggestedArg),
        (
            ContextKind::InvalidSubcommand,
            ContextKind::SuggestedSubcommand,
        ),
    ] {
        let Some(ContextValue::String(typed)) = error.get(typed) else {
            continue;
        };
        let is_near = |name: &String| strsim::osa_distance(typed, name) <= SLIP;
        let near = match error.get(suggested) {
            Some(ContextValue::String(name)) => Vec::from_iter(is_near(name).then(|| name.clone())),
            Some(ContextValue::Strings(names)) => {
                names.iter().filter(|name| is_near(name)).cloned().collect()
            }
            _ => continue,
        };
        if near.is_empty() {
            error.remove(suggested);
        } else {
            error.insert(suggested, ContextValue::Strings(near));
        }
    }
}

/// Leaves out how to pass a word with hyphens in front as a value: here none is.
fn drop_escapes(error: &mut Error) {
    if let Some(ContextValue::StyledStrs(tips)) = error.remove(ContextKind::Suggested) {
        let others = tips
            .into_iter()
            .filter(|tip| !tip.to_string().contains("as a value"));
        let others = ContextValue::StyledStrs(others.collect());
        error.insert(ContextKind::Suggested, others);
    }
}

/// `error`, and where it is known what was meant, what to write.
fn hinted(mut error: Error) -> Error {
    drop_far_suggestions(&mut error);
    drop_escapes(&mut error);
    let about = |kind| error.get(kind).map(ToString::to_string).unwrap_or_default();
    let command = about(ContextKind::InvalidSubcommand);
    let meant = COMMANDS.iter().find(|(name, _)| *name == command);
    let argument = about(ContextKind::InvalidArg);
    let tip = if let Some((_, meant)) = meant {
        format!("write `pollux {meant}`")
    } else if error.kind() == ErrorKind::UnknownArgument
        && !argument.starts_with('-')
        && about(ContextKind::Usage).contains("pollux bench")
    {
        JOB_FILE.to_owned()
    } else {
        return error;
    };
    error.remove(ContextKind::SuggestedSubcommand);
    let tips = ContextValue::StyledStrs(vec![StyledStr::from(tip)]);
    error.insert(ContextKind::Suggested, tips);
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_from_elsewhere_is_refused_with_what_to_write() {
        for (line, words) in [
            ("serve --socket s", "error: --socket: write --socket-path"),
            ("serve --socket_path=s", "write --socket-path"),
            ("serve --readonly", "error: --readonly: write --read-only"),
            ("serve --filename f", "write --blk-file PATH, or --disk"),
            ("serve --file f", "write --blk-file PATH, or --disk"),
            ("serve --queues 2", "error: --queues: write --num-queues"),
            ("disk add x --queues 2", "write --num-queues"),
            (
                "serve --cache none",
                "write it after the path: --disk file:",
            ),
            ("disk add x --poll-scope queue", "unexpected argument"),
            ("disk stat", "write `pollux disk stats`"),
            ("disk ls", "write `pollux disk list`"),
            ("ls", "write `pollux disk list`"),
            ("bench --disk d read.fio", "tip: job files are not read"),
            ("serve --blk-fil f", "exists: '--blk-file'"),
            ("dsik list", "exists: 'disk'"),
        ] {
            let line = format!("pollux {line}");
            let error = Cli::read(line.split(' ')).unwrap_err();
            assert!(error.to_string().contains(words), "{line}: {error}");
        }
    }

    #[test]
    fn what_a_slip_would_not_have_made_is_not_suggested() {
        for line in [
            "bench --disk d --rw randwrit",
            "serve --direct",
            "bench --disk d --rwmax 3",
            "disk add x --poll-scope queue",
        ] {
            let line = format!("pollux {line}");
            let error = Cli::read(line.split(' ')).unwrap_err().to_string();
            assert!(!error.contains("tip:"), "{line}: {error}");
        }
    }

    #[test]
    fn no_completion_offers_what_is_refused() {
        let mut text = Vec::new();
        clap_complete::generate(
            clap_complete::Shell::Bash,
            &mut Cli::command(),
            "pollux",
            &mut text,
        );
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("--read-only") && !text.contains("--readonly"));
    }
}
