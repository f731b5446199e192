//! The connections to the control socket that are open: so many, and no more.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock};

use pollux_threads::lock;
use tokio::task::AbortHandle;

/// How many there are at once.
const MOST_CONNECTIONS: usize = 32;
/// How many of them may stay, to listen to events.
const MOST_LISTENERS: usize = 8;
/// How many of them may be told something large, as a trace of up to 40 MB.
const MOST_LARGE: usize = 2;

/// What is known of a connection once it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// Its answer is large: a trace.
    Large,
    /// It stays, as the client listens to events.
    Stays,
}

/// A connection that is open.
pub struct Connection {
    pub task: AbortHandle,
    pub sort: Arc<OnceLock<Sort>>,
}

/// The connections that are open, the oldest first.
#[derive(Clone, Default)]
pub struct Connections(Arc<Mutex<VecDeque<Connection>>>);

impl Connections {
    pub fn add(&self, connection: Connection) {
        let mut all = lock(&self.0);
        all.retain(|connection| !connection.task.is_finished());
        all.push_back(connection);
        close_oldest(&mut all, None, MOST_CONNECTIONS);
    }

    /// The connection of this sort, which is one of them, is `sort`.
    pub fn sort(&self, connection: &OnceLock<Sort>, sort: Sort) {
        // It has one answer.
        let _ = connection.set(sort);
        let mut all = lock(&self.0);
        all.retain(|connection| !connection.task.is_finished());
        // It is the newest of its sort, whenever it connected.
        let own = all
            .iter()
            .position(|open| std::ptr::eq(Arc::as_ptr(&open.sort), connection));
        if let Some(own) = own.and_then(|at| all.remove(at)) {
            all.push_back(own);
        }
        let most = match sort {
            Sort::Large => MOST_LARGE,
            Sort::Stays => MOST_LISTENERS,
        };
        close_oldest(&mut all, Some(sort), most);
    }
}

/// Of those of this sort, leaves `most` open.
fn close_oldest(open: &mut VecDeque<Connection>, sort: Option<Sort>, most: usize) {
    let kind = |connection: &Connection| connection.sort.get().copied() == sort;
    if open.iter().filter(|connection| kind(connection)).count() > most
        && let Some(oldest) = open.iter().position(kind)
        && let Some(oldest) = open.remove(oldest)
    {
        oldest.task.abort();
    }
}
