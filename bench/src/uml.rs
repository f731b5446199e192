//! A Linux guest at native speed: User-Mode Linux, whose own `virtio_blk` speaks vhost-user, with a load generator inside
//! its kernel. `tests/setup.sh` builds both.
//!
//! The guest's root is the host's, read-only, so it needs no image: its first process is a script that is written for it.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use pollux_tests::peers;
use tempfile::TempDir;

use crate::cell::Work;

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

/// What it found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    /// Requests.
    pub requests: f64,
    /// Requests a second.
    pub iops: f64,
    /// Half of them were faster, in microseconds.
    pub p50_us: f64,
    /// All but one in a hundred were faster, in microseconds.
    pub p99_us: f64,
    /// How often the disks have interrupted the guest.
    pub interrupts: f64,
    /// What the queues' locks have cost, where they were timed.
    pub locks: Option<Locks>,
}

/// Times of locks, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Locks {
    /// All waits together.
    pub waited_us: f64,
    /// The longest hold.
    pub longest_hold_us: f64,
}

/// What its lines on the console begin with.
const MARK: &str = "pollux-bench:";

/// Where its kernel and modules are.
fn part(name: &str) -> PathBuf {
    peers::directory().join("uml").join(name)
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

/// A guest that runs. Dropping it ends it.
struct Guest {
    kernel: Child,
    console: ChildStdin,
    lines: Receiver<String>,
    _folder: TempDir,
}

impl Guest {
    /// Boots it with the disks at `sockets` and `script` as its first process.
    fn boot(sockets: &[PathBuf], script: &str) -> io::Result<Self> {
        // Not on /dev/shm, which the guest does not see.
        let folder = tempfile::tempdir()?;
        let init = folder.path().join("init");
        fs::write(&init, script)?;
        fs::set_permissions(&init, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        // It ends with the thread that asked for it, however that ends.
        let mut kernel = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(part("linux"))
            .args(["mem=256M", "rootfstype=hostfs", "rootflags=/", "ro"])
            .args(["con=null", "con0=fd:0,fd:1", "seccomp=on", "ncpus=2"])
            .arg(format!("init={}", init.display()))
            .args(
                sockets
                    .iter()
                    .map(|socket| format!("virtio_uml.device={}:2", socket.display())),
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let output = kernel.stdout.take().expect("stdout is piped");
        let (said, lines) = mpsc::channel();
        thread::spawn(move || {
            let mut lines = BufReader::new(output).split(b'\n').map_while(Result::ok);
            // Until nobody listens any more.
            while let Some(line) = lines.next()
                && said
                    .send(String::from_utf8_lossy(&line).trim().to_owned())
                    .is_ok()
            {}
        });
        Ok(Self {
            console: kernel.stdin.take().expect("stdin is piped"),
            kernel,
            lines,
            _folder: folder,
        })
    }

    /// The rest of its next line that begins with [`MARK`] and `word`.
    fn says(&self, word: &str, patience: Duration) -> io::Result<String> {
        let mut others = vec![];
        loop {
            let line = self.lines.recv_timeout(patience).map_err(|gone| {
                let why = match gone {
                    RecvTimeoutError::Timeout => "hangs",
                    RecvTimeoutError::Disconnected => "has ended",
                };
                let said = others.join("\n");
                io::Error::other(format!("the guest {why} before it said {word}:\n{said}"))
            })?;
            let told = line.strip_prefix(MARK).map(str::trim_start);
            if let Some(rest) = told.and_then(|told| told.strip_prefix(word)) {
                return Ok(rest.trim().to_owned());
            }
            others.push(line);
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.kernel.kill();
        let _ = self.kernel.wait();
    }
}

/// Boots a guest with the disks at `sockets`, warms up, and measures `load`, which runs when `around` calls what it is
/// given.
pub fn measure<T>(
    sockets: &[PathBuf],
    load: Load,
    around: impl FnOnce(&mut dyn FnMut() -> io::Result<()>) -> io::Result<T>,
) -> io::Result<(Report, T)> {
    const BOOTING: Duration = Duration::from_secs(30);
    let mut guest = Guest::boot(sockets, &script(load))?;
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

/// From the driver's counters, of all queues; `None` if no lock was timed.
fn parse_locks(line: &str) -> io::Result<Option<Locks>> {
    let of = |name: &str| -> io::Result<Vec<f64>> {
        let values = line
            .split(' ')
            .filter_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        values.map(|value| number(value, line)).collect()
    };
    if of("locks-timed")?.iter().sum::<f64>() == 0.0 {
        return Ok(None);
    }
    Ok(Some(Locks {
        waited_us: of("lock-wait-ns")?.iter().sum::<f64>() / 1e3,
        longest_hold_us: of("longest-hold-ns")?.into_iter().fold(0.0, f64::max) / 1e3,
    }))
}

/// From what the generator says: `read bs=4096 qd=4 …: 14402 IOs in 200 ms = 72010 IOPS, mean … ns p50 … p99 … ns, errs 0`.
fn parse(line: &str) -> io::Result<Report> {
    let words: Vec<&str> = line
        .split([' ', ','])
        .filter(|word| !word.is_empty())
        .collect();
    let at = |word: &str, step: isize| -> io::Result<f64> {
        let place = words.iter().position(|known| *known == word);
        let place = place.and_then(|place| place.checked_add_signed(step));
        number(
            place
                .and_then(|place| words.get(place))
                .copied()
                .unwrap_or_default(),
            line,
        )
    };
    if at("errs", 1)? != 0.0 {
        return Err(io::Error::other(format!(
            "requests of the guest failed: {line}"
        )));
    }
    Ok(Report {
        requests: at("IOs", -1)?,
        iops: at("IOPS", -1)?,
        p50_us: at("p50", 1)? / 1e3,
        p99_us: at("p99", 1)? / 1e3,
        interrupts: 0.0,
        locks: None,
    })
}

fn number(text: &str, of: &str) -> io::Result<f64> {
    let wrong = |_| {
        io::Error::other(format!(
            "the guest says {text:?} where a number was expected: {of}"
        ))
    };
    text.parse().map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::float_cmp)] // they are exact
    fn the_report_of_the_generator_is_understood() {
        let line = "read bs=4096 qd=4 jobs=1 polled=0: 14402 IOs in 200 ms = 72010 IOPS, mean 55123 ns p50 54016 p99 81152 ns, errs 0";
        let report = parse(line).unwrap();
        assert_eq!((report.requests, report.iops), (14402.0, 72010.0));
        assert_eq!((report.p50_us, report.p99_us), (54.016, 81.152));
        assert!(
            parse(&line.replace("errs 0", "errs 2"))
                .unwrap_err()
                .to_string()
                .contains("failed")
        );
        assert!(parse("").is_err());
    }

    #[test]
    fn times_of_locks_are_those_of_all_queues() {
        let line = "queue=0 kicks=7 locks-timed=2 lock-wait-ns=1000 longest-hold-ns=500 \
                    queue=1 locks-timed=0 lock-wait-ns=2000 longest-hold-ns=4000";
        let locks = parse_locks(line).unwrap();
        let expected = Locks {
            waited_us: 3.0,
            longest_hold_us: 4.0,
        };
        assert_eq!(locks, Some(expected));
        assert_eq!(parse_locks("").unwrap(), None);
        assert_eq!(parse_locks("queue=0 locks-timed=0").unwrap(), None);
    }
}
