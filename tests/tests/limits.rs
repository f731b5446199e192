//! Limits of requests and bytes a second, on real clients: what comes through, and that nothing else waits for it.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use pollux_tests::client::{Client, Shape};
use pollux_tests::control::{ask, change};
use pollux_tests::process::Process;
use pollux_tests::server::{Ready, Server, pollux_binary};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A daemon with disks in memory, all on one worker.
struct Daemon {
    folder: TempDir,
    server: Server,
}

impl Daemon {
    /// Each disk by its name, with further lines of its section.
    fn start(disks: &[(&str, &str)]) -> Self {
        let folder = TempDir::new().unwrap();
        let at = |name: &str| folder.path().join(name);
        let control = at("all.control");
        let mut text = format!(
            "control = '{}'\n[process]\nsandbox = \"require\"\n",
            control.display()
        );
        for (name, lines) in disks {
            let socket = at(&format!("{name}.sock"));
            writeln!(
                text,
                "[[disk]]\nname = {name:?}\nsocket-path = '{}'\ndisk = \"memory:size=64M\"\n{lines}",
                socket.display()
            )
            .unwrap();
        }
        std::fs::write(at("pollux.toml"), text).unwrap();
        let mut command = Command::new(pollux_binary());
        command.args(["serve", "--config"]).arg(at("pollux.toml"));
        let last = at(&format!("{}.sock", disks.last().unwrap().0));
        let server = Server::start(&mut command, &last, Ready::LogLine).unwrap();
        Self { folder, server }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn control(&self) -> PathBuf {
        self.at("all.control")
    }

    fn stats(&self, name: &str) -> Value {
        let path = format!("/v1/disks/{name}/stats");
        let (code, told) = ask(&self.control(), "GET", &path).unwrap();
        assert_eq!(code, 200, "{told}");
        told["total"].clone()
    }

    fn ended(&self, name: &str, kind: &str) -> u64 {
        self.stats(name)["requests"][kind]["ok"].as_u64().unwrap()
    }

    fn patch(&self, name: &str, limits: &Value) -> (u16, Value) {
        let body = json!({ "limits": limits });
        change(
            &self.control(),
            "PATCH",
            &format!("/v1/disks/{name}"),
            &body,
        )
        .unwrap()
    }
}

/// `pollux bench` with so many requests of 4 KiB in flight for this long.
fn bench(socket: &Path, rw: &str, time: &str, depth: &str) {
    let mut command = Command::new(pollux_binary());
    command.arg("bench").arg("--socket").arg(socket);
    command.args([
        "--rw",
        rw,
        "--iodepth",
        depth,
        "--runtime",
        time,
        "--output-format",
        "json",
    ]);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

#[test]
fn no_more_requests_come_through_than_the_limit_lets() {
    let daemon = Daemon::start(&[
        ("iops", "limits = \"iops-total=2000\""),
        ("bytes", "limits = \"bps-read=8M\""),
        ("burst", "limits = \"iops-write=100,iops-write-max=700\""),
    ]);
    for (name, rw, kind, rate, at_once) in [
        ("iops", "randread", "read", 2000, 40),
        ("bytes", "randread", "read", 2048, 41),
        ("burst", "randwrite", "write", 100, 700),
    ] {
        let started = Instant::now();
        bench(&daemon.at(&format!("{name}.sock")), rw, "1s", "32");
        let ended = daemon.ended(name, kind);
        let milliseconds = u64::try_from(started.elapsed().as_millis()).unwrap();
        // However slow this machine is: not more than had tokens, and the burst at least.
        let most = at_once + rate * milliseconds / 1000 + 1;
        assert!(ended <= most, "{name}: {ended} in {milliseconds} ms");
        assert!(ended >= at_once, "{name}: {ended} in {milliseconds} ms");
        let stats = daemon.stats(name);
        assert!(stats["throttled"].as_u64().unwrap() > 0, "{stats}");
        assert!(stats["throttled_ns"].as_u64().unwrap() > 0, "{stats}");
    }
}

/// Requests to a disk that lets one through a second.
const SLOW: u64 = 60;
/// Requests to another meanwhile, of which each takes far less.
const OTHERS: u64 = 4000;

#[test]
fn a_disk_that_waits_ends_at_once_and_holds_up_no_other() {
    let daemon = Daemon::start(&[("slow", "limits = \"iops-total=1\""), ("free", "")]);
    // All of them are in the ring: each takes three descriptors.
    let connect = |name| Client::connect(&daemon.at(name), Shape::blocking(1, 256)).unwrap();
    let started = Instant::now();
    let (client, mut slow) = connect("slow.sock");
    let memory = client.memory(4096).unwrap();
    // The second and all others have to wait: a second each.
    for token in 0..SLOW {
        slow[0].read(0, &memory, 0..4096, usize::try_from(token).unwrap());
    }
    let mut wait_for = |count: u64| {
        slow[0].wait(usize::try_from(count).unwrap()).unwrap();
        while slow[0].take().is_some() {}
    };
    wait_for(1);
    let (other, mut free) = connect("free.sock");
    let block = other.memory(4096).unwrap();
    for _ in 0..OTHERS {
        free[0].read(0, &block, 0..4096, 0);
        free[0].finish().unwrap().unwrap();
    }
    let ended = daemon.ended("slow", "read");
    let seconds = started.elapsed().as_secs();
    assert!(ended <= 2 + seconds, "{ended} in {seconds} s");
    assert!(ended < OTHERS / 250, "beside {ended} of the slow disk");
    // The worker sleeps meanwhile, and as often as there is something to do.
    let process = Process::new(daemon.server.pid());
    let worker = process.thread_named("worker-0").unwrap();
    let waits = || daemon.ended("slow", "read") < SLOW;
    let sleeps = || {
        let waits = || assert!(waits(), "the worker is awake for as long as one waits");
        process.wait_for_sleep(worker, waits);
        process.sleeps_of(worker).unwrap()
    };
    wait_for(ended - 1);
    let before = sleeps();
    wait_for(2);
    let slept = sleeps() - before;
    assert!(slept < 20, "for two requests it slept {slept} times");
    // A frontend that goes, and SIGTERM, do not wait for what waits: the next one would for an hour.
    let (status, disk) = daemon.patch("slow", &json!({"iops_total": null, "bps_total": 1}));
    assert_eq!(status, 200, "{disk}");
    assert!(waits(), "none waits any more");
    drop((slow, client, free, other));
    let (ended, said) = daemon.server.terminate().unwrap();
    assert_eq!(ended.code(), Some(0), "{said}");
}

#[test]
fn limits_change_while_a_queue_waits() {
    let daemon = Daemon::start(&[("root", "limits = \"bps-total=1\"")]);
    let (client, mut queues) =
        Client::connect(&daemon.at("root.sock"), Shape::blocking(1, 64)).unwrap();
    let memory = client.memory(4096).unwrap();
    for _ in 0..2 {
        queues[0].read(0, &memory, 0..4096, 0);
    }
    // The second one waits for more than an hour.
    queues[0].wait(1).unwrap();
    queues[0].take().unwrap().result.unwrap();
    assert_eq!(daemon.ended("root", "read"), 1);
    let (status, problem) = daemon.patch("root", &json!({"iops_total": 0}));
    assert_eq!(
        (status, &problem["field"]),
        (400, &"limits.iops_total".into()),
        "{problem}"
    );
    let (status, disk) = daemon.patch("root", &json!({"bps_total": null, "iops_total": 500}));
    assert_eq!(
        (status, &disk["limits"]),
        (200, &json!({"iops_total": 500})),
        "{disk}"
    );
    queues[0].finish().unwrap().unwrap();
    drop((queues, client));

    let pollux = |words: &[&str]| {
        let mut command = Command::new(pollux_binary());
        command.args(["disk", "limit", "root"]).args(words);
        command.arg("--control").arg(daemon.control());
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    let (code, said) = pollux(&[]);
    assert!(code == Some(0) && said.contains("iops-total"), "{said}");
    let (_, said) = pollux(&["iops-total=none", "bps-write=2M", "bps-write-max=4M"]);
    assert!(
        said.contains("2 MiB") && said.contains("4 MiB") && !said.contains("iops"),
        "{said}"
    );
    let (code, said) = pollux(&["iops=5"]);
    assert!(
        code == Some(1) && said.contains("there are iops-total"),
        "{said}"
    );
    let (code, said) = pollux(&["iops-total=5", "iops-total=none"]);
    assert!(
        code == Some(1) && said.contains("iops-total is given twice"),
        "{said}"
    );
    let (code, said) = pollux(&["none"]);
    assert_eq!((code, &*said), (Some(0), "root has no limits\n"));
}

#[test]
fn a_group_of_disks_shares_its_limit() {
    let group = "limit-group = \"tenant\"";
    let limits = format!("{group}\nlimits = \"iops-total=1000\"");
    let daemon = Daemon::start(&[("a", &limits), ("b", group)]);
    for depths in [["32", "32"], ["1", "1"], ["1", "16"], ["16", "1"]] {
        let ended = || ["a", "b"].map(|name| daemon.ended(name, "read"));
        let (before, started) = (ended(), Instant::now());
        std::thread::scope(|scope| {
            for (name, depth) in ["a.sock", "b.sock"].into_iter().zip(depths) {
                let socket = daemon.at(name);
                scope.spawn(move || bench(&socket, "randread", "1s", depth));
            }
        });
        let after = ended();
        let [a, b] = [after[0] - before[0], after[1] - before[1]];
        let milliseconds = u64::try_from(started.elapsed().as_millis()).unwrap();
        let what = format!("{a} and {b} in {milliseconds} ms, {depths:?} in flight");
        assert!(a + b <= 21 + milliseconds, "{what}");
        // Both ask for all that they may have, as long as the other does.
        assert!(10 * a.min(b) > a.max(b), "{what}");
    }
    let (status, _) = daemon.patch("b", &json!({"iops_total": 7}));
    let (_, a) = ask(&daemon.control(), "GET", "/v1/disks/a").unwrap();
    assert_eq!(
        (status, &a["limits"]["iops_total"], &a["limit_group"]),
        (200, &7.into(), &"tenant".into())
    );
}
