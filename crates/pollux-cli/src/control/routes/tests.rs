use std::collections::BTreeSet;

use serde_json::Value;

use super::*;
use crate::control::test_daemon::TestDaemon;

mod adding;
mod changing;

fn change_within(
    daemon: &TestDaemon,
    reach: Reach,
    method: &Method,
    uri: &str,
    body: &str,
) -> Option<(u16, Value)> {
    let uri: hyper::Uri = uri.parse().unwrap();
    let (status, _, body) = daemon.change(reach, method, &uri, body.as_bytes())?;
    Some((status, serde_json::from_slice(&body).unwrap_or_default()))
}

fn change(daemon: &TestDaemon, method: &Method, uri: &str, body: &str) -> (u16, Value) {
    change_within(daemon, Reach::Everything, method, uri, body).unwrap()
}

fn ask(method: &Method, path: &str) -> (StatusCode, String, Value) {
    let (status, content, body) = ask_within(Reach::Everything, method, path);
    (status, content, serde_json::from_str(&body).unwrap())
}

fn ask_within(reach: Reach, method: &Method, path: &str) -> (StatusCode, String, String) {
    let request = Request::builder().method(method).uri(path);
    let request = request.header(ACCEPT, metrics::OPEN_METRICS);
    let (status, content, body) = TestDaemon::new().answer(reach, &request.body(()).unwrap());
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
    let (content, text) = metrics::scrape(TestDaemon::new().state(), "*/*");
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
