//! Sockets that the service manager has made and passes on: systemd's socket activation (`sd_listen_fds`).
//!
//! They stay open in the service manager while one process ends and the next begins, so that a frontend which
//! connects meanwhile waits instead of being turned away.

use std::io;

use super::endpoint::Endpoint;
use crate::export::Origin;

/// What was passed and is not in use yet.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Passed {
    left: Vec<(String, i32)>,
    /// How many there were.
    count: usize,
}

/// There is no such socket.
#[derive(Debug, thiserror::Error)]
pub enum NotPassed {
    #[error(
        "LISTEN_PID, LISTEN_FDS and LISTEN_FDNAMES do not say which sockets were passed; the service manager sets \
         them: unset them where it does not start this process"
    )]
    Nonsense(#[source] io::Error),
    #[error(
        "--fd-name {name}: no socket of that name was passed (systemd's FileDescriptorName=); {}",
        there(.passed, *.count, *.origin)
    )]
    NoName {
        name: String,
        passed: Vec<String>,
        count: usize,
        origin: Origin,
    },
    #[error("where to listen is missing; give {}", .0.says("socket-path", "PATH"))]
    Nothing(Origin),
    #[error(
        "several sockets were passed; give each disk its own by {}: {}",
        .origin.says("fd-name", "NAME"), there(.passed, .passed.len(), *.origin)
    )]
    Several { passed: Vec<String>, origin: Origin },
}

/// Those that are left of so many.
fn there(names: &[String], count: usize, origin: Origin) -> String {
    if count == 0 {
        let path = origin.says("socket-path", "PATH");
        format!(
            "none at all was passed, which is for the service manager to do; without one, give {path}"
        )
    } else if names.is_empty() {
        "other disks have taken all that were passed; pass one more, of a name of its own"
            .to_owned()
    } else {
        format!("there is {}", names.join(", "))
    }
}

impl Passed {
    /// What the environment tells this process of.
    pub fn to_us() -> Result<Self, NotPassed> {
        // Names without sockets are meant for another process, as is all of it then.
        if sd_notify::listen_fds().map_err(NotPassed::Nonsense)?.len() == 0 {
            return Ok(Self::default());
        }
        let passed = sd_notify::listen_fds_with_names().map_err(NotPassed::Nonsense)?;
        Ok(Self::of(passed.map(|(fd, name)| (name, fd)).collect()))
    }

    fn of(left: Vec<(String, i32)>) -> Self {
        let count = left.len();
        Self { left, count }
    }

    fn names(&self) -> Vec<String> {
        self.left.iter().map(|(name, _)| name.clone()).collect()
    }

    /// The descriptors of those that are not in use.
    pub fn numbers(&self) -> impl Iterator<Item = i32> {
        self.left.iter().map(|&(_, fd)| fd)
    }

    /// Takes the socket of that name, which `origin` asks for.
    pub fn named(&mut self, name: &str, origin: Origin) -> Result<Endpoint, NotPassed> {
        match self.left.iter().position(|(passed, _)| passed == name) {
            Some(place) => Ok(self.take(place)),
            None => Err(NotPassed::NoName {
                name: name.to_owned(),
                passed: self.names(),
                count: self.count,
                origin,
            }),
        }
    }

    /// Takes the only one, whatever its name.
    pub fn only(&mut self, origin: Origin) -> Result<Endpoint, NotPassed> {
        match self.left.len() {
            0 => Err(NotPassed::Nothing(origin)),
            1 => Ok(self.take(0)),
            _ => Err(NotPassed::Several {
                passed: self.names(),
                origin,
            }),
        }
    }

    fn take(&mut self, place: usize) -> Endpoint {
        let (name, fd) = self.left.remove(place);
        Endpoint::Passed { name, fd }
    }

    /// Says what no disk has taken: a frontend that connects there would wait for ever.
    pub fn complain_of_the_rest(&self) {
        for (name, fd) in &self.left {
            tracing::warn!(name, fd, "a socket was passed that no disk is served on");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(names: &[&str]) -> Passed {
        let owned = names.iter().map(ToString::to_string);
        Passed::of(owned.zip(3..).collect())
    }

    #[test]
    fn sockets_are_found_by_name_and_used_once() {
        let mut two = passed(&["root", "scratch"]);
        let endpoint = two.named("scratch", Origin::CommandLine).unwrap();
        let name = "scratch".to_owned();
        assert_eq!(endpoint, Endpoint::Passed { name, fd: 4 });
        let again = two
            .named("scratch", Origin::CommandLine)
            .unwrap_err()
            .to_string();
        assert!(again.contains("there is root"), "{again}");
        two.named("root", Origin::CommandLine).unwrap();
        let none = two
            .named("root", Origin::CommandLine)
            .unwrap_err()
            .to_string();
        assert!(none.contains("have taken all that were passed"), "{none}");
        let never = passed(&[])
            .named("root", Origin::CommandLine)
            .unwrap_err()
            .to_string();
        assert!(never.contains("none at all was passed"), "{never}");
    }

    #[test]
    fn the_only_socket_needs_no_name() {
        assert!(passed(&["whatever"]).only(Origin::File).is_ok());
        let several = passed(&["a", "b"]).only(Origin::File).unwrap_err();
        let told = "give each disk its own by fd-name = \"NAME\": there is a, b";
        assert!(several.to_string().contains(told), "{several}");
    }

    #[test]
    fn what_is_missing_is_said_in_the_language_of_its_origin() {
        for (origin, path) in [
            (Origin::CommandLine, "give --socket-path PATH"),
            (Origin::File, "give socket-path = \"PATH\""),
        ] {
            let nothing = passed(&[]).only(origin).unwrap_err().to_string();
            assert_eq!(nothing, format!("where to listen is missing; {path}"));
            let no_name = passed(&[]).named("root", origin).unwrap_err().to_string();
            assert!(no_name.ends_with(path), "{no_name}");
        }
    }
}
