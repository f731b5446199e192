//! What the `pollux` program does.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::filter::LevelFilter;

use crate::cli::{Cli, Command};
use crate::log::Format;
use crate::{bench, control, log, serve};

/// Runs the program with the arguments of this process.
#[must_use]
pub fn main() -> ExitCode {
    let Cli { log_level, command } = Cli::parse();
    let ended = match command {
        Command::Serve(args) => {
            log::start(args.log_format, log_level, LevelFilter::INFO);
            serve::run(&args)
        }
        Command::Disk(args) => {
            log::start(Format::Text, log_level, LevelFilter::WARN);
            control::run(&args)
        }
        // Its log would be in the way of its report.
        Command::Bench(args) => {
            log::start(Format::Text, log_level, LevelFilter::WARN);
            bench::run(&args)
        }
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The status tells it, too, where nobody reads this any more.
            let _ = writeln!(io::stderr(), "pollux: {}", log::chain(&*error));
            ExitCode::FAILURE
        }
    }
}
