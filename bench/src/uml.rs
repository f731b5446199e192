//! A Linux guest at native speed: User-Mode Linux, whose own `virtio_blk` speaks vhost-user, with a load generator
//! inside its kernel. `tests/setup.sh` builds both.
//!
//! The guest's root is the host's, read-only, so it needs no image: its first process is a script that is written for
//! it.

mod guest;
mod report;

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use crate::cell::Work;
use crate::round_trip::Processors;

use self::guest::{Guest, MARK, part};
use self::report::{number, parse, parse_locks};

pub use self::report::Report;

/// Which driver has the guest's disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// Linux's own, with so many of its queues set aside for polling.
    Stock { poll_queues: u16 },
    /// Ours, `guest/`.
    Ours(Kick),
}

/// When our driver kicks, and whether its locks are timed at that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kick {
    /// After the queue's lock is released.
    AfterLock,
    /// The same, with locks timed.
    AfterLockTimed,
    /// Under it, with locks timed.
    UnderLockTimed,
}

/// How completions reach the threads of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// They sleep until they are interrupted.
    Interrupts,
    /// They poll.
    Polled,
    /// Every other one polls.
    Mixed,
}

/// What lies between the load and the disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stack {
    /// Nothing: there is one disk.
    Bare,
    /// device-mapper, one disk after the other.
    Linear,
    /// device-mapper, in stripes of 64 KiB.
    Striped,
}

/// What the load generator is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Virtual processors of the guest. Where all of them have one processor, and one holds a lock while another runs,
    /// that one spins until the host's scheduler takes it off.
    pub processors: u16,
    /// The processors that it has, if that is not the client's alone.
    pub spread: Option<Processors>,
    /// Under which driver.
    pub driver: Driver,
    /// Over what.
    pub stack: Stack,
    /// How its threads wait.
    pub way: Way,
    /// What they do.
    pub work: Work,
    /// Threads.
    pub jobs: u16,
    /// Requests in flight of each.
    pub depth: u16,
    /// Bytes of each.
    pub block: usize,
    /// How long.
    pub time: Duration,
}

/// Is there all that it consists of?
pub fn check() -> io::Result<()> {
    for name in ["linux", "virtio_blk.ko", "pollux_blk.ko", "kblkbench.ko"] {
        let path = part(name);
        if !path.exists() {
            let path = path.display();
            return Err(io::Error::other(format!(
                "{path} is missing: run tests/setup.sh"
            )));
        }
    }
    Ok(())
}

/// Boots a guest with the disks at `sockets`, warms up, and measures `load`, which runs when `around` calls what it is
/// given.
pub fn measure<T>(
    sockets: &[PathBuf],
    load: Load,
    around: impl FnOnce(&mut dyn FnMut() -> io::Result<()>) -> io::Result<T>,
) -> io::Result<(Report, T)> {
    const BOOTING: Duration = Duration::from_secs(30);
    let mut guest = Guest::boot(load.processors, load.spread, sockets, &script(load))?;
    guest.says("ready", BOOTING + load.time)?;
    let found = around(&mut || {
        guest.console.write_all(b"go\n")?;
        guest.says("end", BOOTING + load.time).map(drop)
    })?;
    let [before, after] = [
        guest.says("interrupts", BOOTING)?,
        guest.says("interrupts", BOOTING)?,
    ];
    let locks = guest.says("locks", BOOTING)?;
    let mut report = parse(&guest.says("kblkbench", BOOTING)?)?;
    report.interrupts = number(&after, "interrupts")? - number(&before, "interrupts")?;
    report.locks = parse_locks(&locks)?;
    Ok((report, found))
}

impl Driver {
    /// The module and its parameters.
    fn module(self) -> String {
        let (name, parameters) = match self {
            Self::Stock { poll_queues } => ("virtio_blk", format!("poll_queues={poll_queues}")),
            Self::Ours(Kick::AfterLock) => ("pollux_blk", String::new()),
            Self::Ours(Kick::AfterLockTimed) => ("pollux_blk", "time_locks=1".to_owned()),
            Self::Ours(Kick::UnderLockTimed) => {
                ("pollux_blk", "time_locks=1 kick_under_lock=1".to_owned())
            }
        };
        let module = part(&format!("{name}.ko"));
        format!("'{}' {parameters}", module.display())
    }
}

impl Stack {
    /// Commands that make the device of the load `$device`.
    const fn commands(self) -> &'static str {
        match self {
            Self::Bare => "device=/dev/vda",
            Self::Linear => {
                "device=/dev/mapper/stack; size=$(cat /sys/block/vda/size); \
                 for n in 0 1 2; do echo \"$((n * size)) $size linear /dev/vd$(echo abc | cut -c$((n + 1))) 0\"; done | \
                 DM_DISABLE_UDEV=1 dmsetup create stack"
            }
            Self::Striped => {
                "device=/dev/mapper/stack; size=$(cat /sys/block/vda/size); \
                 echo \"0 $((3 * size)) striped 3 128 /dev/vda 0 /dev/vdb 0 /dev/vdc 0\" | \
                 DM_DISABLE_UDEV=1 dmsetup create stack"
            }
        }
    }
}

/// What the generator is told of `load` beside its time.
fn parameters(load: Load) -> String {
    let Load {
        jobs, depth, block, ..
    } = load;
    let polled = match load.way {
        Way::Interrupts => 0,
        Way::Polled => 1,
        Way::Mixed => 2,
    };
    let (write, sequential) = match load.work {
        Work::RandRead => (0, 0),
        Work::RandWrite => (1, 0),
        Work::Read => (0, 1),
        Work::Write => (1, 1),
    };
    format!(
        "dev=$device jobs={jobs} qd={depth} bs={block} wr={write} seq={sequential} polled={polled}"
    )
}

/// The guest's first process.
fn script(load: Load) -> String {
    let (module, stack) = (load.driver.module(), load.stack.commands());
    let (generator, parameters) = (part("kblkbench.ko"), parameters(load));
    let generator = generator.display();
    let ms = load.time.as_millis();
    let warm_up = ms / 4;
    // The generator reports to the kernel's log and refuses to stay: that its insertion fails is its end.
    format!(
        "#!/bin/sh\n\
         export PATH=/usr/sbin:/usr/bin:/sbin:/bin\n\
         mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev\n\
         mount -t debugfs debug /sys/kernel/debug; mount -t tmpfs run /run\n\
         load() {{ insmod '{generator}' {parameters} ms=$1 2> /dev/null; }}\n\
         interrupts() {{ awk '/virtio/ {{ for (i = 2; $i ~ /^[0-9]+$/; i++) sum += $i }} END {{ print sum + 0 }}' /proc/interrupts; }}\n\
         insmod {module}\n\
         {stack}\n\
         load {warm_up}\n\
         before=$(interrupts)\n\
         echo '{MARK} ready'; read -r go; load {ms}; echo '{MARK} end'\n\
         echo \"{MARK} interrupts $before\"; echo \"{MARK} interrupts $(interrupts)\"\n\
         echo \"{MARK} locks $(cat /sys/kernel/debug/pollux_blk/vda 2> /dev/null | tr '\\n' ' ')\"\n\
         echo \"{MARK} $(dmesg | grep -o 'kblkbench [rw].*' | tail -n 1)\"\n\
         poweroff -f\n"
    )
}
