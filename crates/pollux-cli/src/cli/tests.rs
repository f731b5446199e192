use std::time::Duration;

use clap::CommandFactory;
use pollux::device::{Bounds, Kicks, Polling, Signal};

use super::*;
use crate::process::MECHANISMS;

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
fn only_adaptive_polling_has_bounds() {
    for poll in ["always", "never"] {
        for (bound, value) in [("--poll-max-us", "10"), ("--poll-cpu", "25%")] {
            let line = ["pollux", "serve", "--poll", poll, bound, value];
            let Command::Serve(serve) = Cli::parse_from(line).command else {
                panic!("another command");
            };
            let error = serve.process.tuning().unwrap_err().to_string();
            let begin = format!("--poll {poll} ");
            assert!(
                error.starts_with(&begin) && error.contains(bound),
                "{error}"
            );
            assert!(
                error.ends_with("; leave one of them out, or say --poll adaptive"),
                "{error}"
            );
        }
    }
}

#[test]
fn what_makes_no_sense_is_refused_by_name() {
    for (line, words) in [
        ("disk add x", "--blk-file <PATH>|--disk <SPEC>"),
        ("disk add x --disk d --blk-file f", "cannot be used with"),
        ("disk add a/b --disk d", "a name has 1 to 64"),
        ("disk add x --disk d --num-queues -1", "from 1 to 256"),
        ("disk trace x --seconds abc", "from 1 to 3600"),
        ("disk trace x --records 0", "from 1 to 262144"),
        ("top --interval -1", "from 50ms to 3600s"),
    ] {
        let line = format!("pollux {line}");
        let error = Cli::try_parse_from(line.split(' ')).unwrap_err();
        assert!(error.to_string().contains(words), "{line}: {error}");
    }
}

#[test]
fn what_follows_the_options_is_not_wrapped() {
    let cli = Cli::command();
    for command in cli
        .get_subcommands()
        .flat_map(|command| command.get_subcommands().chain([command]))
    {
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

/// The options of the command of these words that stand under `heading`.
fn under(heading: &str, words: &[&str]) -> Vec<String> {
    let mut cli = Cli::command();
    cli.build();
    let mut command = &cli;
    for word in words {
        command = command.find_subcommand(word).unwrap();
    }
    command
        .get_arguments()
        .filter(|option| option.get_help_heading() == Some(heading))
        .map(|option| option.get_id().to_string())
        .collect()
}

#[test]
fn switches_to_measure_with_stand_under_one_heading() {
    let of = |command| under(MECHANISMS, &[command]);
    let switches = ["signal", "kicks", "calls", "poll_scope"];
    assert_eq!(of("serve"), switches);
    assert_eq!(of("bench"), [&switches[..], &["kick_lock"]].concat());
}

#[test]
fn which_daemon_is_asked_stands_apart_from_which_disk() {
    for words in [
        &["disk"][..],
        &["disk", "list"],
        &["disk", "add"],
        &["disk", "trace"],
        &["top"],
    ] {
        assert_eq!(under("Which daemon", words), ["control"], "{words:?}");
        assert_eq!(under("Output", words), ["output", "log_level"]);
    }
    let of_a_disk = under("Which disk", &["disk", "add"]);
    assert_eq!(of_a_disk.first().unwrap(), "blk_file");
    assert_eq!(of_a_disk.last().unwrap(), "socket_group");
}
