//! The control socket and the thread that answers on it.
//!
//! A connection carries one request and has a few seconds, however slow its client is; only one that listens to events
//! stays. So many are open at once; one more closes the oldest, so clients that say nothing keep no others away. The
//! same holds for those that listen, and for those that are told something large. What clients may make us keep is
//! thereby bounded.

use std::convert::Infallible;
use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use pollux::memory::Peer;
use pollux_threads::{Kind, once_let_go, spawn};
use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::runtime::Builder;
use tokio::sync::oneshot;

use super::connections::{Connection, Connections, Sort};
use super::noted::Noted;
use super::passing::{Passing, Received};
use super::routes::{self, Answer, Change, Reach};
use super::state::State;
use crate::socket::{self, Listener, Rights, SocketError};

type Error = Box<dyn std::error::Error>;

/// How long a connection lives.
const PATIENCE: Duration = Duration::from_secs(10);
/// What is more than this is large, in bytes.
const LARGE: u64 = 1 << 20;
/// The longest head of a request, in bytes.
const LONGEST_HEAD: usize = 16 << 10;
/// The longest body, in bytes.
const LONGEST_BODY: usize = 64 << 10;
/// How many header fields it has.
const MOST_FIELDS: usize = 64;

/// Where clients come from.
enum Door {
    /// The control socket.
    Control(UnixListener),
    /// The address for metrics, which answers nothing else.
    Metrics(TcpListener),
}

/// Where clients are answered: the control socket, the address for metrics, or both.
pub struct Control {
    socket: Option<Listener>,
    metrics: Option<std::net::TcpListener>,
}

/// One that is served.
pub struct Running {
    end: oneshot::Sender<()>,
    thread: JoinHandle<()>,
    /// The last owner of the disks: letting go of them takes calls that the thread may not make.
    _state: Arc<State>,
    _socket: Option<Listener>,
}

impl Control {
    /// Makes a socket at `path`, to which only its owner may connect, and listens at `metrics`. `None`: neither is
    /// wanted.
    pub fn open(path: Option<&Path>, metrics: Option<SocketAddr>) -> Result<Option<Self>, Error> {
        if path.is_none() && metrics.is_none() {
            return Ok(None);
        }
        let failed = |address, error: io::Error| {
            let remedy = match error.kind() {
                io::ErrorKind::PermissionDenied => "; choose a port from 1024 on",
                io::ErrorKind::AddrNotAvailable => "; give an address of this machine",
                io::ErrorKind::AddrInUse => "; choose another port, or 0 for any that is free",
                _ => "",
            };
            format!("--metrics-listen {address}: {error}{remedy}")
        };
        let metrics = metrics.map(|address| {
            let bind = || std::net::TcpListener::bind(address);
            let listener = once_let_go(bind, |error| error.kind() == io::ErrorKind::AddrInUse);
            let listener = listener.map_err(|error| failed(address, error))?;
            if !address.ip().is_loopback() {
                tracing::warn!(%address, "metrics are told to other machines, too");
            }
            // The number may have been left to the kernel.
            let address = listener
                .local_addr()
                .map_err(|error| failed(address, error))?;
            tracing::info!(%address, "metrics");
            Ok::<_, String>(listener)
        });
        Ok(Some(Self {
            socket: path.map(listen_at).transpose()?,
            metrics: metrics.transpose()?,
        }))
    }

    /// Answers what `state` knows, from a thread of its own.
    pub fn start(self, state: State) -> io::Result<Running> {
        let state = Arc::new(state);
        let told = Arc::clone(&state);
        let (end, ended) = oneshot::channel();
        let socket = self.socket.as_ref();
        let socket = socket.map(|socket| socket.as_fd().try_clone_to_owned());
        let socket = socket.transpose()?.map(Into::into);
        let metrics = self.metrics;
        // The thread may not change that; a socket of ours does not wait as it is.
        if let Some(listener) = &metrics {
            listener.set_nonblocking(true)?;
        }
        let thread = spawn(Kind::Control, "control", move || {
            if let Err(error) = serve(socket, metrics, &told, ended) {
                tracing::error!(%error, "the control socket is not served");
            }
        })?;
        Ok(Running {
            end,
            thread,
            _state: state,
            _socket: self.socket,
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

fn listen_at(path: &Path) -> Result<Listener, Error> {
    let rights = Rights {
        mode: Mode::RUSR | Mode::WUSR,
        ..Rights::default()
    };
    let listener = socket::listen_at(path, &rights).map_err(|error| match error {
        SocketError::Live(_) if listens_here(path) => format!(
            "--control {}: a disk listens there; choose another path for --control",
            path.display()
        )
        .into(),
        error => error.of("--control"),
    })?;
    tracing::info!(path = %path.display(), "control socket");
    Ok(listener)
}

/// Is it this process that listens at `path`? A full backlog is not waited for.
fn listens_here(path: &Path) -> bool {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let connected = socket.and_then(|socket| {
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(socket)
    });
    let listener = connected.ok().and_then(|socket| Peer::of(&socket).ok());
    listener.is_some_and(|listener| listener.pid == Some(std::process::id()))
}

fn serve(
    socket: Option<std::os::unix::net::UnixListener>,
    metrics: Option<std::net::TcpListener>,
    state: &Arc<State>,
    ended: oneshot::Receiver<()>,
) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        if let Some(listener) = socket {
            let door = Door::Control(UnixListener::from_std(listener)?);
            tokio::spawn(accept(door, Arc::clone(state)));
        }
        if let Some(listener) = metrics {
            let door = Door::Metrics(TcpListener::from_std(listener)?);
            tokio::spawn(accept(door, Arc::clone(state)));
        }
        // Its other end is dropped in no other way.
        let _ = ended.await;
        Ok(())
    })
}

impl Door {
    /// Takes the next client, and answers it in a task of its own.
    async fn next(&self, state: Arc<State>, open: Connections) -> io::Result<Connection> {
        let sort = Arc::new(OnceLock::new());
        let (received, its_sort) = (Received::default(), Arc::clone(&sort));
        let answered = match self {
            Self::Control(listener) => {
                let (stream, _) = listener.accept().await?;
                let asking = Asking {
                    peer: client(&stream),
                    reach: Reach::Everything,
                    received: received.clone(),
                    sort: its_sort,
                    open,
                    state,
                };
                tokio::spawn(converse(Passing::receiving(stream, received), asking))
            }
            Self::Metrics(listener) => {
                let (stream, peer) = listener.accept().await?;
                let asking = Asking {
                    peer,
                    reach: Reach::Metrics,
                    received,
                    sort: its_sort,
                    open,
                    state,
                };
                tokio::spawn(converse(stream, asking))
            }
        };
        let task = answered.abort_handle();
        Ok(Connection { task, sort })
    }
}

async fn accept(door: Door, state: Arc<State>) {
    let open = Connections::default();
    loop {
        match door.next(Arc::clone(&state), open.clone()).await {
            // Its task has not begun.
            Ok(connection) => open.add(connection),
            Err(error) => {
                tracing::error!(%error, "cannot accept a control connection; trying again in a second");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

/// The process that has connected, as the log names it.
fn client(stream: &UnixStream) -> String {
    Peer::of(stream).map_or_else(
        |_| "unknown".to_owned(),
        |Peer { pid, uid, gid }| {
            let pid = pid.map_or_else(|| "unknown".to_owned(), |pid| pid.to_string());
            format!("pid {pid}, uid {uid}, gid {gid}")
        },
    )
}

/// The client, and what it asks for.
struct Asking<P> {
    peer: P,
    reach: Reach,
    received: Received,
    sort: Arc<OnceLock<Sort>>,
    open: Connections,
    state: Arc<State>,
}

/// Answers one request.
async fn converse<S, P>(stream: S, asking: Asking<P>)
where
    S: AsyncRead + AsyncWrite + Unpin,
    P: Display,
{
    let peer = &asking.peer;
    let service = service_fn(|request| respond(request, &asking));
    let connection = http1::Builder::new()
        .keep_alive(false)
        // A large answer is not copied once more.
        .writev(true)
        .max_buf_size(LONGEST_HEAD)
        .max_headers(MOST_FIELDS)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let ended = match tokio::time::timeout(PATIENCE, connection.as_mut()).await {
        Err(_) if asking.sort.get() == Some(&Sort::Stays) => connection.await,
        Err(_) => return tracing::debug!(%peer, "a control connection took too long"),
        Ok(ended) => ended,
    };
    if let Err(error) = ended {
        tracing::debug!(%peer, %error, "a control connection broke");
    }
}

async fn respond<P: Display>(
    request: Request<Incoming>,
    asking: &Asking<P>,
) -> Result<Answer, Infallible> {
    let Asking {
        peer, reach, state, ..
    } = asking;
    let (head, body) = request.into_parts();
    let (method, path) = (head.method.clone(), head.uri.path().to_owned());
    let is_change = ![Method::GET, Method::HEAD].contains(&method);
    // Of a question the body is not read.
    let body = if is_change {
        match Limited::new(body, LONGEST_BODY).collect().await {
            Ok(body) => body.to_bytes(),
            Err(_) => return Ok(routes::too_large(LONGEST_BODY)),
        }
    } else {
        Bytes::new()
    };
    let Ok(image) = asking.received.take() else {
        return Ok(routes::too_many());
    };
    let asked = Change {
        method: &method,
        path: &path,
        query: head.uri.query(),
        body: &body,
        image,
    };
    let noted = Noted::new(peer, &head, &body);
    let changed = routes::change(state, *reach, asked).await;
    noted.ends(changed.as_ref().map(Answer::status));
    let request = Request::from_parts(head, ());
    let answer = changed.unwrap_or_else(|| routes::answer(state, *reach, &request));
    match answer.body().size_hint().exact() {
        None => asking.open.sort(&asking.sort, Sort::Stays),
        Some(bytes) if bytes > LARGE => asking.open.sort(&asking.sort, Sort::Large),
        Some(_) => {}
    }
    let status = answer.status().as_u16();
    tracing::debug!(%peer, %method, path, status, "control request");
    Ok(answer)
}
