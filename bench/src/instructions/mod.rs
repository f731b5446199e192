//! Instructions for each request, counted by callgrind: what does not depend on the machine's mood, and
//! so can be compared between two commits.
//!
//! A program is run twice, with N and with 2N requests; the difference is N requests without start and
//! end. What depends on time is kept out: empty polls cost as many instructions as they take time.

pub mod client;
pub mod layer;
mod server;

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use serde::Serialize;

use crate::contender::Contender;
use crate::images::Images;
use crate::statistics::{median, range};

/// How often each number is counted: whether it comes out the same is part of the answer.
const TIMES: usize = 3;

/// Of our server, and of both clients.
#[derive(Clone, Debug, Serialize)]
pub struct Instructions {
    server: Vec<server::Row>,
    client: Vec<client::Row>,
    layer: Vec<layer::Row>,
}

impl Instructions {
    /// Counts those of `contender`, and of the clients on it. `None` when it is not Pollux: there is no
    /// common way to keep others from spinning.
    pub fn count(contender: &Contender, images: &Images) -> io::Result<Option<Self>> {
        let Some(quiet) = contender.with_options(&["--poll", "never"]) else {
            return Ok(None);
        };
        Ok(Some(Self {
            client: client::rows(&quiet, images)?,
            server: server::rows(&quiet, images)?,
            layer: layer::rows()?,
        }))
    }

    /// The section of `RESULTS.md`.
    pub fn markdown(&self) -> String {
        let (server, client) = (server::table(&self.server), client::table(&self.client));
        format!(
            "## Instructions of our server\n\n\
             By callgrind, which counts user space alone: medians of {TIMES} with the least and the greatest, in\n\
             batches of {} that each find the server asleep. Where the worker hands requests to io_uring, they come\n\
             back when the kernel pleases, and the number is not repeatable.\n\n{}\n\
             ## Instructions of the clients\n\n\
             Those of crate `blkio` and of our driver, each polling on our null disk with the loop of the harness\n\
             around it. They send a batch and find the one before it, which the server has answered before it was\n\
             stopped: no poll is empty, and each batch has one kick.\n\n{}\n\
             ## What a stacked disk adds\n\n\
             Reads of 4 KiB on a null disk that ends them at once, on a linear disk over one of it, and reads of\n\
             12 KiB on a striped disk over three that splits each in three.\n\n{}",
            server::DEPTH,
            server.markdown(),
            client.markdown(),
            layer::table(&self.layer).markdown()
        )
    }
}

impl fmt::Display for Instructions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (server, client) = (server::table(&self.server), client::table(&self.client));
        let layer = layer::table(&self.layer);
        write!(
            f,
            "{}\n{}\n{}",
            server.plain(),
            client.plain(),
            layer.plain()
        )
    }
}

/// The median with the least and the greatest.
fn shown(counts: &[f64]) -> String {
    let (least, greatest) = range(counts);
    format!("{:.0} [{least:.0}–{greatest:.0}]", median(counts))
}

/// Of each of `requests`, by a run with and one without them.
#[allow(clippy::cast_precision_loss, reason = "15 digits are enough")]
fn each(shorter: u64, longer: u64, requests: u32) -> f64 {
    (longer as f64 - shorter as f64) / f64::from(requests)
}

/// Callgrind around `command`, with its counts in the file `counts`.
fn under_callgrind(command: &Command, counts: &Path, options: &[&str]) -> Command {
    let mut valgrind = Command::new("valgrind");
    valgrind
        .arg("--tool=callgrind")
        .arg(format!("--callgrind-out-file={}", counts.display()))
        .args(options)
        .arg(command.get_program())
        .args(command.get_args());
    valgrind
}

/// The sum in the file `counts`, once the program has ended.
fn total_of(counts: &Path) -> Option<u64> {
    total(&fs::read_to_string(counts).unwrap_or_default())
}

/// The sum at the end of callgrind's output.
fn total(counts: &str) -> Option<u64> {
    let total = counts.lines().find_map(|line| line.strip_prefix("totals:"));
    total?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_found_at_the_end() {
        let counts = "events: Ir\nfn=(1) main\n5 3\n\ntotals: 1234567\n";
        assert_eq!(total(counts), Some(1_234_567));
        assert_eq!(total("events: Ir\n"), None);
    }
}
