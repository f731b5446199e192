//! `pollux serve`: sockets, sessions and signals around the device end.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use pollux::device::Workers;
use pollux_sandbox::{Plan, Sandbox};
use pollux_threads::{Kind, spawn};
use rustix::process::{Resource, getrlimit, setrlimit};
use sd_notify::NotifyState;
use signal_hook::consts::{SIGUSR1, SIGXFSZ};
use signal_hook::iterator::Signals;

use crate::attach;
use crate::cli::ServeArgs;
use crate::confine;
use crate::control::{Control, Folders, Kept, Starting, State};
use crate::disks::{Disks, Elsewhere, Export, Wanted};
use crate::export::ExportArgs;
use crate::file::{self, disk_number};
use crate::limits::{Groups, are_set};
use crate::log::{Format, chain};
use crate::model::{NewDisk, unique};
use crate::paths::{absolute, folder};
use crate::process::ProcessArgs;
use crate::signals;
use crate::socket::{Endpoint, Inherited, Passed};
use ending::Impatience;

mod ending;

type Error = Box<dyn std::error::Error>;

/// What QEMU's back-end conventions want to know.
const CAPABILITIES: &str = r#"{"type":"block","features":["read-only","blk-file"]}"#;

/// What the command line and the configuration file say together.
struct Wishes {
    disks: Vec<ExportArgs>,
    process: ProcessArgs,
    control: Option<PathBuf>,
    metrics: Option<std::net::SocketAddr>,
    folders: Option<Folders>,
    state: Option<PathBuf>,
}

impl Wishes {
    fn of(args: &ServeArgs) -> Result<Self, Error> {
        let process = args.process.clone();
        if args.config.is_some() && args.export != ExportArgs::default() {
            return Err(
                "with --config, the disks are described in its file; write what --disk, --socket-path and the other \
                 options of a disk say into a [[disk]] section there, or leave --config out"
                    .into(),
            );
        }
        let file = args.config.as_deref().map(file::read).transpose()?;
        let (mut control, mut metrics) = (args.control.clone(), args.metrics_listen);
        let (mut folders, mut state) = (args.disk_folder.clone(), args.state.clone());
        let (disks, process) = match file {
            Some(file) => {
                control = control.or(file.control);
                metrics = metrics.or(file.metrics_listen);
                folders.extend(file.disk_folder);
                state = state.or(file.state);
                (file.disk, process.or(file.process))
            }
            // All disks may come later.
            None if args.export == ExportArgs::default() && !folders.is_empty() => {
                (Vec::new(), process)
            }
            None if args.export == ExportArgs::default() && control.is_some() => {
                return Err(
                    "--control without a disk serves nothing: name one, or say by --disk-folder DIR where disks \
                     that are added later may be"
                        .into(),
                );
            }
            None => (vec![args.export.clone()], process),
        };
        let wishes = Self {
            disks,
            process,
            control,
            metrics,
            folders: Folders::new(&folders)?,
            state,
        };
        wishes.fit_together()?;
        Ok(wishes)
    }

    /// What is to be done with disks that come and go: is all there that it needs?
    fn fit_together(&self) -> Result<(), Error> {
        let (control, state) = (self.control.as_deref(), self.state.as_deref());
        if self.folders.is_some() && control.is_none() {
            return Err(
                "--disk-folder is for disks that are added over the control socket; \
                name that by --control PATH"
                    .into(),
            );
        }
        if self.folders.is_none() && state.is_some() {
            return Err(
                "--state keeps disks that were added; say by --disk-folder DIR where these may be"
                    .into(),
            );
        }
        if state.is_some() && state.map(absolute) == control.map(absolute) {
            return Err(
                "the control socket and the list of disks (state) have the same path; give each one of its own"
                    .into(),
            );
        }
        if let (Some(folders), Some(state)) = (self.folders, state)
            && folders.hold(&folder(state))
        {
            return Err(format!(
                "--state {}: it lies in a folder for disks, and an image there could name it as a part of itself; \
                 choose a folder outside of each --disk-folder",
                state.display()
            )
            .into());
        }
        Ok(())
    }
}

/// Prints what a program that starts daemons asks for.
pub fn print_capabilities() -> io::Result<()> {
    writeln!(io::stdout(), "{CAPABILITIES}")
}

/// Serves what the arguments say until it is told to end.
pub fn run(args: &ServeArgs) -> Result<(), Error> {
    let wishes = Wishes::of(args)?;
    let process = &wishes.process;
    // Before anything else is opened, whose numbers could be among them.
    let mut passed = Passed::to_us()?;
    let numbers = wishes.disks.iter().filter_map(|disk| disk.fd);
    let mut inherited = Inherited::take_over(numbers.chain(passed.numbers()))?;
    let config = args.config.as_deref();
    // Options of the command line name themselves.
    let of_process = config.filter(|_| args.process == ProcessArgs::default());
    let in_process = |error| in_section(error, of_process, "[process]");
    let tuning = process.tuning().map_err(|error| in_process(error.into()))?;
    let cpus = process
        .cpu_list()
        .map_err(|error| in_process(error.into()))?;
    // Before anything can be interrupted.
    let signals = Signals::new(signals::ending().chain([SIGUSR1, SIGXFSZ]))?;
    let impatience = Impatience::begin()?;
    raise_descriptor_limit();
    let wanted = each_in_section(&wishes.disks, config, |disk| Wanted::new(disk, &mut passed))?;
    passed.complain_of_the_rest();
    let plan = plan(&wishes, &wanted).map_err(|error| in_section(error, config, "[[disk]]"))?;
    let kept = wishes.state.as_deref().map(Kept::open).transpose()?;
    // From here on, every thread confines itself as it is born.
    let sandbox = Sandbox::prepare(process.sandbox(), &plan)?;
    let mut groups = Groups::default();
    let is_alone = wanted.len() == 1 && wishes.folders.is_none();
    let exports = each_in_section(wanted, config, |mut wanted| {
        // A frontend can hold its worker by a pipe: no other disk's.
        wanted.offer.options.pipes = is_alone;
        Ok(wanted.open(&mut inherited, &mut groups, &Elsewhere)?)
    })?;
    let control = Control::open(wishes.control.as_deref(), wishes.metrics)?;
    let disks = Disks::new(wishes.folders.is_some());
    // The one thread that may open more, so it is born before this one gives that up.
    let opener = wishes
        .folders
        .map(|folders| Starting::new(folders, kept, groups, &disks, &exports))
        .transpose()?;
    let restored = opener.as_ref().map(Starting::restored).unwrap_or_default();
    // The sockets take connections. After this no process is reachable any more, not even one that waits for this.
    if let Err(error) = sd_notify::notify(&[NotifyState::Ready]) {
        tracing::warn!(%error, "the service manager cannot be told that this is ready");
    }
    if args.show_attach {
        show_attach(&exports);
    }
    sandbox.enter()?;
    let workers = Arc::new(process.start_workers(&cpus, tuning)?);
    let opener = opener
        .map(|opener| opener.begin(Arc::clone(&workers)))
        .unzip();
    let state = State::new(Arc::clone(&disks), Arc::clone(&workers), cpus, opener.0);
    let exports = exports.into_iter().map(|export| (export, None));
    let restored = restored
        .into_iter()
        .map(|(export, disk)| (export, Some(disk)));
    let served = Serving {
        disks,
        signals,
        impatience,
        format: args.log_format,
    };
    served.all(
        exports.chain(restored),
        &workers,
        control.map(|control| (control, state)),
        opener.1,
    )
}

/// Makes something of each disk; an error names its section of the configuration file.
fn each_in_section<T, R>(
    disks: impl IntoIterator<Item = T>,
    config: Option<&Path>,
    mut make: impl FnMut(T) -> Result<R, Error>,
) -> Result<Vec<R>, Error> {
    let disks = disks.into_iter().enumerate();
    disks
        .map(|(index, disk)| {
            make(disk).map_err(|error| in_section(error, config, &disk_number(index)))
        })
        .collect()
}

/// An error of one section; with a configuration file, it names that.
fn in_section(error: Error, config: Option<&Path>, section: &str) -> Error {
    match config {
        None => error,
        Some(file) => format!("{}: {section}: {}", file.display(), chain(&*error)).into(),
    }
}

/// What the sandbox is to leave.
fn plan(wishes: &Wishes, wanted: &[Wanted]) -> Result<Plan, Error> {
    let mut plan = Plan::default();
    // Over a control socket, limits may come later.
    if wishes.control.is_none() {
        let offers = wanted.iter().map(|disk| &disk.offer);
        are_set(offers.filter_map(|offer| Some((offer.limit_group.as_deref()?, offer.limits))))?;
    }
    if wishes.control.is_some() || wishes.metrics.is_some() {
        unique(wanted.iter().map(|disk| disk.name.as_str()))?;
        confine::add_control(&mut plan, wishes.control.as_deref());
    }
    if let Some(folders) = &wishes.folders {
        confine::add_later(&mut plan, folders.all(), wishes.state.as_deref());
    }
    for disk in wanted {
        confine::add(&mut plan, &disk.offer.disk, &disk.endpoint);
    }
    Ok(plan)
}

fn show_attach(exports: &[Export]) {
    // A relative path asks for the working directory, which serving does not.
    let paths = exports.iter().filter_map(|export| match &export.endpoint {
        Endpoint::Path { path, .. } => Some(absolute(path)),
        Endpoint::Fd(_) | Endpoint::Passed { .. } => None,
    });
    let paths: Vec<_> = paths.collect();
    if paths.len() < exports.len() {
        tracing::warn!(
            "--show-attach tells of sockets that are made here, and not of those that were passed"
        );
    }
    if !paths.is_empty() {
        // Disks are served all the same.
        if let Err(error) = writeln!(io::stdout(), "{}", attach::hints(&paths)) {
            tracing::warn!(%error, "what --show-attach tells cannot be printed");
        }
    }
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

/// A process that is ready to serve.
struct Serving {
    disks: Arc<Disks>,
    signals: Signals,
    impatience: Impatience,
    format: Format,
}

impl Serving {
    /// Serves `exports`, and what is added to them over `control`, until all have ended.
    fn all(
        self,
        exports: impl Iterator<Item = (Export, Option<NewDisk>)>,
        workers: &Arc<Workers>,
        control: Option<(Control, State)>,
        opener: Option<JoinHandle<()>>,
    ) -> Result<(), Error> {
        let Self {
            disks,
            mut signals,
            impatience,
            format,
        } = self;
        let ending = signals.handle();
        drop(impatience);
        let watched = Arc::clone(&disks);
        let watching = spawn(Kind::Signals, "signals", move || {
            ending::watch(&mut signals, &watched, format);
        })?;
        for (export, added) in exports {
            disks.serve(export, added, workers)?;
        }
        let control = control
            .map(|(control, state)| control.start(state))
            .transpose()?;
        disks.wait();
        // After the disks: until then it tells what is still in flight.
        if let Some(control) = control {
            control.end();
        }
        // It was on its way to add one: it is asked for nothing else.
        if let Some(opener) = opener {
            opener.join().map_err(|_| "the opener thread panicked")?;
            disks.wait();
        }
        ending.close();
        watching.join().map_err(|_| "the signal thread panicked")?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_a_disk_names_its_section() {
        let told =
            |config| in_section("--serial is too long".into(), config, &disk_number(1)).to_string();
        assert_eq!(told(None), "--serial is too long");
        let named = "a.toml: [[disk]] number 2: --serial is too long";
        assert_eq!(told(Some(Path::new("a.toml"))), named);
    }
}
