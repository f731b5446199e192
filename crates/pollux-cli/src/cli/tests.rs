use std::time::Duration;

use clap::CommandFactory;
use pollux::device::{Bounds, Kicks, Polling, Signal};

use super::*;

#[test]
fn the_command_line_is_consistent() {
    Cli::command().debug_assert();
}

#[test]
fn what_is_said_of_looking_reaches_the_workers() {
    let tuning = |arguments: &[&str]| {
        let disk = [
            "pollux",
            "serve",
            "--socket-path",
            "x",
            "--disk",
            "null:size=1G",
        ];
        let line = disk.iter().chain(arguments);
        let Command::Serve(serve) = Cli::parse_from(line).command else {
            panic!("another command");
        };
        serve.process.tuning().unwrap()
    };
    assert_eq!(tuning(&[]).poll_bounds, Bounds::default());
    let bounds = tuning(&["--poll-max-us", "70", "--poll-cpu", "25%"]).poll_bounds;
    assert_eq!(bounds.max, Duration::from_micros(70));
    assert_eq!(bounds.cpu, 25);
    assert_eq!(tuning(&["--poll", "never"]).polling, Polling::Never);
    assert_eq!(tuning(&["--kicks", "per-turn"]).kicks, Kicks::PerTurn);
    let late = tuning(&["--signal", "after-submissions"]).signal;
    assert_eq!(late, Signal::AfterSubmissions);
}

#[test]
fn what_follows_the_options_is_not_wrapped() {
    for command in Cli::command().get_subcommands() {
        let after = command.get_after_help().map(ToString::to_string);
        for line in after.unwrap_or_default().lines() {
            assert!(
                line.chars().count() <= 100,
                "{}: {line}",
                command.get_name()
            );
        }
    }
}
