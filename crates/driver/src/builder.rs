//! How a connection is made with options that are named one by one.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::driver::Driver;
use crate::error::ConnectError;
use crate::options::{Options, Reconnect};

impl Driver {
    /// A connection to the server that listens on `path`, to be made with what is chosen.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use pollux_driver::{Driver, Reconnect};
    /// let within = Reconnect::Within(Duration::from_secs(5));
    /// let disk = Driver::builder("pollux.sock").queues(4).reconnect(within).connect()?;
    /// # Ok::<(), pollux_driver::ConnectError>(())
    /// ```
    pub fn builder(path: impl AsRef<Path>) -> Builder {
        Builder::new(path.as_ref())
    }
}

/// A connection to be made: see [`Driver::builder`](crate::Driver::builder).
#[must_use = "nothing is connected before `connect`"]
#[derive(Clone, Debug)]
pub struct Builder {
    path: PathBuf,
    options: Options,
}

impl Builder {
    pub(crate) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            options: Options::default(),
        }
    }

    fn with(mut self, change: impl FnOnce(Options) -> Options) -> Self {
        self.options = change(self.options);
        self
    }

    /// The most queues to use: see [`Options`].
    pub fn queues(self, most: impl Into<Option<u16>>) -> Self {
        self.with(|options| options.queues(most))
    }

    /// Entries of each queue, a power of two: see [`Options`].
    pub fn queue_size(self, entries: u16) -> Self {
        self.with(|options| options.queue_size(entries))
    }

    /// Is everything refused that would change the disk?
    pub fn read_only(self, read_only: bool) -> Self {
        self.with(|options| options.read_only(read_only))
    }

    /// How long the server may take to answer a message.
    pub fn patience(self, patience: Duration) -> Self {
        self.with(|options| options.patience(patience))
    }

    /// What if the server closes the connection?
    pub fn reconnect(self, reconnect: Reconnect) -> Self {
        self.with(|options| options.reconnect(reconnect))
    }

    /// Connects, and brings the device up.
    ///
    /// # Errors
    ///
    /// As [`Driver::connect`].
    pub fn connect(self) -> Result<Driver, ConnectError> {
        Driver::connect(&self.path, &self.options)
    }
}
