//! What the program says, on standard error.

use std::error::Error;
use std::fmt::{Debug, Write as _};
use std::io::IsTerminal;

use clap::ValueEnum;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
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

/// The variable that says what is logged.
const VARIABLE: &str = "POLLUX_LOG";

/// Dependencies that say too much, and the level from which on they are heard, but where the variable names them. One
/// logs each of its steps at `debug`; the other warns of every cluster that it cannot give back, and a guest can have it
/// try that as often as it likes.
const QUIET: [(&str, LevelFilter); 2] = [
    ("offset_allocator", LevelFilter::WARN),
    ("imago", LevelFilter::ERROR),
];

/// What [`VARIABLE`] says cannot be understood.
#[derive(Debug, thiserror::Error)]
#[error(
    "{VARIABLE}={0}: write off, error, warn, info, debug or trace, or TARGET=LEVEL, such as pollux_device=debug,info"
)]
pub struct BadFilter(String);

/// Reads a level of the log. `LevelFilter` takes nothing at all for `error`.
pub fn level(text: &str) -> Result<LevelFilter, String> {
    let level = Some(text).filter(|text| !text.is_empty());
    let level = level.and_then(|text| text.parse().ok());
    level.ok_or_else(|| "write off, error, warn, info, debug or trace".to_owned())
}

/// What the variable's value says, in the language of `tracing`'s `EnvFilter`, but that a word alone is a level:
/// that one takes `debgu` for a target, and is silent.
fn filter(value: &str, least: LevelFilter) -> Result<EnvFilter, BadFilter> {
    let bad = || BadFilter(value.to_owned());
    let is_bad = |part: &str| {
        let is_word = !part.is_empty() && !part.contains(['=', '[']);
        part.ends_with('=') || is_word && level(part).is_err()
    };
    if value.split(',').any(|part| is_bad(part.trim())) {
        return Err(bad());
    }
    let filter = EnvFilter::builder().with_default_directive(least.into());
    let filter = filter.parse(value).map_err(|_| bad())?;
    let most = filter.max_level_hint();
    let says_too_much = |(target, level): &(&str, LevelFilter)| {
        !value.contains(target) && most.is_none_or(|most| most > *level)
    };
    let too_much = QUIET.into_iter().filter(says_too_much);
    Ok(too_much.fold(filter, |filter, (target, level)| {
        let quiet = format!("{target}={level}").parse();
        filter.add_directive(quiet.expect("a target and its level"))
    }))
}

/// Starts logging, from `asked` on. Where nothing is asked for, `POLLUX_LOG` chooses: `debug`, or
/// `pollux_device=trace`; or else it is from `least` on. The program's own target is `pollux_cli`.
pub fn start(
    format: Format,
    asked: Option<LevelFilter>,
    least: LevelFilter,
) -> Result<(), BadFilter> {
    let variable = match asked {
        Some(_) => None,
        None => std::env::var_os(VARIABLE),
    };
    let variable = variable.unwrap_or_default();
    let filter = filter(&variable.to_string_lossy(), asked.unwrap_or(least))?;
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
        .with(Teller.with_filter(news()))
        .init();
    Ok(())
}

/// What goes wrong, whatever is logged.
fn news() -> Targets {
    let all = Targets::new().with_default(LevelFilter::WARN);
    all.with_targets(QUIET)
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

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn a_filter_that_would_be_silent_is_refused() {
        for good in [
            "",
            "debug",
            "INFO",
            "off",
            "pollux_device=debug,info",
            "pollux_cli::serve=trace, warn,",
            "pollux_disk[read{a=1}]=debug",
        ] {
            assert!(filter(good, LevelFilter::INFO).is_ok(), "{good}");
        }
        for bad in [
            "debgu",
            "info,pollux_device",
            "pollux_device=debgu",
            "pollux_device=",
            "\u{fffd}",
        ] {
            let told = filter(bad, LevelFilter::INFO).unwrap_err().to_string();
            let words = format!("POLLUX_LOG={bad}: write off, error");
            assert!(told.starts_with(&words), "{told}");
        }
        assert!(level("").is_err());
    }

    #[test]
    fn the_steps_of_a_dependency_are_logged_where_it_is_named() {
        let filtered = |value| filter(value, LevelFilter::DEBUG).unwrap().to_string();
        for (value, says) in [
            ("", "offset_allocator=warn"),
            ("debug", "offset_allocator=warn"),
            ("info,offset_allocator=debug", "offset_allocator=debug"),
            ("", "imago=error"),
            ("debug", "imago=error"),
            ("info,offset_allocator=debug", "imago=error"),
            ("warn,imago=debug", "imago=debug"),
        ] {
            let filter = filtered(value);
            assert!(filter.contains(says), "{value}: {filter}");
        }
        // No more than is asked for.
        assert_eq!(filtered("off"), "off");
        assert_eq!(filtered("error"), "error");
    }

    #[test]
    fn of_what_a_guest_can_have_a_dependency_say_nobody_is_told() {
        let news = news();
        for (target, level, told) in [
            ("imago::qcow2::allocation", Level::WARN, false),
            ("imago::qcow2::allocation", Level::ERROR, true),
            ("pollux_disk", Level::WARN, true),
            ("pollux_disk", Level::INFO, false),
        ] {
            assert_eq!(news.would_enable(target, &level), told, "{target} {level}");
        }
    }
}
