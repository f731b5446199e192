//! `pollux bench`: what it measures, what it refuses, and that its verification bites.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

mod refusals;
mod report;
mod servers;
mod signals;
mod verification;
mod waiting;

use std::process::{Child, Command, Output, Stdio};

use pollux_tests::process::{Process, eventually};
use pollux_tests::server::pollux_binary;
use serde_json::Value;

const MEMORY: [&str; 2] = ["--disk", "memory:size=64M"];

fn bench(args: &[&str]) -> Output {
    let mut command = Command::new(pollux_binary());
    command.arg("bench").args(args).output().unwrap()
}

/// What it prints with `--output-format json`. It must succeed.
fn json(args: &[&str]) -> Value {
    let output = bench(&[args, &["--output-format", "json"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(said, "", "without a terminal no progress is shown");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What it says on standard error when it fails.
fn fails(args: &[&str]) -> String {
    let output = bench(args);
    assert!(!output.status.success(), "{args:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("{value} is no number"))
}

fn count(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("{value} is no count"))
}

/// Starts one whose output and errors are read from pipes, and waits until it has that thread. From `signals` on a
/// signal no longer ends it at once.
fn started(args: &[&str], thread: &str) -> Child {
    let mut command = Command::new(pollux_binary());
    command.arg("bench").args(args);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    eventually(
        || Process::new(child.id()).thread_named(thread).is_ok(),
        || format!("it does not come to its thread `{thread}`"),
    );
    child
}
