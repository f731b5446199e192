//! What the program says, on standard error.

use std::error::Error;
use std::io::IsTerminal;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line, for programs.
    Json,
}

/// Starts logging, from `least` on. `POLLUX_LOG` chooses otherwise, in the language of `tracing`'s `EnvFilter`:
/// `debug`, or `pollux_device=trace`.
pub fn start(format: Format, least: LevelFilter) {
    let filter = EnvFilter::builder()
        .with_default_directive(least.into())
        .with_env_var("POLLUX_LOG")
        .from_env_lossy();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match format {
        Format::Text => builder
            .with_target(false)
            .with_ansi(std::io::stderr().is_terminal())
            .init(),
        Format::Json => builder.json().init(),
    }
}

/// An error and its causes in one line.
pub fn chain(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        line.push_str(": ");
        line.push_str(&cause.to_string());
        next = cause.source();
    }
    line
}
