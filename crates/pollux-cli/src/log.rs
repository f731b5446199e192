//! What the program says, on standard error.

use std::error::Error;
use std::fmt::{Debug, Write as _};
use std::io::IsTerminal;

use clap::ValueEnum;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer};

use crate::news::{Happening, News, spread};

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
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        // It would tell of them where they happen: on standard error, and panic where that is closed.
        .log_internal_errors(false);
    let lines = match format {
        Format::Text => lines
            .with_target(false)
            .with_ansi(std::io::stderr().is_terminal())
            .boxed(),
        Format::Json => lines.json().boxed(),
    };
    tracing_subscriber::registry()
        .with(lines.with_filter(filter))
        .with(Teller.with_filter(LevelFilter::WARN))
        .init();
}

/// Tells those that listen to events of what goes wrong.
struct Teller;

impl<S: Subscriber> Layer<S> for Teller {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        spread(|| {
            let mut said = Said::default();
            event.record(&mut said);
            News {
                happening: Happening::Error,
                disk: said.disk,
                message: Some(format!("{}{}", said.message, said.fields)),
            }
        });
    }
}

/// A line of the log in parts.
#[derive(Default)]
struct Said {
    disk: Option<String>,
    message: String,
    fields: String,
}

impl Visit for Said {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "disk" {
            self.disk = Some(value.to_owned());
        } else {
            self.record_debug(field, &format_args!("{value}"));
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let written = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            write!(self.fields, " {}={value:?}", field.name())
        };
        written.expect("a string takes all");
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
