//! A Linux guest in QEMU, booted for one shell script.
//!
//! The guest is a Debian cloud kernel with an initrd of ours: `tests/guest/init` loads the modules, runs
//! the test's script, tells its exit status and powers off. Everything it says comes over the serial
//! console, which the host reads line by line; that is also how a test waits for something to happen in
//! the guest. The machines that run this have no usable KVM, so guests are emulated (TCG): right for
//! data and for counts, useless for speed.

mod export;
mod lab;
mod monitor;
mod overlay;
mod program;
mod running;
mod uml;

use std::io::{self, Write as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

pub use export::Export;
pub use lab::Lab;
pub use running::{Outcome, Running};
pub use uml::UserModeLinux;

use tempfile::TempDir;

use crate::peers;
use monitor::Monitor;

const INIT: &str = include_str!("../guest/init");
const LIBRARY: &str = include_str!("../guest/lib.sh");

/// How long a guest may take before it counts as stuck: many times what any of ours needs, even beside
/// a compiler that takes both CPUs.
const PATIENCE: Duration = Duration::from_secs(180);

/// How long a kernel may take to come up: 2 or 3 s, where nobody else needs the CPUs.
const BOOTS: Duration = Duration::from_secs(60);

/// How many kernels in a row may fail to come up.
const FAILURES: u32 = 2;

/// Makes a test of each case: of the functions of a module, with what they are to be about, or of the methods of what a
/// function makes. Those of a full set begin with what keeps them out of the others.
#[macro_export]
macro_rules! cases {
    ($module:ident($of:expr): $($case:ident),+) => {
        $(
            #[test]
            fn $case() {
                $module::$case($of);
            }
        )+
    };
    ($why:literal: $module:ident($of:expr): $($case:ident),+) => {
        $(
            #[test]
            #[ignore = $why]
            fn $case() {
                $module::$case($of);
            }
        )+
    };
    ($make:ident(): $($case:ident),+) => {
        $(
            #[test]
            fn $case() {
                $make().$case();
            }
        )+
    };
    ($why:literal: $make:ident(): $($case:ident),+) => {
        $(
            #[test]
            #[ignore = $why]
            fn $case() {
                $make().$case();
            }
        )+
    };
}

/// A kernel, with the QEMU that runs it: QEMU 7.2 crashes 6.12 guests at random.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kernel {
    /// Debian 12's, under the installed QEMU (7.2).
    Linux61,
    /// From backports, under QEMU 10, also from there.
    Linux612,
}

/// Which driver has the guest's disks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Driver {
    /// The kernel's own.
    VirtioBlk,
    /// Ours, in `guest/`.
    PolluxBlk,
}

/// A kernel and the driver of its disks: the kernel's own, unless [`Kernel::driven_by`] says otherwise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct System {
    kernel: Kernel,
    driver: Driver,
}

impl From<Kernel> for System {
    fn from(kernel: Kernel) -> Self {
        kernel.driven_by(Driver::VirtioBlk)
    }
}

impl System {
    /// Finds what boots it; `None` (and `SKIP` on the output) if a part is missing.
    pub fn machine(self) -> Option<Machine> {
        let machine = self.kernel.machine()?;
        let module = match self.driver {
            Driver::VirtioBlk => None,
            Driver::PolluxBlk => Some(peers::fetched(&format!(
                "{}/pollux_blk.ko",
                self.kernel.folder()
            ))?),
        };
        Some(Machine { module, ..machine })
    }
}

/// The files that boot a [`Kernel`].
#[derive(Clone, Debug)]
pub struct Machine {
    qemu: PathBuf,
    kernel: PathBuf,
    initrd: PathBuf,
    /// Our own driver, which is loaded instead of `virtio_blk`.
    module: Option<PathBuf>,
}

impl Kernel {
    /// Finds what boots this kernel; `None` (and `SKIP` on the output) if a part is missing.
    pub fn machine(self) -> Option<Machine> {
        let qemu = match self {
            Self::Linux61 => peers::installed("qemu-system-x86_64"),
            Self::Linux612 => peers::fetched("qemu10/bin/qemu-system-x86_64"),
        };
        let folder = self.folder();
        Some(Machine {
            qemu: qemu?,
            kernel: peers::fetched(&format!("{folder}/vmlinuz"))?,
            initrd: peers::fetched(&format!("{folder}/initrd"))?,
            module: None,
        })
    }

    /// This kernel, with `driver` for its disks.
    pub const fn driven_by(self, driver: Driver) -> System {
        System {
            kernel: self,
            driver,
        }
    }

    /// Where `tests/setup.sh` puts what belongs to it.
    const fn folder(self) -> &'static str {
        match self {
            Self::Linux61 => "linux61",
            Self::Linux612 => "linux612",
        }
    }

    /// The qemu-storage-daemon of the same version as this kernel's QEMU.
    pub fn storage_daemon(self) -> Option<PathBuf> {
        match self {
            Self::Linux61 => peers::installed("qemu-storage-daemon"),
            Self::Linux612 => peers::fetched("qemu10/bin/qemu-storage-daemon"),
        }
    }
}

/// A `vhost-user-blk-pci` device: the guest's view of an [`Export`].
#[derive(Clone, Debug)]
pub struct VhostUserBlk {
    socket: PathBuf,
    properties: String,
    connection: String,
}

impl VhostUserBlk {
    /// The disk served on `socket`, with one queue of QEMU's default size.
    pub fn new(socket: &Path) -> Self {
        Self {
            socket: socket.to_owned(),
            properties: String::new(),
            connection: String::new(),
        }
    }

    /// QEMU connects again, a second later, when the server has gone.
    #[must_use]
    pub fn reconnects(mut self) -> Self {
        self.connection.push_str(",reconnect=1");
        self
    }

    /// Sets a property of the device, e.g. `num-queues=2` or `event_idx=off`.
    #[must_use]
    pub fn with(mut self, property: &str) -> Self {
        self.properties.push(',');
        self.properties.push_str(property);
        self
    }
}

/// What a reset of the machine does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reset {
    /// QEMU ends, so that a panicking kernel does not start over.
    Ends,
    /// The machine boots again, as a real one does.
    Reboots,
}

/// A guest about to be started.
#[derive(Clone, Debug)]
pub struct Guest {
    machine: Machine,
    script: String,
    programs: Vec<PathBuf>,
    cpus: u8,
    memory_mib: u32,
    disks: Vec<VhostUserBlk>,
    kernel_arguments: Vec<String>,
    reset: Reset,
    monitored: Monitored,
    more: Vec<String>,
    initrd: Option<PathBuf>,
    patience: Duration,
}

/// Is QEMU told what to do while the guest runs?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Monitored {
    No,
    Yes,
}

impl Guest {
    /// A guest with two CPUs that runs `script` (see `tests/guest/lib.sh` for what it may call).
    pub fn new(machine: &Machine, script: &str) -> Self {
        Self {
            machine: machine.clone(),
            script: script.to_owned(),
            programs: Vec::new(),
            cpus: 2,
            memory_mib: 384,
            disks: Vec::new(),
            kernel_arguments: Vec::new(),
            reset: Reset::Ends,
            monitored: Monitored::No,
            more: Vec::new(),
            initrd: None,
            patience: PATIENCE,
        }
    }

    /// Gives the guest a program of this machine, to be called by its name.
    #[must_use]
    pub fn program(mut self, path: impl Into<PathBuf>) -> Self {
        self.programs.push(path.into());
        self
    }

    /// The number of virtual CPUs.
    #[must_use]
    pub fn cpus(mut self, cpus: u8) -> Self {
        self.cpus = cpus;
        self
    }

    /// Adds a disk: the first becomes `/dev/vda`, and so on.
    #[must_use]
    pub fn disk(mut self, disk: VhostUserBlk) -> Self {
        self.disks.push(disk);
        self
    }

    /// Boots from `initrd` as it is, which leaves its script to whatever it starts.
    #[must_use]
    pub fn initrd(mut self, initrd: &Path) -> Self {
        self.initrd = Some(initrd.to_owned());
        self
    }

    /// Adds several disks.
    #[must_use]
    pub fn disks(mut self, disks: impl IntoIterator<Item = VhostUserBlk>) -> Self {
        self.disks.extend(disks);
        self
    }

    /// Adds to the kernel's command line, e.g. a module's parameter `virtio_blk.poll_queues=1`.
    #[must_use]
    pub fn kernel_argument(mut self, argument: &str) -> Self {
        self.kernel_arguments.push(argument.to_owned());
        self
    }

    /// Sets the variable `name` for the script.
    #[must_use]
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.script = format!("{name}='{value}'\n{}", self.script);
        self
    }

    /// A `reboot` in the guest boots it again in the same QEMU, with the same connection to its disks.
    #[must_use]
    pub fn reboots(mut self) -> Self {
        self.reset = Reset::Reboots;
        self
    }

    /// It can go on in another QEMU: see [`Running::migrate`].
    #[must_use]
    pub fn migrates(mut self) -> Self {
        self.monitored = Monitored::Yes;
        self
    }

    /// It may fall asleep: see [`Running::wake`].
    #[must_use]
    pub fn sleeps(mut self) -> Self {
        self.monitored = Monitored::Yes;
        self
    }

    /// Adds the disk in the file `image` that QEMU serves itself, by a device with `properties`, after all others.
    #[must_use]
    pub fn own_disk(mut self, image: &Path, properties: &str) -> Self {
        let name = format!("own{}", self.more.len());
        let file = format!("driver=file,node-name={name},filename={}", image.display());
        let device = format!("virtio-blk-pci,drive={name},{properties}");
        let arguments = ["-blockdev", &file, "-device", &device];
        self.more.extend(arguments.map(str::to_owned));
        self
    }

    /// Waits no longer than `patience` for the whole run.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Boots the guest and waits until it has powered off.
    pub fn run(self) -> io::Result<Outcome> {
        self.start()?.finish()
    }

    /// Boots the guest and returns once its kernel has. An emulated kernel has been seen to hang or to end at that, while
    /// its second processor came up and before it had loaded a driver for its disks; it is then booted again.
    pub fn start(self) -> io::Result<Running> {
        for _ in 0..FAILURES {
            let mut running = self.boot()?;
            if running.is_up(BOOTS)? {
                return Ok(running);
            }
            let console = running.kill()?;
            let _ = writeln!(io::stderr(), "A kernel did not come up:\n{console}");
        }
        self.boot()
    }

    fn boot(&self) -> io::Result<Running> {
        let (mut command, folder) = self.prepare()?;
        let monitor = match self.monitored {
            Monitored::No => None,
            Monitored::Yes => Some(monitored(&mut command, &folder)?),
        };
        Running::start(&mut command, folder, self.patience, monitor.as_ref())
    }

    /// The command that runs it, and the folder with what that needs.
    fn prepare(&self) -> io::Result<(Command, TempDir)> {
        let folder = tempfile::tempdir()?;
        if let Some(initrd) = &self.initrd {
            return Ok((self.command(initrd), folder));
        }
        let initrd = folder.path().join("initrd");
        let script = format!("{LIBRARY}\n{}", self.script);
        let base = std::fs::read(&self.machine.initrd)?;
        let mut files = vec![
            ("init".to_owned(), INIT.into()),
            ("test.sh".to_owned(), script.into_bytes()),
        ];
        for path in &self.programs {
            files.extend(program::with_libraries(path)?);
        }
        if let Some(module) = &self.machine.module {
            files.push(("modules/pollux_blk.ko".to_owned(), std::fs::read(module)?));
        }
        let files = files
            .iter()
            .map(|(name, contents)| (name.as_str(), contents.as_slice()));
        std::fs::write(&initrd, overlay::append(&base, files))?;
        Ok((self.command(&initrd), folder))
    }

    fn command(&self, initrd: &Path) -> Command {
        // QEMU must not outlive a test that is itself killed.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]);
        command.arg(&self.machine.qemu);
        // Without its own random numbers a kernel waits for them, and once it has enough it patches its code: in the
        // middle of a test, where the emulator has executed the breakpoint of such a patch for ever.
        let cpu = "Nehalem,+rdrand";
        command.args(["-accel", "tcg,thread=multi", "-cpu", cpu, "-M", "q35"]);
        command.args(["-nodefaults", "-no-user-config", "-display", "none"]);
        command.args(["-serial", "stdio"]);
        if self.reset == Reset::Ends {
            command.arg("-no-reboot");
        }
        command.args(["-smp", &self.cpus.to_string()]);
        // A vhost-user server maps the guest's memory, so it has to be shared.
        let mib = self.memory_mib;
        command.args(["-m", &format!("{mib}M"), "-numa", "node,memdev=memory"]);
        let memory = format!("memory-backend-memfd,id=memory,size={mib}M,share=on");
        command.args(["-object", &memory]);
        command.arg("-kernel").arg(&self.machine.kernel);
        command.arg("-initrd").arg(initrd);
        // loglevel=5: warnings are worth seeing, the boot messages are not. no_timer_check: where the host is busy, an
        // emulated timer looks broken, and the kernel panics.
        let driver = match &self.machine.module {
            None => "",
            Some(_) => "driver=pollux_blk", // for init
        };
        let kernel_arguments = format!(
            "console=ttyS0 quiet loglevel=5 panic=-1 mitigations=off no_timer_check {driver} {}",
            self.kernel_arguments.join(" ")
        );
        command.args(["-append", &kernel_arguments]);
        for (index, disk) in self.disks.iter().enumerate() {
            let socket = disk.socket.display();
            let chardev = format!("socket,id=disk{index},path={socket}{}", disk.connection);
            let device = format!("vhost-user-blk-pci,chardev=disk{index}{}", disk.properties);
            command.args(["-chardev", &chardev, "-device", &device]);
        }
        command.args(&self.more);
        command.stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }
}

/// Has the QEMU of `command` come to the monitor that listens here.
fn monitored(command: &mut Command, folder: &TempDir) -> io::Result<UnixListener> {
    let socket = folder.path().join("monitor");
    command.args(Monitor::arguments(&socket));
    UnixListener::bind(socket)
}
