//! What the `pollux` program does.

use std::env;
use std::error::Error;
use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::{Arg, CommandFactory, ValueHint};
use tracing_subscriber::filter::LevelFilter;

use crate::cli::{Cli, Command, Generate};
use crate::log::Format;
use crate::paths::missing_right;
use crate::{bench, control, log, serve};

/// Runs the program with the arguments of this process.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::read(env::args_os()).unwrap_or_else(|error| error.exit());
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The status tells it, too, where standard error is closed.
            let _ = writeln!(io::stderr(), "pollux: {}", log::chain(&*error));
            ExitCode::FAILURE
        }
    }
}

fn run(Cli { log_level, command }: Cli) -> Result<(), Box<dyn Error>> {
    match command {
        Command::Serve(args) if args.print_capabilities => {
            until_unread(serve::print_capabilities().map_err(Into::into))
        }
        Command::Serve(args) => {
            log::start(args.log_format, log_level, LevelFilter::INFO)?;
            serve::run(&args)
        }
        Command::Disk(args) => {
            log::start(Format::Text, log_level, LevelFilter::WARN)?;
            until_unread(control::run(&args))
        }
        Command::Top(args) => {
            log::start(Format::Text, log_level, LevelFilter::ERROR)?;
            until_unread(control::top(&args))
        }
        // Its log would be in the way of its report.
        Command::Bench(args) => {
            log::start(Format::Text, log_level, LevelFilter::WARN)?;
            until_unread(bench::run(&args))
        }
        Command::Generate(what) => until_unread(generate(&what).map_err(Into::into)),
    }
}

/// What was printed for one that has read enough of it, as `head` does, is no error.
fn until_unread(printed: Result<(), Box<dyn Error>>) -> Result<(), Box<dyn Error>> {
    printed.or_else(|error| match error.downcast_ref::<io::Error>() {
        Some(unread) if unread.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(error),
    })
}

/// Prints completions, or writes manual pages.
fn generate(what: &Generate) -> io::Result<()> {
    match what {
        Generate::Completions { shell } => {
            let mut text = Vec::new();
            let mut cli = without_files(Cli::command());
            clap_complete::generate(*shell, &mut cli, "pollux", &mut text);
            io::stdout().write_all(&text)
        }
        Generate::Man { folder } => clap_mangen::generate_to(manual(), folder).map_err(|error| {
            let remedy = match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                    "; make this folder first, or give another".to_owned()
                }
                _ => missing_right(
                    &folder.join("pollux.1"),
                    &error,
                    "make files in this folder",
                ),
            };
            let folder = folder.display();
            let told = format!("cannot write manual pages to {folder}{remedy}: {error}");
            io::Error::new(error.kind(), told)
        }),
    }
}

/// `command`, where names of files complete nothing but paths: all else is unknown to shells.
fn without_files(command: clap::Command) -> clap::Command {
    let hint = |arg: Arg| match arg.get_value_hint() {
        ValueHint::Unknown if arg.get_action().takes_values() => arg.value_hint(ValueHint::Other),
        _ => arg,
    };
    command.mut_args(hint).mut_subcommands(without_files)
}

/// The command line as its manual pages have it.
fn manual() -> clap::Command {
    let mut cli = Cli::command().disable_help_subcommand(true);
    cli.build();
    with_usage(cli)
}

/// `command` with the usage that its help has: that of manual pages would name all options, without their values.
fn with_usage(mut command: clap::Command) -> clap::Command {
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").to_owned();
    command.override_usage(usage).mut_subcommands(with_usage)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_complete_paths_alone() {
        let cli = without_files(Cli::command());
        for (command, option, hint) in [
            ("serve", "blk_file", ValueHint::AnyPath),
            ("serve", "disk_folder", ValueHint::DirPath),
            ("serve", "threads", ValueHint::Other),
            ("bench", "disk", ValueHint::Other),
            ("bench", "filename", ValueHint::FilePath),
        ] {
            let command = cli.find_subcommand(command).unwrap();
            let mut options = command.get_arguments();
            let found = options.find(|arg| arg.get_id() == option).unwrap();
            assert_eq!(found.get_value_hint(), hint, "{option}");
        }
    }

    #[test]
    fn a_manual_page_has_its_version_and_the_usage_of_its_help() {
        let mut page = Vec::new();
        let cli = manual();
        let serve = cli.find_subcommand("serve").unwrap().clone();
        clap_mangen::Man::new(serve).render(&mut page).unwrap();
        let page = String::from_utf8(page).unwrap();
        let version = env!("CARGO_PKG_VERSION");
        assert!(page.contains(&format!("\"serve {version}\"")), "{page}");
        assert!(page.contains("serve\\fR [OPTIONS]\n"), "{page}");
    }

    #[test]
    fn manual_pages_without_a_folder_are_refused_with_what_to_do() {
        for folder in ["/nowhere", "/dev/null"] {
            let folder = folder.into();
            let error = generate(&Generate::Man { folder }).unwrap_err();
            let error = error.to_string();
            assert!(error.contains("; make this folder first"), "{error}");
        }
    }
}
