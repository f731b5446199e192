//! What is said of a disk that cannot be served.

use super::*;

fn in_file(text: &str) -> ExportArgs {
    toml::from_str(text).unwrap()
}

#[test]
fn what_is_missing_is_said_in_the_language_of_its_origin() {
    for (args, words) in [
        (
            ExportArgs::default(),
            "--blk-file PATH, --disk SPEC or --table FILE, for example --disk memory:size=1G",
        ),
        (
            in_file(""),
            "blk-file = \"PATH\", disk = \"SPEC\" or table = \"FILE\", for example disk = \"memory:size=1G\"",
        ),
    ] {
        let told = args.spec().unwrap_err().to_string();
        assert_eq!(told, format!("what to serve is missing; give {words}"));
    }
}

#[test]
fn of_what_excludes_each_other_one_is_wanted() {
    let both = in_file("fd = 3\nfd-name = \"a\"\ndisk = \"null:size=1G\"\ntable = \"a.table\"\n");
    let sockets = both.endpoint(&mut Passed::default()).unwrap_err();
    let disks = both.spec().unwrap_err();
    for told in [sockets, disks].map(|error| error.to_string()) {
        assert!(
            told.ends_with("exclude each other; give one of them"),
            "{told}"
        );
    }
    let rights = in_file("fd = 3\nsocket-mode = \"0600\"\n");
    let told = rights.endpoint(&mut Passed::default()).unwrap_err();
    assert!(told.to_string().contains("; leave them out"), "{told}");
}
