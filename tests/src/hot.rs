//! A daemon to which disks are added while it runs.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::control::{ask, change};
use crate::process::Process;
use crate::server::{Ready, Server, pollux_binary};

/// A folder with a daemon in it: `images` is for disks, and beside it lie its control socket and the list of disks.
pub struct Hot {
    above: TempDir,
    server: Option<Server>,
}

impl Hot {
    /// A daemon without a disk.
    pub fn start() -> io::Result<Self> {
        let above = TempDir::new()?;
        std::fs::create_dir(above.path().join("images"))?;
        let mut hot = Self {
            above,
            server: None,
        };
        hot.restart()?;
        Ok(hot)
    }

    /// Starts it, after the last one was killed.
    pub fn restart(&mut self) -> io::Result<()> {
        self.server = None;
        let mut command = Command::new(pollux_binary());
        command.args(["serve", "--sandbox", "require", "--disk-folder"]);
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
        self.above().join("state.json")
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
