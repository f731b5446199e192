//! The control socket and the thread that answers on it.
//!
//! A connection carries one request and has a few seconds, however slow its client is. So many are open at once; one more
//! closes the oldest, so clients that say nothing keep nobody else away. What clients may make us keep is thereby bounded.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use pollux_threads::{Birth, Kind};
use rustix::fs::Mode;
use rustix::net::sockopt::socket_peercred;
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::routes;
use super::state::State;
use crate::export::Endpoint;
use crate::inherited::Inherited;
use crate::rights::Rights;
use crate::socket::{Listener, Socket};

type Error = Box<dyn std::error::Error>;

/// How long a connection lives.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many there are at once.
const MOST_CONNECTIONS: usize = 32;
/// The longest head of a request, in bytes.
const LONGEST_HEAD: usize = 16 << 10;
/// How many header fields it has.
const MOST_FIELDS: usize = 64;

/// A control socket.
pub struct Control {
    listener: Listener,
    path: PathBuf,
}

/// One that is served.
pub struct Running {
    end: oneshot::Sender<()>,
    thread: JoinHandle<()>,
    /// The last owner of the disks: letting go of them takes calls that the thread may not make.
    _state: Arc<State>,
    _listener: Listener,
}

impl Control {
    /// Makes the socket. Only its owner may connect.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let rights = Rights {
            mode: Mode::RUSR | Mode::WUSR,
            ..Rights::default()
        };
        let endpoint = Endpoint::Path {
            path: path.to_owned(),
            rights,
        };
        match Socket::open(&endpoint, &mut Inherited::default()) {
            Ok(Socket::Listening(listener)) => Ok(Self {
                listener,
                path: path.to_owned(),
            }),
            Ok(Socket::Connected(_)) => unreachable!("a path is listened on"),
            Err(error) => Err(error.of("--control")),
        }
    }

    /// Answers what `state` knows, from a thread of its own.
    pub fn start(self, state: State) -> io::Result<Running> {
        let state = Arc::new(state);
        let told = Arc::clone(&state);
        let (end, ended) = oneshot::channel();
        let listener: std::os::unix::net::UnixListener =
            self.listener.as_fd().try_clone_to_owned()?.into();
        listener.set_nonblocking(true)?;
        tracing::info!(path = %self.path.display(), "control socket");
        let birth = Birth::of(Kind::Control);
        let builder = std::thread::Builder::new().name("control".to_owned());
        let thread = builder.spawn(move || {
            birth.happens();
            if let Err(error) = serve(listener, told, ended) {
                tracing::error!(%error, "the control socket is not served");
            }
        })?;
        Ok(Running {
            end,
            thread,
            _state: state,
            _listener: self.listener,
        })
    }
}

impl Running {
    /// Ends the thread, and removes the socket.
    pub fn end(self) {
        // The thread may have failed, and said so.
        let _ = self.end.send(());
        let _ = self.thread.join();
    }
}

fn serve(
    listener: std::os::unix::net::UnixListener,
    state: Arc<State>,
    ended: oneshot::Receiver<()>,
) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = UnixListener::from_std(listener)?;
        tokio::spawn(accept(listener, state));
        // Its other end is dropped in no other way.
        let _ = ended.await;
        Ok(())
    })
}

async fn accept(listener: UnixListener, state: Arc<State>) {
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                open.retain(|connection| !connection.is_finished());
                if open.len() == MOST_CONNECTIONS
                    && let Some(oldest) = open.pop_front()
                {
                    oldest.abort();
                }
                let state = Arc::clone(&state);
                let answered = tokio::spawn(async move { converse(stream, &state).await });
                open.push_back(answered.abort_handle());
            }
            Err(error) => {
                tracing::error!(%error, "cannot accept a control connection; trying again in a second");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

/// Answers one request.
async fn converse(stream: UnixStream, state: &State) {
    let peer = socket_peercred(&stream).ok();
    let service = service_fn(async |request: Request<Incoming>| {
        let (method, path) = (request.method(), request.uri().path());
        let answer = routes::answer(state, method, path);
        let status = answer.status().as_u16();
        tracing::debug!(?peer, %method, path, status, "control request");
        Ok::<_, Infallible>(answer)
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(LONGEST_HEAD)
        .max_headers(MOST_FIELDS)
        .serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(PATIENCE, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(?peer, %error, "a control connection broke"),
        Err(_) => tracing::debug!(?peer, "a control connection took too long"),
    }
}
