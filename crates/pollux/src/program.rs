//! What the `pollux` program does. In the library, so that what reads its configuration can be called
//! without it.

use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::filter::LevelFilter;

use crate::cli::{Cli, Command};
use crate::log::Format;
use crate::{bench, log, serve};

/// Runs the program with the arguments of this process.
#[must_use]
pub fn main() -> ExitCode {
    let ended = match Cli::parse().command {
        Command::Serve(args) => {
            log::start(args.log_format, LevelFilter::INFO);
            serve::run(&args)
        }
        // Its log would be in the way of its report.
        Command::Bench(args) => {
            log::start(Format::Text, LevelFilter::WARN);
            bench::run(&args)
        }
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pollux: {}", log::chain(&*error));
            ExitCode::FAILURE
        }
    }
}
