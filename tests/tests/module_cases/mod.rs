//! What must be true of our own driver, `guest/`, in User-Mode Linux, whichever way that kernel is built.
//!
//! Requests are polled at native speed there, and interrupts are counted. `tests/setup.sh` builds the module with the
//! parameters that only tests want.

use std::path::{Path, PathBuf};

use pollux_tests::backend::{Backend, Conduct, Lie, Plan};
use pollux_tests::control::Daemon;
use pollux_tests::guest::{Driver, Outcome, Running, UserModeLinux};
use pollux_tests::server::Server;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const COMMON: &str = include_str!("../../guest/cases/module.sh");
/// What the driver says of a device that fails.
const FAILED: &str = "the device has broken or gone";
const SWITCH: &str = include_str!("../../../guest/pollux-blk-switch");

/// A kernel, which may be missing, and how long its loads are.
#[derive(Clone)]
pub struct Bench {
    pub kernel: Option<UserModeLinux>,
    /// For the scripts: how many times less a slow kernel does.
    pub less: u32,
}

/// Servers of disks in memory, named vda, vdb, …, and the folder of their sockets.
struct Disks {
    servers: Vec<Server>,
    sockets: Vec<PathBuf>,
    _folder: TempDir,
}

impl Disks {
    /// One disk for each serial, with so many queues.
    fn serve(serials: &[&str], queues: &str) -> Self {
        let folder = tempfile::tempdir().expect("the folder of temporary files is writable");
        let sockets = serials.iter().map(|serial| folder.path().join(serial));
        let sockets: Vec<PathBuf> = sockets.collect();
        let serve = |(socket, serial): (&PathBuf, &&str)| {
            let disk = ["--disk", "memory:size=256M", "--serial", serial];
            let shape = ["--num-queues", queues];
            Server::pollux(socket, &[disk.as_slice(), &shape].concat()).expect("it serves")
        };
        Self {
            servers: sockets.iter().zip(serials).map(serve).collect(),
            sockets,
            _folder: folder,
        }
    }
}

impl Bench {
    fn start(&self, disks: &Disks, case: &str, variables: &str, driver: &str) -> Option<Running> {
        let sockets: Vec<&Path> = disks.sockets.iter().map(PathBuf::as_path).collect();
        self.boot(&sockets, case, variables, driver)
    }

    /// Starts a guest with the disks on `sockets`, which loads `driver` and runs `case`.
    fn boot(
        &self,
        sockets: &[&Path],
        case: &str,
        variables: &str,
        driver: &str,
    ) -> Option<Running> {
        let driver = format!("driver={driver}");
        self.boot_with(sockets, case, variables, &[&driver])
    }

    /// The same with the kernel's `arguments`, one of which names the driver.
    fn boot_with(
        &self,
        sockets: &[&Path],
        case: &str,
        variables: &str,
        arguments: &[&str],
    ) -> Option<Running> {
        let less = self.less;
        let switch = format!("cat >/run/pollux-blk-switch <<'THE_END'\n{SWITCH}\nTHE_END\n");
        let script = format!("less={less}\n{variables}\n{switch}{COMMON}\n{case}");
        let guest = self
            .kernel
            .as_ref()?
            .start_with(sockets, &script, arguments);
        Some(guest.expect("the guest starts"))
    }

    fn passes(&self, disks: &Disks, case: &str, variables: &str, driver: &str) {
        if let Some(guest) = self.start(disks, case, variables, driver) {
            does_not_fail(&ends_well(guest, &disks.servers));
        }
    }

    /// On a disk with one queue, which both kinds of request share.
    fn passes_on_one_queue(&self, case: &str, variables: &str) {
        let disks = Disks::serve(&["pollux-guest"], "1");
        self.passes(&disks, case, variables, "pollux_blk");
    }

    pub fn data_survives_in_both_modes_at_once_on_one_queue(&self) {
        let case = include_str!("../../guest/cases/module_verify.sh");
        self.passes_on_one_queue(case, "");
    }

    /// By the device's own count: the guest's block layer counts what it asks its driver for.
    pub fn flushes_reach_the_device(&self) {
        let folder = tempfile::tempdir().expect("the folder of temporary files is writable");
        let daemon = Daemon::start(folder.path(), "disk", "memory:size=256M", &[]);
        let daemon = daemon.expect("it serves");
        let case = include_str!("../../guest/cases/module_flushes.sh");
        let Some(mut guest) = self.boot(&[&daemon.disk], case, "", "pollux_blk") else {
            return;
        };
        let stats = format!("{}/stats", daemon.path);
        let mut look = |when: &str| {
            guest.wait_for(when).expect("it comes so far");
            let flushes = daemon.get(&stats)["total"]["requests"]["flush"]["ok"].as_u64();
            guest.tell("go on").expect("it listens");
            flushes.expect("they are counted")
        };
        for (kind, least) in [("plain", 64), ("polled", 64), ("switched", 1)] {
            let before = look(&format!("before {kind}"));
            let flushes = look(&format!("after {kind}")) - before;
            assert!(flushes >= least, "{kind}: {flushes}");
        }
        does_not_fail(&ends_well(guest, &[daemon.server]));
    }

    pub fn polled_load_takes_no_interrupt(&self) {
        let case = include_str!("../../guest/cases/module_counts.sh");
        self.passes_on_one_queue(case, "");
    }

    /// `rule`: `ours`, or that of the RFC of 2021, `rfc`, which shows that the test can fail.
    pub fn a_stopped_poller_delays_no_plain_read(&self, rule: &str) {
        let case = include_str!("../../guest/cases/module_stopped.sh");
        self.passes_on_one_queue(case, &format!("RULE={rule}"));
    }

    pub fn a_device_is_taken_away_and_given_back_under_load(&self) {
        let case = include_str!("../../guest/cases/module_unplug.sh");
        self.passes_on_one_queue(case, "");
    }

    pub fn the_machine_goes_off_under_load(&self) {
        let case = include_str!("../../guest/cases/module_off.sh");
        self.passes_on_one_queue(case, "");
    }

    /// `server` is not ours.
    pub fn data_survives_in_front_of(&self, server: &Server, driver: Driver) {
        let case = include_str!("../../guest/cases/module_servers.sh");
        let (module, queues) = match driver {
            Driver::PolluxBlk => ("pollux_blk", "num_request_queues"),
            Driver::VirtioBlk => ("virtio_blk", "poll_queues"),
        };
        let queues = format!("{module}.{queues}=1");
        let arguments = [format!("driver={module}"), queues];
        let arguments = arguments.each_ref().map(String::as_str);
        let variables = format!("MODULE={module}");
        if let Some(guest) = self.boot_with(&[server.socket()], case, &variables, &arguments) {
            does_not_fail(&ends_well(guest, std::slice::from_ref(server)));
        }
    }

    /// Only where a load generator inside the kernel was built for it.
    pub fn polls_do_not_have_interrupts_turned_off(&self) {
        let case = include_str!("../../guest/cases/module_line.sh");
        self.passes_on_one_queue(case, "");
    }

    /// Of a device that takes note of all that the specification does not allow.
    pub fn secure_erase_erases(&self) {
        let plan = Plan {
            range_sectors: 128,
            ..Plan::default()
        };
        let device = Backend::start(plan).expect("it listens");
        let case = include_str!("../../guest/cases/module_erase.sh");
        let Some(guest) = self.boot(&[device.socket()], case, "", "pollux_blk") else {
            return;
        };
        let outcome = guest.finish().expect("the guest powers off");
        assert_eq!(outcome.status, 0, "{}", outcome.console);
        device.end();
    }

    pub fn changes_come_under_load_and_while_the_device_goes(&self) {
        const SIZES: [u64; 2] = [2048, 4096]; // in sectors
        let plan = Plan {
            queues: 2,
            ..Plan::default()
        };
        let device = Backend::start(plan).expect("it listens");
        let rounds = if self.less > 1 { 2 } else { 5 };
        let case = include_str!("../../guest/cases/module_changes.sh");
        let variables = format!("rounds={rounds}");
        let Some(mut guest) = self.boot(&[device.socket()], case, &variables, "pollux_blk") else {
            return;
        };
        for round in 1..=rounds {
            guest
                .wait_for(&format!("round {round}"))
                .expect("it has load");
            for sectors in SIZES.repeat(25) {
                device.resize(sectors);
            }
        }
        does_not_fail(&ends_well(guest, &[]));
        device.end();
    }

    pub fn processors_may_be_fewer_than_queues(&self) {
        let disks = Disks::serve(&["pollux-guest"], "4");
        let case = include_str!("../../guest/cases/module_cpus.sh");
        for cpus in [1, 2] {
            let variables = format!("CPUS={cpus}");
            let arguments = ["driver=pollux_blk".to_owned(), format!("ncpus={cpus}")];
            let arguments = arguments.each_ref().map(String::as_str);
            let socket = disks.sockets[0].as_path();
            if let Some(guest) = self.boot_with(&[socket], case, &variables, &arguments) {
                does_not_fail(&ends_well(guest, &disks.servers));
            }
        }
    }

    /// Of a device that takes note of chains that are longer than its ring.
    pub fn a_request_is_no_longer_than_the_ring(&self) {
        let plan = Plan {
            sectors: 1 << 14,
            seg_max: u32::MAX,
            size_max: 4096,
            ..Plan::default()
        };
        let device = Backend::start(plan).expect("it listens");
        let case = include_str!("../../guest/cases/module_segments.sh");
        let Some(guest) = self.boot(&[device.socket()], case, "", "pollux_blk") else {
            return;
        };
        does_not_fail(&ends_well(guest, &[]));
        device.end();
    }

    /// The device polls all the time, and needs no kick.
    pub fn what_ends_while_it_is_submitted_waits_for_no_poller(&self) {
        let folder = tempfile::tempdir().expect("the folder of temporary files is writable");
        let socket = folder.path().join("disk.sock");
        let options = ["--disk", "memory:size=256M", "--poll", "always"];
        let server = Server::pollux(&socket, &options).expect("it serves");
        let case = include_str!("../../guest/cases/module_fast.sh");
        let arguments = ["driver=pollux_blk", "pollux_blk.queue_depth=1"];
        if let Some(guest) = self.boot_with(&[&socket], case, "", &arguments) {
            does_not_fail(&ends_well(guest, &[server]));
        }
    }

    pub fn a_zoned_disk_is_refused(&self) {
        const MODEL: usize = 92; // of its zones, in the configuration space
        const HOST_MANAGED: u8 = 1;
        let plan = Plan {
            config: vec![(MODEL, vec![HOST_MANAGED])],
            ..Plan::default()
        };
        let device = Backend::start(plan).expect("it listens");
        let case = include_str!("../../guest/cases/module_zones.sh");
        let Some(guest) = self.boot(&[device.socket()], case, "", "pollux_blk") else {
            return;
        };
        ends_well(guest, &[]);
        device.end();
    }

    pub fn requests_of_a_broken_ring_fail(&self) {
        let plan = Plan {
            queues: 2,
            ..Plan::default()
        };
        let device = Backend::start(plan).expect("it listens");
        let case = include_str!("../../guest/cases/module_liar.sh");
        let Some(mut guest) = self.boot(&[device.socket()], case, "", "pollux_blk") else {
            return;
        };
        guest.wait_for("under load").expect("it has load");
        device.conduct(Conduct::Lie(Lie::Id(u32::MAX)));
        let outcome = guest.finish().expect("the guest powers off");
        assert_eq!(outcome.status, 0, "{}", outcome.console);
    }

    pub fn server_and_driver_do_not_wait_for_each_other(&self) {
        let case = include_str!("../../guest/cases/module_hold.sh");
        self.passes_on_one_queue(case, "");
    }

    pub fn device_mapper_polls_end_to_end(&self) {
        let disks = Disks::serve(&["first", "second", "third"], "1");
        let case = include_str!("../../guest/cases/module_mapper.sh");
        self.passes(&disks, case, "", "pollux_blk");
    }

    pub fn two_drivers_share_the_disks(&self) {
        let disks = Disks::serve(&["first", "second", "third"], "1");
        let case = include_str!("../../guest/cases/module_both.sh");
        self.passes(&disks, case, "", "virtio_blk");
    }

    /// Only on the kernel that can have faults injected.
    pub fn faults_while_it_is_bound_leave_nothing_behind(&self) {
        let case = include_str!("../../guest/cases/module_faults_bind.sh");
        self.passes_on_one_queue(case, "");
    }

    /// Only on the kernel that can have faults injected.
    pub fn faults_under_load_leave_nothing_behind(&self) {
        let case = include_str!("../../guest/cases/module_faults_load.sh");
        self.passes_on_one_queue(case, "");
    }

    pub fn a_guest_outlives_its_server(&self) {
        let mut disks = Disks::serve(&["pollux-guest"], "2");
        let case = include_str!("../../guest/cases/module_lose.sh");
        let script = format!("{case}\nquiet\n");
        let Some(mut guest) = self.start(&disks, &script, "", "pollux_blk") else {
            return;
        };
        guest.wait_for("reading").expect("it reads");
        disks.servers.clear(); // by SIGKILL
        ends_well(guest, &disks.servers);
    }

    pub fn removal_ends_if_the_device_breaks_meanwhile(&self) {
        let mut disks = Disks::serve(&["pollux-guest"], "2");
        let case = include_str!("../../guest/cases/module_gone.sh");
        let Some(mut guest) = self.start(&disks, case, "", "pollux_blk") else {
            return;
        };
        guest.wait_for("under load").expect("it has load");
        let server = i32::try_from(disks.servers[0].pid()).expect("a process id fits");
        let server = Pid::from_raw(server).expect("it is not 0");
        kill_process(server, Signal::STOP).expect("the server is ours");
        guest.tell("the server is stopped").expect("it listens");
        guest.wait_for("removal waits").expect("removal waits");
        disks.servers.clear(); // by SIGKILL
        let Outcome { console, .. } = ends_well(guest, &disks.servers);
        assert!(console.contains(FAILED), "{console}");
    }
}

/// Waits until `guest` has powered off; its script must have ended with status 0.
fn ends_well(guest: Running, servers: &[Server]) -> Outcome {
    let outcome = guest.finish().expect("the guest powers off");
    let logs: Vec<String> = servers.iter().map(Server::log).collect();
    assert_eq!(outcome.status, 0, "{}\n{logs:?}", outcome.console);
    outcome
}

/// The driver took no device for one that fails, the power-off included.
fn does_not_fail(outcome: &Outcome) {
    let console = &outcome.console;
    assert!(!console.contains(FAILED), "{console}");
}
