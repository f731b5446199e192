//! Stacked disks beside the real thing: device-mapper in a guest, over the same legs.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use pollux_disk::Durability;
use pollux_driver::{CompletionMode, Driver, Options};
use pollux_tests::guest::{Export, Lab, System};

use super::{MIB, sha256};

/// Part of a leg on its own, then three legs in chunks of 64 KiB, each from another sector on.
const TABLE: &str = "0 8192 linear a 2048\n8192 49152 striped 3 128 a 40960 b 0 c 4096";
const MAPPED: u64 = 28 * MIB;
const LEGS: [&str; 3] = ["a", "b", "c"];

/// Device-mapper reads over the legs what was written through our stack, and the other way round, with the table
/// as `dmsetup table` prints it.
pub fn device_mapper_agrees(system: impl Into<System>) {
    let Some(mut lab) = Lab::open(system) else {
        return;
    };
    let legs = LEGS.map(|leg| lab.path(leg));
    for leg in &legs {
        let file = File::create(leg).expect("the lab's folder is ours");
        file.set_len(32 * MIB).expect("it takes a sparse file");
    }
    let image = lab.path("image");
    let mut random = File::open("/dev/urandom")
        .expect("every Linux has /dev/urandom")
        .take(MAPPED);
    let mut file = File::create(&image).expect("the lab's folder is ours");
    io::copy(&mut random, &mut file).expect("the lab's folder takes 28 MiB");
    let place = |leg: &str| LEGS.iter().position(|known| *known == leg);
    let ours = spec(TABLE, |word| Some(legs[place(word)?].display().to_string()));
    through(&lab, "before", &ours, |disk| write(disk, &image))
        .expect("the stack takes what it is given");

    let devices = legs.each_ref().map(|leg| lab.serve(&Export::file(leg)));
    let theirs = words(TABLE, |word| Some(format!("/dev/vd{}", LEGS[place(word)?])));
    let guest = lab.guest(include_str!("../../guest/cases/mapper.sh"));
    let guest = guest
        .set("TABLE", &theirs)
        .set("CONTENTS", &sha256(&image))
        .set("MIB", "28");
    let outcome = lab.passes(guest.program("/usr/sbin/dmsetup").disks(devices));
    lab.end_servers();

    // Every device that the guest has is a leg, in their order: 254:0, 254:16, 254:32.
    let said = |what: &str| {
        outcome
            .console
            .lines()
            .filter_map(|line| Some(line.split_once(what)?.1.trim()))
            .collect::<Vec<_>>()
    };
    let printed = said("guest: table ").join("\n");
    let ours = spec(&printed, |word| {
        let minor: usize = word.split_once(':')?.1.parse().ok()?;
        Some(legs[minor / 16].display().to_string())
    });
    through(&lab, "after", &ours, |disk| read(disk, &image)).expect("the stack can be read");
    assert_eq!(said("guest: wrote "), [sha256(&image)], "through {ours}");
}

/// `table` with other words in the place of some.
fn words(table: &str, other: impl Fn(&str) -> Option<String>) -> String {
    let line = |line: &str| {
        let words = line
            .split(' ')
            .map(|word| other(word).unwrap_or_else(|| word.to_owned()));
        words.collect::<Vec<_>>().join(" ")
    };
    table.lines().map(line).collect::<Vec<_>>().join("\n")
}

fn spec(table: &str, other: impl Fn(&str) -> Option<String>) -> String {
    format!("table:{}", words(table, other))
}

/// Serves the disk that `spec` describes for as long as `use_it` takes.
fn through(
    lab: &Lab,
    name: &str,
    spec: &str,
    use_it: impl FnOnce(&Driver) -> io::Result<()>,
) -> io::Result<()> {
    let (server, _) = lab.serve_apart(&Export::spec(spec), name);
    let socket: PathBuf = lab.path(&format!("{name}.sock"));
    let driver = Driver::connect(&socket, &Options::default()).map_err(io::Error::other)?;
    use_it(&driver)?;
    drop(driver);
    drop(server);
    Ok(())
}

const STEP: usize = 1 << 20;

fn write(disk: &Driver, image: &Path) -> io::Result<()> {
    let (queue, mut file) = (disk.queue(0)?, File::open(image)?);
    for at in (0..MAPPED).step_by(STEP) {
        let mut bytes = vec![0; STEP];
        file.read_exact(&mut bytes)?;
        let written = queue
            .write(at, bytes, Durability::Volatile, CompletionMode::Call)
            .wait();
        written.map_err(io::Error::other)?;
    }
    queue
        .flush(CompletionMode::Call)
        .wait()
        .map_err(io::Error::other)
}

fn read(disk: &Driver, image: &Path) -> io::Result<()> {
    let (queue, mut file) = (disk.queue(0)?, File::create(image)?);
    for at in (0..MAPPED).step_by(STEP) {
        let bytes = queue.read(at, vec![0; STEP], CompletionMode::Call).wait();
        file.write_all(&bytes.map_err(io::Error::other)?)?;
    }
    Ok(())
}
