use std::collections::BTreeSet;
use std::sync::Arc;

use http_body_util::BodyExt;
use pollux::device::{Device, Options, Tuning, Workers};
use serde_json::Value;

use super::*;
use crate::stop::Stop;

fn state() -> State {
    let disk = "memory:size=1M".parse::<pollux::disk::Spec>().unwrap();
    let how = pollux::disk::Options::default();
    let disk = disk.open_with(&how, &pollux::Drivers).unwrap();
    let options = Options::new("root.sock")
        .num_queues(2)
        .queue_size(128)
        .serial("s");
    let served = Served {
        name: "root".to_owned(),
        socket: "root.sock".to_owned(),
        device: Arc::new(Device::new(disk, options)),
        limit_group: None,
        stop: Arc::new(Stop::new().unwrap()),
    };
    let workers = Workers::start(1, &[], Tuning::default()).unwrap();
    State::new(vec![served], Arc::new(workers), vec![])
}

fn ask(method: &Method, path: &str) -> (StatusCode, String, Value) {
    let (status, content, body) = ask_within(Reach::Everything, method, path);
    (status, content, serde_json::from_str(&body).unwrap())
}

fn ask_within(reach: Reach, method: &Method, path: &str) -> (StatusCode, String, String) {
    let request = Request::builder().method(method).uri(path);
    let request = request.header(ACCEPT, metrics::OPEN_METRICS);
    let answer = answer(&state(), reach, &request.body(()).unwrap());
    let status = answer.status();
    let content = answer.headers()[CONTENT_TYPE].to_str().unwrap().to_owned();
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let body = runtime.unwrap().block_on(answer.into_body().collect());
    let body = String::from_utf8(body.unwrap().to_bytes().to_vec()).unwrap();
    (status, content, body)
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
        "/v1/health",
        "/v1/workers",
    ];
    assert_eq!(names, BTreeSet::from(wanted));
    for (path, about) in paths {
        let is_of_a_trace = path.contains("/trace");
        if path == "/metrics" || is_of_a_trace || about["get"].is_null() {
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
        (Method::DELETE, "/v1/disks/root", 405, None),
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
    let change = |reach, path, body: &[u8]| change(&state(), reach, &Method::POST, path, body);
    let path = "/v1/disks/root/resize";
    for (path, body, status) in [
        (path, &b""[..], StatusCode::CONFLICT),
        (path, b"{}", StatusCode::CONFLICT),
        (path, b"{\"bytes\": -1}", StatusCode::BAD_REQUEST),
        (path, b"\xff", StatusCode::BAD_REQUEST),
        (path, b"[4096]", StatusCode::BAD_REQUEST),
        ("/v1/disks/x/resize", b"", StatusCode::NOT_FOUND),
    ] {
        let answer = change(Reach::Everything, path, body).unwrap();
        assert_eq!(answer.status(), status, "{path} {body:?}");
    }
    assert!(change(Reach::Metrics, path, b"").is_none());
    assert!(change(Reach::Everything, "/v1/disks", b"").is_none());
}

/// What is answered to a change of the disk.
fn changed(state: &State, method: &Method, path: &str, body: &str) -> (u16, String) {
    let answer = change(state, Reach::Everything, method, path, body.as_bytes()).unwrap();
    let status = answer.status().as_u16();
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let body = runtime.unwrap().block_on(answer.into_body().collect());
    let body = body.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[test]
fn a_trace_is_started_told_and_thrown_away() {
    let (state, all) = (state(), described());
    let path = "/v1/disks/root/trace";
    let about = &all["paths"]["/v1/disks/{name}/trace"]["put"]["responses"]["200"];
    let told = |path: &str| {
        let request = Request::builder().uri(path).body(()).unwrap();
        answer(&state, Reach::Everything, &request)
            .status()
            .as_u16()
    };
    assert_eq!(told(path), 404);
    for (body, seconds, records) in [("", 10, 65536), (r#"{"seconds": 7, "records": 3}"#, 7, 3)] {
        let (status, started) = changed(&state, &Method::PUT, path, body);
        let started: Value = serde_json::from_str(&started).unwrap();
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
        let (status, problem) = changed(&state, &Method::PUT, path, body);
        let problem: Value = serde_json::from_str(&problem).unwrap();
        assert_eq!(status, 400, "{body}");
        assert_eq!(problem["field"].as_str(), field, "{problem}");
    }
    for _ in 0..2 {
        let gone = changed(&state, &Method::DELETE, path, "");
        assert_eq!(gone, (204, String::new()));
        assert_eq!(told(path), 404);
    }
}

#[test]
fn times_of_requests_are_counted_while_that_is_wanted() {
    let state = state();
    let device = &state.disks()[0].device;
    for (body, timed) in [
        (r#"{"latencies": true}"#, true),
        (r#"{"latencies": true}"#, true),
        ("{}", true),
        (
            r#"{"latencies": false, "limits": {"iops_total": 7}}"#,
            false,
        ),
    ] {
        let (status, disk) = changed(&state, &Method::PATCH, "/v1/disks/root", body);
        let disk: Value = serde_json::from_str(&disk).unwrap();
        assert_eq!((status, &disk["latencies"]), (200, &timed.into()));
        assert_eq!(device.observation().is_timed(), timed);
    }
    assert!(!device.limiter().limits().is_empty());
    let bad = r#"{"latencies": true, "limits": {"iops_total": 0}}"#;
    assert_eq!(
        changed(&state, &Method::PATCH, "/v1/disks/root", bad).0,
        400
    );
    assert!(!device.observation().is_timed(), "all of it or nothing");
}

#[test]
fn limits_are_changed_by_merging() {
    let state = state();
    let all = described();
    let patch = |body: &str| {
        let path = "/v1/disks/root";
        let answer = change(
            &state,
            Reach::Everything,
            &Method::PATCH,
            path,
            body.as_bytes(),
        );
        let answer = answer.unwrap();
        let status = answer.status().as_u16();
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let body = runtime.unwrap().block_on(answer.into_body().collect());
        let body: Value = serde_json::from_slice(&body.unwrap().to_bytes()).unwrap();
        (status, body)
    };
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
    assert!(state.disks()[0].device.limiter().limits().is_empty());
    let nobody = change(
        &state,
        Reach::Everything,
        &Method::PATCH,
        "/v1/disks/x",
        b"{}",
    );
    assert_eq!(nobody.unwrap().status(), StatusCode::NOT_FOUND);
    let told = change(
        &state,
        Reach::Metrics,
        &Method::PATCH,
        "/v1/disks/root",
        b"{}",
    );
    assert!(told.is_none(), "an address for metrics changes nothing");
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
    let (content, text) = metrics::scrape(&state(), "*/*");
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
