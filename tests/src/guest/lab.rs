//! What a guest test holds: the servers it started and the folder with their sockets and files.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::PathBuf;

use tempfile::TempDir;

use super::running::Console;
use super::{Export, Guest, Machine, Outcome, Running, System, VhostUserBlk};
use crate::server::Server;
use crate::subject::{self, Program};

/// Servers and guests of one test. Whatever goes wrong in it panics, with the console and the servers' logs.
pub struct Lab {
    machine: Machine,
    program: Program,
    storage_daemon: Option<PathBuf>,
    // Before the folder: the servers end before their sockets and files go.
    servers: Vec<Server>,
    folder: TempDir,
    memory: TempDir,
}

impl Lab {
    /// A lab for guests with `system`; `None` (and `SKIP` on the output) if a peer is missing.
    pub fn open(system: impl Into<System>) -> Option<Self> {
        let system = system.into();
        let program = Program::chosen();
        let storage_daemon = match program {
            Program::Pollux => None,
            Program::QemuStorageDaemon => Some(system.kernel.storage_daemon()?),
        };
        Some(Self {
            machine: system.machine()?,
            program,
            storage_daemon,
            servers: Vec::new(),
            folder: tempfile::tempdir().expect("the folder of temporary files is writable"),
            memory: TempDir::new_in("/dev/shm").expect("a tmpfs is writable"),
        })
    }

    /// Who serves the disks.
    pub fn program(&self) -> Program {
        self.program
    }

    /// A file in the lab's folder, which goes with it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A file on tmpfs, which goes with the lab.
    pub fn path_in_memory(&self, name: &str) -> PathBuf {
        self.memory.path().join(name)
    }

    /// Starts a server for `export`, and returns the device by which a guest attaches it.
    pub fn serve(&mut self, export: &Export) -> VhostUserBlk {
        let name = self.servers.len().to_string();
        let (server, device) = self.serve_apart(export, &name);
        self.servers.push(server);
        device
    }

    /// Like [`Lab::serve`], for a server that does not end with the lab; `name` is not a number.
    pub fn serve_apart(&self, export: &Export, name: &str) -> (Server, VhostUserBlk) {
        let socket = self.path(&format!("{name}.sock"));
        let server = match &self.storage_daemon {
            None => export.by_pollux(&socket),
            Some(daemon) => export.by_qemu(daemon, &socket),
        };
        let server = server.unwrap_or_else(|error| panic!("cannot serve {export:?}: {error}"));
        (server, export.device(&socket))
    }

    /// Ends the servers that end with the lab, so that others may use their files.
    pub fn end_servers(&mut self) {
        self.servers.clear();
    }

    /// Are disks in memory that, rather than files that stand in for them?
    pub fn has_memory_disks(&self) -> bool {
        self.program == Program::Pollux && subject::chosen_keys().is_none()
    }

    /// The server started as number `index`.
    pub fn server(&self, index: usize) -> &Server {
        &self.servers[index]
    }

    /// A guest about to run `script`.
    pub fn guest(&self, script: &str) -> Guest {
        Guest::new(&self.machine, script)
    }

    /// Boots `guest`; its script must end with status 0 and its kernel must have nothing to complain of.
    pub fn passes(&self, guest: Guest) -> Outcome {
        let guest = self.starts(guest);
        self.ends_well(guest)
    }

    /// The same for a guest whose disks fail, of which its kernel may complain.
    pub fn passes_on_bad_disks(&self, guest: Guest) -> Outcome {
        let guest = self.starts(guest);
        self.ends_well_on_bad_disks(guest)
    }

    /// Boots `guest`, not waiting for anything.
    pub fn starts(&self, guest: Guest) -> Running {
        guest
            .start()
            .unwrap_or_else(|error| panic!("cannot start QEMU: {error}"))
    }

    /// A guest that writes, reads and verifies migrates so often between the servers of two devices that share an
    /// image, and finds neither memory nor disk changed.
    pub fn migrates_to_and_fro(&self, devices: &[VhostUserBlk; 2], migrations: usize) {
        let script = include_str!("../../guest/cases/migrate.sh");
        let at = |turn: usize| {
            let guest = self.guest(script).migrates();
            guest.disk(devices[turn % 2].clone())
        };
        let mut guest = self.starts(at(0));
        self.hears(&mut guest, "writer: round 1");
        for turn in 1..=migrations {
            guest = guest
                .migrate(&at(turn))
                .unwrap_or_else(|error| self.fail(&error.to_string()));
            // One may have been under way, and one of each kind may end a moment later.
            for who in ["writer", "writer", "reader"] {
                self.hears(&mut guest, who);
            }
        }
        self.tells(&mut guest, "that was enough");
        self.ends_well(guest);
    }

    /// Waits until `guest` says `words`.
    pub fn hears(&self, guest: &mut Running, words: &str) {
        guest
            .wait_for(words)
            .unwrap_or_else(|error| self.fail(&error.to_string()));
    }

    /// Types `line` on the console of `guest`, for its script's `hear`.
    pub fn tells(&self, guest: &mut Running, line: &str) {
        guest
            .tell(line)
            .unwrap_or_else(|error| self.fail(&format!("QEMU takes no input: {error}")));
    }

    /// Says that the test is skipped, and why. For what a peer cannot do; a missing peer is another matter.
    pub fn skip(&self, why: &str) {
        // Not `println!`, of which a test that passes shows nothing.
        let _ = writeln!(io::stderr(), "SKIP {why}");
    }

    /// Waits until `guest` has powered off; its script must have ended with status 0, and its kernel must
    /// have nothing to complain of.
    pub fn ends_well(&self, guest: Running) -> Outcome {
        self.ends(guest, IoErrors::Unexpected)
    }

    /// The same for a guest whose disks fail, of which its kernel may complain.
    pub fn ends_well_on_bad_disks(&self, guest: Running) -> Outcome {
        self.ends(guest, IoErrors::Expected)
    }

    fn ends(&self, guest: Running, io_errors: IoErrors) -> Outcome {
        let outcome = guest
            .finish()
            .unwrap_or_else(|error| self.fail(&error.to_string()));
        let Outcome { console, status } = &outcome;
        if *status != 0 {
            self.fail(&format!(
                "the guest's script ended with status {status}\n{}",
                Console(console)
            ));
        }
        if let Some(complaint) = complaint(console, io_errors) {
            self.fail(&format!(
                "the guest's kernel complains: {complaint}\n{}",
                Console(console)
            ));
        }
        outcome
    }

    /// Panics with `what` and the logs of all servers.
    pub fn fail(&self, what: &str) -> ! {
        let mut text = what.to_owned();
        for server in &self.servers {
            let socket = server.socket().display();
            let log = server.log();
            write!(text, "\n--- server of {socket} ---\n{log}").expect("a String takes everything");
        }
        panic!("{text}\n--- served by {:?} ---", self.program);
    }
}

/// What to think of a kernel that complains of its disks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum IoErrors {
    Unexpected,
    Expected,
}

/// The first line of `console` by which a kernel says that something is broken.
fn complaint(console: &str, io_errors: IoErrors) -> Option<&str> {
    const IO_ERROR: &str = "I/O error";
    const SIGNS: [&str; 6] = [
        "WARNING:",
        "BUG:",
        "Oops",
        "blocked for more than",
        "self-detected stall",
        "nobody cared",
    ];
    let complains = |line: &str| {
        SIGNS.iter().any(|sign| line.contains(sign))
            || (io_errors == IoErrors::Unexpected && line.contains(IO_ERROR))
    };
    console.lines().find(|line| complains(line))
}
