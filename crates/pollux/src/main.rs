//! The `pollux` program.

mod attach;
mod bench;
mod cli;
mod export;
mod file;
mod log;
mod serve;
mod socket;

use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::filter::LevelFilter;

use crate::cli::{Cli, Command};
use crate::log::Format;

fn main() -> ExitCode {
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
