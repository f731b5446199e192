//! The counters for Prometheus, by its own tools.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use blkio::ReqFlags;
use pollux_tests::client::{Client, Shape};
use pollux_tests::control::fetch;
use pollux_tests::peers;
use pollux_tests::process::eventually;
use pollux_tests::server::Server;
use serde_json::Value;
use tempfile::TempDir;

const OPEN_METRICS: &str = "application/openmetrics-text";

/// An address on which nobody listens.
fn free() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap()
}

/// A daemon that tells its metrics at an address, and has served a write and a read.
fn daemon(folder: &Path) -> (Server, SocketAddr) {
    let address = free();
    let socket = folder.join("root.sock");
    let image = folder.join("disk.img");
    fs::File::create(&image).unwrap().set_len(1 << 20).unwrap();
    let args = [
        "--blk-file",
        image.to_str().unwrap(),
        "--sandbox",
        "require",
        "--latencies",
    ];
    let told = address.to_string();
    let args = [&args[..], &["--metrics-listen", &told]].concat();
    let server = Server::pollux(&socket, &args).unwrap();
    let (client, mut queues) = Client::connect(&socket, Shape::blocking(1, 64)).unwrap();
    let memory = client.memory(4096).unwrap();
    queues[0].write(0, &memory, 0..4096, 0, ReqFlags::empty());
    queues[0].finish().unwrap().unwrap();
    queues[0].read(0, &memory, 0..4096, 0);
    queues[0].finish().unwrap().unwrap();
    (server, address)
}

#[test]
fn promtool_finds_nothing_wrong() {
    let Some(promtool) = peers::fetched("prometheus/promtool") else {
        return;
    };
    let folder = TempDir::new().unwrap();
    let (server, address) = daemon(folder.path());
    let (status, text) = fetch(address, "/metrics", "*/*").unwrap();
    assert_eq!(status, 200, "{text}");
    for line in [
        "pollux_queue_requests_total{disk=\"root\",queue=\"0\",op=\"write\",result=\"ok\"} 1\n",
        "pollux_queue_read_bytes_total{disk=\"root\",queue=\"0\"} 4096\n",
        "pollux_disk_size_bytes{disk=\"root\"} 1048576\n",
        "pollux_worker_cpu_seconds_total{worker=\"0\"} ",
        "pollux_worker_asleep_seconds_total{worker=\"0\"} ",
        "pollux_disk_request_duration_seconds_bucket{le=\"+Inf\",disk=\"root\",op=\"read\"} 1\n",
        "pollux_disk_operations_total{disk=\"root\",operation=",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let mut check = Command::new(promtool);
    check.args(["check", "metrics"]).stdin(Stdio::piped());
    let mut check = check
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    check
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let found = check.wait_with_output().unwrap();
    assert!(found.status.success(), "{found:?}\n{text}");
    assert!(
        found.stdout.is_empty() && found.stderr.is_empty(),
        "{found:?}"
    );
    // Nothing else is told to whoever can reach the port.
    for path in ["/v1/disks", "/openapi.json"] {
        assert_eq!(fetch(address, path, "*/*").unwrap().0, 404);
    }
    let (ended, said) = server.terminate().unwrap();
    assert_eq!(ended.code(), Some(0), "{said}");
}

/// Ends with this.
struct Prometheus(Child);

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Prometheus scrapes `address` each second; where it is asked itself. `None`: there is none.
fn prometheus(folder: &Path, address: SocketAddr) -> Option<(Prometheus, SocketAddr)> {
    let program = peers::fetched("prometheus/prometheus")?;
    let config = folder.join("prometheus.yml");
    let jobs = format!(
        "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: pollux\n  static_configs:\n  - targets: ['{address}']\n"
    );
    fs::write(&config, jobs).unwrap();
    let own = free();
    let mut command = Command::new(program);
    command.arg(format!("--config.file={}", config.display()));
    command.arg(format!(
        "--storage.tsdb.path={}",
        folder.join("data").display()
    ));
    command.arg(format!("--web.listen-address={own}"));
    let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
    Some((Prometheus(quiet.spawn().unwrap()), own))
}

/// What Prometheus answers to a query; `None` until it can.
fn asked(prometheus: SocketAddr, query: &str) -> Option<Value> {
    let encoded = query.bytes().map(|byte| format!("%{byte:02x}"));
    let encoded = encoded.collect::<Vec<_>>().concat();
    let path = format!("/api/v1/query?query={encoded}");
    let (_, answer) = fetch(prometheus, &path, "*/*").ok()?;
    // It sends its answers in chunks.
    let (start, end) = (answer.find('{')?, answer.rfind('}')?);
    let lines = answer[start..=end].split("\r\n");
    let whole: String = lines.filter(|line| !is_length(line)).collect();
    serde_json::from_str(&whole).ok()
}

/// Does a line say how long the next chunk is?
fn is_length(line: &str) -> bool {
    line.len() < 8 && line.chars().all(|digit| digit.is_ascii_hexdigit())
}

#[test]
fn a_real_prometheus_scrapes_it() {
    let folder = TempDir::new().unwrap();
    let (_server, address) = daemon(folder.path());
    let (_, text) = fetch(address, "/metrics", OPEN_METRICS).unwrap();
    assert!(text.ends_with("# EOF\n"), "{text}");
    let Some((_prometheus, own)) = prometheus(folder.path(), address) else {
        return;
    };
    let first = |query: &str| {
        let answer = asked(own, query)?;
        let value = &answer["data"]["result"][0]["value"][1];
        value.as_str().map(str::to_owned)
    };
    for (query, wanted) in [
        ("up", "1"),
        ("sum(pollux_queue_written_bytes_total)", "4096"),
        ("pollux_disk_size_bytes", "1048576"),
    ] {
        eventually(
            || first(query).as_deref() == Some(wanted),
            || format!("{query}: {:?}", first(query)),
        );
    }
}

/// What the panels of the dashboard ask, for all disks.
fn queries() -> Vec<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dist/grafana-pollux.json");
    let dashboard: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().unwrap());
    let all = [
        ("$instance", ".*"),
        ("$disk", ".*"),
        ("$__rate_interval", "1m"),
    ];
    let filled = |query: &str| {
        all.iter().fold(query.to_owned(), |query, (name, value)| {
            query.replace(name, value)
        })
    };
    targets
        .map(|target| filled(target["expr"].as_str().unwrap()))
        .collect()
}

#[test]
fn the_dashboard_asks_for_what_there_is_in_words_that_prometheus_knows() {
    let folder = TempDir::new().unwrap();
    let (_server, address) = daemon(folder.path());
    let (_, text) = fetch(address, "/metrics", "*/*").unwrap();
    let queries = queries();
    assert!(queries.len() > 12, "{queries:?}");
    for query in &queries {
        let words = query.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        let mut names = words.filter(|word| word.starts_with("pollux_")).peekable();
        assert!(names.peek().is_some(), "{query}");
        for name in names {
            let family = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|part| name.strip_suffix(part));
            let line = format!("# TYPE {} ", family.unwrap_or(name));
            assert!(text.contains(&line), "{name} is not in {text}");
        }
    }
    let Some((_prometheus, own)) = prometheus(folder.path(), address) else {
        return;
    };
    eventually(
        || asked(own, "up").is_some_and(|answer| answer["status"] == "success"),
        || "Prometheus does not answer".into(),
    );
    for query in &queries {
        let answer = asked(own, query).unwrap();
        assert_eq!(answer["status"], "success", "{query}: {answer}");
    }
}
