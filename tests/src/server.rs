//! A vhost-user-blk server in a process of its own: Pollux, or a peer to hold it against.
//!
//! Nobody waits by sleeping: Pollux says `serving` on its standard error once the socket takes
//! connections, and `qemu-storage-daemon` greets on its monitor, which is the last thing it sets up.

use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// A running server and the socket on which it serves one disk. Dropping it ends the process.
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

    /// Starts any server that will listen on `socket`, and returns once it says that it is `ready`.
    pub fn start(command: &mut Command, socket: &Path, ready: Ready) -> io::Result<Self> {
        match ready {
            Ready::LogLine | Ready::JsonLine => command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::piped()),
            Ready::Monitor => command
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::inherit()),
        };
        let mut child = spawn(command)?;
        match ready {
            Ready::LogLine => {
                let output = child.stderr.take().expect("stderr is piped");
                Self::ready_when(child, socket, output, "serving disk=")
            }
            Ready::JsonLine => {
                let output = child.stderr.take().expect("stderr is piped");
                Self::ready_when(child, socket, output, r#""message":"serving""#)
            }
            Ready::Monitor => {
                let output = child.stdout.take().expect("stdout is piped");
                Self::ready_when(child, socket, output, "QMP")
            }
        }
    }

    fn ready_when(
        child: Child,
        socket: &Path,
        output: impl Read + Send + 'static,
        word: &'static str,
    ) -> io::Result<Self> {
        let log = Arc::new(Log::default());
        let sink = Arc::clone(&log);
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                sink.append(&line);
            }
            sink.close();
        });
        let mut server = Self {
            child,
            socket: socket.to_owned(),
            log,
            reader: Some(reader),
        };
        if server.log.wait_for(word) {
            return Ok(server);
        }
        if !server.log.is_complete() {
            server.child.kill()?; // it had a minute
        }
        let status = server.child.wait()?;
        Err(io::Error::other(format!(
            "the server ended with {status} before it was ready:\n{}",
            server.log()
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
    pub fn end_by(mut self, signal: Signal) -> io::Result<(ExitStatus, String)> {
        self.signal(signal)?;
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

/// How long a server may take to say what is expected of it.
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

    fn is_complete(&self) -> bool {
        self.state.lock().expect("nobody panics with it").1
    }

    fn wait_for(&self, words: &str) -> bool {
        let state = self.state.lock().expect("nobody panics with it");
        let unseen = |(text, complete): &mut (String, bool)| !text.contains(words) && !*complete;
        let waited = self.changed.wait_timeout_while(state, PATIENCE, unseen);
        let (state, _) = waited.expect("nobody panics with it");
        state.0.contains(words)
    }
}

fn spawn(command: &mut Command) -> io::Result<Child> {
    let started = command.spawn();
    started.map_err(|error| {
        let program = command.get_program().display();
        io::Error::new(error.kind(), format!("could not start {program}: {error}"))
    })
}

/// How a server tells that it takes connections.
#[derive(Clone, Copy, Debug)]
pub enum Ready {
    /// The line `serving disk=…` on its standard error: Pollux.
    LogLine,
    /// The same of a Pollux that logs in JSON.
    JsonLine,
    /// The greeting of its monitor on standard output: `qemu-storage-daemon`.
    Monitor,
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
