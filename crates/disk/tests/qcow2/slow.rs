//! The thread of an image, which does what the file alone cannot: what fails there, and what waits for it.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use pollux_disk::file::{Inline, Settings as FileSettings};
use pollux_disk::qcow2::Settings;
use pollux_disk::{Disk as _, Image, Options};
use pollux_disk_conformance::{Buffer, Client, pattern, read, write};

use super::common::log;
use super::common::owner::Owner;
use super::images::{Lab, open};

const CLUSTER: usize = 64 << 10;
const CLUSTERS: u8 = 16;
/// Whatever takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// An image of compressed clusters, each of which is full of its number plus one.
fn compressed(lab: &Lab) -> PathBuf {
    let bytes: Vec<u8> = (0..CLUSTERS)
        .flat_map(|number| vec![number + 1; CLUSTER])
        .collect();
    fs::write(lab.path("base.raw"), bytes).unwrap();
    lab.img("convert -c -f raw -O qcow2 base.raw compressed.qcow2");
    lab.path("compressed.qcow2")
}

/// Overwrites what a cluster was compressed to.
fn damage(image: &Path, cluster: u64) {
    let file = fs::File::options()
        .read(true)
        .write(true)
        .open(image)
        .unwrap();
    let field = |at| {
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, at).unwrap();
        u64::from_be_bytes(bytes)
    };
    let table = |entry: u64| entry & 0x00ff_ffff_ffff_fe00;
    let entry = field(table(field(field(40))) + 8 * cluster);
    assert_eq!(entry >> 62, 1, "it is compressed");
    file.write_all_at(&[0xff; 16], entry & ((1 << 54) - 1))
        .unwrap();
}

/// A guest reads it again and again.
#[test]
fn a_damaged_cluster_does_not_fill_the_log() {
    // A burst of lines, and some for the seconds that it takes.
    const FEW: usize = 100;
    let Some(lab) = Lab::new() else { return };
    let path = compressed(&lab);
    damage(&path, 1);
    log::listen();
    let image = open(&path);
    let mut client = Client::new(&image);
    let buffers: Vec<Buffer> = (0..200).map(|_| Buffer::new(512)).collect();
    let reads: Vec<_> = buffers
        .iter()
        .map(|into| read(CLUSTER as u64, into))
        .collect();
    assert!(client.run_all(&reads).iter().all(Result::is_err));
    let lines = log::count(path.to_str().unwrap());
    assert!((1..FEW).contains(&lines), "{lines} lines");
    assert_eq!(client.read_bytes(2 * CLUSTER as u64, 512), [3; 512]);
}

/// A guest keeps so many in flight that there is always another for the thread.
#[test]
fn an_image_grows_beside_reads_that_need_its_thread_without_end() {
    const IN_FLIGHT: u64 = 256;
    let Some(lab) = Lab::new() else { return };
    let image = open(&compressed(&lab));
    let all = Buffer::new(CLUSTER * usize::from(CLUSTERS));
    let mut owner = Owner::new(&image);
    (0..IN_FLIGHT).for_each(|ticket| owner.queue(ticket, read(0, &all)));
    thread::scope(|scope| {
        let grows = scope.spawn(|| image.resize(Some(64 << 20)));
        let started = Instant::now();
        while !grows.is_finished() {
            assert!(started.elapsed() < PATIENCE, "the disk does not grow");
            for done in owner.reap() {
                assert_eq!(done.result, Ok(()));
                owner.queue(done.ticket.0, read(0, &all));
            }
        }
        grows.join().unwrap().unwrap();
    });
    owner.sleep_until_ended(usize::try_from(IN_FLIGHT).unwrap());
    assert!(all.bytes().ends_with(&vec![CLUSTERS; CLUSTER]));
}

/// A program that reaps and resizes on one thread.
#[test]
fn an_image_grows_under_a_write_that_its_owner_has_yet_to_reap() {
    let Some(lab) = Lab::new() else { return };
    let path = lab.create("grows.qcow2", "", 8 << 20);
    let file = FileSettings {
        inline: Inline::Off,
        ..FileSettings::default()
    };
    let settings = Settings {
        file,
        ..Settings::default()
    };
    let image = Image::open(&path, settings, &Options::default()).unwrap();
    let (told, heard) = mpsc::channel();
    let thread = thread::spawn(move || {
        let mut client = Client::new(&image);
        client.write_bytes(0, &pattern(1, CLUSTER)).unwrap();
        let (bytes, mut owner) = (Buffer::holding(&pattern(2, 4096)), Owner::new(&image));
        owner.queue(0, write(0, &bytes));
        assert!(image.counters().contains(&("direct", 1)));
        image.resize(Some(16 << 20)).unwrap();
        told.send(()).unwrap();
        assert_eq!(owner.sleep_until_ended(1).0[0].result, Ok(()));
        assert!(client.read_bytes(0, 4096) == bytes.bytes());
    });
    let grown = heard.recv_timeout(PATIENCE);
    assert_ne!(grown, Err(mpsc::RecvTimeoutError::Timeout), "it hangs");
    thread.join().unwrap();
}
