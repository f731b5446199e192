//! What a configuration file may say.

use super::*;
use crate::log::chain;
use crate::process::Poll;
use crate::socket::Passed;

#[test]
fn the_example_in_dist_is_valid() {
    let file: File = toml::from_str(include_str!("../../../../dist/pollux.toml")).unwrap();
    assert_eq!(file.process.poll, Some(Poll::Adaptive));
    // The unit passes one socket, and no other is made.
    let [disk] = &file.disk[..] else {
        panic!("several disks would have to name their sockets")
    };
    assert_eq!((&disk.socket_path, &disk.fd_name), (&None, &None));
    let nothing = disk.endpoint(&mut Passed::default()).unwrap_err();
    assert!(nothing.to_string().contains("socket-path = "), "{nothing}");
}

fn refusal(text: &str) -> String {
    chain(&parse(text, Path::new("a.toml")).unwrap_err())
}

#[test]
fn an_empty_text_is_refused_by_its_key() {
    for (text, told) in [
        (
            "[[disk]]\nname = \"a\"\n[[disk]]\nsocket-path = \"\"\n",
            "[[disk]] number 2: socket-path is empty; give a path",
        ),
        (
            "[[disk]]\nlimit-group = \"\"\n",
            "[[disk]] number 1: limit-group is empty; give a name",
        ),
        ("control = \"\"\n", "control is empty; give a path"),
    ] {
        assert_eq!(refusal(text), format!("a.toml: {told}"));
    }
}

#[test]
fn what_is_no_configuration_is_refused_with_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("a.img");
    std::fs::write(&image, b"QFI\xfb").unwrap();
    let nowhere = folder.path().join("a.toml");
    for (path, remedy) in [
        (folder.path(), "; give a TOML file"),
        (&image, "; give a TOML file"),
        // It has no end.
        (Path::new("/dev/zero"), "; give a TOML file"),
        (&nowhere, "options of `pollux serve --help` as keys"),
    ] {
        let told = chain(&read(path).unwrap_err());
        assert!(told.contains(remedy), "{told}");
    }
    let nothing = "a.toml describes no disk; add a section [[disk]]";
    assert!(refusal("").starts_with(nothing), "{}", refusal(""));
}

#[test]
fn two_disks_on_one_socket_are_both_named() {
    let told = refusal(
        "[[disk]]\nsocket-path = \"/run/a.sock\"\nblk-file = \"/srv/a.img\"\n\
         [[disk]]\nsocket-path = \"/run/a.sock\"\ndisk = \"null:size=1G\"\n",
    );
    let words = "`/srv/a.img` and `null:size=1G` have the same socket-path /run/a.sock";
    assert!(told.contains(words), "{told}");
}

#[test]
fn an_unknown_key_is_named() {
    let error = toml::from_str::<File>("[[disk]]\nsocket-pth = \"x\"\n").unwrap_err();
    assert!(error.to_string().contains("socket-pth"), "{error}");
}

#[test]
fn a_share_of_the_time_is_a_percentage() {
    let read = |value: &str| {
        toml::from_str::<File>(&format!("disk = []\n[process]\npoll-cpu = {value:?}\n"))
    };
    for value in ["0%", "25%", "100%"] {
        read(value).unwrap();
    }
    for value in ["25", "101%", "-1%", "%", "a quarter"] {
        let error = read(value).unwrap_err().to_string();
        assert!(
            error.contains(value) && error.contains("for example 25%"),
            "{error}"
        );
    }
}

#[test]
fn a_worker_that_never_sleeps_has_no_bounds() {
    for (key, value) in [("poll-max-us", "10"), ("poll-cpu", "\"25%\"")] {
        let text = format!("disk = []\n[process]\npoll = \"always\"\n{key} = {value}\n");
        let file: File = toml::from_str(&text).unwrap();
        let error = file.process.tuning().unwrap_err().to_string();
        assert!(error.contains(key), "{error}");
    }
}

#[test]
fn numbers_have_the_bounds_that_they_have_on_the_command_line() {
    for (key, good, bad) in [
        ("threads", ["1", "256"], ["0", "257"]),
        ("poll-max-us", ["0", "1000000"], ["1000001", "-1"]),
    ] {
        let read =
            |value| toml::from_str::<File>(&format!("disk = []\n[process]\n{key} = {value}\n"));
        for value in good {
            read(value).unwrap();
        }
        for value in bad {
            let error = read(value).unwrap_err().to_string();
            assert!(error.contains(key) && error.contains(value), "{error}");
        }
    }
}
