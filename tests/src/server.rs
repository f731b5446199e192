//! A vhost-user-blk server in a process of its own: Pollux, or a peer to hold it against.
//!
//! Nobody waits by sleeping: Pollux says `serving` on its standard error once the socket takes
//! connections, and `qemu-storage-daemon` greets on its monitor, which is the last thing it sets up.

use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::process::{Pid, Signal, kill_process};

/// A running server and the socket on which it serves one disk. Dropping it ends the process.
pub struct Server {
    child: Child,
    socket: PathBuf,
    log: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Server {
    /// `pollux serve --socket-path SOCKET ARGS…`, from the release build.
    pub fn pollux(socket: &Path, args: &[&str]) -> io::Result<Self> {
        let mut command = Command::new(pollux_binary());
        command
            .args(["serve", "--socket-path"])
            .arg(socket)
            .args(args);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let output = child.stderr.take().expect("stderr is piped");
        Self::ready_when(child, socket, output, "serving")
    }

    /// `qemu-storage-daemon` (the program `daemon`) exporting `blockdev`, e.g. `driver=null-co,size=1G`.
    pub fn qemu_storage_daemon(
        daemon: &Path,
        socket: &Path,
        blockdev: &str,
        queues: u16,
    ) -> io::Result<Self> {
        let mut command = Command::new(daemon);
        command
            .arg("--blockdev")
            .arg(format!("{blockdev},node-name=disk"))
            .arg("--export")
            .arg(format!(
                "type=vhost-user-blk,id=export,node-name=disk,writable=on,num-queues={queues},addr.type=unix,addr.path={}",
                socket.display()
            ))
            .args(["--chardev", "stdio,id=monitor", "--monitor", "chardev=monitor"]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()?;
        let output = child.stdout.take().expect("stdout is piped");
        Self::ready_when(child, socket, output, "QMP")
    }

    fn ready_when(
        child: Child,
        socket: &Path,
        output: impl Read + Send + 'static,
        word: &'static str,
    ) -> io::Result<Self> {
        let log = Arc::new(Mutex::new(String::new()));
        let (ready, is_ready) = std::sync::mpsc::channel();
        let sink = Arc::clone(&log);
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let mut log = sink.lock().expect("no reader panics");
                log.push_str(&line);
                log.push('\n');
                drop(log);
                if line.contains(word) {
                    let _ = ready.send(());
                }
            }
        });
        let server = Self {
            child,
            socket: socket.to_owned(),
            log,
            reader: Some(reader),
        };
        match is_ready.recv() {
            Ok(()) => Ok(server),
            Err(_) => Err(io::Error::other(format!(
                "the server ended before it was ready:\n{}",
                server.log()
            ))),
        }
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
        self.log.lock().expect("no reader panics").clone()
    }

    /// Sends `signal` to the server.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// Sends SIGTERM, waits for the end, and returns its status and everything it said.
    pub fn terminate(mut self) -> io::Result<(ExitStatus, String)> {
        self.signal(Signal::TERM)?;
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

/// The release binary: `$POLLUX`, or `target/release/pollux` of this workspace.
pub fn pollux_binary() -> PathBuf {
    std::env::var_os("POLLUX").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release/pollux"),
        PathBuf::from,
    )
}
