//! A vhost-user-blk server in a process of its own: Pollux, or a peer to hold it against.
//!
//! Nobody waits by sleeping: Pollux says `serving` on its standard error once the socket takes
//! connections, and `qemu-storage-daemon` greets on its monitor, which is the last thing it sets up. Only
//! a foreign program, which says nothing, is looked at again and again.

use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{
    Pid, PidfdFlags, Signal, kill_process, pidfd_open, set_parent_process_death_signal,
};

/// A running server and the socket on which it serves one disk. Dropping it ends the process, and so does the end of the
/// thread that started it: where a test process ends, nothing is dropped.
pub struct Server {
    child: Child,
    socket: PathBuf,
    log: Arc<Log>,
    reader: Option<JoinHandle<()>>,
}

impl Server {
    /// `pollux serve --socket-path SOCKET ARGS…`, from the release build.
    pub fn pollux(socket: &Path, args: &[&str]) -> io::Result<Self> {
        Self::start(&mut pollux_command(socket, args), socket, Ready::LogLine)
    }

    /// `qemu-storage-daemon` (the program `daemon`) exporting `blockdev`, e.g. `driver=null-co,size=1G`.
    pub fn qemu_storage_daemon(
        daemon: &Path,
        socket: &Path,
        blockdev: &str,
        queues: u16,
    ) -> io::Result<Self> {
        let export = format!("num-queues={queues},writable=on");
        let mut command = qemu_storage_daemon_command(daemon, socket, blockdev, &export);
        Self::start(&mut command, socket, Ready::Monitor)
    }

    /// Starts any server that will listen on `socket`, and returns once it is `ready`.
    pub fn start(command: &mut Command, socket: &Path, ready: Ready) -> io::Result<Self> {
        Self::begin(command, socket, ready)?.until(ready)
    }

    /// Starts any server that will listen on `socket`, and tell so like that.
    pub fn begin(command: &mut Command, socket: &Path, ready: Ready) -> io::Result<Self> {
        match ready {
            Ready::LogLine | Ready::JsonLine | Ready::Listening => command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::piped()),
            Ready::Monitor => command
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::inherit()),
        };
        let mut child = spawn(command)?;
        let output: Box<dyn Read + Send> = match ready {
            Ready::LogLine | Ready::JsonLine | Ready::Listening => {
                Box::new(child.stderr.take().expect("stderr is piped"))
            }
            Ready::Monitor => Box::new(child.stdout.take().expect("stdout is piped")),
        };
        Ok(Self::new(child, socket, output))
    }

    /// Waits until it is `ready`.
    pub fn until(mut self, ready: Ready) -> io::Result<Self> {
        let is_ready = match ready {
            Ready::LogLine => self.log.wait_for("serving disk="),
            Ready::JsonLine => self.log.wait_for(r#""message":"serving""#),
            Ready::Monitor => self.log.wait_for("QMP"),
            Ready::Listening => self.comes_to_listen()?,
        };
        if is_ready {
            return Ok(self);
        }
        self.give_up()
    }

    fn new(child: Child, socket: &Path, output: impl Read + Send + 'static) -> Self {
        let log = Arc::new(Log::default());
        let sink = Arc::clone(&log);
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                sink.append(&line);
            }
            sink.close();
        });
        Self {
            child,
            socket: socket.to_owned(),
            log,
            reader: Some(reader),
        }
    }

    /// Waits until somebody listens on the socket; false if the server ended without, or a minute has
    /// passed. The kernel's list of sockets tells it: a connection, made to find out, would be the only
    /// one that some servers take.
    fn comes_to_listen(&mut self) -> io::Result<bool> {
        let start = Instant::now();
        let mut pause = Duration::from_millis(1);
        while !listens(&self.socket)? {
            if self.child.try_wait()?.is_some() || start.elapsed() > PATIENCE {
                return Ok(false);
            }
            // A foreign program tells us nothing: there is no event to wait for.
            std::thread::sleep(pause);
            pause = (2 * pause).min(Duration::from_millis(50));
        }
        Ok(true)
    }

    fn give_up(mut self) -> io::Result<Self> {
        self.child.kill()?; // it had a minute, or lives on without its output; if it has ended, this does nothing
        let status = self.child.wait()?;
        self.log.wait_for_the_end();
        Err(io::Error::other(format!(
            "the server ended with {status} before it was ready:\n{}",
            self.log()
        )))
    }

    /// The socket a frontend connects to.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What the server has said so far.
    pub fn log(&self) -> String {
        self.log.text()
    }

    /// What a Pollux with a log in JSON has counted on its only queue.
    pub fn counters(&self) -> io::Result<serde_json::Value> {
        const WORD: &str = r#""message":"counters""#;
        self.signal(Signal::USR1)?;
        let missing = || io::Error::other("no counters after SIGUSR1");
        if !self.says(WORD) {
            return Err(missing());
        }
        let log = self.log();
        let line = log.lines().find(|line| line.contains(WORD));
        let line: serde_json::Value = serde_json::from_str(line.ok_or_else(missing)?)?;
        let counters = line["fields"]["counters"].as_str().ok_or_else(missing)?;
        Ok(serde_json::from_str(counters)?)
    }

    /// Waits until the server has said `words`; false if it ended without, or a minute has passed.
    pub fn says(&self, words: &str) -> bool {
        self.log.wait_for(words)
    }

    /// Sends `signal` to the server.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// Sends SIGTERM, waits for the end, and returns its status and everything it said.
    pub fn terminate(self) -> io::Result<(ExitStatus, String)> {
        self.end_by(Signal::TERM)
    }

    /// Sends `signal`, waits for the end, and returns the status and everything the server said.
    pub fn end_by(self, signal: Signal) -> io::Result<(ExitStatus, String)> {
        self.signal(signal)?;
        self.ended()
    }

    /// Waits for the end, and returns the status and everything the server said.
    pub fn ended(mut self) -> io::Result<(ExitStatus, String)> {
        let end = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty())?;
        let mut fds = [PollFd::new(&end, PollFlags::IN)];
        let timeout = Timespec::try_from(PATIENCE).expect("a minute fits");
        if retry_on_intr(|| poll(&mut fds, Some(&timeout)))? == 0 {
            let log = self.log();
            return Err(io::Error::other(format!(
                "it does not end, and said:\n{log}"
            )));
        }
        let status = self.child.wait()?;
        if let Some(reader) = self.reader.take() {
            reader.join().expect("the reader does not panic");
        }
        Ok((status, self.log()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How long a server may take to say what is expected of it, or to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a server says, as it says it.
#[derive(Default)]
struct Log {
    /// The text so far, and whether it is complete.
    state: Mutex<(String, bool)>,
    changed: Condvar,
}

impl Log {
    fn append(&self, line: &str) {
        let mut state = self.state.lock().expect("nobody panics with it");
        state.0.push_str(line);
        state.0.push('\n');
        drop(state);
        self.changed.notify_all();
    }

    fn close(&self) {
        self.state.lock().expect("nobody panics with it").1 = true;
        self.changed.notify_all();
    }

    fn text(&self) -> String {
        let state = self.state.lock().expect("nobody panics with it");
        state.0.clone()
    }

    fn wait_for(&self, words: &str) -> bool {
        self.wait_until(|text| text.contains(words))
    }

    fn wait_for_the_end(&self) {
        self.wait_until(|_| false);
    }

    /// Waits until the text is as wanted; false if it is complete without, or a minute has passed.
    fn wait_until(&self, wanted: impl Fn(&str) -> bool) -> bool {
        let state = self.state.lock().expect("nobody panics with it");
        let unseen = |(text, complete): &mut (String, bool)| !wanted(text) && !*complete;
        let ended = self.changed.wait_timeout_while(state, PATIENCE, unseen);
        let (state, _) = ended.expect("nobody panics with it");
        wanted(&state.0)
    }
}

fn spawn(command: &mut Command) -> io::Result<Child> {
    let end_with_parent = || Ok(set_parent_process_death_signal(Some(Signal::KILL))?);
    // SAFETY: between fork and exec this makes one system call.
    let started = unsafe { command.pre_exec(end_with_parent) }.spawn();
    started.map_err(|error| {
        let program = command.get_program().display();
        io::Error::new(error.kind(), format!("could not start {program}: {error}"))
    })
}

/// How a server tells that it takes connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// The line `serving disk=…` on its standard error: Pollux.
    LogLine,
    /// The same of a Pollux that logs in JSON.
    JsonLine,
    /// The greeting of its monitor on standard output: `qemu-storage-daemon`.
    Monitor,
    /// That it listens on its socket, which shows from outside: any server.
    Listening,
}

/// Does anybody listen on the unix socket `path`?
fn listens(path: &Path) -> io::Result<bool> {
    // Num RefCount Protocol Flags Type St Inode Path; this flag is the kernel's `__SO_ACCEPTCON`.
    const ACCEPTS_CONNECTIONS: &str = "00010000";
    let sockets = fs::read_to_string("/proc/net/unix")?;
    let listening = |line: &str| {
        let flags = line.split_whitespace().nth(3);
        flags == Some(ACCEPTS_CONNECTIONS) && line.ends_with(&format!(" {}", path.display()))
    };
    Ok(sockets.lines().any(listening))
}

/// The command `pollux serve --socket-path SOCKET ARGS…`, not yet started.
pub fn pollux_command(socket: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(pollux_binary());
    command
        .args(["serve", "--socket-path"])
        .arg(socket)
        .args(args);
    command
}

/// The command of a `qemu-storage-daemon` with a monitor, not yet started. `export` holds what the
/// export shall have beyond its socket, e.g. `num-queues=4,writable=on`.
pub fn qemu_storage_daemon_command(
    daemon: &Path,
    socket: &Path,
    blockdev: &str,
    export: &str,
) -> Command {
    let mut command = Command::new(daemon);
    command
        .arg("--blockdev")
        .arg(format!("{blockdev},node-name=disk"))
        .arg("--export")
        .arg(format!(
            "type=vhost-user-blk,id=export,node-name=disk,{export},addr.type=unix,addr.path={}",
            socket.display()
        ))
        // Last: these are set up in order, so the greeting means that the rest is there.
        .args([
            "--chardev",
            "stdio,id=monitor",
            "--monitor",
            "chardev=monitor",
        ]);
    command
}

/// The release binary: `$POLLUX`, or `target/release/pollux` of this workspace.
pub fn pollux_binary() -> PathBuf {
    std::env::var_os("POLLUX").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release/pollux"),
        PathBuf::from,
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;
    use crate::client::{Client, Shape};

    #[test]
    fn a_server_ends_with_the_thread_that_started_it() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let socket = folder.path().join("disk.sock");
        let start = move || Server::pollux(&socket, &["--disk", "memory:size=1M"]);
        let started = std::thread::spawn(start).join().expect("it does not panic");
        let (status, log) = started.expect("it starts").ended().expect("it ends");
        assert_eq!(status.signal(), Some(Signal::KILL.as_raw()), "{log}");
    }

    #[test]
    fn a_server_that_says_nothing_is_ready_once_it_listens() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let socket = folder.path().join("disk.sock");
        let mut command = pollux_command(&socket, &["--disk", "memory:size=1M"]);
        let server = Server::start(&mut command, &socket, Ready::Listening).expect("it listens");
        Client::connect(server.socket(), Shape::blocking(1, 64)).expect("it takes connections");
    }

    #[test]
    fn a_server_that_ends_before_it_listens_is_an_error_with_its_last_words() {
        let nowhere = Path::new("/nowhere/disk.sock");
        let mut command = pollux_command(nowhere, &["--disk", "memory:size=1M"]);
        let refusal = Server::start(&mut command, nowhere, Ready::Listening).err();
        let refusal = refusal.expect("there is no such folder").to_string();
        assert!(refusal.contains("before it was ready"), "{refusal}");
        assert!(refusal.contains("/nowhere/disk.sock"), "{refusal}");
    }
}
