//! The `pollux` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    pollux_cli::main()
}
