//! What a disk is called on the control socket.
//!
//! A name is part of a URL and of a label, so it consists of what needs no quotes in either.

use std::collections::HashSet;

use crate::socket::Endpoint;

const LONGEST: usize = 64;

/// What a disk can be called.
pub const NAMES: &str =
    "a name has 1 to 64 of the characters a-z A-Z 0-9 . _ - and does not begin with a dot";

/// A disk cannot be called that.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    /// It would need quotes.
    #[error("--name {0:?} names no disk; {NAMES}")]
    Characters(String),
    /// It would not say which disk.
    #[error("two disks are called `{0}`; give each a name of its own (--name, or name = \"...\")")]
    Twice(String),
}

/// The name that was `given`, or else one made of where the disk is served.
pub fn name(given: Option<&str>, endpoint: &Endpoint) -> Result<String, BadName> {
    match given {
        Some(name) if is_name(name) => Ok(name.to_owned()),
        Some(name) => Err(BadName::Characters(name.to_owned())),
        None => Ok(derived(endpoint)),
    }
}

/// Does each of these `names` say which disk?
pub fn unique<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<(), BadName> {
    let mut seen = HashSet::new();
    match names.into_iter().find(|name| !seen.insert(*name)) {
        Some(name) => Err(BadName::Twice(name.to_owned())),
        None => Ok(()),
    }
}

/// Can a disk be called that?
pub fn is_name(name: &str) -> bool {
    (1..=LONGEST).contains(&name.len()) && !name.starts_with('.') && name.chars().all(is_plain)
}

fn is_plain(character: char) -> bool {
    character.is_ascii_alphanumeric() || "._-".contains(character)
}

fn derived(endpoint: &Endpoint) -> String {
    let said = match endpoint {
        Endpoint::Path { path, .. } => path.file_stem().map_or_else(
            || "disk".to_owned(),
            |stem| stem.to_string_lossy().into_owned(),
        ),
        Endpoint::Fd(_) | Endpoint::Passed { .. } => endpoint.name(),
    };
    let plain = said.trim_start_matches('.').chars();
    let plain = plain.map(|character| if is_plain(character) { character } else { '-' });
    let name: String = plain.take(LONGEST).collect();
    if is_name(&name) {
        name
    } else {
        "disk".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::Rights;

    #[test]
    fn a_name_comes_from_the_sockets_file_name() {
        for (path, wanted) in [
            ("/run/pollux/root.sock", "root"),
            ("disk", "disk"),
            ("/run/vm 7/my disk.sock", "my-disk"),
            ("/run/.hidden.sock", "hidden"),
            ("/run/vm.1.sock", "vm.1"),
            ("/run/ä.sock", "-"),
        ] {
            let endpoint = Endpoint::Path {
                path: path.into(),
                rights: Rights::default(),
            };
            assert_eq!(name(None, &endpoint).unwrap(), wanted);
        }
        assert_eq!(name(None, &Endpoint::Fd(3)).unwrap(), "fd-3");
    }

    #[test]
    fn a_name_needs_no_quotes() {
        let given = |given| name(Some(given), &Endpoint::Fd(3));
        assert_eq!(given("vm-7_root.a").unwrap(), "vm-7_root.a");
        let long = "x".repeat(LONGEST + 1);
        for bad in ["", "..", ".a", "a/b", "a b", "ä", "a\"", &long] {
            assert_eq!(given(bad), Err(BadName::Characters(bad.to_owned())));
        }
    }

    #[test]
    fn two_disks_have_two_names() {
        assert_eq!(unique(["a", "b"]), Ok(()));
        assert_eq!(unique(["a", "b", "a"]), Err(BadName::Twice("a".to_owned())));
    }
}
