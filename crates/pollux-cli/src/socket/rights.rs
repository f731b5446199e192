//! Which users may connect to a socket of our own.

use nix::unistd::{Group, User};
use rustix::fs::{Gid, Mode, Uid};

/// Owner, group and permissions of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Permissions.
    pub mode: Mode,
    /// Its owner, if not the user that runs this.
    pub owner: Option<Uid>,
    /// Its group, if not that of the user that runs this.
    pub group: Option<Gid>,
}

impl Default for Rights {
    fn default() -> Self {
        Self {
            mode: Mode::from_raw_mode(0o660),
            owner: None,
            group: None,
        }
    }
}

/// Nobody can be given such rights.
#[derive(Debug, thiserror::Error)]
pub enum BadRights {
    #[error("--socket-mode {0:?}: these are no permissions; write them in octal, for example 0660")]
    Mode(String),
    #[error("{option}: there is no user `{name}` on this machine; give a name or a number")]
    NoUser { option: String, name: String },
    #[error("{option}: there is no group `{name}` on this machine; give a name or a number")]
    NoGroup { option: String, name: String },
    #[error("{option}: cannot look up `{name}`; give its number")]
    Lookup {
        option: String,
        name: String,
        source: std::io::Error,
    },
    #[error(
        "--socket-owner {owner:?} names a group, and so does --socket-group {group:?}; give one"
    )]
    TwoGroups { owner: String, group: String },
}

impl Rights {
    /// What the options of these names say.
    pub fn new(
        mode: Option<&str>,
        owner: Option<&str>,
        group: Option<&str>,
    ) -> Result<Self, BadRights> {
        let mut rights = Self::default();
        if let Some(mode) = mode {
            rights.mode = parse_mode(mode)?;
        }
        if let Some(text) = owner {
            let option = format!("--socket-owner {text:?}");
            let (user, its_group) = match text.split_once(':') {
                Some((user, group)) => (user, Some(group)),
                None => (text, None),
            };
            rights.owner = Some(find_user(user, &option)?);
            if let Some(name) = its_group {
                if let Some(group) = group {
                    return Err(BadRights::TwoGroups {
                        owner: text.to_owned(),
                        group: group.to_owned(),
                    });
                }
                rights.group = Some(find_group(name, &option)?);
            }
        }
        if let Some(name) = group {
            rights.group = Some(find_group(name, &format!("--socket-group {name:?}"))?);
        }
        Ok(rights)
    }
}

fn parse_mode(text: &str) -> Result<Mode, BadRights> {
    let mode = u32::from_str_radix(text, 8).ok();
    mode.filter(|mode| *mode <= 0o777)
        .map(Mode::from_raw_mode)
        .ok_or_else(|| BadRights::Mode(text.to_owned()))
}

fn find_user(name: &str, option: &str) -> Result<Uid, BadRights> {
    let named = |name: &str| User::from_name(name).map(|user| Some(user?.uid.as_raw()));
    let id = id(name, option, named)?;
    id.map(Uid::from_raw).ok_or_else(|| BadRights::NoUser {
        option: option.to_owned(),
        name: name.to_owned(),
    })
}

fn find_group(name: &str, option: &str) -> Result<Gid, BadRights> {
    let named = |name: &str| Group::from_name(name).map(|group| Some(group?.gid.as_raw()));
    let id = id(name, option, named)?;
    id.map(Gid::from_raw).ok_or_else(|| BadRights::NoGroup {
        option: option.to_owned(),
        name: name.to_owned(),
    })
}

/// The id that `name` is, or stands for.
///
/// The largest number means "leave it" to the kernel, and is no user's. A number is not looked up either: in the sandbox
/// nothing can be.
fn id(
    name: &str,
    option: &str,
    named: impl Fn(&str) -> nix::Result<Option<u32>>,
) -> Result<Option<u32>, BadRights> {
    if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(name.parse().ok().filter(|id| *id != u32::MAX));
    }
    named(name).map_err(|error| BadRights::Lookup {
        option: option.to_owned(),
        name: name.to_owned(),
        source: error.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal() {
        assert_eq!(parse_mode("0660").unwrap().as_raw_mode(), 0o660);
        assert_eq!(parse_mode("600").unwrap().as_raw_mode(), 0o600);
        for bad in ["", "9", "rw", "-1", "10000"] {
            let refusal = parse_mode(bad).unwrap_err().to_string();
            assert!(refusal.contains("--socket-mode"), "{bad:?}");
        }
    }

    #[test]
    fn users_and_groups_have_names_or_numbers() {
        let of = |owner, group| Rights::new(None, owner, group);
        let rights = of(Some("root:7"), None).unwrap();
        assert_eq!(rights.owner, Some(Uid::ROOT));
        assert_eq!(rights.group, Some(Gid::from_raw(7)));
        assert_eq!(of(None, Some("root")).unwrap().group, Some(Gid::ROOT));
        let refused = |owner, group| of(owner, group).unwrap_err().to_string();
        assert!(refused(Some("no-such-user"), None).contains("no user `no-such-user`"));
        assert!(refused(Some("root:no-such-group"), None).contains("no group `no-such-group`"));
        assert!(refused(None, Some("no-such-group")).contains("--socket-group"));
        assert!(refused(Some("root:root"), Some("root")).contains("give one"));
        assert!(refused(Some("4294967295"), None).contains("no user"));
        assert!(refused(Some(""), None).contains("no user ``"));
    }
}
