//! Disks that come and go.

use super::*;

#[test]
fn a_disk_is_added_and_removed_as_http_says() {
    let daemon = TestDaemon::new();
    let all = described();
    let about = &all["paths"]["/v1/disks/{name}"];
    let put =
        |name: &str, body: &str| change(&daemon, &Method::PUT, &format!("/v1/disks/{name}"), body);
    let body = r#"{"disk": "memory:size=1M", "limits": {"iops_total": 5}}"#;
    for status in [201, 200, 200] {
        let (told, disk) = put("new", body);
        assert_eq!(told, status, "{disk}");
        assert_eq!(
            (&disk["name"], &disk["added"]),
            (&"new".into(), &true.into())
        );
        fits(
            &disk,
            &about["put"]["responses"]["200"]["content"]["application/json"]["schema"],
            &all,
        );
    }
    let socket = daemon.folder().join("new.sock");
    assert!(socket.exists());
    let (status, disk) = put(
        "new",
        r#"{"disk": "memory:size=1M", "limits": {"iops_total": 7}}"#,
    );
    assert_eq!((status, &disk["limits"]["iops_total"]), (200, &7.into()));
    let (status, _) = change(
        &daemon,
        &Method::PATCH,
        "/v1/disks/new",
        r#"{"limits": null}"#,
    );
    assert_eq!(status, 200);
    let (status, disk) = put("new", r#"{"disk": "memory:size=1M"}"#);
    assert_eq!((status, &disk["limits"]), (200, &serde_json::json!({})));

    let delete = |path: &str| change(&daemon, &Method::DELETE, path, "").0;
    assert_eq!(delete("/v1/disks/new?by=force"), 400);
    assert_eq!(delete("/v1/disks/new"), 204);
    assert_eq!(delete("/v1/disks/new"), 404);
    assert!(!socket.exists());
}

/// A client that removes a disk waits for that one, and for none that has its name since.
#[test]
fn a_disk_has_ended_though_another_one_has_its_name() {
    let daemon = TestDaemon::new();
    let add = || {
        let body = r#"{"disk": "memory:size=1M"}"#;
        change(&daemon, &Method::PUT, "/v1/disks/new", body).0
    };
    assert_eq!(add(), 201);
    let disks = daemon.state().all();
    let removed = disks.remove("new", false).unwrap();
    while disks.knows("new") {
        std::thread::yield_now();
    }
    assert_eq!(add(), 201);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().build().unwrap();
    let long = std::time::Duration::from_secs(60);
    let ended = runtime.block_on(async { tokio::time::timeout(long, removed.ended()).await });
    ended.expect("it has ended");
}

#[test]
fn a_disk_that_is_not_added_is_refused_with_the_field() {
    let daemon = TestDaemon::new();
    let all = described();
    let put =
        |name: &str, body: &str| change(&daemon, &Method::PUT, &format!("/v1/disks/{name}"), body);
    assert_eq!(put("new", r#"{"disk": "memory:size=1M"}"#).0, 201);
    let refused = |name: &str, body: &str, status, field| {
        let (told, problem) = put(name, body);
        assert_eq!(told, status, "{body}: {problem}");
        assert_eq!(problem["field"].as_str(), field, "{body}: {problem}");
        fits(&problem, &all["components"]["schemas"]["Problem"], &all);
    };
    for (name, disk, status, field) in [
        ("new", "memory:size=2M", 409, "disk"),
        ("root", "memory:size=1M", 409, "name"),
        (".x", "memory:size=1M", 400, "name"),
        ("x", "nonsense", 400, "disk"),
        ("x", "file:path=/etc/passwd", 403, "disk"),
        ("x", "linear:memory:size=1M+/etc/passwd", 403, "disk"),
        ("x", "vhost-user:path=/run/x.sock", 403, "disk"),
    ] {
        let body = format!(r#"{{"disk": "{disk}"}}"#);
        refused(name, &body, status, Some(field));
    }
    for (name, more, status, field) in [
        ("new", r#""serial": "s""#, 409, "serial"),
        ("x", r#""num_queues": 0"#, 400, "num_queues"),
        ("x", r#""serial": "123456789012345678901""#, 400, "serial"),
        ("x", r#""socket_mode": "9""#, 400, "socket_mode"),
        (
            "x",
            r#""limits": {"iops_total": 0}"#,
            400,
            "limits.iops_total",
        ),
        ("x", r#""socket_path": "x.sock""#, 400, "socket_path"),
        ("x", r#""socket_path": "/x.sock""#, 403, "socket_path"),
        ("x", r#""passed": true"#, 400, "passed"),
        ("x", r#""num_queues": "2""#, 400, "num_queues"),
        ("x", r#""limits": "iops-total=5""#, 400, "limits"),
        ("x", r#""socket_uid": 4294967295"#, 400, "socket_uid"),
        ("x", r#""socket_gid": 4294967295"#, 400, "socket_gid"),
    ] {
        let body = format!(r#"{{"disk": "memory:size=1M", {more}}}"#);
        refused(name, &body, status, Some(field));
    }
    let folder = daemon.folder().display().to_string();
    let body = format!(r#"{{"disk": "memory:size=1M", "socket_path": "{folder}"}}"#);
    refused("x", &body, 400, Some("socket_path"));
    let twice = r#"{"disk": "memory:size=1M", "disk": "memory:size=1M"}"#;
    for (body, field) in [
        (r#"{"size": 5}"#, Some("size")),
        ("[]", None),
        ("", None),
        (twice, None),
    ] {
        refused("x", body, 400, field);
    }
    assert_eq!(daemon.state().disks().len(), 2);
}

#[test]
fn an_image_that_another_disk_has_is_refused_with_its_name() {
    let daemon = TestDaemon::new();
    let image = daemon.folder().join("x.img");
    std::fs::write(&image, [0; 4096]).unwrap();
    let body = serde_json::json!({ "disk": format!("file:path={}", image.display()) }).to_string();
    let put = |name: &str| change(&daemon, &Method::PUT, &format!("/v1/disks/{name}"), &body);
    assert_eq!(put("one").0, 201);
    let (status, problem) = put("other");
    assert_eq!(status, 409, "{problem}");
    let remedy = "`pollux disk remove one` releases it";
    assert_eq!(problem["remedy"], remedy, "{problem}");
}

#[test]
fn a_daemon_without_folders_takes_no_disk_and_keeps_its_last() {
    let daemon = TestDaemon::with_folders(false);
    let (status, problem) = change(
        &daemon,
        &Method::PUT,
        "/v1/disks/x",
        r#"{"disk": "null:size=1G"}"#,
    );
    let remedy = problem["remedy"].as_str().unwrap();
    assert!(
        status == 403 && remedy.contains("--disk-folder"),
        "{problem}"
    );
    let (status, problem) = change(&daemon, &Method::DELETE, "/v1/disks/root?force=true", "");
    assert_eq!(status, 409, "{problem}");
}
