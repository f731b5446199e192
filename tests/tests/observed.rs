//! What is recorded of requests on demand: their times, and a trace.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::path::Path;
use std::process::{Child, Command, Stdio};

use blkio::ReqFlags;
use pollux_tests::client::{Client, Queue, Shape};
use pollux_tests::control::{Daemon, ask};
use pollux_tests::process::eventually;
use pollux_tests::server::pollux_binary;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A daemon with one disk, `root`, whose writes beyond 512 KiB fail.
fn start(folder: &Path) -> Daemon {
    let fails = "fault:error=EIO,op=write,range=512K-1M,on=memory:size=1M";
    Daemon::start(folder, "root", fails, &[]).unwrap()
}

/// Three requests: a write, a read of twice as much, and a write that fails.
fn three(client: &Client, queue: &mut Queue) {
    let memory = client.memory(8192).unwrap();
    queue.write(4096, &memory, 0..4096, 0, ReqFlags::empty());
    queue.finish().unwrap().unwrap();
    queue.read(8192, &memory, 0..8192, 0);
    queue.finish().unwrap().unwrap();
    queue.write(768 << 10, &memory, 0..512, 0, ReqFlags::empty());
    assert!(queue.finish().unwrap().is_err());
}

#[test]
fn times_are_counted_for_each_kind_from_when_they_are_wanted() {
    let folder = TempDir::new().unwrap();
    let daemon = start(folder.path());
    let (client, mut queues) = Client::connect(&daemon.disk, Shape::blocking(1, 64)).unwrap();
    three(&client, &mut queues[0]);
    let stats = || daemon.get("/v1/disks/root/stats");
    assert_eq!(stats()["latencies"], Value::Null);
    let told = daemon.change("PATCH", "/v1/disks/root", &json!({"latencies": true}));
    assert_eq!(told["latencies"], true);
    assert_eq!(stats()["latencies"], json!([]));
    three(&client, &mut queues[0]);
    three(&client, &mut queues[0]);
    let counted = stats()["latencies"].clone();
    let of = |op: &str| {
        let all = counted.as_array().unwrap();
        all.iter().find(|of| of["op"] == op).unwrap().clone()
    };
    assert_eq!(
        (of("read")["count"].clone(), of("write")["count"].clone()),
        (2.into(), 4.into())
    );
    let sum = of("read")["sum_ns"].as_u64().unwrap();
    let longest = of("read")["buckets"].as_array().unwrap().last().unwrap()["to_ns"].clone();
    assert!(sum > 0 && sum <= 2 * longest.as_u64().unwrap(), "{counted}");
    let metrics = daemon.text("/metrics");
    for line in [
        "pollux_disk_request_duration_seconds_count{disk=\"root\",op=\"write\"} 4\n",
        "pollux_disk_request_duration_seconds_bucket{le=\"+Inf\",disk=\"root\",op=\"read\"} 2\n",
        "pollux_queue_requests_in_flight{disk=\"root\",queue=\"0\"} 0\n",
    ] {
        assert!(metrics.contains(line), "{line}{metrics}");
    }
    daemon.change("PATCH", "/v1/disks/root", &json!({"latencies": false}));
    assert_eq!(stats()["latencies"], Value::Null);
    assert!(!daemon.text("/metrics").contains("duration_seconds_count"));
}

#[test]
fn workers_tell_how_they_spend_their_time() {
    let folder = TempDir::new().unwrap();
    let daemon = start(folder.path());
    let worker = || daemon.get("/v1/workers")["workers"][0].clone();
    let of = |worker: &Value, field: &str| worker[field].as_u64().unwrap();
    let (client, mut queues) = Client::connect(&daemon.disk, Shape::blocking(1, 64)).unwrap();
    let before = worker();
    three(&client, &mut queues[0]);
    // It sleeps, and that is told while it lasts.
    eventually(
        || {
            let (first, then) = (worker(), worker());
            let slept = of(&then, "asleep_ns") - of(&first, "asleep_ns");
            let same = of(&then, "sleeps") == of(&first, "sleeps");
            same && slept > 0 && slept <= of(&then, "age_ns") - of(&first, "age_ns")
        },
        || format!("{:?}", worker()),
    );
    let after = worker();
    assert!(of(&after, "sleeps") > of(&before, "sleeps"), "{after}");
    assert!(of(&after, "turns") >= of(&before, "turns") + 3, "{after}");
    let idle = of(&after, "asleep_ns") + of(&after, "polling_ns");
    assert!(idle < of(&after, "age_ns"), "{after}");
}

#[test]
fn a_trace_tells_each_request_and_never_what_was_in_it() {
    let folder = TempDir::new().unwrap();
    let daemon = start(folder.path());
    let (client, mut queues) = Client::connect(&daemon.disk, Shape::blocking(1, 64)).unwrap();
    let path = "/v1/disks/root/trace";
    daemon.change("PUT", path, &json!({"seconds": 600, "records": 4}));
    three(&client, &mut queues[0]);
    three(&client, &mut queues[0]);
    let state = daemon.get(path);
    assert_eq!(
        (&state["traced"], &state["lost"], &state["running"]),
        (&6.into(), &2.into(), &true.into())
    );
    let lines = daemon.text(&format!("{path}/jsonl"));
    let requests: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let seen: Vec<_> = requests
        .iter()
        .map(|it| {
            (
                &it["number"],
                &it["op"],
                &it["sector"],
                &it["bytes"],
                &it["result"],
            )
        })
        .map(|it| json!([it.0, it.1, it.2, it.3, it.4]))
        .collect();
    let wanted = [
        json!([2, "write", 1536, 512, "error"]),
        json!([3, "write", 8, 4096, "ok"]),
        json!([4, "read", 16, 8192, "ok"]),
        json!([5, "write", 1536, 512, "error"]),
    ];
    assert_eq!(seen, wanted);
    let text = daemon.text(&format!("{path}/blkparse"));
    let events: Vec<Vec<_>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        events[0][5..],
        ["Q", "W", "1536", "+", "1", "[pollux]"],
        "{text}"
    );
    assert_eq!(
        events[1][5..],
        ["C", "W", "1536", "+", "1", "[error]"],
        "{text}"
    );
    assert_eq!(events[5][5..], ["C", "R", "16", "+", "16", "[0]"], "{text}");
    assert!(
        text.ends_with("Total: 6 requests, of which 2 are lost\n"),
        "{text}"
    );
}

/// `pollux disk trace`, which has begun.
fn traces(daemon: &Daemon, options: &[&str]) -> Child {
    let mut command = Command::new(pollux_binary());
    command.args(["disk", "trace", "root"]).args(options);
    command
        .args(["--output", "json", "--control"])
        .arg(&daemon.control);
    let traced = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let path = "/v1/disks/root/trace";
    eventually(
        || ask(&daemon.control, "GET", path).unwrap().0 == 200,
        || "no trace was started".into(),
    );
    traced
}

#[test]
fn a_signal_ends_a_trace_early_and_nobody_ends_that_of_another() {
    let folder = TempDir::new().unwrap();
    let daemon = start(folder.path());
    let (client, mut queues) = Client::connect(&daemon.disk, Shape::blocking(1, 64)).unwrap();
    let path = "/v1/disks/root/trace";
    let interrupted = traces(&daemon, &["--seconds", "600"]);
    three(&client, &mut queues[0]);
    kill_process(Pid::from_child(&interrupted), Signal::INT).unwrap();
    let output = interrupted.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().count(), 3);
    assert_eq!(ask(&daemon.control, "GET", path).unwrap().0, 404);
    let first = traces(&daemon, &["--seconds", "600"]);
    let second = traces(&daemon, &["--seconds", "600", "--records", "77"]);
    let output = first.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout), (Some(1), vec![]));
    assert!(
        said.contains("another client has started a trace"),
        "{said}"
    );
    let (status, state) = ask(&daemon.control, "GET", path).unwrap();
    assert_eq!((status, &state["records"]), (200, &77.into()));
    kill_process(Pid::from_child(&second), Signal::TERM).unwrap();
    assert!(second.wait_with_output().unwrap().status.success());
}

#[test]
fn the_command_traces_for_its_time_and_says_what_is_lost() {
    let folder = TempDir::new().unwrap();
    let daemon = start(folder.path());
    let (client, mut queues) = Client::connect(&daemon.disk, Shape::blocking(1, 64)).unwrap();
    let path = "/v1/disks/root/trace";
    let traced = traces(&daemon, &["--seconds", "1", "--records", "2"]);
    three(&client, &mut queues[0]);
    let output = traced.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let numbers: Vec<_> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["number"].clone())
        .collect();
    assert_eq!(numbers, [1, 2]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("lost=1") && said.contains("--records"),
        "{said}"
    );
    assert_eq!(
        ask(&daemon.control, "GET", path).unwrap().0,
        404,
        "it is thrown away"
    );
}
