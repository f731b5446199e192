//! fio on an image of the cluster: by its own engine for librbd, without a server and without virtio.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::client::Job;
use crate::work::Work;

/// What it found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    /// Requests a second.
    pub iops: f64,
    /// Half of them were faster, in microseconds.
    pub p50_us: f64,
    /// All but one in a hundred were faster, in microseconds.
    pub p99_us: f64,
    /// Processor time of the whole process for each request, in microseconds.
    pub cpu_us: f64,
}

/// Is there a fio with that engine?
pub fn check() -> io::Result<()> {
    let found = Command::new("fio").arg("--enghelp=rbd").output();
    if found.is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    Err(io::Error::other(
        "there is no fio with an engine `rbd`: run tests/setup.sh",
    ))
}

/// Asks for `job` on `image` of the pool `rbd` for so long, after a quarter of that to warm up. fio has these
/// processors, and leaves its files in `folder`.
pub fn measure(
    image: &str,
    conf: &Path,
    job: Job,
    time: Duration,
    processors: &[usize],
    folder: &Path,
) -> io::Result<Report> {
    /// fio runs it before its first request and after the last, with all of librbd's threads alive.
    const TIMES: &str = "cat /proc/$PPID/task/*/schedstat";
    let report = folder.join("fio.json");
    let uncached = folder.join("uncached.conf");
    let cluster = fs::read_to_string(conf)?;
    fs::write(
        &uncached,
        format!("{cluster}\n[client]\nrbd cache = false\n"),
    )?;
    let warm_up = time / 4;
    let processors: Vec<String> = processors.iter().map(ToString::to_string).collect();
    let mut fio = Command::new("taskset");
    fio.current_dir(folder).env("CEPH_CONF", &uncached);
    fio.args(["--cpu-list", &processors.join(","), "fio"])
        .args(["--name=load", "--ioengine=rbd", "--clientname=admin"])
        .args(["--pool=rbd", &format!("--rbdname={image}")])
        .args([format!("--rw={}", job.work), format!("--bs={}", job.block)])
        .args([format!("--iodepth={}", job.depth), "--norandommap".into()])
        .arg("--time_based")
        .arg(format!("--ramp_time={}ms", warm_up.as_millis()))
        .arg(format!("--runtime={}ms", time.as_millis()))
        .args(["--clat_percentiles=0", "--lat_percentiles=1"])
        .args([
            format!("--exec_prerun={TIMES}"),
            format!("--exec_postrun={TIMES}"),
        ])
        .args(["--output-format=json".into(), output(&report)]);
    let output = fio.output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!("{fio:?}: {said}")));
    }
    let of = |name: &str| fs::read_to_string(folder.join(format!("load.{name}.txt")));
    let [before, after] = [cpu_us(&of("prerun")?)?, cpu_us(&of("postrun")?)?];
    let found = json(&fs::read_to_string(&report)?)?;
    parse(&found, job.work, after - before, time + warm_up)
}

fn output(report: &Path) -> String {
    format!("--output={}", report.display())
}

/// What fio has reported, behind the lines in which it tells what it does.
fn json(text: &str) -> io::Result<Value> {
    let begin = text.find('{').unwrap_or_default();
    Ok(serde_json::from_str(&text[begin..])?)
}

/// What threads have spent by their `schedstat`, a line each.
fn cpu_us(lines: &str) -> io::Result<f64> {
    let of_thread = |line: &str| line.split(' ').next()?.parse::<f64>().ok();
    let all: Option<Vec<f64>> = lines.lines().map(of_thread).collect();
    let all = all.filter(|all| !all.is_empty());
    let all = all.ok_or_else(|| io::Error::other(format!("no times of threads: {lines:?}")))?;
    Ok(all.iter().sum::<f64>() / 1e3)
}

/// From fio's JSON. It counts no requests of the warm-up, but spends `cpu_us` on them too: `all` is both.
fn parse(found: &Value, work: Work, cpu_us: f64, all: Duration) -> io::Result<Report> {
    let direction = match work {
        Work::RandRead | Work::Read => "read",
        Work::RandWrite | Work::Write => "write",
    };
    let number = |path: &str| {
        let path = format!("/jobs/0/{direction}/{path}");
        let number = found.pointer(&path).and_then(Value::as_f64);
        number.ok_or_else(|| io::Error::other(format!("fio tells no {path}: {found}")))
    };
    let failed = found.pointer("/jobs/0/error").and_then(Value::as_i64);
    if failed != Some(0) {
        return Err(io::Error::other(format!("fio has failed: {found}")));
    }
    let iops = number("iops")?;
    Ok(Report {
        iops,
        p50_us: number("lat_ns/percentile/50.000000")? / 1e3,
        p99_us: number("lat_ns/percentile/99.000000")? / 1e3,
        cpu_us: cpu_us / (iops * all.as_secs_f64()),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn times_are_those_of_all_threads() {
        assert_eq!(
            cpu_us("2000 1 2\n1500 2 3\n").unwrap().to_bits(),
            3.5f64.to_bits()
        );
        assert!(cpu_us("").is_err());
        assert!(cpu_us("cat: no such file").is_err());
    }

    #[test]
    fn a_report_begins_behind_what_fio_says() {
        let text = "load : Saving output of prerun in load.prerun.txt\n{\"jobs\": []}\n";
        assert_eq!(json(text).unwrap(), json!({ "jobs": [] }));
        assert!(json("").is_err());
    }

    #[test]
    fn a_report_has_the_requests_of_its_direction_and_the_time_of_all() {
        let side = |iops: f64| {
            json!({ "iops": iops,
                    "lat_ns": { "percentile": { "50.000000": 7000, "99.000000": 9000 } } })
        };
        let job = |error: i64| json!({ "jobs": [{ "error": error, "read": side(0.0), "write": side(100.0) }] });
        let all = Duration::from_millis(1250);
        let found = parse(&job(0), Work::RandWrite, 2500.0, all).unwrap();
        let expected = Report {
            iops: 100.0,
            p50_us: 7.0,
            p99_us: 9.0,
            cpu_us: 20.0,
        };
        assert_eq!(found, expected);
        assert!(parse(&job(5), Work::RandWrite, 2500.0, all).is_err());
    }
}
