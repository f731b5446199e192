use std::path::Path;

use super::*;
use crate::file::parse;
use crate::log::chain;

fn refusal(text: &str) -> String {
    chain(&parse(text, Path::new("a.toml")).unwrap_err())
}

/// That each of `rows`, below `section`, is refused with its remedy.
fn are_mended(section: &str, rows: &[(&str, &str)]) {
    for (line, remedy) in rows {
        let told = refusal(&format!("{section}\n{line}\n"));
        let words = format!("a.toml; {remedy}: TOML parse error");
        assert!(told.contains(&words), "{line}: {told}");
    }
}

#[test]
fn values_of_a_disk_are_corrected_by_what_is_read() {
    are_mended(
        "[[disk]]",
        &[
            ("read-only = \"yes\"", "write read-only = true"),
            ("read-only = no", "write read-only = false"),
            ("read-only = 1", "write read-only = true"),
            ("latencies = \"on\"", "write latencies = true"),
            ("latencies = \"false\"", "write latencies = false"),
            (
                "read-only = \"maybe\"",
                "write read-only = true or read-only = false",
            ),
            ("num-queues = \"4\" # four", "write num-queues = 4"),
            ("num-queues = -1", "write for example num-queues = 16"),
            ("block-size = \"4k\"", "write for example block-size = 4096"),
            ("block-size = 4k", "write for example block-size = 4096"),
            ("fd = \"3\"", "write fd = 3"),
            ("socket-mode = 0660", "write socket-mode = \"0660\""),
            ("socket-mode = 660", "write socket-mode = \"660\""),
            ("socket-mode = 0o660", "write socket-mode = \"660\""),
            ("name = a#b", "write name = \"a#b\""),
            ("serial = \"a\"b\"", "write serial = \"a\\\"b\""),
            ("socket-path = 1", "write socket-path = \"1\""),
            (
                "socket-path = /a.sock # b",
                "write socket-path = \"/a.sock\"",
            ),
            ("socket-path = \"/a.sock", "write socket-path = \"/a.sock\""),
            (
                "socket-path =",
                "write for example socket-path = \"/run/pollux/root.sock\"",
            ),
            (
                "limits = {iops-total = 5000}",
                "write limits = \"iops-total=5000\"",
            ),
            (
                "limits = { iops-total = 5000, bps-read = \"100M\" }",
                "write limits = \"iops-total=5000,bps-read=100M\"",
            ),
        ],
    );
}

#[test]
fn values_of_the_process_are_corrected_by_what_is_read() {
    are_mended(
        "[process]",
        &[
            ("threads = \"all\"", "write for example threads = 2"),
            ("threads = 0", "write for example threads = 2"),
            ("threads: 4", "write threads = 4"),
            (
                "poll-max-us = \"50us\"",
                "write for example poll-max-us = 50",
            ),
            ("cpus = 1", "write cpus = \"1\""),
            ("cpus = 0-1", "write cpus = \"0-1\""),
            ("cpus = 0,1", "write cpus = \"0,1\""),
            ("cpus = [0,1]", "write cpus = \"0,1\""),
            ("cpus = [\n  0,\n  \"2-3\",\n]", "write cpus = \"0,2-3\""),
            ("poll = true", "write for example poll = \"adaptive\""),
            ("poll = \"often\"", "write for example poll = \"adaptive\""),
            ("poll-cpu = 25", "write poll-cpu = \"25%\""),
            ("sandbox = false", "write sandbox = \"off\""),
            ("sandbox = no", "write sandbox = \"off\""),
            ("poll = \"off\"", "write poll = \"never\""),
            ("sandbox = off", "write sandbox = \"off\""),
        ],
    );
}

#[test]
fn values_before_the_sections_are_corrected_by_what_is_read() {
    are_mended(
        "",
        &[
            ("disk-folder = \"/x\"", "write disk-folder = [\"/x\"]"),
            (
                "disk-folder = [\"/a b\", 3]",
                "write for example disk-folder = [\"/srv/pollux\"]",
            ),
            (
                "disk = [\"null:size=1G\"]",
                "write each disk as a section [[disk]]",
            ),
            ("disk-folder = [1]", "write disk-folder = [\"1\"]"),
            (
                "metrics-listen = \":9464\"",
                "write for example metrics-listen = \"127.0.0.1:9464\", as names are not looked up",
            ),
            ("process = 3", "write a section [process]"),
            (
                "disk = \"null:size=1G\"",
                "write this key in a section [[disk]]",
            ),
            ("hello, world", "correct this line"),
        ],
    );
}

#[test]
fn sections_and_keys_are_corrected() {
    let double = "write [[disk]] in double brackets, as there may be several";
    let sections = "write [process] or [[disk]], which are all sections";
    are_mended(
        "",
        &[
            ("[disk]\nname = \"a\"", double),
            ("[[disk]\nname = \"a\"", double),
            (
                "[[process]]\nthreads = 2",
                "write [process] in single brackets",
            ),
            ("[[disks]]\nname = \"a\"", sections),
            (
                "[[disk]]\n[disk.limits]\niops-total = 5",
                "write for example limits = \"iops-total=5000\" in a section [[disk]]",
            ),
            (
                "[control]\npath = \"/a\"",
                "write for example control = \"/run/pollux-root/root.control\" before the first section",
            ),
            ("[process]\n[process]", "write it once"),
            (
                "[disk.limits]\niops = 5\n[[disk]]",
                "write the head of every disk as [[disk]], also of those above",
            ),
            ("[process]\nthreads = 1\nthreads = 2", "write it once"),
            (
                "[[disk]]\nsocket-pth = \"a\"",
                "write one of the keys that are listed here",
            ),
            (
                "[[disk]]\nblk-file = \"a\"\ncache = \"none\"",
                "write it after the path: disk = \"file:path=PATH,cache=VALUE\"",
            ),
            (
                "[process]\nsocket_path = \"a\"",
                "keys have dashes: write socket-path in a section [[disk]]",
            ),
        ],
    );
}

#[test]
fn what_tells_its_remedy_itself_gets_no_second_one() {
    for line in ["limits = \"iops=1\"", "limits = \"iops-total=0\""] {
        let told = refusal(&format!("[[disk]]\n{line}\n"));
        assert!(told.contains("a.toml: TOML parse error"), "{told}");
        assert!(told.contains("; "), "{told}");
    }
}

/// The keys of `section`, but for those that are sections.
fn keys_of(section: Section) -> impl Iterator<Item = &'static str> {
    let keys = section.keys().iter().copied();
    keys.filter(move |key| Section::of(key) == Some(section) && *key != "process")
}

#[test]
fn every_key_has_an_example_that_is_read() {
    let all: Vec<_> = Section::ALL.into_iter().flat_map(keys_of).collect();
    for key in &all {
        let section = Section::of(key).unwrap();
        let line = format!("{key} = {}", example(key));
        assert!(section.takes(&line), "{line}");
    }
    for (key, _) in EXAMPLES {
        assert!(all.contains(key), "{key}");
    }
    assert_eq!(all.len(), EXAMPLES.len());
}

#[test]
fn every_key_in_a_wrong_place_is_told_its_own() {
    for right in Section::ALL {
        for key in keys_of(right) {
            for wrong in Section::ALL {
                // `disk` is the name of a section, too.
                if wrong.keys().contains(&key) {
                    continue;
                }
                let section = match wrong {
                    Section::Process => "[process]",
                    Section::Disk => "[[disk]]",
                    Section::BeforeSections => "",
                };
                let line = format!("{key} = {}", example(key));
                are_mended(section, &[(&line, &format!("write this key {right}"))]);
            }
        }
    }
}

#[test]
fn every_option_that_is_no_key_is_for_the_command_line() {
    let rows = [
        (
            "log-level = \"debug\"",
            "give it on the command line: --log-level",
        ),
        (
            "log_format = \"json\"",
            "give it on the command line: --log-format",
        ),
        (
            "show-attach = true",
            "give it on the command line: --show-attach",
        ),
    ];
    for section in ["", "[process]", "[[disk]]"] {
        are_mended(section, &rows);
    }
}
