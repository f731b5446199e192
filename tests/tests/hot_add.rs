//! Disks that come and go while the daemon runs: what may be added, and that no other disk notices.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;

use pollux_tests::busy::while_busy;
use pollux_tests::client::{Client, Shape};
use pollux_tests::control::{change, connect};
use pollux_tests::frontend::{Driver, Plan, Status};
use pollux_tests::hot::{Hot, use_it, write_and_read};
use pollux_tests::process::{Holdings, eventually};
use pollux_tests::server::Server;
use pollux_tests::storage::{Medium, Storage};
use rustix::process::Signal;
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;
const ONE_QUEUE: Plan = Plan {
    queues: 1,
    without: 0,
};

/// Removes a disk, which a client has left that may not have gone yet.
fn unused(hot: &Hot, name: &str) {
    eventually(
        || hot.remove(name, "").unwrap().0 == 204,
        || format!("{name} is in use"),
    );
}

/// Disks of every kind, inside the sandbox, with all that can be done to a disk.
#[test]
fn an_added_disk_is_like_any_other() {
    let hot = Hot::start().unwrap();
    let image = hot.image("a.img", 16 * MIB).unwrap();
    let below = hot.socket("below");
    let server = Server::pollux(&below, &["--disk", "memory:size=16M"]).unwrap();
    let file = format!("file:path={}", image.display());
    let log = hot.images().join("log");
    for spec in [
        "memory:size=16M".to_owned(),
        file.clone(),
        format!("{file},cache=none,buffers=registered"),
        format!("{file},cache=writethrough,inline=off"),
        format!("{file},engine=threads"),
        format!("fault:log={},delay=1ms,every=3,on={file}", log.display()),
        format!("linear:{file}+memory:size=16M"),
        format!("vhost-user:path={}", below.display()),
    ] {
        let (status, disk) = hot.add("new", &spec).unwrap();
        assert_eq!(
            (status, &disk["added"]),
            (201, &true.into()),
            "{spec}: {disk}"
        );
        use_it(&hot.socket("new"));
        assert_eq!(hot.add("new", &spec).unwrap().0, 200, "{spec}");
        let path = "/v1/disks/new";
        let limits = json!({ "limits": { "iops_total": 5000 } });
        assert_eq!(
            change(&hot.control(), "PATCH", path, &limits).unwrap().0,
            200
        );
        use_it(&hot.socket("new"));
        let counted = hot.get("/v1/disks/new/stats").unwrap();
        assert_eq!(counted["total"]["bytes_written"], 4 * 4096, "{spec}");
        unused(&hot, "new");
        assert_eq!(hot.names().unwrap(), [""; 0], "{spec}");
        assert!(!hot.socket("new").exists(), "{spec}");
    }
    assert_eq!(hot.add("root", &file).unwrap().0, 201);
    use_it(&hot.socket("root"));
    let size = json!({ "bytes": 32 * MIB });
    let (status, disk) = change(&hot.control(), "POST", "/v1/disks/root/resize", &size).unwrap();
    assert_eq!(
        (status, &disk["bytes"]),
        (200, &(32 * MIB).into()),
        "{disk}"
    );
    hot.server().signal(rustix::process::Signal::USR1).unwrap();
    assert!(hot.server().says("peer faults"), "{}", hot.server().log());
    hot.ends_well();
    assert!(server.terminate().unwrap().0.success());
}

#[test]
fn a_block_device_is_added_where_its_folder_is_named() {
    let Some(storage) = Storage::new(Medium::BlockDevice, 16 * MIB) else {
        return;
    };
    let folder = tempfile::TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let options = [
        "--disk",
        "null:size=1G",
        "--sandbox",
        "require",
        "--disk-folder",
    ];
    let device = storage.disk();
    let devices = device.parent().unwrap().display().to_string();
    let (control, sockets) = (at("a.control"), folder.path().display().to_string());
    let mut options = options.to_vec();
    options.extend([&*sockets, "--disk-folder", &devices, "--control", &control]);
    let server = Server::pollux(&folder.path().join("a.sock"), &options).unwrap();
    for cache in ["", ",cache=none"] {
        let body = json!({ "disk": format!("file:path={}{cache}", device.display()) });
        let (status, disk) = change(Path::new(&control), "PUT", "/v1/disks/new", &body).unwrap();
        assert_eq!(status, 201, "{disk}");
        use_it(&folder.path().join("new.sock"));
        let remove = || change(Path::new(&control), "DELETE", "/v1/disks/new", &Value::Null);
        eventually(|| remove().unwrap().0 == 204, || "it is in use".into());
    }
    assert!(server.terminate().unwrap().0.success());
}

#[test]
fn what_lies_outside_of_the_folders_is_refused_and_only_a_descriptor_passes() {
    let hot = Hot::start().unwrap();
    let outside = hot.above().join("outside.img");
    File::create(&outside).unwrap().set_len(MIB).unwrap();
    symlink(&outside, hot.images().join("link.img")).unwrap();
    symlink(hot.above(), hot.images().join("up")).unwrap();
    let _other = UnixListener::bind(hot.above().join("other.sock")).unwrap();
    let images = hot.images().display().to_string();
    let above = hot.above().display().to_string();
    for spec in [
        format!("file:path={above}/outside.img"),
        format!("file:path={images}/../outside.img"),
        format!("file:path={images}/link.img"),
        format!("file:path={images}/up/outside.img"),
        format!("vhost-user:path={above}/other.sock"),
        format!("linear:memory:size=1M+{above}/outside.img"),
        format!("fault:log={above}/log,delay=1ms,on=null:size=1G"),
        "file:path=/proc/self/mem".to_owned(),
    ] {
        let (status, problem) = hot.add("x", &spec).unwrap();
        assert_eq!(status, 403, "{spec}: {problem}");
        assert_eq!(problem["field"], "disk");
        let remedy = problem["remedy"].as_str().unwrap();
        assert!(
            remedy.contains("--disk-folder") && remedy.contains("--pass-fd"),
            "{problem}"
        );
    }
    for socket in [
        format!("{above}/x.sock"),
        format!("{images}/up/x.sock"),
        format!("{images}/../x.sock"),
    ] {
        let body = json!({ "disk": "null:size=1G", "socket_path": socket });
        let (status, problem) = hot.put("x", &body).unwrap();
        assert_eq!(
            (status, &problem["field"]),
            (403, &"socket_path".into()),
            "{problem}"
        );
        assert!(!Path::new(&socket).exists());
    }
    assert_eq!(hot.names().unwrap(), [""; 0]);

    let outside = outside.to_str().unwrap();
    let said = hot
        .command(&["add", "x", "--blk-file", outside])
        .unwrap_err();
    assert!(said.contains("outside of the folders"), "{said}");
    let said = hot
        .command(&["add", "x", "--blk-file", outside, "--pass-fd"])
        .unwrap();
    assert!(said.contains("1 MiB"), "{said}");
    use_it(&hot.socket("x"));
    let stored = fs::read(outside).unwrap();
    assert!(stored[4096..8192].iter().all(|&byte| byte == 0xa5));
    // It has the image for itself, as if it had opened that.
    let said = hot
        .command(&["add", "y", "--blk-file", outside, "--pass-fd"])
        .unwrap_err();
    assert!(said.contains("in use"), "{said}");
    // What is open for reading alone is not written.
    unused(&hot, "x");
    let words = [
        "add",
        "x",
        "--blk-file",
        outside,
        "--pass-fd",
        "--read-only",
        "--output",
        "json",
    ];
    let added: Value = serde_json::from_str(&hot.command(&words).unwrap()).unwrap();
    assert_eq!(
        (&added["read_only"], &added["name"]),
        (&true.into(), &"x".into())
    );
    let said = hot.command(&["remove", "x"]).unwrap();
    assert_eq!(said, "removed x\n");
    hot.ends_well();
}

#[test]
fn a_disk_in_use_is_removed_by_force_alone_and_loses_nothing_in_flight() {
    let hot = Hot::start().unwrap();
    let image = hot.image("a.img", MIB).unwrap();
    let spec = format!(
        "fault:delay=500ms,op=write,on=file:path={}",
        image.display()
    );
    assert_eq!(hot.add("a", &spec).unwrap().0, 201);
    let mut driver = Driver::connect(&hot.socket("a"), ONE_QUEUE).unwrap();
    let (status, problem) = hot.remove("a", "").unwrap();
    assert_eq!(
        (status, &problem["field"]),
        (409, &"name".into()),
        "{problem}"
    );
    let remedy = problem["remedy"].as_str().unwrap();
    assert!(remedy.contains("--force"), "{problem}");
    let queue = &mut driver.queues[0];
    for slot in 0..8 {
        queue.write(slot, 8 * u64::from(slot), 0x77);
    }
    queue.publish_and_kick();
    eventually(
        || hot.get("/v1/disks/a/stats").unwrap()["queues"][0]["in_flight"] == 8,
        || "the requests are in flight".into(),
    );
    assert_eq!(hot.remove("a", "?force=true").unwrap().0, 204);
    queue.finish();
    for slot in 0..8 {
        assert_eq!(queue.status(slot), Status::Ok);
    }
    let stored = fs::read(&image).unwrap();
    assert!(stored[..8 * 4096].iter().all(|&byte| byte == 0x77));
    assert_eq!(hot.remove("a", "?force=true").unwrap().0, 404);
    hot.ends_well();
}

#[test]
fn a_disk_whose_server_never_comes_back_is_removed_by_force() {
    let hot = Hot::start().unwrap();
    let hangs = "fault:hang=request,op=write,on=memory:size=1M";
    for (name, stack) in [("plain", ""), ("stacked", "linear:memory:size=1M+")] {
        let below = hot.socket("below");
        let server = Server::pollux(&below, &["--disk", hangs]).unwrap();
        let spec = format!("{stack}vhost-user:path={}", below.display());
        let (status, disk) = hot.add(name, &spec).unwrap();
        assert_eq!(status, 201, "{disk}");
        let mut driver = Driver::connect(&hot.socket(name), ONE_QUEUE).unwrap();
        let queue = &mut driver.queues[0];
        let last = disk["bytes"].as_u64().unwrap() / 512 - 8;
        queue.write(0, last, 0x77);
        queue.publish_and_kick();
        server.end_by(Signal::KILL).unwrap();
        assert_eq!(hot.remove(name, "?force=true").unwrap().0, 204, "{name}");
        queue.finish();
        assert_eq!(queue.status(0), Status::IoErr);
    }
    hot.ends_well();
}

/// Each of the two would wait for the other.
#[test]
fn a_disk_of_the_daemon_itself_is_not_added() {
    let hot = Hot::start().unwrap();
    assert_eq!(hot.add("a", "memory:size=1M").unwrap().0, 201);
    let spec = format!("vhost-user:path={}", hot.socket("a").display());
    for spec in [&spec, &format!("linear:memory:size=1M+[{spec}]")] {
        let (status, problem) = hot.add("b", spec).unwrap();
        assert_eq!(status, 400, "{problem}");
        let told = problem["detail"].as_str().unwrap();
        assert!(
            told.contains("a.sock is a socket of this very process"),
            "{problem}"
        );
        let remedy = problem["remedy"].as_str().unwrap();
        assert!(remedy.contains("a process of its own"), "{problem}");
    }
    let body = json!({ "disk": "memory:size=1M", "socket_path": hot.socket("a") });
    let (status, problem) = hot.put("b", &body).unwrap();
    assert_eq!(status, 409, "{problem}");
    let told = problem["detail"].as_str().unwrap();
    assert!(told.contains("the disk `a` of this daemon"), "{problem}");
    assert_eq!(hot.names().unwrap(), ["a"]);
    hot.ends_well();
}

/// One disk is used all the time while a hundred come and go beside it.
#[test]
fn a_hundred_disks_come_and_go_and_leave_nothing() {
    const MEMORY_BOUND: u64 = 1 << 20;
    let hot = Hot::start().unwrap();
    let image = hot.image("a.img", MIB).unwrap();
    let file = format!("file:path={}", image.display());
    assert_eq!(hot.add("steady", "memory:size=64M").unwrap().0, 201);
    let round = |number: u32| {
        let spec = if number.is_multiple_of(2) {
            &file
        } else {
            "memory:size=64M"
        };
        let (status, disk) = hot.add("guest", spec).unwrap();
        assert_eq!(status, 201, "{disk}");
        let connected = (!number.is_multiple_of(3)).then(|| {
            let (client, mut queues) =
                Client::connect(&hot.socket("guest"), Shape::blocking(1, 64)).unwrap();
            write_and_read(&client, &mut queues[0], 0x11);
            (client, queues)
        });
        assert_eq!(hot.remove("guest", "?force=true").unwrap().0, 204);
        drop(connected);
    };
    let (client, mut queues) =
        Client::connect(&hot.socket("steady"), Shape::blocking(1, 64)).unwrap();
    let come_and_go = || {
        (0..10).for_each(round);
        let held = || hot.process().holdings().unwrap();
        let (before, memory) = (held(), hot.process().anonymous_memory().unwrap());
        (10..110).for_each(round);
        // A connection that was just ending may have been counted before.
        let is_back = |now: Holdings| now.fds <= before.fds && now.threads <= before.threads;
        eventually(
            || is_back(held()),
            || format!("{:?} after {before:?}", held()),
        );
        let now = hot.process().anonymous_memory().unwrap();
        now.saturating_sub(memory)
    };
    let use_it = || write_and_read(&client, &mut queues[0], 0x22);
    let (rounds, grown) = while_busy(use_it, come_and_go);
    assert!(grown < MEMORY_BOUND, "{grown} bytes more");
    assert!(rounds > 0);
    let stats = hot.get("/v1/disks/steady/stats").unwrap();
    assert_eq!(stats["total"]["requests"]["write"]["error"], 0);
    hot.ends_well();
}

/// A disk that is slow to open, and clients that listen and do not read, delay no other client.
#[test]
fn slow_clients_and_slow_disks_hold_up_no_others() {
    let hot = Hot::start().unwrap();
    assert_eq!(hot.add("a", "memory:size=1M").unwrap().0, 201);
    let before = hot.process().holdings().unwrap();
    let listening: Vec<_> = (0..20)
        .map(|_| {
            let mut stream = connect(&hot.control()).unwrap();
            stream
                .write_all(b"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
                .unwrap();
            stream
        })
        .collect();
    // A server that never answers.
    let (silent, spec) = hot.silent().unwrap();
    std::thread::scope(|scope| {
        let hot = &hot;
        let adding = scope.spawn(move || hot.add("slow", &spec));
        let (stuck, _) = silent.accept().unwrap();
        for _ in 0..200 {
            assert_eq!(hot.names().unwrap(), ["a"]);
        }
        use_it(&hot.socket("a"));
        drop((stuck, silent));
        let (status, problem) = adding.join().unwrap().unwrap();
        assert_eq!(
            (status, &problem["field"]),
            (400, &"disk".into()),
            "{problem}"
        );
    });
    assert_eq!(hot.add("b", "memory:size=1M").unwrap().0, 201);
    assert_eq!(hot.remove("b", "").unwrap().0, 204);
    drop(listening);
    let held = || hot.process().holdings().unwrap();
    eventually(
        || held().fds <= before.fds && held().threads == before.threads,
        || format!("{:?} after {before:?}", held()),
    );
    hot.ends_well();
}
