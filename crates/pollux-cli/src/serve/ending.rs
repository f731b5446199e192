//! Signals: what ends the process, and what has it print its counters.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use pollux::stats::Snapshot;
use signal_hook::consts::{SIGHUP, SIGUSR1, SIGXFSZ};
use signal_hook::iterator::Signals;
use signal_hook::low_level::unregister;
use signal_hook::{SigId, flag};

use crate::disks::{Disks, Served};
use crate::log::Format;
use crate::signals::{self, Repetitions};

/// Has the second signal end the process, until signals are watched: a disk may take long to open.
pub struct Impatience(Vec<SigId>);

impl Impatience {
    pub fn begin() -> io::Result<Self> {
        let asked = Arc::new(AtomicBool::new(false));
        let mut all = Self(Vec::new());
        for signal in signals::ending().filter(|signal| *signal != SIGHUP) {
            // In this order: the first signal finds it false.
            all.0.push(flag::register_conditional_shutdown(
                signal,
                1,
                Arc::clone(&asked),
            )?);
            all.0.push(flag::register(signal, Arc::clone(&asked))?);
        }
        Ok(all)
    }
}

impl Drop for Impatience {
    fn drop(&mut self) {
        for id in self.0.drain(..) {
            unregister(id);
        }
    }
}

/// Waits for signals until there are none to come.
pub fn watch(signals: &mut Signals, disks: &Arc<Disks>, format: Format) {
    let mut asked = false;
    let mut repetitions = Repetitions::default();
    for signal in signals.forever() {
        match signal {
            SIGUSR1 => disks
                .list()
                .iter()
                .for_each(|disk| print_counters(disk, format)),
            // A file was to grow beyond RLIMIT_FSIZE. The call that was to do it fails with EFBIG, which is told.
            SIGXFSZ => {}
            _ if repetitions.has(signal, Instant::now()) => {}
            // A terminal that closes may send several, and systemd one beside its SIGTERM: none of them means hurry.
            _ if asked && signal != SIGHUP => {
                tracing::warn!("told to end once more: not waiting for requests in flight");
                std::process::exit(1);
            }
            _ => {
                asked |= signal != SIGHUP;
                disks.end();
                tracing::info!(
                    "told to end: finishing what is in flight; the same signal once more does not wait for that"
                );
            }
        }
    }
}

fn print_counters(served: &Served, format: Format) {
    let device = &served.device;
    let disk = &device.options().name;
    let snapshots = (0..).zip(device.snapshots());
    let used: Vec<(u16, _)> = snapshots
        .filter(|(_, counted)| *counted != Snapshot::default())
        .collect();
    if used.is_empty() {
        tracing::info!(disk, "no queue has been used yet");
    }
    for (queue, counted) in used {
        match format {
            // They have many lines, so they come last.
            Format::Text => {
                tracing::info!(disk, queue, counters = %format_args!("\n{counted}"), "counters");
            }
            Format::Json => {
                let counters = serde_json::to_string(&counted).expect("they are plain numbers");
                tracing::info!(disk, queue, counters, "counters");
            }
        }
    }
    let ways = device.disk().counters();
    if !ways.is_empty() {
        let ways: Vec<_> = ways
            .iter()
            .map(|(name, count)| format!("{name} {count}{}", meaning(name)))
            .collect();
        tracing::info!(disk, "ways that requests went: {}", ways.join(", "));
    }
}

/// What a way is, where its name does not say so.
fn meaning(way: &str) -> &'static str {
    match way {
        "inline" => " (done at once by a worker)",
        "registered" => " (of these, with memory that the kernel knows)",
        "io_uring_enter" => " (system calls)",
        "threads" => " (handed to the threads of the disk)",
        "bounced" => " (of these, copied, since direct I/O cannot use their memory)",
        _ => "",
    }
}
