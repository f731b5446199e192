//! What to write instead of what a configuration file says and cannot be used.
//!
//! A value is corrected only by one that has been read in its place. The keys are those that serde knows, and the
//! options of the command line those that clap knows: no list here can miss one.

use std::fmt::{self, Display, Formatter};

use clap::{Command, CommandFactory as _};
use serde::de::value::Error as NoValue;
use serde::de::{DeserializeOwned, Error as _, Visitor};
use serde::{Deserializer, forward_to_deserialize_any};

use super::File;
use crate::cli::Cli;
use crate::export::ExportArgs;
use crate::process::ProcessArgs;

/// What is no key of a disk, but an option of its image.
const OF_AN_IMAGE: [&str; 6] = ["buffers", "cache", "engine", "format", "inline", "lock"];

/// A value for each key, as a configuration has it.
const EXAMPLES: &[(&str, &str)] = &[
    ("control", "\"/run/pollux-root/root.control\""),
    ("metrics-listen", "\"127.0.0.1:9464\""),
    ("disk-folder", "[\"/srv/pollux\"]"),
    ("state", "\"/var/lib/pollux/disks.json\""),
    ("threads", "2"),
    ("cpus", "\"0,2-3\""),
    ("poll", "\"adaptive\""),
    ("poll-max-us", "50"),
    ("poll-cpu", "\"25%\""),
    ("signal", "\"completions-first\""),
    ("kicks", "\"off-while-awake\""),
    ("calls", "\"when-quiet\""),
    ("sandbox", "\"on\""),
    ("socket-path", "\"/run/pollux/root.sock\""),
    ("fd", "3"),
    ("fd-name", "\"root\""),
    ("name", "\"root\""),
    ("blk-file", "\"/srv/pollux/root.img\""),
    ("disk", "\"memory:size=1G\""),
    ("table", "\"/etc/pollux/root.table\""),
    ("poll-scope", "\"own-in-flight\""),
    ("read-only", "true"),
    ("serial", "\"root\""),
    ("num-queues", "16"),
    ("queue-size", "1024"),
    ("block-size", "4096"),
    ("limits", "\"iops-total=5000\""),
    ("limit-group", "\"root\""),
    ("latencies", "true"),
    ("socket-mode", "\"0660\""),
    ("socket-owner", "\"libvirt-qemu:kvm\""),
    ("socket-group", "\"kvm\""),
];

/// Where a key is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Section {
    Process,
    Disk,
    BeforeSections,
}

impl Display for Section {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Process => "in the section [process]",
            Self::Disk => "in a section [[disk]]",
            Self::BeforeSections => "before the first section",
        })
    }
}

impl Section {
    const ALL: [Self; 3] = [Self::Process, Self::Disk, Self::BeforeSections];

    /// Where `key` is written, if there is such a key. Of the two `disk`, it is the one of a disk.
    fn of(key: &str) -> Option<Self> {
        let mut all = Self::ALL.into_iter();
        all.find(|section| section.keys().contains(&key))
    }

    fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Process => keys::<ProcessArgs>(),
            Self::Disk => keys::<ExportArgs>(),
            Self::BeforeSections => keys::<File>(),
        }
    }

    /// Can `line` be one of it?
    fn takes(self, line: &str) -> bool {
        match self {
            Self::Process => toml::from_str::<ProcessArgs>(line).is_ok(),
            Self::Disk => toml::from_str::<ExportArgs>(line).is_ok(),
            Self::BeforeSections => toml::from_str::<File>(line).is_ok(),
        }
    }
}

/// The keys of a section that is read as a `T`.
fn keys<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut keys: &'static [&'static str] = &[];
    // It notes them, and has no value.
    let _ = T::deserialize(Keys(&mut keys));
    keys
}

/// Notes which fields a struct has.
struct Keys<'a>(&'a mut &'static [&'static str]);

impl<'de> Deserializer<'de> for Keys<'_> {
    type Error = NoValue;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, NoValue> {
        *self.0 = fields;
        self.deserialize_any(visitor)
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, NoValue> {
        Err(NoValue::custom("there is no value"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// What to do about `error`, to add to its text.
pub fn of(text: &str, error: &toml::de::Error) -> String {
    let message = error.message();
    let span = error
        .span()
        .and_then(|span| Some((span.start, text.get(span)?)));
    // Ours tell it themselves.
    let Some((start, found)) = span.filter(|_| !message.contains("; ")) else {
        return String::new();
    };
    let line = text[..start].rfind('\n').map_or(0, |end| end + 1);
    let line = text[line..].lines().next().unwrap_or_default();
    let advice = if message.starts_with("duplicate key") {
        if line.trim_start().starts_with("[[") {
            "write the head of every disk as [[disk]], also of those above".to_owned()
        } else {
            "write it once".to_owned()
        }
    } else if line.trim_start().starts_with('[') {
        section(line)
    } else if message.starts_with("unknown field") {
        unknown(found.trim_matches('"'))
    } else {
        let (key, value) = halves(line);
        match key {
            "process" => "write a section [process]".to_owned(),
            // It has the name of the sections.
            "disk" if value.starts_with('[') => "write each disk as a section [[disk]]".to_owned(),
            "disk" if message.ends_with("expected a sequence") => unknown(key),
            // A value may have several lines.
            _ if found.starts_with(value) => values(key, found.trim()),
            _ => values(key, value),
        }
    };
    format!("; {advice}")
}

/// What to write instead of the head of a section.
fn section(line: &str) -> String {
    let name = line.split('#').next().unwrap_or_default();
    let name = name.trim_matches(|c: char| c.is_whitespace() || "[]".contains(c));
    // `[disk.limits]` is one key of a disk.
    let name = name.rsplit('.').next().unwrap_or_default();
    match (name, Section::of(name)) {
        ("process", _) => "write [process] in single brackets".to_owned(),
        ("disk", _) => "write [[disk]] in double brackets, as there may be several".to_owned(),
        (_, Some(section)) => format!("write for example {name} = {} {section}", example(name)),
        (_, None) => "write [process] or [[disk]], which are all sections".to_owned(),
    }
}

/// What to do with a key that is unknown where it is written.
fn unknown(written: &str) -> String {
    let key = written.replace('_', "-");
    match Section::of(&key) {
        Some(section) if key != written => format!("keys have dashes: write {key} {section}"),
        Some(section) => format!("write this key {section}"),
        None if is_option(&key) => format!("give it on the command line: --{key}"),
        None if OF_AN_IMAGE.contains(&&*key) => {
            format!("write it after the path: disk = \"file:path=PATH,{key}=VALUE\"")
        }
        None => "write one of the keys that are listed here".to_owned(),
    }
}

/// Is `name` an option of the command line?
fn is_option(name: &str) -> bool {
    let cli = Cli::command();
    let of_serve = cli.find_subcommand("serve").into_iter();
    let of_serve = of_serve.flat_map(Command::get_arguments);
    cli.get_arguments()
        .chain(of_serve)
        .any(|option| option.get_long() == Some(name))
}

/// The key of a line and its value, without a comment; also where something else stands for the `=`.
fn halves(line: &str) -> (&str, &str) {
    let line = line.trim();
    let end = line.find(|c: char| c == '=' || c == ':' || c.is_whitespace());
    let (key, rest) = line.split_at(end.unwrap_or(line.len()));
    let value = rest.trim_start_matches(|c: char| c == '=' || c == ':' || c.is_whitespace());
    // Within quotes a `#` is no comment; what follows them otherwise is a part of what was meant.
    let comment = value.match_indices('#').find(|&(at, _)| {
        let before = &value[..at];
        let quotes = |quote| before.matches(quote).count() % 2;
        before.ends_with(char::is_whitespace) && quotes('"') + quotes('\'') == 0
    });
    let value = &value[..comment.map_or(value.len(), |(at, _)| at)];
    (key, value.trim_end())
}

/// What to write for `value`, which `key` cannot have.
fn values(key: &str, value: &str) -> String {
    let Some(section) = Section::of(key) else {
        return "correct this line".to_owned();
    };
    let mut fits = corrections(value)
        .into_iter()
        .map(|value| format!("{key} = {value}"))
        .filter(|line| !value.is_empty() && section.takes(line));
    match (fits.next(), example(key)) {
        (Some(line), _) => format!("write {line}"),
        (None, "true") => format!("write {key} = true or {key} = false"),
        (None, example) if key == "metrics-listen" => {
            format!("write for example {key} = {example}, as names are not looked up")
        }
        (None, example) => format!("write for example {key} = {example}"),
    }
}

/// What may be meant by `value`.
fn corrections(value: &str) -> Vec<String> {
    let bare = value.trim_matches(['"', '\'']);
    // Some keys take either, and `poll` has a word of its own.
    let words: &[&str] = match bare {
        "yes" | "on" | "1" | "true" => &["true", "\"on\""],
        "no" | "off" | "0" | "false" => &["false", "\"off\"", "\"never\""],
        _ => &[],
    };
    let is_list = value.starts_with(['[', '{']);
    let mut quoted = value.split(['"', '\'']).skip(1).step_by(2);
    if is_list && quoted.any(|text| text.contains(char::is_whitespace)) {
        return Vec::new();
    }
    // `[0, 1]` and `{ iops-total = 5 }`; 0o660 is TOML's way to write in octal.
    let list = if is_list {
        value.replace(|c: char| "[]{}\"'".contains(c) || c.is_whitespace(), "")
    } else {
        bare.trim_start_matches("0o").to_owned()
    };
    let list = list.trim_end_matches(',');
    // Of several in a list, one may be wrong alone.
    let one = (!is_list || !list.contains(',')).then(|| format!("[{list:?}]"));
    let forms = [bare.to_owned(), format!("{list:?}")].into_iter();
    let forms = forms.chain(words.iter().map(ToString::to_string));
    forms.chain([format!("\"{list}%\"")]).chain(one).collect()
}

/// A value that `key` may have.
fn example(key: &str) -> &'static str {
    let found = EXAMPLES.iter().find(|(name, _)| *name == key);
    found.map_or("VALUE", |(_, example)| example)
}

#[cfg(test)]
mod tests;
