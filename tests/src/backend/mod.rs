//! A vhost-user-blk device by hand, for what no honest server ever does: it lies, it falls silent, it
//! calls for nothing and ends nothing, as the test wants.
//!
//! It serves a small disk in memory from a thread of the test's own process. It speaks the protocol byte
//! by byte and shares no code with Pollux, neither for the messages nor for the ring nor for the
//! requests, and it is strict: whatever a driver does that the specification does not allow is among
//! its [`complaints`](Seen::complaints).

mod disk;
mod ending;
mod memory;
mod message;
mod plan;
mod queue;
mod request;
mod session;
mod shared;
mod stray;

use std::io;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use tempfile::TempDir;

use crate::frontend::new_eventfd;

pub use message::code;
pub use plan::{Calls, Conduct, Lie, Plan, Silence, feature, protocol};
pub use request::{Part, SERIAL};
use shared::{Command, Shared};
pub use shared::{Held, Seen};

/// A running device. Dropping it ends it, whatever it has in flight.
pub struct Backend {
    socket: PathBuf,
    shared: Arc<Shared>,
    commands: Sender<Command>,
    thread: Option<JoinHandle<io::Result<()>>>,
    _folder: TempDir,
}

impl Backend {
    /// A device that behaves, so far.
    pub fn start(plan: Plan) -> io::Result<Self> {
        let folder = TempDir::new()?;
        let socket = folder.path().join("disk.sock");
        let listener = UnixListener::bind(&socket)?;
        let shared = Arc::new(Shared::new(new_eventfd()?));
        let (commands, receiver) = channel();
        let mine = Arc::clone(&shared);
        let thread = std::thread::spawn(move || session::serve(&listener, &plan, &mine, &receiver));
        Ok(Self {
            socket,
            shared,
            commands,
            thread: Some(thread),
            _folder: folder,
        })
    }

    /// Where drivers connect.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Every request that is published after this, and those that have not ended, end in this way.
    pub fn conduct(&self, conduct: Conduct) {
        *self.shared.lock_conduct() = conduct;
        self.shared.wake();
    }

    /// From now on messages of that [`code`] are not answered as they should be.
    pub fn fall_silent(&self, code: u32, silence: Silence) {
        *self.shared.silence.lock().expect("nobody panics with it") = Some((code, silence));
    }

    /// Takes [`Backend::fall_silent`] back.
    pub fn answer(&self) {
        *self.shared.silence.lock().expect("nobody panics with it") = None;
    }

    /// Closes the connection, and nothing else: the device keeps the memory that it has, with all
    /// requests that are in flight, until [`Backend::let_go`].
    pub fn hang_up(&self) {
        self.command(Command::HangUp);
    }

    /// Ends what [`Backend::hang_up`] has left, and takes the next connection.
    pub fn let_go(&self) {
        self.command(Command::LetGo);
    }

    /// Has whoever kicks a queue wait from now on, for ever: its eventfd is full, and blocks. It is not read any more.
    pub fn block_kicks(&self) {
        self.command(Command::BlockKicks);
        self.settle();
    }

    /// Fills the eventfds of the calls, so that they take no more.
    pub fn fill_calls(&self) {
        self.command(Command::FillCalls);
        self.settle();
    }

    /// Writes `byte` wherever requests in flight let the device write, again and again, or no more. By
    /// its return that has happened once.
    pub fn scribble(&self, byte: Option<u8>) {
        self.command(Command::Scribble(byte));
        if byte.is_some() {
            self.wait_for_scribbles();
        }
    }

    /// Waits until every request in flight was written into as a whole, from now on.
    pub fn wait_for_scribbles(&self) {
        // The one that is under way may have begun before.
        let target = self.seen().scribbles + 2;
        self.wait_until(|seen| seen.scribbles >= target);
    }

    /// Makes the disk as large as that, and tells the driver that its configuration has changed.
    pub fn resize(&self, sectors: u64) {
        self.command(Command::Resize(sectors));
    }

    /// Waits until the device has done everything that it was doing, its calls included, and has looked
    /// at every queue again.
    pub fn settle(&self) -> Seen {
        // The first ends the turn that is under way, or begins one; the second comes after that.
        for _ in 0..2 {
            let target = self.seen().settled + 1;
            self.command(Command::Settle);
            self.wait_until(|seen| seen.settled >= target);
        }
        self.seen()
    }

    /// Lets the configuration space say `word` at `at`, and tells the driver that it has changed.
    pub fn reconfigure(&self, at: usize, word: u32) {
        self.command(Command::Configure(at, word));
    }

    /// What has happened so far.
    pub fn seen(&self) -> Seen {
        self.shared.seen()
    }

    /// Waits until what has happened is as wanted, and returns it.
    ///
    /// # Panics
    /// If it does not come to be for a minute.
    pub fn wait_until(&self, reached: impl Fn(&Seen) -> bool) -> Seen {
        self.shared.wait_until(reached)
    }

    /// Waits until the device has `count` requests that it has not ended.
    pub fn wait_for_held(&self, count: usize) -> Vec<Held> {
        self.wait_until(|seen| seen.held.len() >= count).held
    }

    /// Ends the device.
    ///
    /// # Panics
    /// If the driver has done something that the specification does not allow.
    pub fn end(self) {
        let complaints = self.seen().complaints;
        assert!(complaints.is_empty(), "the device says: {complaints:?}");
    }

    fn command(&self, command: Command) {
        // Only a device that has failed is not there any more, and that shows when it is dropped.
        let _ = self.commands.send(command);
        self.shared.wake();
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.command(Command::Stop);
        let thread = self.thread.take().expect("it is taken only here");
        let ended = thread.join();
        if std::thread::panicking() {
            println!("the device says: {:?}", self.seen().complaints);
        } else {
            ended
                .expect("its message is above")
                .expect("the device ran to its end");
        }
    }
}
