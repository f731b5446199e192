//! The `pollux` program.

mod attach;
mod cli;
mod export;
mod file;
mod log;
mod serve;
mod socket;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};

fn main() -> ExitCode {
    let Command::Serve(args) = Cli::parse().command;
    log::start(args.log_format);
    match serve::run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pollux: {}", log::chain(&*error));
            ExitCode::FAILURE
        }
    }
}
