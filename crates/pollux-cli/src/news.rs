//! What happens in this process, for clients that listen to `GET /v1/events`.
//!
//! Any thread may tell. Nothing is kept without a listener, and a listener that is slow misses the oldest.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use tokio::sync::broadcast::{self, Receiver, Sender};
use utoipa::ToSchema;

/// So many are kept for a client that is slow to read them.
const KEPT: usize = 256;

static NEWS: LazyLock<Sender<News>> = LazyLock::new(|| broadcast::channel(KEPT).0);

/// What kind of thing has happened.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Happening {
    /// A disk was added.
    Added,
    /// A disk was removed.
    Removed,
    /// A frontend has connected.
    Connected,
    /// It has gone, and nothing of it is in flight any more.
    Disconnected,
    /// The size of a disk has changed.
    Resized,
    /// The limits of a disk have changed.
    Limited,
    /// The log has a warning or an error.
    Error,
    /// The client was too slow to be told of everything.
    Missed,
}

/// One thing that has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    pub happening: Happening,
    /// To this disk: its name, or its socket as the log calls it.
    pub disk: Option<String>,
    /// In the words of the log.
    pub message: Option<String>,
}

/// Tells all that listen of what has happened to the disk of that name.
pub fn tell(happening: Happening, disk: &str) {
    spread(|| News {
        happening,
        disk: Some(disk.to_owned()),
        message: None,
    });
}

/// Tells them of what the log says, if any listens.
pub fn spread(news: impl FnOnce() -> News) {
    if NEWS.receiver_count() > 0 {
        // The last of them may have left meanwhile.
        let _ = NEWS.send(news());
    }
}

/// What happens from now on.
pub fn listen() -> Receiver<News> {
    NEWS.subscribe()
}
