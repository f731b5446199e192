//! Names that other commands and programs have for what is called otherwise here. Each is refused with what to write,
//! as the nearest name here may do something else.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::builder::{StyledStr, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory, Error, FromArgMatches};

use super::Cli;
use crate::bench;

/// All spellings of an option, and what to write instead.
pub type Names = (&'static [&'static str], &'static str);

/// Of `pollux serve` and `pollux disk add`.
const OF_A_DISK: [Names; 10] = [
    (&["--socket", "--socket_path"], "write --socket-path PATH"),
    (
        &["--file", "--filename", "--image", "--blk_file"],
        "write --blk-file PATH, or --disk SPEC for a disk of another kind",
    ),
    (&["--readonly", "--read_only"], "write --read-only"),
    (&["--queues", "--num_queues"], "write --num-queues N"),
    (&["--queue_size"], "write --queue-size N"),
    (
        &["--cache", "--direct"],
        "this is an option of an image; write it after the path: --disk file:path=PATH,cache=none",
    ),
    (
        &["--engine"],
        "this is an option of an image; write it after the path: --disk file:path=PATH,engine=threads",
    ),
    (
        &["--lock"],
        "this is an option of an image; write it after the path: --disk file:path=PATH,lock=running",
    ),
    (
        &["--format"],
        "the kind of a disk says its format: --disk file:path=PATH for a raw one, --disk qcow2:path=PATH",
    ),
    (
        &["--size"],
        "a disk in memory has a size: --disk memory:size=1G; an image is made by truncate --size=10G PATH",
    ),
];

/// Of `pollux disk add` alone: most are options of `pollux serve`.
const OF_AN_ADDED_DISK: [Names; 4] = [
    (&["--name"], "the name comes first: pollux disk add NAME"),
    (
        &["--table"],
        "write the table itself: --disk 'table:LINE;LINE...'",
    ),
    (
        &["--poll-scope", "--fd", "--fd-name"],
        "only `pollux serve` has this option; leave it out",
    ),
    (&["--json"], AS_JSON),
];

/// Of the other commands of `pollux disk`, and of `pollux top`.
const OF_AN_OUTPUT: [Names; 1] = [(&["--json", "--format"], AS_JSON)];

const AS_JSON: &str = "write --output json";

/// What follows `pollux` or `pollux disk`, and what is meant.
const COMMANDS: [Names; 10] = [
    (&["run", "start"], "serve"),
    (&["list", "ls", "info", "show"], "disk list"),
    (&["stats", "stat"], "disk stats"),
    (&["add", "create"], "disk add"),
    (&["remove", "rm", "delete"], "disk remove"),
    (&["resize"], "disk resize"),
    (&["trace"], "disk trace"),
    (&["limit", "limits"], "disk limit"),
    (&["latencies", "latency"], "disk latencies"),
    (&["version"], "--version"),
];

/// Of a word that no option of `pollux bench` takes.
const JOB_FILE: &str = "job files are not read; write their lines as options: --rw randread";

/// Each stands once on a command line, as that is one disk.
const ONE_DISK: [&str; 3] = ["--disk", "--blk-file", "--socket-path"];
const SEVERAL_DISKS: &str = "one command line is one disk; several stand in a file, each in a section [[disk]]: \
    pollux serve --config FILE.toml";

/// How the names of job files end.
const JOB_FILES: [&str; 3] = [".fio", ".job", ".ini"];

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
                disk.mut_subcommands(|action| match action.get_name() {
                    "add" => action
                        .args(refused(&OF_A_DISK))
                        .args(refused(&OF_AN_ADDED_DISK)),
                    _ => action.args(refused(&OF_AN_OUTPUT)),
                })
            })
            .mut_subcommand("top", |top| top.args(refused(&OF_AN_OUTPUT)))
            .mut_subcommand("bench", |bench| bench.args(bench::foreign()));
        let mut matches = command
            .try_get_matches_from_mut(words)
            .map_err(|error| hinted(error, &command))?;
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

/// Leaves of clap's suggestions for `command` those that a slip has missed, and that help shows. Of values none: all
/// that there are are listed, and `randwrite`, which destroys data, is near to others.
fn drop_far_suggestions(error: &mut Error, command: &Command) {
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
        let is_hidden = |name: &str| {
            let mut hidden = command.get_arguments().filter(|arg| arg.is_hide_set());
            hidden.any(|arg| arg.get_long() == name.strip_prefix("--"))
        };
        let is_near = |name: &String| strsim::osa_distance(typed, name) <= SLIP && !is_hidden(name);
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
    if let Some(ContextValue::StyledStrs(mut tips)) = error.remove(ContextKind::Suggested) {
        tips.retain(|tip| !tip.to_string().contains("as a value"));
        if !tips.is_empty() {
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
        }
    }
}

/// The command that `usage` is about, below `command`.
fn below<'a>(command: &'a Command, usage: &str) -> &'a Command {
    usage.split_whitespace().fold(command, |command, word| {
        command.find_subcommand(word).unwrap_or(command)
    })
}

/// What to write for a `word` that no option of `command` takes.
fn instead_of(word: &str, command: &Command) -> Option<String> {
    let is_spec = word.contains(':');
    let command_name = command.get_name();
    match command_name {
        "serve" | "bench" if word == "help" => {
            Some(format!("write `pollux {command_name} --help`"))
        }
        "serve" if ends_in(word, "toml") => Some(format!("write --config {word}")),
        "serve" | "add" | "bench" if ends_in(word, "qcow2") && !is_spec => {
            Some(format!("write --disk qcow2:path={word}"))
        }
        "serve" | "add" | "bench" if is_option(word, command) => Some(format!("write --{word}")),
        "bench" if JOB_FILES.iter().any(|end| word.ends_with(end)) => Some(JOB_FILE.to_owned()),
        "serve" | "add" | "bench" if is_spec => Some(format!("write --disk {word}")),
        "serve" | "add" => Some(format!("write --blk-file {word}")),
        "bench" => Some(format!(
            "for the socket of a server write --socket {word}, for an image --filename {word}"
        )),
        _ => None,
    }
}

fn ends_in(word: &str, extension: &str) -> bool {
    Path::new(word).extension() == Some(OsStr::new(extension))
}

/// Is it an option with its hyphens forgotten?
fn is_option(word: &str, command: &Command) -> bool {
    let mut shown = command.get_arguments().filter(|arg| !arg.is_hide_set());
    shown.any(|arg| arg.get_long() == Some(word))
}

/// `error`, and where it is known what was meant, what to write.
fn hinted(mut error: Error, command: &Command) -> Error {
    let about = |error: &Error, kind| error.get(kind).map(ToString::to_string).unwrap_or_default();
    let command = below(command, &about(&error, ContextKind::Usage));
    drop_far_suggestions(&mut error, command);
    drop_escapes(&mut error);
    let unknown = about(&error, ContextKind::InvalidSubcommand);
    let meant = COMMANDS
        .iter()
        .find(|(names, _)| names.contains(&&*unknown));
    let argument = about(&error, ContextKind::InvalidArg);
    let name = argument.split_whitespace().next().unwrap_or_default();
    let tip = if let Some((_, meant)) = meant {
        Some(format!("write `pollux {meant}`"))
    } else if error.kind() == ErrorKind::ArgumentConflict && ONE_DISK.contains(&name) {
        Some(SEVERAL_DISKS.to_owned())
    } else if error.kind() == ErrorKind::TooManyValues {
        Some(format!("write {argument} alone: it takes no value"))
    } else if error.kind() == ErrorKind::UnknownArgument
        && command.get_name() == "pollux"
        && error.get(ContextKind::SuggestedArg).is_none()
    {
        Some("write the command first, for example `pollux serve`".to_owned())
    } else if error.kind() == ErrorKind::UnknownArgument && !argument.starts_with('-') {
        instead_of(&argument, command)
    } else {
        None
    };
    if let Some(tip) = tip {
        error.remove(ContextKind::SuggestedSubcommand);
        let tips = ContextValue::StyledStrs(vec![StyledStr::from(tip)]);
        error.insert(ContextKind::Suggested, tips);
    }
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
            ("serve --image f", "write --blk-file PATH, or --disk"),
            ("serve disk.img", "tip: write --blk-file disk.img"),
            ("serve p.toml", "tip: write --config p.toml"),
            ("serve d.qcow2", "tip: write --disk qcow2:path=d.qcow2"),
            ("serve disk null:size=1G", "tip: write --disk"),
            ("bench config", "for the socket of a server"),
            ("serve --blk-file a --blk-file b", "a section [[disk]]"),
            ("serve --read-only=true", "write --read-only alone"),
            ("serve --engine threads", "file:path=PATH,engine=threads"),
            ("serve --format qcow2", "--disk qcow2:path=PATH"),
            ("--socket-path s", "for example `pollux serve`"),
            ("run --blk-file a", "write `pollux serve`"),
            ("disk delete x", "write `pollux disk remove`"),
            ("disk add x null:size=1G", "tip: write --disk null:size=1G"),
            ("disk add x a.img", "tip: write --blk-file a.img"),
            ("disk add x --name y", "the name comes first"),
            ("disk add x --table f", "write the table itself"),
            ("disk add x --poll-scope queue", "only `pollux serve` has"),
            ("disk list --format json", "write --output json"),
            ("disk add x --json", "write --output json"),
            ("top --json", "write --output json"),
            ("disk info root", "write `pollux disk list`"),
            ("disk stat", "write `pollux disk stats`"),
            ("disk ls", "write `pollux disk list`"),
            ("ls", "write `pollux disk list`"),
            ("list", "write `pollux disk list`"),
            ("stats", "write `pollux disk stats`"),
            ("version", "write `pollux --version`"),
            ("bench --disk d read.fio", "tip: job files are not read"),
            ("bench p.sock", "write --socket p.sock, for an image"),
            ("bench null:size=1G", "tip: write --disk null:size=1G"),
            ("bench help", "tip: write `pollux bench --help`"),
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
            "bench --disk d --fsyn 1",
            "disk list --wide",
        ] {
            let line = format!("pollux {line}");
            let error = Cli::read(line.split(' ')).unwrap_err().to_string();
            assert!(!error.contains("tip:"), "{line}: {error}");
            assert!(!error.contains("\n\n\n"), "{line}: {error}");
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
