//! A guest while it runs: its console, line by line, against one deadline.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write as _};
use std::os::unix::net::UnixListener;
use std::process::{Child, ChildStdin, Command};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::monitor::Monitor;
use super::{Guest, monitored};

/// Held by the one guest of this process that runs: an emulated guest takes every CPU there is, and
/// two at once are only twice as slow.
static TURN: Mutex<()> = Mutex::new(());

/// A guest that has been started. Dropping it kills QEMU.
pub struct Running {
    qemu: Child,
    keyboard: ChildStdin,
    lines: Receiver<String>,
    console: String,
    deadline: Instant,
    monitor: Option<Monitor>,
    _folder: TempDir,
    /// Until another QEMU goes on with the guest.
    turn: Option<MutexGuard<'static, ()>>,
}

/// What became of a guest that powered off by itself.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// All that came over the serial console, and QEMU's own messages.
    pub console: String,
    /// The exit status of the script.
    pub status: i32,
}

impl Running {
    pub(super) fn start(
        command: &mut Command,
        folder: TempDir,
        patience: Duration,
        monitor: Option<&UnixListener>,
    ) -> io::Result<Self> {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut running = Self::spawn(command, folder, Instant::now() + patience)?;
        running.turn = Some(turn);
        running.monitor = monitor.map(Monitor::accept).transpose()?;
        Ok(running)
    }

    fn spawn(command: &mut Command, folder: TempDir, deadline: Instant) -> io::Result<Self> {
        let mut qemu = command.spawn()?;
        let (sender, lines) = channel();
        forward_lines(qemu.stdout.take().expect("it is piped"), sender.clone());
        forward_lines(qemu.stderr.take().expect("it is piped"), sender);
        Ok(Self {
            keyboard: qemu.stdin.take().expect("it is piped"),
            qemu,
            lines,
            console: String::new(),
            deadline,
            monitor: None,
            _folder: folder,
            turn: None,
        })
    }

    /// Has the guest go on in another QEMU, set up for `guest`, which is the same but for where its disks are
    /// served, and ends the one it was in.
    ///
    /// # Errors
    ///
    /// Where QEMU refuses, or fails.
    ///
    /// # Panics
    ///
    /// If it was not started to migrate.
    pub fn migrate(mut self, guest: &Guest) -> io::Result<Self> {
        let (mut command, folder) = guest.prepare()?;
        let address = format!("unix:{}", folder.path().join("incoming").display());
        let listener = monitored(&mut command, &folder)?;
        command.args(["-incoming", &address]);
        let mut next = Self::spawn(&mut command, folder, self.deadline)?;
        next.monitor = Some(Monitor::accept(&listener)?);

        let monitor = self.monitor.as_mut().expect("it was started to migrate");
        monitor.execute(
            r#"{"execute": "migrate-set-capabilities", "arguments": {"capabilities":
                [{"capability": "events", "state": true}]}}"#,
        )?;
        // Slow enough for the guest and its devices to change much of what has been copied already.
        monitor.execute(
            r#"{"execute": "migrate-set-parameters", "arguments": {"max-bandwidth": 33554432}}"#,
        )?;
        let migrate = format!(r#"{{"execute": "migrate", "arguments": {{"uri": "{address}"}}}}"#);
        monitor.execute(&migrate)?;
        monitor.migrated()?;
        next.turn = self.turn.take();
        next.console = self.kill()?;
        Ok(next)
    }

    /// Waits until the guest sleeps, and wakes it.
    ///
    /// # Panics
    ///
    /// If it was not started to sleep.
    pub fn wake(&mut self) -> io::Result<()> {
        let monitor = self.monitor.as_mut();
        monitor.expect("it was started to sleep").wake()
    }

    /// Waits until the kernel has come up, and started `init`; no longer than `patience`. Has it?
    ///
    /// # Errors
    ///
    /// When it was not the kernel that ended, but QEMU, by an error of its own or over a server.
    pub(super) fn is_up(&mut self, patience: Duration) -> io::Result<bool> {
        let deadline = std::mem::replace(&mut self.deadline, Instant::now() + patience);
        let up = self.comes_to("up");
        let late = Instant::now() >= self.deadline;
        self.deadline = deadline;
        match up {
            // QEMU succeeds where the machine has reset itself.
            Ok(false) if !self.qemu.wait()?.success() => Err(self.ended_before("up")),
            Err(_) if late => Ok(false),
            up => up,
        }
    }

    /// Waits until the script calls `say WORDS`.
    ///
    /// # Errors
    ///
    /// If the guest ends first, or is not there in time; with the console.
    pub fn wait_for(&mut self, words: &str) -> io::Result<()> {
        if self.comes_to(words)? {
            Ok(())
        } else {
            Err(self.ended_before(words))
        }
    }

    /// As [`Running::wait_for`], but no error, where the guest ends first.
    fn comes_to(&mut self, words: &str) -> io::Result<bool> {
        let wanted = format!("guest: {words}");
        while let Some(line) = self.next_line()? {
            if line.contains(&wanted) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn ended_before(&self, words: &str) -> io::Error {
        self.fault(&format!("the guest ended before it said '{words}'"))
    }

    /// Types `line` on the guest's console; the script gets it by `hear`.
    pub fn tell(&mut self, line: &str) -> io::Result<()> {
        writeln!(self.keyboard, "{line}")?;
        self.keyboard.flush()
    }

    /// What has come over the console so far, as far as it was waited for.
    pub fn console(&self) -> &str {
        &self.console
    }

    /// Kills QEMU with SIGKILL and returns the whole console.
    pub fn kill(mut self) -> io::Result<String> {
        self.qemu.kill()?;
        while self.next_line()?.is_some() {}
        self.qemu.wait()?;
        Ok(std::mem::take(&mut self.console))
    }

    /// Waits until the guest has powered off.
    ///
    /// # Errors
    ///
    /// If the guest does not end in time, or without telling its script's status; with the console.
    pub fn finish(mut self) -> io::Result<Outcome> {
        let mut status = None;
        while let Some(line) = self.next_line()? {
            if let Some((_, number)) = line.split_once("guest: status ") {
                status = number.trim().parse().ok();
            }
        }
        let qemu = self.qemu.wait()?;
        match status {
            Some(status) if qemu.success() => Ok(Outcome {
                console: std::mem::take(&mut self.console),
                status,
            }),
            Some(_) => Err(self.fault(&format!("QEMU ended with {qemu}"))),
            None => Err(self.fault(&format!("the script did not end; QEMU: {qemu}"))),
        }
    }

    /// The console's next line, `None` when QEMU has ended.
    fn next_line(&mut self) -> io::Result<Option<String>> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        match self.lines.recv_timeout(left) {
            Ok(line) => {
                self.console.push_str(&line);
                self.console.push('\n');
                if line.contains("Kernel panic") {
                    return Err(self.fault("the guest's kernel panicked"));
                }
                Ok(Some(line))
            }
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => Err(self.fault("the guest is stuck")),
        }
    }

    fn fault(&self, what: &str) -> io::Error {
        io::Error::other(format!("{what}\n{}", Console(&self.console)))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

/// A console as it is shown in failures.
pub(super) struct Console<'a>(pub(super) &'a str);

impl fmt::Display for Console<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "--- console ---\n{}--- end of console ---", self.0)
    }
}

fn forward_lines(from: impl Read + Send + 'static, to: Sender<String>) {
    thread::spawn(move || {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        // A console may carry any byte, so lines are bytes until they are complete.
        while matches!(from.read_until(b'\n', &mut line), Ok(1..)) {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            if to.send(text).is_err() {
                return;
            }
            line.clear();
        }
    });
}

#[cfg(test)]
mod tests;
