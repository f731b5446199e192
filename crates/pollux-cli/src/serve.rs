//! `pollux serve`: sockets, sessions and signals around the device end.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use pollux::device::{Device, Tuning, Workers};
use pollux::disk::Admitted;
use pollux_sandbox::{Plan, Sandbox};
use pollux_threads::{Birth, Kind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, getrlimit, setrlimit};
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGUSR1, SIGXFSZ};
use signal_hook::iterator::Signals;

use crate::attach;
use crate::cli::ServeArgs;
use crate::confine;
use crate::control::{self, Control, Served};
use crate::export::{Endpoint, ExportArgs, Offer, absolute};
use crate::file;
use crate::inherited::Inherited;
use crate::limits::Groups;
use crate::log::{Format, chain};
use crate::passed::Passed;
use crate::signals;
use crate::socket::{Listener, Socket};
use crate::stop::Stop;

type Error = Box<dyn std::error::Error>;

/// What QEMU's back-end conventions want to know.
const CAPABILITIES: &str = r#"{"type":"block","features":["read-only","blk-file"]}"#;

/// Serves what the arguments say until it is told to end.
pub fn run(args: &ServeArgs) -> Result<(), Error> {
    if args.print_capabilities {
        println!("{CAPABILITIES}");
        return Ok(());
    }
    let (mut control, mut metrics) = (args.control.clone(), args.metrics_listen);
    let (exports, process) = match &args.config {
        Some(path) => {
            let file = file::read(path)?;
            control = control.or(file.control);
            metrics = metrics.or(file.metrics_listen);
            (file.disk, args.process.clone().or(file.process))
        }
        None => (vec![args.export.clone()], args.process.clone()),
    };
    // Before anything else is opened, whose numbers could be among them.
    let mut passed = Passed::to_us()?;
    let numbers = exports.iter().filter_map(|export| export.fd);
    let mut inherited = Inherited::take_over(numbers.chain(passed.numbers()))?;
    let tuning = process.tuning()?;
    let cpus = process.cpu_list()?;
    let threads = usize::from(process.threads.unwrap_or(1));
    // Before anything can be interrupted.
    let signals = Signals::new(signals::ending().chain([SIGUSR1, SIGXFSZ]))?;
    raise_descriptor_limit();
    let wanted = exports
        .iter()
        .map(|args| Wanted::new(args, &mut passed))
        .collect::<Result<Vec<_>, _>>()?;
    passed.complain_of_the_rest();
    let mut plan = Plan::default();
    if control.is_some() || metrics.is_some() {
        control::unique(wanted.iter().map(|disk| disk.name.as_str()))?;
        confine::add_control(&mut plan, control.as_deref());
    }
    for disk in &wanted {
        confine::add(&mut plan, &disk.offer.disk, &disk.endpoint);
    }
    // From here on, every thread confines itself as it is born.
    let sandbox = Sandbox::prepare(process.sandbox(), &plan)?;
    let mut groups = Groups::default();
    let exports = wanted
        .into_iter()
        .map(|wanted| wanted.open(&mut inherited, &mut groups))
        .collect::<Result<Vec<_>, _>>()?;
    let control = Control::open(control.as_deref(), metrics)?;
    // The sockets take connections. After this no process is reachable any more, not even one that waits for this.
    if let Err(error) = sd_notify::notify(&[NotifyState::Ready]) {
        tracing::warn!(%error, "the service manager cannot be told that this is ready");
    }
    // A relative path asks for the working directory, which serving does not.
    if args.show_attach {
        let paths = exports.iter().filter_map(|export| match &export.endpoint {
            Endpoint::Path { path, .. } => Some(absolute(path)),
            Endpoint::Fd(_) | Endpoint::Passed { .. } => None,
        });
        let paths: Vec<_> = paths.collect();
        if !paths.is_empty() {
            println!("{}", attach::hints(&paths));
        }
    }
    sandbox.enter()?;
    let workers = Workers::start(threads, &cpus, tuning).map_err(|error| match &process.cpus {
        Some(list) => format!("--cpus {list}: {}", chain(&error)),
        None => format!("cannot start the workers: {}", chain(&error)),
    })?;
    let workers = Arc::new(workers);
    let served: Vec<_> = exports.iter().map(Export::served).collect();
    let control = control
        .map(|control| control.start(control::State::new(served, Arc::clone(&workers), cpus)))
        .transpose()?;
    serve_all(exports, signals, &workers, tuning, args.log_format)?;
    // Last: until then it tells what is still in flight.
    if let Some(control) = control {
        control.end();
    }
    Ok(())
}

/// Allows as many file descriptors as may be allowed. The soft limit is 1024 by custom, for the sake of programs
/// that `select`; two frontends that share as much memory as they may would leave none to the other disks.
fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "the limit of open file descriptors stays as it is");
    }
}

/// One disk that is to be served.
struct Wanted {
    name: String,
    offer: Offer,
    endpoint: Endpoint,
}

impl Wanted {
    fn new(args: &ExportArgs, passed: &mut Passed) -> Result<Self, Error> {
        let endpoint = args.endpoint(passed)?;
        Ok(Self {
            name: control::name(args.name.as_deref(), &endpoint)?,
            offer: args.offer(endpoint.name())?,
            endpoint,
        })
    }

    fn open(self, inherited: &mut Inherited, groups: &mut Groups) -> Result<Export, Error> {
        let endpoint = self.endpoint;
        let limit_group = self.offer.limit_group.clone();
        let device = self.offer.open(groups)?;
        let socket =
            Socket::open(&endpoint, inherited).map_err(|error| error.of("--socket-path"))?;
        Ok(Export {
            name: self.name,
            endpoint,
            socket,
            device,
            limit_group,
            stop: Arc::new(Stop::new()?),
        })
    }
}

/// One disk with its socket.
struct Export {
    name: String,
    endpoint: Endpoint,
    socket: Socket,
    device: Arc<Device>,
    limit_group: Option<String>,
    stop: Arc<Stop>,
}

impl Export {
    /// What the control socket tells of it.
    fn served(&self) -> Served {
        Served {
            name: self.name.clone(),
            socket: self.endpoint.name(),
            device: Arc::clone(&self.device),
            limit_group: self.limit_group.clone(),
            stop: Arc::clone(&self.stop),
        }
    }
}

fn serve_all(
    exports: Vec<Export>,
    mut signals: Signals,
    workers: &Arc<Workers>,
    tuning: Tuning,
    format: Format,
) -> Result<(), Error> {
    let devices: Vec<_> = exports
        .iter()
        .map(|export| Arc::clone(&export.device))
        .collect();
    let stops: Vec<_> = exports
        .iter()
        .map(|export| Arc::clone(&export.stop))
        .collect();
    let ending = signals.handle();
    let watching = start("signals", Kind::Signals, move || {
        watch_signals(&mut signals, &devices, &stops, format);
    })?;
    let mut threads = Vec::new();
    for export in exports {
        let workers = Arc::clone(workers);
        let serve = move || serve_one(export, &workers, tuning);
        threads.push(start("session", Kind::Session, serve)?);
    }
    for thread in threads {
        thread.join().map_err(|_| "a session thread panicked")?;
    }
    ending.close();
    watching.join().map_err(|_| "the signal thread panicked")?;
    Ok(())
}

fn start(
    name: &str,
    kind: Kind,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let birth = Birth::of(kind);
    let builder = std::thread::Builder::new().name(name.to_owned());
    builder.spawn(move || {
        birth.happens();
        body();
    })
}

fn watch_signals(
    signals: &mut Signals,
    devices: &[Arc<Device>],
    stops: &[Arc<Stop>],
    format: Format,
) {
    let mut asked = false;
    for signal in signals.forever() {
        match signal {
            SIGUSR1 => print_counters(devices, format),
            // A file was to grow beyond RLIMIT_FSIZE. The call that was to do it fails with EFBIG, which is told.
            SIGXFSZ => {}
            // A terminal that closes may send several, and systemd one beside its SIGTERM: none of them means hurry.
            _ if asked && signal != SIGHUP => {
                tracing::warn!("told to end once more: not waiting for requests in flight");
                std::process::exit(1);
            }
            _ => {
                tracing::info!("told to end: finishing what is in flight");
                asked |= signal != SIGHUP;
                for stop in stops {
                    stop.stop();
                }
            }
        }
    }
}

fn print_counters(devices: &[Arc<Device>], format: Format) {
    for device in devices {
        let disk = &device.options().name;
        for (queue, counted) in device.snapshots().into_iter().enumerate() {
            if counted == pollux::stats::Snapshot::default() {
                continue;
            }
            match format {
                Format::Text => tracing::info!(disk, queue, "counters\n{counted}"),
                Format::Json => {
                    let counters = serde_json::to_string(&counted).expect("they are plain numbers");
                    tracing::info!(disk, queue, counters, "counters");
                }
            }
        }
        let ways = device.disk().counters();
        if !ways.is_empty() {
            let ways: Vec<_> = ways
                .iter()
                .map(|(name, count)| format!("{name} {count}"))
                .collect();
            tracing::info!(disk, "ways that requests went: {}", ways.join(", "));
        }
    }
}

/// Serves one disk: frontends one after the other, or the one that is connected.
fn serve_one(export: Export, workers: &Arc<Workers>, tuning: Tuning) {
    let Export {
        endpoint,
        socket,
        device,
        stop,
        ..
    } = export;
    let geometry = device.disk().geometry();
    tracing::info!(
        disk = endpoint.name(),
        bytes = geometry.bytes,
        block = geometry.block,
        access = ?geometry.access,
        queues = device.options().num_queues,
        "serving"
    );
    match socket {
        Socket::Connected(stream) => session(stream, None, &device, workers, tuning, &stop),
        Socket::Listening(listener) => {
            while let Some(stream) = next_frontend(&listener, &stop) {
                let listener = Some(listener.as_fd());
                session(stream, listener, &device, workers, tuning, &stop);
            }
        }
    }
}

fn session(
    stream: UnixStream,
    listener: Option<BorrowedFd<'_>>,
    device: &Arc<Device>,
    workers: &Arc<Workers>,
    tuning: Tuning,
    stop: &Stop,
) {
    match stream.try_clone() {
        Ok(clone) => stop.set(Some(clone)),
        Err(error) => {
            return tracing::error!(%error, "a frontend is turned away: out of descriptors");
        }
    }
    if let Err(error) = pollux::device::serve(stream, listener, device, workers, tuning)
        && let Some(Admitted { withheld }) = device.refusals().admits()
    {
        tracing::warn!(
            disk = device.options().name,
            error = chain(&error),
            withheld,
            "a frontend was disconnected"
        );
    }
    stop.set(None);
}

/// Waits for the next frontend. `None`: told to end.
fn next_frontend(listener: &Listener, stop: &Stop) -> Option<UnixStream> {
    loop {
        let mut fds = [
            PollFd::new(listener, PollFlags::IN),
            PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN),
        ];
        let polled = poll(&mut fds, None);
        if stop.stopping() {
            return None;
        }
        if polled.is_err() {
            continue;
        }
        match listener.accept() {
            Ok(Some(stream)) => return Some(stream),
            // Another process has taken it.
            Ok(None) => {}
            Err(error) => {
                tracing::error!(%error, "cannot accept a frontend; trying again in a second");
                let second = Timespec::try_from(Duration::from_secs(1)).expect("a second fits");
                let mut fds = [PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN)];
                // Told to end or not: the loop decides.
                let _ = poll(&mut fds, Some(&second));
            }
        }
    }
}
