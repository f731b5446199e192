//! The list of disks that were added: it is that of the last change, whatever happens beside.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::fs::{self, File};
use std::process::Command;

use pollux_tests::control::change;
use pollux_tests::frontend::{Driver, Plan, Status};
use pollux_tests::hot::{Hot, use_it};
use pollux_tests::peers;
use pollux_tests::process::eventually;
use pollux_tests::server::pollux_binary;
use pollux_tests::storage::{Medium, Storage};
use rustix::process::Signal;
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;
const ONE_QUEUE: Plan = Plan {
    queues: 1,
    without: 0,
};

/// The names of the disks on the list.
fn kept(hot: &Hot) -> Vec<String> {
    hot.list().as_object().unwrap().keys().cloned().collect()
}

#[test]
fn what_was_added_comes_back_with_its_limits_and_what_cannot_is_told() {
    let mut hot = Hot::start().unwrap();
    let image = hot.image("a.img", MIB).unwrap();
    let file = format!("file:path={}", image.display());
    let body = json!({ "disk": file, "serial": "s7", "limits": { "iops_total": 5000 } });
    assert_eq!(hot.put("a", &body).unwrap().0, 201);
    assert_eq!(hot.add("b", "memory:size=1M").unwrap().0, 201);
    assert_eq!(hot.add("gone", "memory:size=1M").unwrap().0, 201);
    let limits = json!({ "limits": { "iops_total": null, "bps_read": 1_000_000 } });
    let path = "/v1/disks/a";
    assert_eq!(
        change(&hot.control(), "PATCH", path, &limits).unwrap().0,
        200
    );
    assert_eq!(hot.remove("gone", "").unwrap().0, 204);
    let outside = hot.above().join("outside.img");
    File::create(&outside).unwrap().set_len(MIB).unwrap();
    let outside = outside.to_str().unwrap();
    hot.command(&["add", "passed", "--blk-file", outside, "--pass-fd"])
        .unwrap();

    // Killed: its sockets are left, and taken over.
    hot.restart().unwrap();
    assert_eq!(hot.names().unwrap(), ["a", "b"]);
    let log = hot.server().log();
    let warned = log
        .lines()
        .filter(|line| line.contains("in memory is gone"));
    let warned: Vec<_> = warned.collect();
    assert!(
        matches!(warned[..], [line] if line.contains(r#"disk="b""#)),
        "{log}"
    );
    let disk = hot.get(path).unwrap();
    assert_eq!(
        (&disk["serial"], &disk["added"]),
        (&"s7".into(), &true.into())
    );
    assert_eq!(disk["limits"], json!({ "bps_read": 1_000_000 }));
    use_it(&hot.socket("a"));
    assert_eq!(hot.get("/v1/health").unwrap()["missing"], json!(["passed"]));
    hot.command(&["add", "passed", "--blk-file", outside, "--pass-fd"])
        .unwrap();
    assert_eq!(hot.get("/v1/health").unwrap()["missing"], json!([]));

    fs::rename(&image, hot.images().join("b.img")).unwrap();
    hot.restart().unwrap();
    assert_eq!(hot.names().unwrap(), ["b"]);
    assert!(
        hot.server().log().contains("a.img does not exist"),
        "{}",
        hot.server().log()
    );
    assert_eq!(
        hot.get("/v1/health").unwrap()["missing"],
        json!(["a", "passed"])
    );
    assert_eq!(hot.remove("a", "").unwrap().0, 204);
    assert_eq!(hot.remove("a", "").unwrap().0, 404);
    hot.restart().unwrap();
    assert_eq!(hot.get("/v1/health").unwrap()["missing"], json!(["passed"]));
    hot.ends_well();
}

/// It would be turned out when that one is back, and the guest would find another image at its socket.
#[test]
fn what_was_answered_is_on_the_list_after_a_power_cut() {
    type Change = fn(&Hot) -> (u16, Value);
    let changes: [Change; 3] = [
        |hot| hot.add("a", "memory:size=1M").unwrap(),
        |hot| {
            hot.patch("a", &json!({ "limits": { "iops_total": 5 } }))
                .unwrap()
        },
        |hot| hot.remove("a", "").unwrap(),
    ];
    // Is it on the list, and with which limit?
    let lists = [(true, None), (true, Some(5)), (false, None)];
    for (number, expected) in lists.into_iter().enumerate() {
        let Some(storage) = Storage::new(Medium::FileOnExt4, MIB) else {
            return;
        };
        // The list takes the place of a disk's file.
        fs::write(storage.disk(), r#"{"disks": {}}"#).unwrap();
        storage.sync().unwrap();
        let hot = Hot::start_keeping(storage.disk()).unwrap();
        let answered = |change: &Change| {
            let (status, said) = change(&hot);
            assert!([200, 201, 204].contains(&status), "{said}");
        };
        changes[..number].iter().for_each(answered);
        storage.sync().unwrap();
        answered(&changes[number]);
        // This kills it.
        drop(hot);
        let survived = storage.cut_power().unwrap();
        let survived: Value = serde_json::from_slice(&survived).expect("the list is whole");
        let disk = &survived["disks"]["a"];
        let limit = disk["limits"]["iops_total"].as_u64();
        assert_eq!((disk.is_object(), limit), expected, "change {number}");
    }
}

#[test]
fn a_missing_disk_keeps_its_image_and_its_socket() {
    let mut hot = Hot::start().unwrap();
    let image = hot.image("a.img", MIB).unwrap();
    let other = hot.image("other.img", MIB).unwrap();
    let spec = |path: &std::path::Path| format!("file:path={}", path.display());
    assert_eq!(hot.add("a", &spec(&image)).unwrap().0, 201);
    let away = hot.above().join("a.img");
    fs::rename(&image, &away).unwrap();
    hot.restart().unwrap();
    assert_eq!(hot.get("/v1/health").unwrap()["missing"], json!(["a"]));
    let at_its_socket = json!({ "disk": spec(&other), "socket_path": hot.socket("a") });
    let (status, why) = hot.put("z", &at_its_socket).unwrap();
    assert_eq!(
        (status, &why["field"]),
        (409, &"socket_path".into()),
        "{why}"
    );
    fs::rename(&away, &image).unwrap();
    let (status, why) = hot.add("z", &spec(&image)).unwrap();
    assert_eq!((status, &why["field"]), (409, &"disk".into()), "{why}");
    assert!(why["detail"].as_str().unwrap().contains("`a`"), "{why}");
    assert_eq!(hot.add("other", &spec(&other)).unwrap().0, 201);
    assert_eq!(hot.remove("a", "").unwrap().0, 204);
    assert_eq!(hot.add("z", &spec(&image)).unwrap().0, 201);
    hot.ends_well();
}

/// Those that are closed already are kept all the same.
#[test]
fn a_change_while_the_daemon_ends_forgets_no_disk() {
    let mut hot = Hot::start().unwrap();
    let slow = "fault:delay=3s,op=write,on=memory:size=1M";
    for (name, spec) in [
        ("busy", slow),
        ("idle", "memory:size=1M"),
        ("gone", "memory:size=1M"),
    ] {
        assert_eq!(hot.add(name, spec).unwrap().0, 201);
    }
    let mut driver = Driver::connect(&hot.socket("busy"), ONE_QUEUE).unwrap();
    let queue = &mut driver.queues[0];
    queue.write(0, 0, 0x77);
    queue.publish_and_kick();
    eventually(
        || hot.get("/v1/disks/busy/stats").unwrap()["queues"][0]["in_flight"] == 1,
        || "the request is in flight".into(),
    );
    hot.server().signal(Signal::TERM).unwrap();
    eventually(
        || hot.names().unwrap() == ["busy"],
        || "the others end".into(),
    );
    assert_eq!(hot.get("/v1/health").unwrap()["status"], "ending");
    let limits = json!({ "limits": { "iops_total": 5 } });
    assert_eq!(hot.patch("busy", &limits).unwrap().0, 200);
    assert_eq!(hot.remove("gone", "").unwrap().0, 204);
    assert_eq!(hot.add("late", "memory:size=1M").unwrap().0, 503);
    assert_eq!(kept(&hot), ["busy", "idle"]);
    queue.finish();
    assert_eq!(queue.status(0), Status::Ok);
    hot.restart_ended().unwrap();
    assert_eq!(hot.names().unwrap(), ["busy", "idle"]);
    hot.ends_well();
}

/// A disk that is added again while its removal is written down stays.
#[test]
fn a_disk_that_is_removed_and_added_at_once_stays() {
    let mut hot = Hot::start().unwrap();
    assert_eq!(hot.add("a", "memory:size=1M").unwrap().0, 201);
    let (silent, spec) = hot.silent().unwrap();
    std::thread::scope(|scope| {
        let (hot, spec) = (&hot, &spec);
        scope.spawn(move || assert_eq!(hot.add("slow", spec).unwrap().0, 400));
        let (stuck, _) = silent.accept().unwrap();
        let again = scope.spawn(move || hot.add("a", "memory:size=1M").unwrap());
        assert_eq!(hot.remove("a", "").unwrap().0, 204);
        assert_eq!(kept(hot), [""; 0]);
        drop((stuck, silent));
        // 200 if it came before the removal.
        let (status, disk) = again.join().unwrap();
        assert!([200, 201].contains(&status), "{disk}");
    });
    assert_eq!(hot.add("a", "memory:size=1M").unwrap().0 / 100, 2);
    hot.restart().unwrap();
    assert_eq!(hot.names().unwrap(), ["a"]);
    hot.ends_well();
}

#[test]
fn a_removal_that_cannot_be_written_down_is_not_done_until_it_is() {
    let mut hot = Hot::start().unwrap();
    assert_eq!(hot.add("a", "memory:size=1M").unwrap().0, 201);
    // What is to become the next list is no file.
    let obstacle = hot.above().join("state.json.new");
    fs::create_dir(&obstacle).unwrap();
    let (status, problem) = hot.add("b", "memory:size=1M").unwrap();
    assert_eq!(status, 500, "{problem}");
    assert_eq!(hot.names().unwrap(), ["a"]);
    for _ in 0..3 {
        let (status, problem) = hot.remove("a", "").unwrap();
        assert_eq!(status, 500, "{problem}");
    }
    assert_eq!(kept(&hot), ["a"]);
    // It ends all the same, in a thread of its own.
    eventually(
        || hot.names().unwrap() == [""; 0],
        || "the disk is still listed".into(),
    );
    fs::remove_dir(&obstacle).unwrap();
    assert_eq!(hot.remove("a", "").unwrap().0, 404);
    assert_eq!(kept(&hot), [""; 0]);
    hot.restart().unwrap();
    assert_eq!(hot.names().unwrap(), [""; 0]);
    hot.ends_well();
}

/// Also of what another request has changed, whose answer was that it could not be written down.
#[test]
fn a_change_is_answered_with_200_once_it_is_written_down() {
    let hot = Hot::start().unwrap();
    let limits = |iops: u64| json!({ "limits": { "iops_total": iops } });
    let disk = |iops: u64| {
        let mut body = limits(iops);
        body["disk"] = "memory:size=1M".into();
        body
    };
    let is_kept = |name: &str, iops: u64| {
        assert_eq!(hot.list()[name]["limits"], limits(iops)["limits"]);
    };
    for round in 1..=40 {
        let name = format!("disk-{round}");
        assert_eq!(hot.put(&name, &disk(round)).unwrap().0, 201);
        is_kept(&name, round);
        assert_eq!(hot.patch(&name, &limits(100 + round)).unwrap().0, 200);
        is_kept(&name, 100 + round);
        assert_eq!(hot.put(&name, &disk(200 + round)).unwrap().0, 200);
        is_kept(&name, 200 + round);
    }
    // What is to become the next list is no file.
    let obstacle = hot.above().join("state.json.new");
    fs::create_dir(&obstacle).unwrap();
    assert_eq!(hot.patch("disk-1", &limits(7)).unwrap().0, 500);
    // It has these limits by now.
    for _ in 0..3 {
        assert_eq!(hot.put("disk-1", &disk(7)).unwrap().0, 500);
    }
    is_kept("disk-1", 201);
    fs::remove_dir(&obstacle).unwrap();
    assert_eq!(hot.put("disk-1", &disk(7)).unwrap().0, 200);
    is_kept("disk-1", 7);
    hot.ends_well();
}

/// An image with a backing file, both in the folder, through its whole life.
#[test]
fn an_added_image_is_written_removed_and_served_again() {
    let Some(tool) = peers::installed("qemu-img") else {
        return;
    };
    let qemu_img = |args: &[&str]| {
        let run = Command::new(&tool).args(args).output().unwrap();
        assert!(run.status.success(), "{run:?}");
    };
    let mut hot = Hot::start().unwrap();
    let images = hot.images();
    let at = |name: &str| images.join(name).display().to_string();
    let (base, image) = (at("base.img"), at("disk.qcow2"));
    fs::write(&base, vec![0xbb; 4 << 20]).unwrap();
    qemu_img(&[
        "create", "-q", "-f", "qcow2", "-b", "base.img", "-F", "raw", &image, "16M",
    ]);
    for options in ["", ",cache=none", ",engine=threads", ",cache=writethrough"] {
        let spec = format!("qcow2:path={image}{options}");
        let (status, disk) = hot.add("q", &spec).unwrap();
        assert_eq!(
            (status, &disk["bytes"]),
            (201, &(16 * MIB).into()),
            "{disk}"
        );
        let socket = hot.socket("q");
        let disk = format!("vhost-user:path={}", socket.display());
        let mut bench = Command::new(pollux_binary());
        bench.args([
            "bench", "--disk", &disk, "--rw", "randrw", "--verify", "crc32c",
        ]);
        let bench = bench.args(["--runtime", "1s"]).output().unwrap();
        assert!(bench.status.success(), "{bench:?}");
        use_it(&socket);
        eventually(
            || hot.remove("q", "").unwrap().0 == 204,
            || "it is in use".into(),
        );
        qemu_img(&["check", "-q", &image]);
        // What was not in use by the time is another's: the lock is gone with the disk.
        assert_eq!(hot.add("q", &spec).unwrap().0, 201);
        use_it(&socket);
        hot.server().signal(Signal::TERM).unwrap();
        hot.restart_ended().unwrap();
        assert_eq!(hot.names().unwrap(), ["q"]);
        use_it(&socket);
        eventually(
            || hot.remove("q", "").unwrap().0 == 204,
            || "it is in use".into(),
        );
        let raw = at("raw");
        qemu_img(&["convert", "-O", "raw", &image, &raw]);
        let stored = fs::read(raw).unwrap();
        assert!(stored[4096..8192].iter().all(|&byte| byte == 0xa5));
    }
    assert!(fs::read(base).unwrap().iter().all(|&byte| byte == 0xbb));
    hot.ends_well();
}

#[test]
fn the_command_removes_a_disk_that_is_on_the_list_alone() {
    let mut hot = Hot::start().unwrap();
    let image = hot.image("a.img", MIB).unwrap();
    let spec = format!("file:path={}", image.display());
    assert_eq!(hot.add("a", &spec).unwrap().0, 201);
    fs::remove_file(&image).unwrap();
    hot.restart().unwrap();
    assert_eq!(hot.get("/v1/health").unwrap()["missing"], json!(["a"]));
    let mut list = Command::new(pollux_binary());
    list.args(["disk", "list", "--control"]).arg(hot.control());
    let told = String::from_utf8(list.output().unwrap().stderr).unwrap();
    assert!(told.contains("could not be opened: a; "), "{told}");
    let said = hot.command(&["remove", "a", "--output", "json"]).unwrap();
    let removed: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(
        (&removed["name"], &removed["removed"]),
        (&"a".into(), &true.into())
    );
    assert_eq!(hot.get("/v1/health").unwrap()["missing"], json!([]));
    let said = hot.command(&["remove", "a"]).unwrap_err();
    assert!(said.contains("there is no disk `a`"), "{said}");
    hot.ends_well();
}
