//! Starting a server as systemd does that has made its sockets.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

/// In bash, as others know no descriptors beyond 9. Puts the sockets where they belong, says so, and becomes the
/// server, which so has the shell's number.
const PASS: &str = r#"
listen=$1 names=$2 first=$3
shift 3
place=3
while [ "$place" -lt $((3 + listen)) ]; do
    eval "exec $place<&$first"
    first=$((first + 1)) place=$((place + 1))
done
export LISTEN_FDS="$listen" LISTEN_FDNAMES="$names" LISTEN_PID="${PASSED_TO:-$$}"
exec "$@"
"#;

/// Sockets that outlive the servers they are passed to.
#[derive(Debug, Default)]
pub struct Sockets {
    names: Vec<String>,
    /// Inheritable, one after the other from [`Sockets::PLACE`] on.
    listeners: Vec<OwnedFd>,
}

impl Sockets {
    /// Where they are until they are passed: beyond all that a test has open.
    const PLACE: i32 = 600;

    /// Listens at `path`, under that name.
    pub fn listen(&mut self, name: &str, path: &Path) -> io::Result<()> {
        let listener = UnixListener::bind(path)?;
        let place = Self::PLACE + i32::try_from(self.names.len()).expect("they are few");
        let inheritable = rustix::io::fcntl_dupfd_cloexec(&listener, place)?;
        rustix::io::fcntl_setfd(&inheritable, rustix::io::FdFlags::empty())?;
        assert_eq!(inheritable.as_raw_fd(), place, "two tests use this at once");
        self.listeners.push(inheritable);
        self.names.push(name.to_owned());
        Ok(())
    }

    /// The command `PROGRAM ARGS…` that gets them, not yet started.
    pub fn pass_to(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new("bash");
        command.args(["-c", PASS, "bash", &self.listeners.len().to_string()]);
        command.args([&self.names.join(":"), &Self::PLACE.to_string()]);
        command.arg(program).args(args);
        command
    }
}
