//! The options of a spec: `KEY=VALUE,KEY=VALUE`, read and printed.

use std::fmt;
use std::ops::RangeInclusive;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use super::time::time;
use super::{Size, SpecError};
use crate::file::{Buffers, Cache, Engine, Format, Inline, Locked, Settings};
use crate::qcow2::Backing;

/// What an option may be, the first of which it is without a word.
pub type Choices<T, const N: usize> = [(&'static str, T); N];

pub const CACHES: Choices<Cache, 3> = [
    ("writeback", Cache::Writeback),
    ("none", Cache::None),
    ("writethrough", Cache::Writethrough),
];
pub const ENGINES: Choices<Engine, 3> = [
    ("auto", Engine::Auto),
    ("io_uring", Engine::IoUring),
    ("threads", Engine::Threads),
];
pub const BUFFERS: Choices<Buffers, 2> = [
    ("plain", Buffers::Plain),
    ("registered", Buffers::Registered),
];
pub const LOCKS: Choices<Locked, 2> = [("always", Locked::Always), ("running", Locked::Running)];
pub const FORMATS: Choices<Format, 2> = [("probe", Format::Probe), ("raw", Format::Raw)];
pub const INLINE: Choices<Inline, 2> = [("on", Inline::On), ("off", Inline::Off)];

/// Writes what an option is, unless it is what it is without a word.
pub fn shown<T: PartialEq>(
    f: &mut fmt::Formatter<'_>,
    key: &str,
    choices: &[(&str, T)],
    value: &T,
) -> fmt::Result {
    match choices.iter().position(|(_, choice)| choice == value) {
        None | Some(0) => Ok(()),
        Some(at) => write!(f, ",{key}={}", choices[at].0),
    }
}

/// What files of all formats have.
pub fn shown_settings(f: &mut fmt::Formatter<'_>, settings: Settings) -> fmt::Result {
    shown(f, "cache", &CACHES, &settings.cache)?;
    shown(f, "engine", &ENGINES, &settings.engine)?;
    shown(f, "inline", &INLINE, &settings.inline)?;
    shown(f, "buffers", &BUFFERS, &settings.buffers)
}

pub fn shown_backing(f: &mut fmt::Formatter<'_>, backing: &Backing) -> fmt::Result {
    match backing {
        Backing::Named => Ok(()),
        Backing::None => f.write_str(",backing=none"),
        Backing::At(path) if ["named", "none"].map(Path::new).contains(&path.as_path()) => {
            write!(f, ",backing=./{}", path.display())
        }
        Backing::At(path) => write!(f, ",backing={}", escaped(path)),
    }
}

pub fn escaped(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

/// The options of one spec that were not asked for yet.
pub struct Given {
    kind: &'static str,
    example: &'static str,
    options: Vec<(String, String)>,
    /// Those that were asked for, given or not.
    keys: Vec<&'static str>,
}

impl Given {
    pub fn parse(kind: &'static str, example: &'static str, rest: &str) -> Result<Self, SpecError> {
        let mut options: Vec<(String, String)> = Vec::new();
        // Nothing at all lacks what cannot be left out.
        let given = (!rest.is_empty()).then(|| split(rest));
        for option in given.into_iter().flatten() {
            let Some((key, value)) = option.split_once('=') else {
                return Err(SpecError::NoValue { option, example });
            };
            if options.iter().any(|(known, _)| known == key) {
                let key = key.to_owned();
                return Err(SpecError::Twice { key });
            }
            options.push((key.to_owned(), value.to_owned()));
        }
        Ok(Self {
            kind,
            example,
            options,
            keys: Vec::new(),
        })
    }

    pub fn take(&mut self, key: &'static str) -> Option<String> {
        self.keys.push(key);
        let at = self.options.iter().position(|(known, _)| known == key)?;
        Some(self.options.swap_remove(at).1)
    }

    /// The option that cannot be left out, asked for last: what is still there by then is unknown, which may be
    /// that option misspelt.
    pub fn last(mut self, key: &'static str) -> Result<String, SpecError> {
        let (kind, example) = (self.kind, self.example);
        let value = self.take(key).filter(|value| !value.is_empty());
        match self.options.pop() {
            Some((key, _)) => Err(SpecError::UnknownKey {
                kind,
                key,
                keys: self.keys,
                example,
            }),
            None => value.ok_or(SpecError::Missing { key, example }),
        }
    }

    pub fn size(self) -> Result<Size, SpecError> {
        let example = self.example;
        let value = self.last("size")?;
        value.parse().map_err(|source| SpecError::Size {
            key: "size",
            value,
            example,
            source,
        })
    }

    /// What files of all formats have.
    pub fn settings(&mut self) -> Result<Settings, SpecError> {
        let settings = Settings {
            cache: self.choice("cache", &CACHES)?,
            engine: self.choice("engine", &ENGINES)?,
            inline: self.choice("inline", &INLINE)?,
            buffers: self.choice("buffers", &BUFFERS)?,
            ..Settings::default()
        };
        match (settings.engine, settings.buffers) {
            (Engine::Threads, Buffers::Registered) => Err(SpecError::NothingRegistered),
            _ => Ok(settings),
        }
    }

    /// Which backing file an image has.
    pub fn backing(&mut self) -> Result<Backing, SpecError> {
        let key = "backing";
        match self.take(key).as_deref() {
            None | Some("named") => Ok(Backing::Named),
            Some("none") => Ok(Backing::None),
            Some("") => Err(SpecError::Choice {
                key,
                value: String::new(),
                values: "`named`, `none` or the path of a file".to_owned(),
            }),
            Some(path) => Ok(Backing::At(path.into())),
        }
    }

    /// What stands there. An empty value is refused: it may be a variable of a shell that is not set.
    pub fn text(&mut self, key: &'static str) -> Result<Option<String>, SpecError> {
        match self.take(key) {
            Some(value) if value.is_empty() => Err(SpecError::EmptyValue {
                key,
                example: self.example,
            }),
            value => Ok(value),
        }
    }

    pub fn number<T>(
        &mut self,
        key: &'static str,
        bounds: RangeInclusive<T>,
    ) -> Result<Option<T>, SpecError>
    where
        T: FromStr + PartialOrd + fmt::Display,
    {
        let Some(value) = self.take(key) else {
            return Ok(None);
        };
        let number = value.parse().ok().filter(|number| bounds.contains(number));
        number.map(Some).ok_or_else(|| {
            let values = format!("a number from {} to {}", bounds.start(), bounds.end());
            SpecError::Choice { key, value, values }
        })
    }

    /// A time that is not zero.
    pub fn time(&mut self, key: &'static str) -> Result<Option<Duration>, SpecError> {
        let Some(value) = self.take(key) else {
            return Ok(None);
        };
        let time = time(&value).filter(|time| !time.is_zero());
        time.map(Some).ok_or_else(|| {
            let values = "a time such as `500ms`, `30s` or `5m`".to_owned();
            SpecError::Choice { key, value, values }
        })
    }

    pub fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        choices: &[(&'static str, T)],
    ) -> Result<T, SpecError> {
        let Some(value) = self.take(key) else {
            return Ok(choices[0].1);
        };
        let chosen = choices.iter().find(|(name, _)| *name == value);
        chosen.map(|(_, choice)| *choice).ok_or_else(|| {
            let names: Vec<_> = choices
                .iter()
                .map(|(name, _)| format!("`{name}`"))
                .collect();
            let (last, others) = names.split_last().expect("every option has a value");
            let values = format!("{} or {last}", others.join(", "));
            SpecError::Choice { key, value, values }
        })
    }
}

/// Splits at commas; two in a row are one inside a value.
fn split(options: &str) -> Vec<String> {
    let mut split = vec![String::new()];
    let mut rest = options.chars().peekable();
    while let Some(c) = rest.next() {
        if c != ',' {
            split.last_mut().expect("never empty").push(c);
        } else if rest.next_if_eq(&',').is_some() {
            split.last_mut().expect("never empty").push(',');
        } else {
            split.push(String::new());
        }
    }
    split
}
