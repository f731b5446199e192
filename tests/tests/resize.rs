//! A disk that grows while it is used: what its frontend is told, and that nothing is refused that it may do then.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use pollux_disk::{Disk, Durability, Event};
use pollux_driver::{CompletionMode, Driver, Options};
use pollux_tests::control::{Daemon, ask, change};
use pollux_tests::drive;
use pollux_tests::frontend::{self, Plan, Status};
use pollux_tests::process::eventually;
use pollux_tests::server::pollux_binary;
use pollux_tests::storage::{Medium, Storage};
use serde_json::{Value, json};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
const ONE_QUEUE: Plan = Plan {
    queues: 1,
    without: 0,
};

/// A daemon that serves `disk` as `NAME.sock`.
fn start(folder: &Path, name: &str, disk: &str) -> Daemon {
    Daemon::start(folder, name, disk, &[]).unwrap()
}

fn resize(daemon: &Daemon, body: &Value) -> (u16, Value) {
    let path = format!("{}/resize", daemon.path);
    change(&daemon.control, "POST", &path, body).unwrap()
}

/// What `pollux disk resize root WORDS` prints.
fn resize_by_command(daemon: &Daemon, words: &[&str]) -> String {
    let mut command = Command::new(pollux_binary());
    command.args(["disk", "resize", "root"]).args(words);
    let output = command.arg("--control").arg(&daemon.control).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn image(folder: &TempDir, bytes: u64) -> PathBuf {
    let path = folder.path().join("disk.img");
    File::create(&path).unwrap().set_len(bytes).unwrap();
    path
}

fn spec(image: &Path) -> String {
    format!("file:path={}", image.display())
}

fn sectors(bytes: u64) -> [u8; 8] {
    (bytes / 512).to_le_bytes()
}

/// Does the queue read the page at `at`?
fn reads(driver: &mut frontend::Driver, at: u64) -> Status {
    let queue = &mut driver.queues[0];
    queue.read(0, at / 512);
    queue.publish_and_kick();
    queue.finish();
    queue.status(0)
}

#[test]
fn a_frontend_is_told_in_twelve_bytes_and_uses_the_new_size_at_once() {
    let folder = TempDir::new().unwrap();
    let image = image(&folder, MIB);
    let daemon = start(folder.path(), "root", &spec(&image));
    let mut driver = frontend::Driver::connect(&daemon.disk, ONE_QUEUE).unwrap();
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    ours.set_read_timeout(Some(drive::PATIENCE)).unwrap();
    let frontend = &driver.frontend;
    frontend.set_backend_req_fd(theirs.as_fd()).unwrap();
    drop(theirs);
    assert_eq!(frontend.get_config(0, 8).unwrap(), sectors(MIB));
    assert_eq!(reads(&mut driver, MIB), Status::IoErr);
    for size in 2..20 {
        if size % 2 == 0 {
            let (status, disk) = resize(&daemon, &json!({ "bytes": size * MIB }));
            assert_eq!((status, &disk["bytes"]), (200, &(size * MIB).into()));
        } else {
            let file = File::options().write(true).open(&image).unwrap();
            file.set_len(size * MIB).unwrap();
            let (status, disk) = resize(&daemon, &json!({}));
            assert_eq!((status, &disk["bytes"]), (200, &(size * MIB).into()));
        }
        let mut message = [0; 12];
        ours.read_exact(&mut message).unwrap();
        assert_eq!(message, [2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        let config = driver.frontend.get_config(0, 8).unwrap();
        assert_eq!(config, sectors(size * MIB));
        assert_eq!(reads(&mut driver, size * MIB - 4096), Status::Ok);
        assert_eq!(reads(&mut driver, size * MIB), Status::IoErr);
    }
    // Nothing has changed, and it is told all the same: a frontend that was away when it did may not ask by itself.
    assert_eq!(resize(&daemon, &json!({})).0, 200);
    ours.read_exact(&mut [0; 12]).unwrap();
    drop(driver);
    daemon.ends_well();
}

#[test]
fn a_frontend_without_the_channel_is_served_on() {
    let folder = TempDir::new().unwrap();
    let image = image(&folder, MIB);
    let daemon = start(folder.path(), "root", &spec(&image));
    let mut driver = frontend::Driver::connect(&daemon.disk, ONE_QUEUE).unwrap();
    assert_eq!(resize(&daemon, &json!({ "bytes": 2 * MIB })).0, 200);
    assert_eq!(reads(&mut driver, 2 * MIB - 4096), Status::Ok);
    assert!(daemon.server.says("takes no news of the disk"));
    // One that has closed its end.
    let (ours, theirs) = UnixStream::pair().unwrap();
    driver.frontend.set_backend_req_fd(theirs.as_fd()).unwrap();
    driver.frontend.get_config(0, 8).unwrap();
    drop(ours);
    assert_eq!(resize(&daemon, &json!({ "bytes": 3 * MIB })).0, 200);
    assert_eq!(reads(&mut driver, 3 * MIB - 4096), Status::Ok);
    drop(driver);
    daemon.ends_well();
}

/// Through our driver, in a daemon that has stacked the disk, and through it again, here.
#[test]
fn drivers_and_stacked_disks_pass_it_on() {
    let folder = TempDir::new().unwrap();
    let image = image(&folder, MIB);
    let below = start(folder.path(), "below", &spec(&image));
    let stacked = format!(
        "linear:memory:size=1M+vhost-user:path={}",
        below.disk.display()
    );
    let above = start(folder.path(), "above", &stacked);
    let driver = Driver::connect(&above.disk, &Options::default()).unwrap();
    assert_eq!(driver.geometry().bytes, 2 * MIB);
    let (told, is_told) = mpsc::channel();
    let _subscription = driver.events().subscribe(move |event| {
        told.send(event).unwrap();
    });
    let queue = driver.queue(0).unwrap();
    let (status, problem) = resize(&above, &json!({ "bytes": 9 * MIB }));
    assert_eq!(status, 409, "{problem}");
    assert_eq!(resize(&below, &json!({ "bytes": 4 * MIB })).0, 200);
    let event = is_told.recv_timeout(Duration::from_secs(10));
    assert_eq!(event, Ok(Event::Changed));
    assert_eq!(driver.geometry().bytes, 5 * MIB);
    let page = vec![0x5a; 4096];
    let at = 5 * MIB - 4096;
    let written = queue.write(at, page.clone(), Durability::Stable, CompletionMode::Call);
    written.wait().unwrap();
    let stored = std::fs::read(&image).unwrap();
    assert_eq!(stored[stored.len() - 4096..], page);
    drop((queue, driver));
    above.ends_well();
    below.ends_well();
}

/// It is told of what others have made of it, and only at their word.
#[test]
fn a_block_device_grows_under_its_frontend() {
    let Some(storage) = Storage::new(Medium::BlockDevice, MIB) else {
        return;
    };
    let folder = TempDir::new().unwrap();
    let daemon = start(folder.path(), "root", &spec(storage.disk()));
    let driver = Driver::connect(&daemon.disk, &Options::default()).unwrap();
    let (told, is_told) = mpsc::channel();
    let _subscription = driver.events().subscribe(move |event| {
        told.send(event).unwrap();
    });
    let queue = driver.queue(0).unwrap();
    let page = vec![0x5a; 4096];
    for size in 2..10 {
        storage.enlarge_device(size * MIB).unwrap();
        assert_eq!(driver.geometry().bytes, (size - 1) * MIB);
        let said = resize_by_command(&daemon, &[]);
        assert!(said.contains(&format!("{size} MiB")), "{said}");
        let event = is_told.recv_timeout(Duration::from_secs(10));
        assert_eq!(event, Ok(Event::Changed));
        assert_eq!(driver.geometry().bytes, size * MIB);
        let at = size * MIB - 4096;
        let written = queue.write(at, page.clone(), Durability::Stable, CompletionMode::Call);
        written.wait().unwrap();
    }
    let (status, problem) = resize(&daemon, &json!({ "bytes": 10 * MIB }));
    assert_eq!(status, 409, "{problem}");
    let remedy = problem["remedy"].as_str().unwrap();
    assert!(remedy.contains("then ask without a size"), "{problem}");
    drop((queue, driver));
    daemon.ends_well();
    let stored = storage.cut_power().unwrap();
    assert_eq!(stored.len() as u64, 9 * MIB);
    for end in stored.chunks(1 << 20).skip(1) {
        assert_eq!(end[end.len() - 4096..], page);
    }
}

#[test]
fn frontends_come_and_go_while_a_resize_waits_for_the_file_system() {
    let Some(storage) = Storage::new(Medium::FileOnExt4, MIB) else {
        return;
    };
    let folder = TempDir::new().unwrap();
    let daemon = start(folder.path(), "root", &spec(storage.disk()));
    let disk = || ask(&daemon.control, "GET", "/v1/disks/root").unwrap().1;
    let frozen = storage.freeze().unwrap();
    let asked = json!({ "bytes": 2 * MIB });
    // The first waits, and is not answered before this client has lost its patience.
    eventually(
        || {
            let answer = change(&daemon.control, "POST", "/v1/disks/root/resize", &asked);
            answer.is_ok_and(|(status, _)| status == 409)
        },
        || "it waits for nothing".into(),
    );
    let (done, is_done) = mpsc::channel();
    let socket = daemon.disk.clone();
    std::thread::spawn(move || {
        for _ in 0..3 {
            let mut driver = frontend::Driver::connect(&socket, ONE_QUEUE).unwrap();
            assert_eq!(reads(&mut driver, 0), Status::Ok);
        }
        done.send(()).unwrap();
    });
    is_done.recv_timeout(Duration::from_secs(10)).unwrap();
    eventually(|| disk()["frontend"].is_null(), || disk().to_string());
    assert_eq!(disk()["bytes"], MIB);
    drop(frozen);
    eventually(|| disk()["bytes"] == 2 * MIB, || disk().to_string());
    daemon.ends_well();
}

#[test]
fn what_is_refused_names_the_field_and_the_remedy() {
    let folder = TempDir::new().unwrap();
    let image = image(&folder, MIB);
    let daemon = start(folder.path(), "root", &spec(&image));
    for (body, status, words) in [
        (json!({ "bytes": 512 }), 409, "ask for more"),
        (json!({ "bytes": MIB + 1 }), 400, "take 1049088"),
        (
            json!({ "bytes": "2G" }),
            400,
            "send {\"bytes\": 21474836480}",
        ),
        (json!({ "size": 2 }), 400, "send {"),
        (json!({ "bytes": u64::MAX - 511 }), 400, "ask for less"),
        (json!({ "bytes": i64::MAX / 512 * 512 }), 500, "ask again"),
    ] {
        let (told, problem) = resize(&daemon, &body);
        assert_eq!(told, status, "{body}: {problem}");
        assert_eq!(problem["field"], "bytes");
        let remedy = problem["remedy"].as_str().unwrap();
        assert!(remedy.contains(words), "{body}: {problem}");
    }
    let (status, _) = ask(&daemon.control, "GET", "/v1/disks/root/resize").unwrap();
    assert_eq!(status, 405);
    let other = "/v1/disks/other/resize";
    let (status, _) = change(&daemon.control, "POST", other, &json!({})).unwrap();
    assert_eq!(status, 404);
    assert_eq!(std::fs::metadata(&image).unwrap().len(), MIB);

    let said = resize_by_command(&daemon, &["3M"]);
    assert!(said.contains("3 MiB"), "{said}");
    assert!(daemon.server.says("control change"), "with whose it was");
    let refused = daemon.server.says("control request that was refused");
    assert!(refused, "{}", daemon.server.log());
    daemon.ends_well();
}

/// The kernel's answer to that is a signal that ends whoever does not expect it.
#[test]
fn a_file_that_may_not_grow_so_far_ends_no_daemon() {
    let folder = TempDir::new().unwrap();
    let image = image(&folder, MIB);
    let daemon = start(folder.path(), "root", &spec(&image));
    let pid = daemon.server.pid().to_string();
    let limited = Command::new("prlimit")
        .args(["--pid", &pid, &format!("--fsize={}", 4 * MIB)])
        .status();
    assert!(limited.unwrap().success());
    let (status, problem) = resize(&daemon, &json!({ "bytes": 8 * MIB }));
    assert_eq!(status, 500, "{problem}");
    assert!(
        problem["detail"].as_str().unwrap().contains("too large"),
        "{problem}"
    );
    assert_eq!(resize(&daemon, &json!({ "bytes": 2 * MIB })).0, 200);
    daemon.ends_well();
}
