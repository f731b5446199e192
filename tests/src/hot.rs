//! A daemon to which disks are added while it runs.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use blkio::ReqFlags;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::{Client, Queue, Shape};
use crate::control::{ask, change, connect, pass};
use crate::events::Events;
use crate::process::Process;
use crate::server::{Ready, Server, pollux_binary};

/// A folder with a daemon in it: `images` is for disks, and beside it lie its control socket and, unless it is kept
/// elsewhere, the list of disks.
pub struct Hot {
    above: TempDir,
    state: PathBuf,
    sandbox: &'static str,
    server: Option<Server>,
}

impl Hot {
    /// A daemon without a disk.
    pub fn start() -> io::Result<Self> {
        Self::start_within("require")
    }

    /// The same with the list of disks at `state`.
    pub fn start_keeping(state: &Path) -> io::Result<Self> {
        Self::start_in(TempDir::new()?, state.to_owned(), "require")
    }

    /// The same with `--sandbox LEVEL`.
    pub fn start_within(sandbox: &'static str) -> io::Result<Self> {
        let above = TempDir::new()?;
        let state = above.path().join("state.json");
        Self::start_in(above, state, sandbox)
    }

    fn start_in(above: TempDir, state: PathBuf, sandbox: &'static str) -> io::Result<Self> {
        std::fs::create_dir(above.path().join("images"))?;
        let mut hot = Self {
            above,
            state,
            sandbox,
            server: None,
        };
        hot.restart()?;
        Ok(hot)
    }

    /// Starts it, after the last one was killed.
    pub fn restart(&mut self) -> io::Result<()> {
        self.server = None;
        let mut command = Command::new(pollux_binary());
        command.args(["serve", "--sandbox", self.sandbox, "--disk-folder"]);
        command
            .arg(self.images())
            .arg("--control")
            .arg(self.control());
        command.arg("--state").arg(self.state());
        let server = Server::start(&mut command, &self.control(), Ready::Listening)?;
        self.server = Some(server);
        Ok(())
    }

    /// The daemon.
    ///
    /// # Panics
    /// After it has ended.
    pub fn server(&self) -> &Server {
        self.server.as_ref().expect("it runs")
    }

    /// Its process.
    pub fn process(&self) -> Process {
        Process::new(self.server().pid())
    }

    /// What lies beside the folder for disks.
    pub fn above(&self) -> &Path {
        self.above.path()
    }

    /// The folder for disks.
    pub fn images(&self) -> PathBuf {
        self.above().join("images")
    }

    /// Its control socket.
    pub fn control(&self) -> PathBuf {
        self.above().join("hot.control")
    }

    /// The list of disks.
    pub fn state(&self) -> PathBuf {
        self.state.clone()
    }

    /// The socket of the disk of that name.
    pub fn socket(&self, name: &str) -> PathBuf {
        self.images().join(format!("{name}.sock"))
    }

    /// A file for a disk.
    pub fn image(&self, name: &str, bytes: u64) -> io::Result<PathBuf> {
        let path = self.images().join(name);
        File::create(&path)?.set_len(bytes)?;
        Ok(path)
    }

    /// A socket on which no server answers, and the disk that would be served there.
    pub fn silent(&self) -> io::Result<(UnixListener, String)> {
        let socket = self.images().join("silent.sock");
        let spec = format!("vhost-user:path={}", socket.display());
        Ok((UnixListener::bind(socket)?, spec))
    }

    /// `GET path`.
    pub fn get(&self, path: &str) -> io::Result<Value> {
        Ok(ask(&self.control(), "GET", path)?.1)
    }

    /// The names of all disks.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let disks = self.get("/v1/disks")?;
        let names = disks["disks"].as_array().into_iter().flatten();
        Ok(names
            .map(|disk| disk["name"].as_str().unwrap_or_default().to_owned())
            .collect())
    }

    /// `PUT` of this body.
    pub fn put(&self, name: &str, body: &Value) -> io::Result<(u16, Value)> {
        change(&self.control(), "PUT", &format!("/v1/disks/{name}"), body)
    }

    /// `PUT` of this body, with a descriptor.
    pub fn pass(&self, name: &str, body: &Value, image: impl AsFd) -> io::Result<(u16, Value)> {
        pass(&self.control(), &format!("/v1/disks/{name}"), body, image)
    }

    /// `PATCH` of this body.
    pub fn patch(&self, name: &str, body: &Value) -> io::Result<(u16, Value)> {
        change(&self.control(), "PATCH", &format!("/v1/disks/{name}"), body)
    }

    /// Adds what `spec` says.
    pub fn add(&self, name: &str, spec: &str) -> io::Result<(u16, Value)> {
        self.put(name, &json!({ "disk": spec }))
    }

    /// `DELETE`; `query` is `?force=true`, or nothing.
    pub fn remove(&self, name: &str, query: &str) -> io::Result<(u16, Value)> {
        ask(
            &self.control(),
            "DELETE",
            &format!("/v1/disks/{name}{query}"),
        )
    }

    /// A client that is told of all that happens from now on.
    pub fn listen(&self) -> io::Result<Events> {
        Events::on(connect(&self.control())?)
    }

    /// The disks on the list.
    ///
    /// # Panics
    /// When there is no such list.
    pub fn list(&self) -> Value {
        let list = std::fs::read(self.state()).expect("it is there");
        let mut list: Value = serde_json::from_slice(&list).expect("it is whole");
        list["disks"].take()
    }

    /// `pollux disk …`: its output if it succeeds, else what it complains of.
    ///
    /// # Panics
    /// When it cannot be run.
    pub fn command(&self, words: &[&str]) -> Result<String, String> {
        let mut command = Command::new(pollux_binary());
        command.arg("disk").args(words);
        let output = command.arg("--control").arg(self.control()).output();
        let output = output.expect("it can be run");
        let text = |bytes| String::from_utf8(bytes).expect("it is text");
        if output.status.success() {
            Ok(text(output.stdout))
        } else {
            Err(text(output.stderr))
        }
    }

    /// Starts the next one when the last one, which was told to end, has done so.
    ///
    /// # Panics
    /// When it has not ended well.
    pub fn restart_ended(&mut self) -> io::Result<()> {
        let server = self.server.take().expect("it runs");
        let (ended, said) = server.ended()?;
        assert_eq!(ended.code(), Some(0), "{said}");
        self.restart()
    }

    /// Sends SIGTERM; all must end well.
    ///
    /// # Panics
    /// When it does not, or leaves the socket of a disk.
    pub fn ends_well(mut self) {
        let names = self.names().expect("it answers");
        let server = self.server.take().expect("it runs");
        let (ended, said) = server.terminate().expect("it ends");
        assert_eq!(ended.code(), Some(0), "{said}");
        for name in names {
            assert!(!self.socket(&name).exists(), "the socket of {name} is left");
        }
    }
}

/// Writes a block full of `byte`, and reads it back.
///
/// # Panics
/// When it is not what was written.
pub fn write_and_read(client: &Client, queue: &mut Queue, byte: u8) {
    let memory = client.memory(8192).expect("there is memory");
    memory.fill(0..4096, byte);
    queue.write(4096, &memory, 0..4096, 0, ReqFlags::FUA);
    let written = queue.finish().expect("it ends");
    written.expect("it is written");
    queue.read(4096, &memory, 4096..8192, 0);
    let read = queue.finish().expect("it ends");
    read.expect("it is read");
    let mut back = [0; 4096];
    memory.get(4096, &mut back);
    assert!(back.iter().all(|&read| read == byte));
}

/// Writes and reads on two queues.
///
/// # Panics
/// When what is read is not what was written.
pub fn use_it(socket: &Path) {
    let used = Client::connect(socket, Shape::blocking(2, 64));
    let (client, mut queues) = used.expect("it is served");
    for (queue, byte) in queues.iter_mut().zip([0x5a, 0xa5]) {
        write_and_read(&client, queue, byte);
    }
}
