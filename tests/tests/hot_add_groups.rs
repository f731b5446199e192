//! Disks that share limits, and come and go: the limits are those that were answered, also after the daemon was killed.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::fs;

use pollux_tests::frontend::{Driver, Plan};
use pollux_tests::hot::Hot;
use pollux_tests::process::eventually;
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;
const ONE_QUEUE: Plan = Plan {
    queues: 1,
    without: 0,
};

fn member(disk: &str, limits: &Value) -> Value {
    json!({ "disk": disk, "limit_group": "g", "limits": limits })
}

/// The limits of a disk, as the daemon says.
fn limits(hot: &Hot, name: &str) -> Value {
    hot.get(&format!("/v1/disks/{name}")).unwrap()["limits"].take()
}

/// The limits of a disk on the list; `Null`: none.
fn kept(hot: &Hot, name: &str) -> Value {
    hot.list()[name]["limits"].take()
}

/// Whether it comes before the other of its group or after it; the list is written while that is there or when it has
/// gone.
#[test]
fn a_disk_that_is_missing_is_kept_with_the_limits_of_its_group() {
    let mut hot = Hot::start().unwrap();
    let image = hot.image("image", MIB).unwrap();
    let elsewhere = hot.images().join("elsewhere");
    let file = format!("file:path={}", image.display());
    let mut comes_back_with = |missing: &str, there: &str, change: Option<u64>| {
        for (name, disk) in [(missing, &*file), (there, "memory:size=1M")] {
            let limits = json!({ "iops_total": 5 });
            let body = json!({ "disk": disk, "limit_group": "g", "limits": limits });
            assert_eq!(hot.put(name, &body).unwrap().0, 201);
        }
        fs::rename(&image, &elsewhere).unwrap();
        hot.restart().unwrap();
        assert_eq!(hot.names().unwrap(), [there]);
        assert_eq!(hot.get("/v1/health").unwrap()["missing"], json!([missing]));
        if let Some(iops) = change {
            let limits = json!({ "limits": { "iops_total": iops } });
            assert_eq!(hot.patch(there, &limits).unwrap().0, 200);
            assert_eq!(hot.list()[missing]["limits"], limits["limits"]);
        }
        assert_eq!(hot.remove(there, "").unwrap().0, 204);
        fs::rename(&elsewhere, &image).unwrap();
        hot.restart().unwrap();
        assert_eq!(hot.names().unwrap(), [missing]);
        let disk = hot.get(&format!("/v1/disks/{missing}")).unwrap();
        assert_eq!(hot.remove(missing, "").unwrap().0, 204);
        disk["limits"]["iops_total"].clone()
    };
    for (missing, there) in [("a", "b"), ("b", "a")] {
        assert_eq!(comes_back_with(missing, there, None), 5);
        assert_eq!(comes_back_with(missing, there, Some(7)), 7);
    }
    hot.ends_well();
}

#[test]
fn the_limits_of_a_group_come_back_whichever_disk_they_were_given_to() {
    let mut hot = Hot::start().unwrap();
    let member =
        |limits: Value| json!({ "disk": "memory:size=1M", "limit_group": "g", "limits": limits });
    let all = |hot: &Hot, limit: Value| {
        for name in ["a", "b"] {
            let disk = hot.get(&format!("/v1/disks/{name}")).unwrap();
            assert_eq!(disk["limits"]["iops_total"], limit, "{disk}");
        }
    };
    for first in [json!({}), json!({ "iops_total": 5 })] {
        assert_eq!(hot.put("a", &member(first)).unwrap().0, 201);
        assert_eq!(hot.put("b", &member(json!({}))).unwrap().0, 201);
        let limits = json!({ "limits": { "iops_total": 7 } });
        assert_eq!(hot.patch("b", &limits).unwrap().0, 200);
        all(&hot, 7.into());
        hot.restart().unwrap();
        all(&hot, 7.into());
        // The same request once more changes nothing.
        assert_eq!(hot.put("b", &member(json!({}))).unwrap().0, 200);
        all(&hot, 7.into());
        assert_eq!(
            hot.put("b", &member(json!({ "iops_total": 9 }))).unwrap().0,
            200
        );
        hot.restart().unwrap();
        all(&hot, 9.into());
        assert_eq!(hot.patch("a", &json!({ "limits": null })).unwrap().0, 200);
        hot.restart().unwrap();
        all(&hot, Value::Null);
        for name in ["a", "b"] {
            assert_eq!(hot.remove(name, "").unwrap().0, 204);
        }
    }
    hot.ends_well();
}

/// The missing disk is opened first, and must not bring back the limits that the group had before.
#[test]
fn a_disk_that_joins_the_group_of_a_missing_one_keeps_its_limits() {
    let mut hot = Hot::start().unwrap();
    let image = hot.image("image", MIB).unwrap();
    let elsewhere = hot.images().join("elsewhere");
    let file = format!("file:path={}", image.display());
    let (old, new) = (json!({ "iops_total": 5 }), json!({ "iops_total": 9 }));
    assert_eq!(hot.put("a", &member(&file, &old)).unwrap().0, 201);
    fs::rename(&image, &elsewhere).unwrap();
    hot.restart().unwrap();
    assert_eq!(hot.get("/v1/health").unwrap()["missing"], json!(["a"]));
    let other = member("memory:size=1M", &new);
    assert_eq!(hot.put("c", &other).unwrap().0, 201);
    fs::rename(&elsewhere, &image).unwrap();
    hot.restart().unwrap();
    assert_eq!(hot.names().unwrap(), ["a", "c"]);
    for name in ["a", "c"] {
        assert_eq!(limits(&hot, name), new, "{name}");
    }
    hot.ends_well();
}

/// The group is there until its last disk has gone, and what was added meanwhile is kept with its limits.
#[test]
fn a_disk_that_joins_a_group_whose_last_disk_leaves_is_kept_with_its_limits() {
    let mut hot = Hot::start().unwrap();
    let slow = "fault:delay=3s,op=write,on=memory:size=1M";
    let seven = json!({ "iops_total": 7 });
    assert_eq!(hot.put("b", &member(slow, &seven)).unwrap().0, 201);
    let mut driver = Driver::connect(&hot.socket("b"), ONE_QUEUE).unwrap();
    driver.queues[0].write(0, 0, 0x77);
    driver.queues[0].publish_and_kick();
    eventually(
        || hot.get("/v1/disks/b/stats").unwrap()["queues"][0]["in_flight"] == 1,
        || "the request is in flight".into(),
    );
    std::thread::scope(|scope| {
        let hot = &hot;
        let removing = scope.spawn(|| hot.remove("b", "?force=true").unwrap().0);
        eventually(
            || hot.list()["b"] == Value::Null,
            || "it is being removed".into(),
        );
        let (status, disk) = hot.put("a", &member("memory:size=1M", &json!({}))).unwrap();
        assert_eq!((status, &disk["limits"]), (201, &seven), "{disk}");
        assert_eq!(removing.join().unwrap(), 204);
    });
    assert_eq!(kept(&hot, "a"), seven);
    drop(driver);
    hot.restart().unwrap();
    assert_eq!(limits(&hot, "a"), seven);
    hot.ends_well();
}

/// Whatever it is refused for: its image, its socket, or a list that cannot be written.
#[test]
fn a_disk_that_is_not_added_limits_no_others() {
    let hot = Hot::start().unwrap();
    let other = member("memory:size=1M", &json!({}));
    assert_eq!(hot.put("a", &other).unwrap().0, 201);
    let one = json!({ "iops_total": 1 });
    let missing = format!("file:path={}/missing", hot.images().display());
    let mut no_socket = member("memory:size=1M", &one);
    no_socket["socket_path"] = hot.images().join("file").display().to_string().into();
    hot.image("file", MIB).unwrap();
    // What is to become the next list is no file.
    let obstacle = hot.above().join("state.json.new");
    for (body, wanted) in [
        (member(&missing, &one), 400),
        (no_socket, 409),
        (member("memory:size=1M", &one), 500),
    ] {
        if wanted == 500 {
            fs::create_dir(&obstacle).unwrap();
        }
        let (status, problem) = hot.put("b", &body).unwrap();
        assert_eq!(status, wanted, "{problem}");
        assert_eq!(limits(&hot, "a"), json!({}), "{problem}");
    }
    fs::remove_dir(obstacle).unwrap();
    let mut events = hot.listen().unwrap();
    let (status, disk) = hot.put("b", &member("memory:size=1M", &one)).unwrap();
    assert_eq!((status, &disk["limits"]), (201, &one), "{disk}");
    let told = events.until("added");
    assert_eq!(told[0]["event"], "limited", "{told:?}");
    assert_eq!(told[0]["name"], "a", "{told:?}");
    assert_eq!((limits(&hot, "a"), kept(&hot, "a")), (one.clone(), one));
    drop(events);
    hot.ends_well();
}
