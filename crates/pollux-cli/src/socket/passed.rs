//! Sockets that the service manager has made and passes on: systemd's socket activation (`sd_listen_fds`).
//!
//! They stay open in the service manager while one process ends and the next begins, so that a frontend which
//! connects meanwhile waits instead of being turned away.

use std::io;

use super::endpoint::Endpoint;

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
    #[error("LISTEN_PID, LISTEN_FDS and LISTEN_FDNAMES do not say which sockets were passed")]
    Nonsense(#[source] io::Error),
    #[error(
        "--fd-name {name}: no socket of that name was passed (systemd's FileDescriptorName=); {}",
        there(.passed, *.count)
    )]
    NoName {
        name: String,
        passed: Vec<String>,
        count: usize,
    },
    #[error(
        "where to listen is missing; give --socket-path PATH or --fd N, or in a configuration file socket-path = \"PATH\""
    )]
    Nothing,
    #[error(
        "several sockets were passed: say by --fd-name, for each disk, which is its own; {}",
        there(.passed, .passed.len())
    )]
    Several { passed: Vec<String> },
}

/// Those that are left of so many.
fn there(names: &[String], count: usize) -> String {
    if count == 0 {
        "none at all was passed, which is for the service manager to do; without one, give --socket-path PATH"
            .to_owned()
    } else if names.is_empty() {
        "none is left".to_owned()
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

    /// Takes the socket of that name.
    pub fn named(&mut self, name: &str) -> Result<Endpoint, NotPassed> {
        match self.left.iter().position(|(passed, _)| passed == name) {
            Some(place) => Ok(self.take(place)),
            None => Err(NotPassed::NoName {
                name: name.to_owned(),
                passed: self.names(),
                count: self.count,
            }),
        }
    }

    /// Takes the only one, whatever its name.
    pub fn only(&mut self) -> Result<Endpoint, NotPassed> {
        match self.left.len() {
            0 => Err(NotPassed::Nothing),
            1 => Ok(self.take(0)),
            _ => Err(NotPassed::Several {
                passed: self.names(),
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
        let endpoint = two.named("scratch").unwrap();
        let name = "scratch".to_owned();
        assert_eq!(endpoint, Endpoint::Passed { name, fd: 4 });
        let again = two.named("scratch").unwrap_err().to_string();
        assert!(again.contains("there is root"), "{again}");
        two.named("root").unwrap();
        let none = two.named("root").unwrap_err().to_string();
        assert!(none.contains("none is left"), "{none}");
        let never = passed(&[]).named("root").unwrap_err().to_string();
        assert!(never.contains("none at all was passed"), "{never}");
    }

    #[test]
    fn the_only_socket_needs_no_name() {
        assert!(passed(&["whatever"]).only().is_ok());
        assert!(matches!(passed(&[]).only(), Err(NotPassed::Nothing)));
        let several = passed(&["a", "b"]).only().unwrap_err().to_string();
        assert!(several.contains("there is a, b"), "{several}");
    }
}
