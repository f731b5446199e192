//! The legs of stacked disks, as they are written inside of other descriptions.
//!
//! A leg is the path of a file, `MAJOR:MINOR` of a block device, or any SPEC. In brackets a SPEC may hold what
//! else would end it: `striped:chunk=64K:[file:path=a.img,cache=none],b.img`. A bracket that is not one of a pair
//! has a backslash before it, as has a backslash.

use std::path::PathBuf;

use super::parse::{KIND_NAMES, nested, parse};
use super::{Spec, SpecError};

/// Splits `text` where `ends` says so, but for what is in brackets.
pub fn split(text: &str, ends: impl Fn(char) -> bool) -> Result<Vec<&str>, SpecError> {
    let mut parts = Vec::new();
    let (mut start, mut depth) = (0, 0u32);
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            '[' => depth += 1,
            ']' => depth = depth.checked_sub(1).ok_or_else(|| unpaired(text))?,
            c if depth == 0 && ends(c) => {
                parts.push(&text[start..at]);
                start = at + c.len_utf8();
            }
            _ => {}
        }
    }
    if depth > 0 {
        return Err(unpaired(text));
    }
    parts.push(&text[start..]);
    Ok(parts)
}

fn unpaired(text: &str) -> SpecError {
    SpecError::Part {
        option: text.to_owned(),
        remedy: "has a bracket without its pair; write the other, or, where it is part of a name, the leg in brackets \
                 with a backslash before it: `[file:path=x\\].img]`",
    }
}

/// What is in the bracket that `text` begins with, and what follows it.
fn bracketed(text: &str) -> Option<(&str, &str)> {
    let mut depth = 0;
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            '[' => depth += 1,
            ']' if depth == 1 => return Some((&text[1..at], &text[at + 1..])),
            ']' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Is it the path of a file, or the number of a device?
pub fn is_path(text: &str) -> bool {
    let kind = text.split_once(':').map(|(kind, _)| kind);
    !text.starts_with('[') && kind.is_none_or(|kind| !KIND_NAMES.contains(&kind))
}

/// Reads one leg.
pub fn read(text: &str, depth: u32) -> Result<Spec, SpecError> {
    if text.starts_with('[') {
        let (inner, rest) = bracketed(text).ok_or_else(|| unpaired(text))?;
        if !rest.is_empty() {
            return Err(SpecError::Part {
                option: text.to_owned(),
                remedy: "goes on after its bracket; join the legs of `linear` by `+`, of `striped` by `,`",
            });
        }
        return parse(&unescaped(inner), depth);
    }
    if text.is_empty() {
        return Err(SpecError::Part {
            option: text.to_owned(),
            remedy: "is no leg; write a path, MAJOR:MINOR, or a SPEC in brackets",
        });
    }
    if !is_path(text) {
        return parse(text, depth);
    }
    nested(depth, || text.to_owned())?;
    let (kind, rest) = text.split_once(':').unwrap_or(("", ""));
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let path = if number(kind) && number(rest) {
        format!("/dev/block/{text}").into()
    } else {
        PathBuf::from(text)
    };
    let settings = super::Settings::default();
    Ok(Spec::File { path, settings })
}

/// As [`read`] reads it.
pub fn printed(leg: &Spec) -> String {
    if let Spec::File { path, settings } = leg
        && *settings == super::Settings::default()
        && let Some(path) = path.to_str()
        && path
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c))
        && !path.is_empty()
    {
        return path.to_owned();
    }
    format!("[{}]", escaped(&leg.to_string()))
}

/// As [`unescaped`] reads it, and without a bracket that is not one of a pair. Only what would be read otherwise gets
/// a backslash: with one before each, a path that has a single one would be 2³² times as long, 32 disks deep.
fn escaped(text: &str) -> String {
    let paired = split(text, |_| false).is_ok();
    let mut escaped = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => {
                escaped.push('\\');
                match chars.next() {
                    Some(next) if "[]\\".contains(next) => escaped.extend(['\\', '\\', next]),
                    Some(next) => escaped.push(next),
                    None => escaped.push('\\'),
                }
            }
            '[' | ']' if !paired => escaped.extend(['\\', c]),
            c => escaped.push(c),
        }
    }
    escaped
}

fn unescaped(text: &str) -> String {
    let mut chars = text.chars().peekable();
    let mut plain = String::with_capacity(text.len());
    while let Some(c) = chars.next() {
        let escaped = (c == '\\').then(|| chars.next_if(|c| "[]\\".contains(*c)));
        plain.push(escaped.flatten().unwrap_or(c));
    }
    plain
}
