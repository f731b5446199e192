use std::collections::BTreeSet;

use serde_json::Value;

use super::*;
use crate::control::bare::Bare;

fn change_within(
    daemon: &Bare,
    reach: Reach,
    method: &Method,
    uri: &str,
    body: &str,
) -> Option<(u16, Value)> {
    let uri: hyper::Uri = uri.parse().unwrap();
    let (status, _, body) = daemon.change(reach, method, &uri, body.as_bytes())?;
    Some((status, serde_json::from_slice(&body).unwrap_or_default()))
}

fn change(daemon: &Bare, method: &Method, uri: &str, body: &str) -> (u16, Value) {
    change_within(daemon, Reach::Everything, method, uri, body).unwrap()
}

fn ask(method: &Method, path: &str) -> (StatusCode, String, Value) {
    let (status, content, body) = ask_within(Reach::Everything, method, path);
    (status, content, serde_json::from_str(&body).unwrap())
}

fn ask_within(reach: Reach, method: &Method, path: &str) -> (StatusCode, String, String) {
    let request = Request::builder().method(method).uri(path);
    let request = request.header(ACCEPT, metrics::OPEN_METRICS);
    let (status, content, body) = Bare::new().answer(reach, &request.body(()).unwrap());
    let status = StatusCode::from_u16(status).unwrap();
    (status, content, String::from_utf8(body).unwrap())
}

fn described() -> Value {
    ask(&Method::GET, "/openapi.json").2
}

/// The keys of `value` are those of its schema, to any depth, and each has the type that is promised.
fn fits(value: &Value, schema: &Value, all: &Value) {
    if let Some(name) = schema["$ref"].as_str() {
        return fits(value, all.pointer(&name[1..]).expect(name), all);
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        let choice = choices
            .iter()
            .find(|choice| value.is_null() == (choice["type"] == "null"));
        return fits(value, choice.unwrap(), all);
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let allowed = &schema["type"];
    assert!(
        allowed == kind
            || allowed
                .as_array()
                .is_some_and(|all| all.iter().any(|is| is == kind)),
        "{value} is no {schema}"
    );
    if let Value::Array(items) = value {
        for item in items {
            fits(item, &schema["items"], all);
        }
    }
    if let Value::Object(fields) = value {
        let properties = schema["properties"].as_object().unwrap();
        for (key, field) in fields {
            fits(field, properties.get(key).expect(key), all);
        }
        for required in schema["required"].as_array().into_iter().flatten() {
            assert!(
                fields.contains_key(required.as_str().unwrap()),
                "{required}"
            );
        }
    }
}

#[test]
fn all_that_is_described_is_answered_as_described() {
    let all = described();
    assert_eq!(all["openapi"], "3.1.0");
    let paths = all["paths"].as_object().unwrap();
    let names: BTreeSet<_> = paths.keys().map(String::as_str).collect();
    let wanted = [
        "/metrics",
        "/openapi.json",
        "/v1/disks",
        "/v1/disks/{name}",
        "/v1/disks/{name}/resize",
        "/v1/disks/{name}/stats",
        "/v1/disks/{name}/trace",
        "/v1/disks/{name}/trace/blkparse",
        "/v1/disks/{name}/trace/jsonl",
        "/v1/events",
        "/v1/health",
        "/v1/workers",
    ];
    assert_eq!(names, BTreeSet::from(wanted));
    for (path, about) in paths {
        let is_of_a_trace = path.contains("/trace");
        let is_other = ["/metrics", "/v1/events"].contains(&&**path);
        if is_other || is_of_a_trace || about["get"].is_null() {
            continue;
        }
        let (status, content, body) = ask(&Method::GET, &path.replace("{name}", "root"));
        assert_eq!((status, &*content), (StatusCode::OK, "application/json"));
        let schema = &about["get"]["responses"]["200"]["content"][&content]["schema"];
        if path != "/openapi.json" {
            fits(&body, schema, &all);
        }
    }
}

#[test]
fn what_is_not_there_is_a_problem_with_a_remedy() {
    let all = described();
    let schema = &all["components"]["schemas"]["Problem"];
    for (method, path, status, field) in [
        (Method::GET, "/v1/disks/nobody", 404, Some("name")),
        (Method::GET, "/v1/disks/nobody/stats", 404, Some("name")),
        (Method::GET, "/v1/disks/", 404, Some("name")),
        (Method::GET, "/v2", 404, None),
        (Method::GET, "/v1/disks/root/../root", 404, None),
        (Method::DELETE, "/v1/disks", 405, None),
        (Method::POST, "/v1/health", 405, None),
        (Method::GET, "/v1/disks/root/resize", 405, None),
    ] {
        let (told, content, body) = ask(&method, path);
        assert_eq!(told.as_u16(), status, "{path}");
        assert_eq!(content, "application/problem+json");
        fits(&body, schema, &all);
        assert_eq!(body["field"].as_str(), field, "{body}");
        assert_eq!(body["status"], status);
    }
}

#[test]
fn a_disk_tells_what_it_is() {
    let (_, _, disk) = ask(&Method::GET, "/v1/disks/root");
    assert_eq!(
        (&disk["bytes"], &disk["queues"]),
        (&(1 << 20).into(), &2.into())
    );
    assert_eq!(disk["frontend"], Value::Null);
    let (_, _, health) = ask(&Method::GET, "/v1/health");
    assert_eq!(
        (&health["status"], &health["disks"]),
        (&"serving".into(), &1.into())
    );
}

#[test]
fn a_disk_that_keeps_its_size_says_so() {
    let daemon = Bare::new();
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
    let (daemon, all) = (Bare::new(), described());
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
        (r#"{"second": 1}"#, None),
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
    let daemon = Bare::new();
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
    let daemon = Bare::new();
    let all = described();
    let patch = |body: &str| change(&daemon, &Method::PATCH, "/v1/disks/root", body);
    let about = &all["paths"]["/v1/disks/{name}"]["patch"]["responses"];
    for (body, limits) in [
        (
            r#"{"limits": {"iops_total": 5000, "iops_total_max": 9000}}"#,
            r#"{"iops_total": 5000, "iops_total_max": 9000}"#,
        ),
        (
            r#"{"limits": {"bps_read": 1048576}}"#,
            r#"{"iops_total": 5000, "iops_total_max": 9000, "bps_read": 1048576}"#,
        ),
        (
            "{}",
            r#"{"iops_total": 5000, "iops_total_max": 9000, "bps_read": 1048576}"#,
        ),
        (
            r#"{"limits": {"iops_total": null}}"#,
            r#"{"bps_read": 1048576}"#,
        ),
        (r#"{"limits": null}"#, "{}"),
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
    for (body, field) in [
        ("", None),
        ("[]", None),
        (r#"{"limit": {}}"#, None),
        (r#"{"limits": 5}"#, Some("limits")),
        (r#"{"limits": {"iops": 5}}"#, Some("limits.iops")),
        (
            r#"{"limits": {"iops_total": "5"}}"#,
            Some("limits.iops_total"),
        ),
        (
            r#"{"limits": {"iops_total": -5}}"#,
            Some("limits.iops_total"),
        ),
        (
            r#"{"limits": {"iops_total": 0}}"#,
            Some("limits.iops_total"),
        ),
        (
            r#"{"limits": {"iops_total_max": 5}}"#,
            Some("limits.iops_total_max"),
        ),
    ] {
        let (status, problem) = patch(body);
        assert_eq!(status, 400, "{body}");
        assert_eq!(problem["field"].as_str(), field, "{problem}");
        assert!(!problem["remedy"].as_str().unwrap().is_empty(), "{problem}");
        fits(&problem, &all["components"]["schemas"]["Problem"], &all);
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

#[test]
fn a_disk_is_added_and_removed_as_http_says() {
    let daemon = Bare::new();
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

#[test]
fn a_disk_that_is_not_added_is_refused_with_the_field_and_the_remedy() {
    let daemon = Bare::new();
    let all = described();
    let put =
        |name: &str, body: &str| change(&daemon, &Method::PUT, &format!("/v1/disks/{name}"), body);
    assert_eq!(put("new", r#"{"disk": "memory:size=1M"}"#).0, 201);
    for (name, body, status, field) in [
        ("new", r#"{"disk": "memory:size=2M"}"#, 409, Some("disk")),
        (
            "new",
            r#"{"disk": "memory:size=1M", "serial": "s"}"#,
            409,
            Some("serial"),
        ),
        ("root", r#"{"disk": "memory:size=1M"}"#, 409, Some("name")),
        (".x", r#"{"disk": "memory:size=1M"}"#, 400, Some("name")),
        ("x", r#"{"disk": "nonsense"}"#, 400, Some("disk")),
        (
            "x",
            r#"{"disk": "memory:size=1M", "num_queues": 0}"#,
            400,
            Some("num_queues"),
        ),
        (
            "x",
            r#"{"disk": "memory:size=1M", "serial": "123456789012345678901"}"#,
            400,
            Some("serial"),
        ),
        (
            "x",
            r#"{"disk": "memory:size=1M", "socket_mode": "9"}"#,
            400,
            Some("socket_mode"),
        ),
        (
            "x",
            r#"{"disk": "memory:size=1M", "limits": {"iops_total": 0}}"#,
            400,
            Some("limits.iops_total"),
        ),
        (
            "x",
            r#"{"disk": "memory:size=1M", "socket_path": "x.sock"}"#,
            400,
            Some("socket_path"),
        ),
        (
            "x",
            r#"{"disk": "memory:size=1M", "socket_path": "/x.sock"}"#,
            403,
            Some("socket_path"),
        ),
        (
            "x",
            r#"{"disk": "file:path=/etc/passwd"}"#,
            403,
            Some("disk"),
        ),
        (
            "x",
            r#"{"disk": "linear:memory:size=1M+/etc/passwd"}"#,
            403,
            Some("disk"),
        ),
        (
            "x",
            r#"{"disk": "vhost-user:path=/run/x.sock"}"#,
            403,
            Some("disk"),
        ),
        (
            "x",
            r#"{"disk": "memory:size=1M", "passed": true}"#,
            400,
            Some("passed"),
        ),
        ("x", r#"{"size": 5}"#, 400, None),
        ("x", "[]", 400, None),
        ("x", "", 400, None),
    ] {
        let (told, problem) = put(name, body);
        assert_eq!(told, status, "{body}: {problem}");
        assert_eq!(problem["field"].as_str(), field, "{body}: {problem}");
        assert!(!problem["remedy"].as_str().unwrap().is_empty(), "{problem}");
        fits(&problem, &all["components"]["schemas"]["Problem"], &all);
    }
    assert_eq!(daemon.state().disks().len(), 2);
}

#[test]
fn a_daemon_without_folders_takes_no_disk_and_keeps_its_last() {
    let daemon = Bare::with_folders(false);
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

#[test]
fn an_address_for_metrics_tells_nothing_else() {
    let ask = |path| ask_within(Reach::Metrics, &Method::GET, path);
    let (status, content, body) = ask("/metrics");
    assert_eq!((status, &*content), (StatusCode::OK, metrics::OPEN_METRICS));
    assert!(
        body.contains("pollux_disk_size_bytes{disk=\"root\"} 1048576\n"),
        "{body}"
    );
    assert!(body.ends_with("# EOF\n"), "{body}");
    for path in ["/v1/disks", "/openapi.json", "/", "/v1/disks/root/stats"] {
        assert_eq!(ask(path).0, StatusCode::NOT_FOUND, "{path}");
    }
}

#[test]
fn the_older_format_names_counters_by_their_samples() {
    let (content, text) = metrics::scrape(Bare::new().state(), "*/*");
    assert_eq!(content, metrics::TEXT);
    for line in [
        "# TYPE pollux_worker_cpu_seconds_total counter\n",
        "\npollux_worker_cpu_seconds_total{worker=\"0\"} ",
        "# TYPE pollux_disk_size_bytes gauge\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(!text.contains("# EOF"), "{text}");
}
