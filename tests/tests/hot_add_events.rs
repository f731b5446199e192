//! What listens to events: that it is told of all, in order, and that it costs nothing meanwhile.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::fs::File;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use pollux_tests::control::{change, closed, connect};
use pollux_tests::events::Events;
use pollux_tests::frontend::{Driver, Plan};
use pollux_tests::hot::Hot;
use pollux_tests::process::assert_idle;
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;
const ONE_QUEUE: Plan = Plan {
    queues: 1,
    without: 0,
};

#[test]
fn events_tell_what_happens_in_order() {
    let hot = Hot::start().unwrap();
    let image = hot.image("a.img", MIB).unwrap();
    let mut events = hot.listen().unwrap();
    let spec = format!("file:path={}", image.display());
    assert_eq!(hot.add("a", &spec).unwrap().0, 201);
    let driver = Driver::connect(&hot.socket("a"), ONE_QUEUE).unwrap();
    let size = json!({ "bytes": 2 * MIB });
    change(&hot.control(), "POST", "/v1/disks/a/resize", &size).unwrap();
    let limits = json!({ "limits": { "iops_total": 7 } });
    // What changes no limit is told as none.
    for patch in [&limits, &limits, &json!({ "latencies": true })] {
        assert_eq!(hot.patch("a", patch).unwrap().0, 200);
    }
    let other = json!({ "disk": spec, "limits": { "iops_total": 8 }, "latencies": true });
    assert_eq!(hot.put("a", &other).unwrap().0, 200);
    drop(driver);
    let mut told = events.until("disconnected");
    // A frontend that is no frontend.
    UnixStream::connect(hot.socket("a"))
        .unwrap()
        .write_all(&[0xff; 64])
        .unwrap();
    told.extend(events.until("error"));
    events.until("disconnected");
    assert_eq!(hot.remove("a", "").unwrap().0, 204);
    told.extend(events.until("removed"));
    let kinds: Vec<_> = told
        .iter()
        .map(|event| event["event"].as_str().unwrap())
        .collect();
    // That a frontend takes no news of its size is a warning.
    let kinds: Vec<_> = kinds.into_iter().filter(|kind| *kind != "error").collect();
    let wanted = [
        "added",
        "connected",
        "resized",
        "limited",
        "limited",
        "disconnected",
        "connected",
        "removed",
    ];
    assert_eq!(kinds, wanted, "{told:?}");
    let of = |kind: &str| told.iter().find(|event| event["event"] == kind).unwrap();
    assert!(told.iter().all(|event| event["name"] == "a"), "{told:?}");
    assert_eq!(
        of("connected")["disk"]["frontend"]["pid"],
        std::process::id()
    );
    assert_eq!(of("resized")["disk"]["bytes"], 2 * MIB);
    let last = told.iter().rfind(|event| event["event"] == "limited");
    assert_eq!(last.unwrap()["disk"]["limits"]["iops_total"], 8);
    assert_eq!(of("removed")["disk"], Value::Null);
    assert!(!of("error")["message"].as_str().unwrap().is_empty());
    drop(events);
    hot.ends_well();
}

/// Those of a group have the same limits, and one that could not be served again is removed like any other.
#[test]
fn events_tell_of_every_disk_that_a_change_concerns() {
    let mut hot = Hot::start().unwrap();
    let outside = hot.above().join("outside.img");
    File::create(&outside).unwrap().set_len(MIB).unwrap();
    let outside = outside.to_str().unwrap();
    hot.command(&["add", "passed", "--blk-file", outside, "--pass-fd"])
        .unwrap();
    hot.restart().unwrap();
    for name in ["a", "b"] {
        let body = json!({ "disk": "memory:size=1M", "limit_group": "g" });
        assert_eq!(hot.put(name, &body).unwrap().0, 201);
    }
    let mut events = hot.listen().unwrap();
    let limits = json!({ "limits": { "iops_total": 7 } });
    assert_eq!(hot.patch("b", &limits).unwrap().0, 200);
    assert_eq!(hot.remove("passed", "").unwrap().0, 204);
    let told = events.until("removed");
    let told: Vec<_> = told
        .iter()
        .map(|event| {
            (
                event["event"].as_str().unwrap(),
                event["name"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [("limited", "a"), ("limited", "b"), ("removed", "passed")]
    );
    hot.ends_well();
}

/// One more than may listen ends the oldest at once, although no other client comes.
#[test]
fn eight_clients_may_listen_to_events() {
    let hot = Hot::start().unwrap();
    let oldest = hot.listen().unwrap();
    let others: Vec<_> = (0..8).map(|_| hot.listen().unwrap()).collect();
    oldest.ended().unwrap();
    assert_eq!(hot.add("a", "memory:size=1M").unwrap().0, 201);
    for mut events in others {
        assert_eq!(events.until("added").len(), 1);
    }
    hot.ends_well();
}

/// The newest listener is the one that has asked last, whichever connected last.
#[test]
fn a_client_that_asks_late_listens_all_the_same() {
    let hot = Hot::start().unwrap();
    let late = connect(&hot.control()).unwrap();
    let oldest = hot.listen().unwrap();
    let others: Vec<_> = (0..7).map(|_| hot.listen().unwrap()).collect();
    let late = Events::on(late).unwrap();
    oldest.ended().unwrap();
    assert_eq!(hot.add("a", "memory:size=1M").unwrap().0, 201);
    for mut events in others.into_iter().chain([late]) {
        assert_eq!(events.until("added").len(), 1);
    }
    hot.ends_well();
}

/// Neither what listens to events nor the thread that opens disks has a timer.
#[test]
fn an_idle_daemon_that_takes_disks_wakes_nobody() {
    let hot = Hot::start().unwrap();
    assert_eq!(hot.add("a", "memory:size=1M").unwrap().0, 201);
    let mut events = hot.listen().unwrap();
    // The time that a connection has is over then: the last timer.
    closed(&hot.control()).unwrap();
    assert_idle(hot.process(), Duration::from_secs(4));
    hot.add("b", "memory:size=1M").unwrap();
    assert_eq!(events.until("added")[0]["name"], "b");
    hot.ends_well();
}
