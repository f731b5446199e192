//! Changes of a disk that is there.

use super::*;

#[test]
fn a_disk_that_keeps_its_size_says_so() {
    let daemon = TestDaemon::new();
    let path = "/v1/disks/root/resize";
    for (path, body, status) in [
        (path, "", 409),
        (path, "{}", 409),
        (path, "{\"bytes\": -1}", 400),
        (path, "\u{ff}", 400),
        (path, "[4096]", 400),
        ("/v1/disks/x/resize", "", 404),
    ] {
        let (told, problem) = change(&daemon, &Method::POST, path, body);
        assert_eq!(told, status, "{path} {body:?}: {problem}");
    }
    let metrics = change_within(&daemon, Reach::Metrics, &Method::POST, path, "");
    assert!(metrics.is_none());
    let nothing = change_within(&daemon, Reach::Everything, &Method::POST, "/v1/disks", "");
    assert!(nothing.is_none());
}

#[test]
fn a_trace_is_started_told_and_thrown_away() {
    let (daemon, all) = (TestDaemon::new(), described());
    let path = "/v1/disks/root/trace";
    let about = &all["paths"]["/v1/disks/{name}/trace"]["put"]["responses"]["200"];
    let told = |path: &str| {
        let request = Request::builder().uri(path).body(()).unwrap();
        daemon.answer(Reach::Everything, &request).0
    };
    assert_eq!(told(path), 404);
    for (body, seconds, records) in [("", 10, 65536), (r#"{"seconds": 7, "records": 3}"#, 7, 3)] {
        let (status, started) = change(&daemon, &Method::PUT, path, body);
        assert_eq!(status, 200, "{started}");
        assert_eq!(
            (
                &started["seconds"],
                &started["records"],
                &started["running"]
            ),
            (&seconds.into(), &records.into(), &true.into())
        );
        fits(
            &started,
            &about["content"]["application/json"]["schema"],
            &all,
        );
    }
    for path in ["", "/jsonl", "/blkparse"].map(|end| format!("{path}{end}")) {
        assert_eq!(told(&path), 200, "{path}");
    }
    for (body, field) in [
        (r#"{"seconds": 0}"#, Some("seconds")),
        (r#"{"seconds": 3601}"#, Some("seconds")),
        (r#"{"records": 0}"#, Some("records")),
        (r#"{"records": 262145}"#, Some("records")),
        (r#"{"second": 1}"#, Some("second")),
        ("[]", None),
    ] {
        let (status, problem) = change(&daemon, &Method::PUT, path, body);
        assert_eq!(status, 400, "{body}");
        assert_eq!(problem["field"].as_str(), field, "{problem}");
    }
    for _ in 0..2 {
        let gone = change(&daemon, &Method::DELETE, path, "");
        assert_eq!(gone, (204, Value::Null));
        assert_eq!(told(path), 404);
    }
}

#[test]
fn times_of_requests_are_counted_while_that_is_wanted() {
    let daemon = TestDaemon::new();
    let is_timed = || daemon.state().disks()[0].device.observation().is_timed();
    for (body, timed) in [
        (r#"{"latencies": true}"#, true),
        (r#"{"latencies": true}"#, true),
        ("{}", true),
        (
            r#"{"latencies": false, "limits": {"iops_total": 7}}"#,
            false,
        ),
    ] {
        let (status, disk) = change(&daemon, &Method::PATCH, "/v1/disks/root", body);
        assert_eq!((status, &disk["latencies"]), (200, &timed.into()));
        assert_eq!(is_timed(), timed);
    }
    assert!(
        !daemon.state().disks()[0]
            .device
            .limiter()
            .limits()
            .is_empty()
    );
    let bad = r#"{"latencies": true, "limits": {"iops_total": 0}}"#;
    assert_eq!(
        change(&daemon, &Method::PATCH, "/v1/disks/root", bad).0,
        400
    );
    assert!(!is_timed(), "all of it or nothing");
}

#[test]
fn limits_are_changed_by_merging() {
    let daemon = TestDaemon::new();
    let all = described();
    let patch = |body: &str| change(&daemon, &Method::PATCH, "/v1/disks/root", body);
    let about = &all["paths"]["/v1/disks/{name}"]["patch"]["responses"];
    let of = |limits: &str| format!(r#"{{"limits": {limits}}}"#);
    let two = r#"{"iops_total": 5000, "iops_total_max": 9000}"#;
    let three = r#"{"iops_total": 5000, "iops_total_max": 9000, "bps_read": 1048576}"#;
    for (body, limits) in [
        (&*of(two), two),
        (&of(r#"{"bps_read": 1048576}"#), three),
        ("{}", three),
        (&of(r#"{"iops_total": null}"#), r#"{"bps_read": 1048576}"#),
        (&of("null"), "{}"),
    ] {
        let (status, disk) = patch(body);
        assert_eq!(status, 200, "{body}: {disk}");
        assert_eq!(
            disk["limits"],
            serde_json::from_str::<Value>(limits).unwrap(),
            "{body}"
        );
        fits(
            &disk,
            &about["200"]["content"]["application/json"]["schema"],
            &all,
        );
    }
    let refused = |body: &str, field| {
        let (status, problem) = patch(body);
        assert_eq!(status, 400, "{body}");
        assert_eq!(problem["field"].as_str(), field, "{problem}");
        assert!(!problem["remedy"].as_str().unwrap().is_empty(), "{problem}");
        fits(&problem, &all["components"]["schemas"]["Problem"], &all);
    };
    for (body, field) in [
        ("", None),
        ("[]", None),
        (r#"{"limit": {}}"#, Some("limit")),
        (r#"{"latencies": "yes"}"#, Some("latencies")),
        (r#"{"latencies": true, "latencies": false}"#, None),
        (r#"{"latencies": true} {}"#, None),
    ] {
        refused(body, field);
    }
    for (limits, field) in [
        ("5", "limits"),
        (r#"{"iops": 5}"#, "limits.iops"),
        (r#"{"iops_total": "5"}"#, "limits.iops_total"),
        (r#"{"iops_total": -5}"#, "limits.iops_total"),
        (r#"{"iops_total": 0}"#, "limits.iops_total"),
        (r#"{"iops_total_max": 5}"#, "limits.iops_total_max"),
    ] {
        refused(&of(limits), Some(field));
    }
    let (_, disk) = patch("{}");
    assert_eq!(disk["limits"], serde_json::json!({}));
    assert_eq!(change(&daemon, &Method::PATCH, "/v1/disks/x", "{}").0, 404);
    let told = change_within(
        &daemon,
        Reach::Metrics,
        &Method::PATCH,
        "/v1/disks/root",
        "{}",
    );
    assert!(told.is_none(), "an address for metrics changes nothing");
}
