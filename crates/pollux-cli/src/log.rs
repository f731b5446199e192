//! What the program says, on standard error.

use std::error::Error;
use std::io::IsTerminal;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line, for programs.
    Json,
}

/// Starts logging, from `asked` on. Where nothing is asked for, `POLLUX_LOG` chooses, in the language of `tracing`'s
/// `EnvFilter`: `debug`, or `pollux_device=trace`; or else it is from `least` on. The program's own target is
/// `pollux_cli`.
pub fn start(format: Format, asked: Option<LevelFilter>, least: LevelFilter) {
    let filter = EnvFilter::builder().with_default_directive(asked.unwrap_or(least).into());
    let filter = match asked {
        Some(_) => filter.parse_lossy(""),
        None => filter.with_env_var("POLLUX_LOG").from_env_lossy(),
    };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // It would tell of them where they happen: on standard error, and panic where that is closed.
        .log_internal_errors(false);
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
