//! `pollux top`: what disks and workers do right now, and why a disk is not faster.

mod rates;
mod sample;
mod screen;
mod text;
mod verdict;
mod view;
mod watch;

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use clap::Args;

use super::command::Output;
use crate::process::below_zero;
use crate::signals;
use rates::{Rates, between};
use sample::take;

type Error = Box<dyn std::error::Error>;

const KEYS_HELP: &str = "\
Keys: q quits, the arrows choose a disk, Enter shows it in detail, s sorts, p pauses, l switches the
counting of its latencies, without which there is no p50 and p99.";

#[allow(clippy::doc_markdown, reason = "these are help texts for a terminal")]
#[derive(Args, Debug)]
#[command(after_help = KEYS_HELP)]
#[command(mut_args(below_zero))]
pub struct TopArgs {
    /// The control socket of a daemon, or a folder with those of several, as NAME.control
    /// [default: $XDG_RUNTIME_DIR/pollux, or /run/pollux]
    #[arg(long, value_name = "PATH", help_heading = "Which daemon")]
    control: Option<PathBuf>,

    /// Print what happens in one interval, and end
    #[arg(long)]
    once: bool,

    /// How often daemons are asked, in seconds
    #[arg(long, value_name = "TIME", default_value = "1", value_parser = interval)]
    interval: Duration,

    /// What is printed; json: a line for each interval
    #[arg(long, value_enum, default_value_t, help_heading = "Output")]
    output: Output,
}

/// From a twentieth of a second to an hour.
fn interval(text: &str) -> Result<Duration, String> {
    let milliseconds = text.strip_suffix("ms");
    let number = milliseconds.unwrap_or(text.strip_suffix('s').unwrap_or(text));
    let unit = if milliseconds.is_some() { 0.001 } else { 1.0 };
    let seconds = number.parse().ok().map(|number: f64| number * unit);
    let seconds = seconds.filter(|seconds| (0.05..=3600.0).contains(seconds));
    let seconds = seconds.ok_or("an interval is from 50ms to 3600s; write for example 0.2s")?;
    Ok(Duration::from_secs_f64(seconds))
}

/// Does what the arguments say.
pub fn run(args: &TopArgs) -> Result<(), Error> {
    signals::outlive_usr1()?;
    if args.output == Output::Table && !args.once {
        if !io::stdout().is_terminal() {
            return Err("this is no terminal; print it by --once, or by --output json".into());
        }
        return watch::watch(args.control.as_deref(), args.interval);
    }
    let mut before = take(args.control.as_deref())?;
    loop {
        sleep(args.interval);
        let now = take(args.control.as_deref())?;
        let rates = between(&before, &now);
        let text = match args.output {
            Output::Json => serde_json::to_string(&rates)? + "\n",
            Output::Table => text::report(&rates),
        };
        io::stdout().write_all(text.as_bytes())?;
        if args.once {
            return finish(&rates);
        }
        before = now;
    }
}

/// Those that did not answer are an error, as they are of `pollux disk`.
fn finish(rates: &Rates) -> Result<(), Error> {
    match &rates.failed[..] {
        [] => Ok(()),
        failed => Err(failed.join("\n").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_has_a_unit_or_is_in_seconds() {
        for (text, milliseconds) in [
            ("1", 1000),
            ("0.2", 200),
            ("2s", 2000),
            ("0.5s", 500),
            ("50ms", 50),
        ] {
            let expected = Duration::from_millis(milliseconds);
            assert_eq!(interval(text), Ok(expected), "{text}");
        }
        for text in ["", "s", "0", "49ms", "2m", "4000", "-1", "NaN"] {
            assert!(interval(text).is_err(), "{text}");
        }
    }
}
