//! QEMU's monitor: a line of JSON for each command, answer and event (QEMU, docs/interop/qmp-spec.rst).

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;

/// How long QEMU may take for anything.
const PATIENCE: Duration = Duration::from_secs(120);

/// The monitor of a QEMU that has set up all its devices.
pub(super) struct Monitor {
    commands: UnixStream,
    lines: BufReader<UnixStream>,
}

impl Monitor {
    /// The arguments by which a QEMU comes to whoever listens on `socket`.
    pub(super) fn arguments(socket: &Path) -> [String; 4] {
        let chardev = format!("socket,id=monitor,path={}", socket.display());
        let monitor = "chardev=monitor,mode=control".to_owned();
        ["-chardev".to_owned(), chardev, "-mon".to_owned(), monitor]
    }

    /// Waits for a QEMU to come.
    pub(super) fn accept(listener: &UnixListener) -> io::Result<Self> {
        let patience = Timespec::try_from(PATIENCE).expect("minutes fit");
        if poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&patience))? == 0 {
            return Err(io::Error::other("QEMU does not come to its monitor"));
        }
        let (commands, _) = listener.accept()?;
        commands.set_read_timeout(Some(PATIENCE))?;
        let lines = BufReader::new(commands.try_clone()?);
        let mut monitor = Self { commands, lines };
        // It answers once everything is set up.
        monitor.execute(r#"{"execute": "qmp_capabilities"}"#)?;
        Ok(monitor)
    }

    /// Has `command` carried out.
    pub(super) fn execute(&mut self, command: &str) -> io::Result<()> {
        writeln!(self.commands, "{command}")?;
        let answer =
            self.find(|line| line.get("return").is_some() || line.get("error").is_some())?;
        match answer.get("error") {
            None => Ok(()),
            Some(error) => Err(io::Error::other(format!("QEMU refuses {command}: {error}"))),
        }
    }

    /// Waits until a migration that was begun has ended.
    ///
    /// # Errors
    ///
    /// Also when it has failed.
    pub(super) fn migrated(&mut self) -> io::Result<()> {
        let status = |line: &Value| line["data"]["status"].as_str().map(str::to_owned);
        let ended = self.find(|line| {
            line["event"] == "MIGRATION"
                && status(line).is_some_and(|status| status == "completed" || status == "failed")
        })?;
        match status(&ended).as_deref() {
            Some("completed") => Ok(()),
            _ => Err(io::Error::other("the migration failed")),
        }
    }

    /// Waits until the machine sleeps, and wakes it.
    pub(super) fn wake(&mut self) -> io::Result<()> {
        self.find(|line| line["event"] == "SUSPEND")?;
        self.execute(r#"{"execute": "system_wakeup"}"#)
    }

    /// The next line that is `wanted`.
    fn find(&mut self, wanted: impl Fn(&Value) -> bool) -> io::Result<Value> {
        let mut line = String::new();
        while self.lines.read_line(&mut line)? > 0 {
            let value: Value = serde_json::from_str(&line)?;
            if wanted(&value) {
                return Ok(value);
            }
            line.clear();
        }
        Err(io::Error::other("QEMU has closed its monitor"))
    }
}
