//! What an added disk must not reach, however it is named, and that no request ends the daemon.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use pollux_tests::frontend::{Driver, Plan};
use pollux_tests::hot::{Hot, use_it};
use pollux_tests::peers;
use pollux_tests::process::eventually;
use pollux_tests::server::{Ready, Server, pollux_binary};
use serde_json::json;

const MIB: u64 = 1 << 20;
const ONE_QUEUE: Plan = Plan {
    queues: 1,
    without: 0,
};

fn file(path: &Path, bytes: u64) -> File {
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(path)
        .unwrap();
    file.set_len(bytes).unwrap();
    file
}

/// Whatever asks for the working directory, or for anything else that the sandbox forbids, would end it by SIGSYS.
#[test]
fn no_request_ends_the_daemon() {
    let hot = Hot::start().unwrap();
    let image = hot.image("a.img", MIB).unwrap();
    let there = image.display();
    let images = hot.images();
    let images = images.display();
    for spec in [
        "file:path=x.img",
        "file:path=x.img,lock=running",
        "file:path=../x.img,cache=none",
        "file:path=.",
        "file:path=..",
        "file:path=/",
        "qcow2:path=x.qcow2",
        "qcow2:path=x.qcow2,backing=none",
        "vhost-user:path=x.sock",
        "vhost-user:path=./x.sock,queues=1",
        "fault:log=log,delay=1ms,on=null:size=1M",
        "fault:delay=1ms,on=vhost-user:path=x.sock",
        "fault:delay=1ms,on=file:path=x.img",
        "linear:x.img+memory:size=1M",
        "linear:x.img+x.img",
        "linear:[vhost-user:path=x.sock]+memory:size=1M",
        "linear:memory:size=1M+rbd:pool=p,,image=i",
        "linear:[rbd:pool=p,image=i,conf=x.conf]+memory:size=1M",
        "striped:chunk=64K:x.img,y.img",
        "table:0 2048 linear x.img 0",
        "table:0 2048 linear 8:999 0",
        "rbd:pool=p,image=i",
        "rbd:pool=p,image=i,conf=x.conf,id=x",
        "fault:delay=1ms,on=rbd:pool=p,image=i,conf=../x.conf",
        &format!("rbd:pool=p,image=i,conf={images}/x.conf"),
        &format!("file:path={images}"),
        &format!("file:path={images}/none/x.img"),
        &format!("file:path={there}/x.img"),
        &format!("qcow2:path={there}"),
        &format!("qcow2:path={there},cache=none"),
        &format!("vhost-user:path={there}"),
        &format!("vhost-user:path={images}/none.sock"),
        &format!("linear:{there}+x.img"),
        &format!("striped:chunk=64K:{there},vhost-user:path=x.sock"),
        &format!("fault:log={images},delay=1ms,on=null:size=1M"),
        &format!("fault:log={images}/none/log,delay=1ms,on=null:size=1M"),
        &format!("fault:log={there},delay=1ms,on=file:path={there}"),
    ] {
        for more in [json!({}), json!({ "read_only": true })] {
            let mut body = json!({ "disk": spec });
            body.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            let asked = hot.put("x", &body);
            let (status, problem) =
                asked.unwrap_or_else(|error| panic!("{spec}: {error}: {}", hot.server().log()));
            assert!(
                [400, 403, 409].contains(&status),
                "{spec}: {status} {problem}"
            );
            assert_eq!(problem["field"], "disk", "{spec}: {problem}");
            assert!(problem["remedy"].is_string(), "{problem}");
            let (status, _) = hot.pass("x", &body, File::open(&image).unwrap()).unwrap();
            assert_eq!(status, 400, "{spec} with a descriptor");
            body["passed"] = true.into();
            let (status, _) = hot.put("x", &body).unwrap();
            assert_eq!(status, 400, "{spec} without a descriptor");
        }
    }
    for socket in ["x.sock", "./x.sock", "../x.sock", "", "/", "/none/x.sock"] {
        let body = json!({ "disk": "null:size=1M", "socket_path": socket });
        let (status, problem) = hot.put("x", &body).unwrap();
        assert!([400, 403].contains(&status), "{socket}: {status} {problem}");
    }
    // What passes under a name that is no path is opened by its descriptor alone.
    let passed = json!({ "disk": "file:path=x.img", "passed": true });
    let writes = File::options().read(true).write(true).open(&image).unwrap();
    assert_eq!(hot.pass("x", &passed, &writes).unwrap().0, 201);
    use_it(&hot.socket("x"));
    for body in [
        json!({ "bytes": 2 * MIB }),
        json!({}),
        json!({ "bytes": 1 }),
    ] {
        let path = "/v1/disks/x/resize";
        let asked = pollux_tests::control::change(&hot.control(), "POST", path, &body);
        assert!([200, 409].contains(&asked.unwrap().0), "{body}");
    }
    assert_eq!(hot.names().unwrap(), ["x"]);
    hot.ends_well();
}

/// Two disks on one open file would share its locks: both would write, and the first that goes unlocks it for the
/// other.
#[test]
fn an_open_file_that_was_passed_belongs_to_one_disk() {
    let hot = Hot::start().unwrap();
    let path = hot.above().join("a.img");
    let image = file(&path, MIB);
    let body = json!({ "disk": format!("file:path={}", path.display()), "passed": true });
    assert_eq!(hot.pass("a", &body, &image).unwrap().0, 201);
    // The same once more is the same disk; another image is not.
    assert_eq!(hot.pass("a", &body, &image).unwrap().0, 200);
    let other = file(&hot.above().join("b.img"), MIB);
    let (status, problem) = hot.pass("a", &body, &other).unwrap();
    assert_eq!(
        (status, &problem["field"]),
        (409, &"passed".into()),
        "{problem}"
    );
    for again in [
        image.try_clone().unwrap(),
        File::options().read(true).write(true).open(&path).unwrap(),
    ] {
        let (status, problem) = hot.pass("b", &body, &again).unwrap();
        assert_eq!(
            (status, &problem["field"]),
            (409, &"disk".into()),
            "{problem}"
        );
    }
    let words = [
        "serve",
        "--blk-file",
        path.to_str().unwrap(),
        "--socket-path",
    ];
    let socket = hot.above().join("other.sock");
    let mut command = Command::new(pollux_binary());
    command.args(words).arg(&socket);
    let refusal = Server::start(&mut command, &socket, Ready::LogLine).err();
    let refusal = refusal.expect("it is in use").to_string();
    assert!(refusal.contains("in use"), "{refusal}");
    use_it(&hot.socket("a"));
    // With `lock=running` it is found once a guest comes.
    eventually(
        || hot.remove("a", "").unwrap().0 == 204,
        || "a is in use".into(),
    );
    let running = |name: &str| {
        let spec = format!("file:path={},lock=running", path.display());
        hot.pass(name, &json!({ "disk": spec, "passed": true }), &image)
            .unwrap()
            .0
    };
    assert_eq!((running("one"), running("two")), (201, 201));
    let _one = Driver::connect(&hot.socket("one"), ONE_QUEUE).unwrap();
    // It may be disconnected early or late.
    let _two = Driver::connect(&hot.socket("two"), ONE_QUEUE);
    assert!(
        hot.server().says("through the very descriptor"),
        "{}",
        hot.server().log()
    );
    hot.ends_well();
}

/// A qcow2 image in the folder for disks, which its owner has made with these options.
fn image(hot: &Hot, name: &str, options: &[&str]) -> Option<String> {
    let tool = peers::installed("qemu-img")?;
    let image = hot.images().join(name);
    let made = Command::new(tool)
        .args(["create", "-q", "-f", "qcow2"])
        .args(options)
        .arg(&image)
        .arg("1M")
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    Some(format!("qcow2:path={}", image.display()))
}

#[test]
fn what_an_image_or_a_link_names_lies_in_the_folders_with_and_without_a_sandbox() {
    for sandbox in ["require", "off"] {
        let hot = Hot::start_within(sandbox).unwrap();
        // Beside the list of disks, which the daemon may write.
        let precious = hot.above().join("precious");
        let named = precious.display().to_string();
        let data = format!("data_file={named},data_file_raw=on");
        let Some(over_data) = image(&hot, "data.qcow2", &["-o", &data]) else {
            return;
        };
        fs::write(&precious, vec![b'p'; 1 << 20]).unwrap();
        let base = ["-F", "raw", "-b", &named];
        let over_base = image(&hot, "base.qcow2", &base).unwrap();
        for spec in [over_data, over_base] {
            let (status, problem) = hot.add("x", &spec).unwrap();
            assert_eq!(
                (status, &problem["field"]),
                (403, &"disk".into()),
                "{problem}"
            );
            let detail = problem["detail"].as_str().unwrap();
            assert!(
                detail.contains("precious") && detail.contains("outside"),
                "{problem}"
            );
            assert!(
                problem["remedy"]
                    .as_str()
                    .unwrap()
                    .contains("--disk-folder"),
                "{problem}"
            );
        }
        let made = hot.above().join("made");
        symlink(&made, hot.images().join("log")).unwrap();
        let log = hot.images().join("log");
        let spec = format!("fault:log={},delay=1ms,on=null:size=1M", log.display());
        let (status, problem) = hot.add("x", &spec).unwrap();
        assert_eq!(status, 403, "{problem}");
        assert!(!made.exists());
        assert!(
            fs::read(&precious)
                .unwrap()
                .iter()
                .all(|&byte| byte == b'p')
        );
        hot.ends_well();
    }
}

#[test]
fn what_the_control_socket_and_the_list_of_disks_cannot_be() {
    let folder = tempfile::tempdir().unwrap();
    let control = folder.path().join("x.control");
    let state = folder.path().join("state.json");
    let refusal = |options: &[(&str, &Path)]| {
        let mut command = Command::new(pollux_binary());
        command.arg("serve").arg("--control").arg(&control);
        for (option, path) in options {
            command.arg(option).arg(path);
        }
        let refusal = Server::start(&mut command, &control, Ready::Listening).err();
        refusal.expect("it is refused").to_string()
    };
    let in_folder = refusal(&[("--disk-folder", folder.path()), ("--state", &state)]);
    assert!(
        in_folder.contains("lies in a folder for disks"),
        "{in_folder}"
    );
    let images = tempfile::tempdir().unwrap();
    let twice = refusal(&[("--disk-folder", images.path()), ("--state", &control)]);
    assert!(twice.contains("have the same path"), "{twice}");
    let nothing = refusal(&[]);
    assert!(nothing.contains("--disk-folder DIR"), "{nothing}");
}

/// A log is appended to, which would make another disk's image longer.
#[test]
fn an_image_in_use_is_no_log() {
    let hot = Hot::start().unwrap();
    let image = hot.image("a.img", MIB).unwrap();
    assert_eq!(
        hot.add("a", &format!("file:path={}", image.display()))
            .unwrap()
            .0,
        201
    );
    let log = hot.images().join("log");
    let spec = |log: &Path| format!("fault:log={},delay=1ms,on=memory:size=1M", log.display());
    let (status, problem) = hot.add("b", &spec(&image)).unwrap();
    assert_eq!(
        (status, &problem["field"]),
        (400, &"disk".into()),
        "{problem}"
    );
    assert!(
        problem["detail"].as_str().unwrap().contains("an image"),
        "{problem}"
    );
    // Two disks may have one log, which is no image.
    for name in ["b", "c"] {
        assert_eq!(hot.add(name, &spec(&log)).unwrap().0, 201);
    }
    use_it(&hot.socket("b"));
    let (status, _) = hot
        .add("d", &format!("file:path={}", log.display()))
        .unwrap();
    assert_eq!(status, 409);
    assert_eq!(fs::metadata(&image).unwrap().len(), MIB);
    hot.ends_well();
}

/// Only that one waits, and what comes after it: neither other changes nor the end of the daemon.
#[test]
fn a_server_that_says_nothing_holds_up_additions_alone() {
    let hot = Hot::start().unwrap();
    for name in ["a", "b"] {
        assert_eq!(hot.add(name, "memory:size=1M").unwrap().0, 201);
    }
    let (silent, spec) = hot.silent().unwrap();
    std::thread::scope(|scope| {
        let (hot, spec) = (&hot, &spec);
        for number in 0..5 {
            scope.spawn(move || {
                // Whether it is told before the daemon is gone does not matter.
                let asked = hot.add(&format!("slow{number}"), spec);
                assert!(asked.is_err() || [0, 400, 503].contains(&asked.unwrap().0));
            });
        }
        let (stuck, _) = silent.accept().unwrap();
        let limits = json!({ "limits": { "iops_total": 5 } });
        assert_eq!(hot.patch("a", &limits).unwrap().0, 200);
        assert_eq!(hot.remove("b", "").unwrap().0, 204);
        assert_eq!(hot.names().unwrap(), ["a"]);
        hot.server().signal(rustix::process::Signal::TERM).unwrap();
        assert!(hot.server().says("told to end"), "{}", hot.server().log());
        drop(stuck);
    });
    let mut hot = hot;
    hot.restart_ended().unwrap();
    // None of the others was begun.
    silent.set_nonblocking(true).unwrap();
    let next = silent.accept().map(drop).unwrap_err();
    assert_eq!(next.kind(), std::io::ErrorKind::WouldBlock);
    assert_eq!(hot.names().unwrap(), ["a"]);
    assert_eq!(hot.get("/v1/disks/a").unwrap()["limits"]["iops_total"], 5);
    hot.ends_well();
}
