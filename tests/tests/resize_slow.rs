//! A resize that takes long, or does not end, while the daemon goes on.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use pollux_tests::control::{change, connect, say, status};
use pollux_tests::frontend::{Driver, Plan};
use pollux_tests::hot::{Hot, use_it};
use pollux_tests::process::eventually;
use pollux_tests::server::pollux_binary;
use rustix::process::Signal;
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;
const ONE_QUEUE: Plan = Plan {
    queues: 1,
    without: 0,
};

/// A daemon with a disk of 1 MiB called `slow`, whose resizes meet this rule, and one called `other`.
fn daemon(rule: &str) -> Hot {
    let hot = Hot::start().unwrap();
    let slow = add_slow(&hot, rule);
    assert_eq!(slow.0, 201, "{}", slow.1);
    let other = hot.image("other.img", MIB).unwrap();
    let other = format!("file:path={}", other.display());
    assert_eq!(hot.add("other", &other).unwrap().0, 201);
    hot
}

fn add_slow(hot: &Hot, rule: &str) -> (u16, Value) {
    let image = hot.images().join("slow.img");
    if !image.exists() {
        hot.image("slow.img", MIB).unwrap();
    }
    let spec = format!("fault:{rule},op=resize,on=file:path={}", image.display());
    hot.add("slow", &spec).unwrap()
}

fn resize(hot: &Hot, name: &str, bytes: u64) -> (u16, Value) {
    let path = format!("/v1/disks/{name}/resize");
    change(&hot.control(), "POST", &path, &json!({ "bytes": bytes })).unwrap()
}

/// `pollux disk resize slow 2M`, which has reached the disk and hangs there.
fn hanging(hot: &Hot) -> std::process::Child {
    let mut command = Command::new(pollux_binary());
    command.args(["disk", "resize", "slow", "2M", "--control"]);
    let asking = command.arg(hot.control()).stderr(Stdio::piped()).spawn();
    assert!(hot.server().says("a resize is never answered"));
    asking.unwrap()
}

/// Ends a daemon that does not wait for such a resize. Which disks has the next one?
fn ends(mut hot: Hot) -> Vec<String> {
    hot.server().signal(Signal::TERM).unwrap();
    let said = hot
        .server()
        .says("it is being resized, which is not waited for");
    assert!(said, "{}", hot.server().log());
    hot.restart_ended().unwrap();
    let names = hot.names().unwrap();
    hot.ends_well();
    names
}

#[test]
fn a_resize_that_hangs_holds_up_itself_alone() {
    let hot = daemon("hang=request");
    let asking = hanging(&hot);
    assert_eq!(hot.names().unwrap(), ["slow", "other"]);
    let metrics = say(
        &hot.control(),
        b"GET /metrics HTTP/1.1\r\nHost: pollux\r\n\r\n",
    );
    assert_eq!(status(&metrics.unwrap()), 200);
    assert_eq!(resize(&hot, "other", 2 * MIB).0, 200);
    assert_eq!(hot.add("third", "null:size=1M").unwrap().0, 201);
    assert_eq!(hot.remove("third", "").unwrap().0, 204);
    let limits = json!({ "limits": { "iops_total": 50000 } });
    assert_eq!(hot.patch("slow", &limits).unwrap().0, 200);
    use_it(&hot.socket("slow"));
    let (status, problem) = resize(&hot, "slow", 2 * MIB);
    assert_eq!((status, &problem["field"]), (409, &"name".into()));
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .contains("is being resized")
    );
    // Who asked is told in time.
    let output = asking.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("it goes on"), "{said}");
    assert_eq!(resize(&hot, "slow", 2 * MIB).0, 409, "it does go on");
    assert_eq!(ends(hot), ["other", "slow"]);
}

#[test]
fn a_disk_whose_resize_hangs_can_be_removed_and_the_daemon_ends() {
    let hot = daemon("hang=request");
    let driver = Driver::connect(&hot.socket("slow"), ONE_QUEUE).unwrap();
    let mut asking = hanging(&hot);
    asking.kill().unwrap();
    asking.wait().unwrap();
    let said = hot
        .server()
        .says("whose client did not wait for the answer");
    assert!(said, "{}", hot.server().log());
    // It is answered once the disk has gone, which it does not.
    let mut removing = connect(&hot.control()).unwrap();
    removing
        .write_all(b"DELETE /v1/disks/slow?force=true HTTP/1.1\r\nHost: pollux\r\n\r\n")
        .unwrap();
    eventually(
        || hot.names().unwrap() == ["other"],
        || "the disk is still served".into(),
    );
    driver.frontend.get_config(0, 8).unwrap_err();
    let (status, problem) = add_slow(&hot, "hang=request");
    assert_eq!(status, 409, "{problem}");
    assert!(
        problem["detail"]
            .as_str()
            .unwrap()
            .contains("being removed")
    );
    assert_eq!(ends(hot), ["other"]);
}

#[test]
fn a_disk_that_is_removed_meanwhile_goes_once_the_resize_has_ended() {
    let hot = daemon("delay=2s");
    let image = hot.images().join("slow.img");
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| resize(&hot, "slow", 2 * MIB));
        eventually(
            || fs::metadata(&image).unwrap().len() == 2 * MIB,
            || "the image has not grown".into(),
        );
        assert_eq!(hot.remove("slow", "").unwrap().0, 204);
        // It had ended before, so the image is free, and the disk is another one by then.
        let (status, disk) = add_slow(&hot, "delay=1ms");
        assert_eq!((status, &disk["bytes"]), (201, &(2 * MIB).into()), "{disk}");
        let (status, said) = asking.join().unwrap();
        assert!([200, 404].contains(&status), "{said}");
    });
    assert_eq!(resize(&hot, "slow", 3 * MIB).0, 200);
    hot.ends_well();
}
