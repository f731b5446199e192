//! Clusters that are used, kept, given back and used anew, while others are on their way to them.

use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use pollux_disk::file::Cache;
use pollux_disk::qcow2::Settings;
use pollux_disk::{Disk as _, Failure, Image, Op, Options, Unmap};
use pollux_disk_conformance::{Buffer, Client, pattern, read, write, zeroes};
use rustix::io::Errno;

use super::common::loops::Loop;
use super::common::set_len;
use super::common::tiny::Tiny;
use super::images::{Lab, open};

const CLUSTER: usize = 64 << 10;

/// A read of several clusters is on its way to them, one by one, while others become the image's own.
#[test]
fn a_read_beside_first_writes_sees_what_was_there_or_what_is_written() {
    const SIZE: usize = 8 << 20;
    const PIECE: usize = 1 << 20;
    let Some(lab) = Lab::new() else { return };
    fs::write(lab.path("base.raw"), vec![1; SIZE]).unwrap();
    let path = lab.create(
        "reads.qcow2",
        "cluster_size=512,backing_file=base.raw,backing_fmt=raw",
        SIZE as u64,
    );
    let image = open(&path);
    let mut client = Client::new(&image);
    // Every fourth cluster is the image's own, so that nothing lies in one piece; all are known.
    let own = Buffer::holding(&[2; 512]);
    let mut writes = |first: u64, step: usize, at_once: usize| {
        let all: Vec<Op> = (first..SIZE as u64)
            .step_by(step)
            .map(|at| write(at, &own))
            .collect();
        for some in all.chunks(at_once) {
            assert!(client.run_all(some).iter().all(Result::is_ok));
        }
    };
    writes(0, 2048, 500);
    let mut reader = Client::new(&image);
    for at in (0..SIZE).step_by(PIECE) {
        reader.read_bytes(at as u64, PIECE);
    }
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let buffers: Vec<Buffer> = (0..4).map(|_| Buffer::new(PIECE)).collect();
            while !done.load(Ordering::Relaxed) {
                for at in (0..SIZE).step_by(PIECE) {
                    let buffer = &buffers[at / PIECE % 4];
                    assert_eq!(reader.run(read(at as u64, buffer)), Ok(()));
                    let bytes = buffer.bytes();
                    let wrong = bytes.iter().position(|byte| ![1, 2].contains(byte));
                    assert_eq!(
                        wrong,
                        None,
                        "{:?} was never written",
                        wrong.map(|at| bytes[at])
                    );
                }
            }
        });
        writes(512, 1024, 8);
        done.store(true, Ordering::Relaxed);
    });
}

/// The file may have been cut by a crash of the host: its last clusters are counted, and lie behind its end.
#[test]
fn what_is_written_behind_the_end_of_the_file_stays() {
    const SIZE: usize = 16 * CLUSTER;
    let Some(lab) = Lab::new() else { return };
    for zeroed in [false, true] {
        let options = "cluster_size=64k,preallocation=metadata";
        let path = lab.create("cut.qcow2", options, SIZE as u64);
        let len = fs::metadata(&path).unwrap().len();
        set_len(&path, len - CLUSTER as u64);
        let image = open(&path);
        let mut client = Client::new(&image);
        let (some, last) = (Buffer::holding(&vec![5; CLUSTER]), SIZE - CLUSTER);
        // What is given back and used anew makes the file longer, by a reserve.
        client
            .run(Op::Discard {
                at: 5 * CLUSTER as u64,
                len: CLUSTER as u64,
            })
            .unwrap();
        client.run(write(5 * CLUSTER as u64, &some)).unwrap();
        client.read_bytes(last as u64, CLUSTER);
        client.run(write(last as u64, &some)).unwrap();
        client.run(Op::Flush).unwrap();
        let mut wanted = vec![5; CLUSTER];
        if zeroed {
            let zeroes = zeroes(last as u64, 512, Unmap::Forbidden);
            client.run(zeroes).unwrap();
            wanted[..512].fill(0);
        }
        drop((client, image));
        assert!(lab.raw(&path)[last..] == wanted, "zeroed: {zeroed}");
    }
}

/// Direct I/O takes whole sectors.
#[test]
fn a_file_below_may_end_within_a_sector() {
    let Some(lab) = Lab::new() else { return };
    fs::write(lab.path("base.raw"), vec![1; 2 * CLUSTER + 1503]).unwrap();
    let options = "cluster_size=64k,backing_file=base.raw,backing_fmt=raw";
    let path = lab.create("odd.qcow2", options, 8 << 20);
    let image = Image::open(&path, Cache::None, &Options::default()).unwrap();
    let mut client = Client::new(&image);
    let at = 2 * CLUSTER + 512;
    client
        .run(write(at as u64, &Buffer::holding(&[2; 2048])))
        .unwrap();
    let mut wanted = vec![1; 512];
    wanted.extend([2; 2048]);
    wanted.resize(CLUSTER, 0);
    assert_eq!(client.read_bytes(2 * CLUSTER as u64, CLUSTER), wanted);
}

/// Clusters of an image below may be smaller than a sector.
#[test]
fn a_sector_may_be_several_clusters_of_a_file_below() {
    let Some(lab) = Lab::new() else { return };
    let below = lab.create("below.qcow2", "cluster_size=512", 8 << 20);
    let writes = (1..16)
        .step_by(2)
        .map(|at| format!("write -P 1 {} 512", at * 512));
    lab.io(&below, &writes.collect::<Vec<_>>());
    let file = lab.path("file");
    fs::File::create(&file).unwrap().set_len(16 << 20).unwrap();
    let options = ["--find", "--show", "--sector-size", "4096"];
    let Some(device) = Loop::with(&options, &file) else {
        return;
    };
    let (below, path) = (below.display(), &device.0);
    lab.img(&format!("create -q -f qcow2 -b {below} -F qcow2 {path}"));
    let image = Image::open(path, Cache::None, &Options::default()).unwrap();
    let mut client = Client::new(&image);
    client.run(write(0, &Buffer::holding(&[2; 4096]))).unwrap();
    let mut wanted = vec![2; 4096];
    for _ in 0..4 {
        wanted.extend([0; 512]);
        wanted.extend([1; 512]);
    }
    assert_eq!(client.read_bytes(0, 8192), wanted);
}

/// Otherwise the cluster that it gives back is used anew while the storage refers to it still.
#[test]
fn a_cluster_that_is_kept_under_zeroes_is_used_again() {
    let Some(lab) = Lab::new() else { return };
    let path = lab.create("kept.qcow2", "", 1 << 20);
    let image = open(&path);
    let mut client = Client::new(&image);
    let cluster = |number: usize| (number * CLUSTER) as u64;
    for number in [0, 5, 1] {
        client
            .write_bytes(cluster(number), &pattern(1, CLUSTER))
            .unwrap();
    }
    client.run(Op::Flush).unwrap();
    let places = |lab: &Lab| {
        let map = lab.tool("qemu-img", &["map", "-U", "--output=json", "kept.qcow2"]);
        String::from_utf8(map.stdout).unwrap()
    };
    let place = |map: &str| {
        let line = map.lines().find(|line| line.contains("\"start\": 65536,"));
        line.unwrap()
            .split("\"offset\": ")
            .nth(1)
            .map(str::to_owned)
    };
    let before = place(&places(&lab));
    client
        .run(zeroes(0, 2 * CLUSTER as u64, Unmap::Forbidden))
        .unwrap();
    let (at, len) = (cluster(5), CLUSTER as u64);
    client.run(Op::Discard { at, len }).unwrap();
    client.write_bytes(0, &pattern(2, 2 * CLUSTER)).unwrap();
    assert!(before.is_some());
    assert_eq!(place(&places(&lab)), before);
    drop((client, image));
    assert_eq!(lab.check(&path), 0);
}

/// What a write left that failed half-way is not seen by the next to use its cluster.
#[test]
fn a_write_that_finds_no_room_leaves_nothing_behind() {
    let Some(lab) = Lab::new() else { return };
    let Some(tiny) = Tiny::mount() else { return };
    let path = tiny.path("disk.qcow2");
    fs::copy(lab.create("disk.qcow2", "", 8 << 20), &path).unwrap();
    let image = open(&path);
    let mut client = Client::new(&image);
    client.write_bytes(0, &pattern(1, 4096)).unwrap();
    // Leaves room for a part of a cluster.
    let stuffing = fs::File::create(tiny.path("stuffing")).unwrap();
    let page = [1; 4096];
    let mut filled = 0;
    while stuffing.write_at(&page, filled).is_ok() {
        filled += 4096;
    }
    stuffing.set_len(filled - 5 * 4096).unwrap();
    let full = client.write_bytes(CLUSTER as u64, &pattern(2, CLUSTER));
    assert_eq!(full, Err(Failure::Io(Errno::NOSPC)));
    stuffing.set_len(0).unwrap();
    // The same cluster of the file, for another.
    let bytes = pattern(3, 4096);
    let at = 3 * CLUSTER + CLUSTER - 4096;
    client.write_bytes(at as u64, &bytes).unwrap();
    let rest = client.read_bytes(3 * CLUSTER as u64, CLUSTER - 4096);
    assert!(rest.iter().all(|byte| *byte == 0), "what failed is seen");
    assert!(client.read_bytes(at as u64, 4096) == bytes);
    assert_eq!(client.read_bytes(0, 4096), pattern(1, 4096));
    drop((client, image));
    assert_eq!(lab.check(&path), 0);
}

/// A copy that left out the last hole of the file.
#[test]
fn a_cluster_behind_the_end_of_the_file_is_kept_when_it_is_closed() {
    let Some(lab) = Lab::new() else { return };
    let path = lab.create("cut.qcow2", "preallocation=metadata", 4 << 20);
    set_len(&path, 6 * CLUSTER as u64);
    let last = (4 << 20) - CLUSTER as u64;
    let image = open(&path);
    let mut client = Client::new(&image);
    assert!(client.read_bytes(last, CLUSTER) == vec![0; CLUSTER]);
    client.write_bytes(last, &pattern(1, 4096)).unwrap();
    client.write_bytes(last + 8192, &pattern(2, 8192)).unwrap();
    client
        .run(zeroes(last + 8192, 4096, Unmap::Forbidden))
        .unwrap();
    // A cluster is given back, and another is made, so that the file gets longer.
    let (at, len) = (0, CLUSTER as u64);
    client.run(Op::Discard { at, len }).unwrap();
    client.write_bytes(0, &pattern(3, CLUSTER)).unwrap();
    let mut expected = pattern(1, 4096);
    expected.resize(12288, 0);
    expected.extend(&pattern(2, 8192)[4096..]);
    assert!(client.read_bytes(last, 16384) == expected);
    drop((client, image));
    let raw = lab.raw(&path);
    assert!(raw[raw.len() - CLUSTER..][..16384] == expected);
    assert!(raw[..CLUSTER] == pattern(3, CLUSTER));
    lab.check(&path);
}

#[test]
fn a_data_file_that_is_too_short_reads_as_zeroes() {
    let Some(lab) = Lab::new() else { return };
    let options = "data_file=data.raw,preallocation=metadata";
    let path = lab.create("image.qcow2", options, 4 << 20);
    set_len(&lab.path("data.raw"), 1 << 20);
    let image = open(&path);
    let mut client = Client::new(&image);
    for _ in 0..2 {
        assert_eq!(client.read_bytes(3 << 20, 8192), [0; 8192]);
    }
    client.write_bytes(2 << 20, &pattern(1, 4096)).unwrap();
    drop((client, image));
    assert!(lab.raw(&path)[2 << 20..][..4096] == pattern(1, 4096));
}

/// A block device does not get longer, and has anything where nothing was written.
#[test]
fn an_image_on_a_block_device_is_written_until_that_is_full() {
    let Some(lab) = Lab::new() else { return };
    let file = lab.path("device");
    fs::write(&file, pattern(9, 4 << 20)).unwrap();
    let Some(device) = Loop::over(&file) else {
        return;
    };
    for cluster in ["4k", "64k"] {
        let options = format!("cluster_size={cluster}");
        lab.img(&format!("create -q -f qcow2 -o {options} {} 16M", device.0));
        let path = std::path::Path::new(&device.0);
        let image = Image::open(path, Settings::default(), &Options::default()).unwrap();
        let mut client = Client::new(&image);
        client.write_bytes(100 << 10, &pattern(1, 512)).unwrap();
        let mut expected = vec![0; 256 << 10];
        expected[100 << 10..][..512].copy_from_slice(&pattern(1, 512));
        assert!(client.read_bytes(0, 256 << 10) == expected);
        let mut written = 1 << 20;
        let full = loop {
            match client.write_bytes(written, &pattern(written, CLUSTER)) {
                Ok(()) => written += CLUSTER as u64,
                Err(full) => break full,
            }
        };
        assert_eq!(full, Failure::Io(Errno::NOSPC));
        assert!(written > 3 << 20, "{written}");
        client.run(Op::Flush).unwrap();
        // What is given back can be used anew.
        let (at, len) = (1 << 20, 1 << 20);
        client.run(Op::Discard { at, len }).unwrap();
        client.write_bytes(12 << 20, &pattern(4, CLUSTER)).unwrap();
        for at in (2 << 20..written).step_by(CLUSTER) {
            assert!(client.read_bytes(at, CLUSTER) == pattern(at, CLUSTER));
        }
        drop((client, image));
        lab.check(path);
        let raw = lab.raw(path);
        assert!(raw[..256 << 10] == expected);
        assert!(raw[12 << 20..][..CLUSTER] == pattern(4, CLUSTER));
    }
}

/// What was overwritten is in the page cache of a device that the image's own descriptor has for itself, and the device
/// may have larger sectors than the disk has blocks.
#[test]
fn a_cluster_of_a_block_device_that_is_kept_under_zeroes_is_written_again() {
    let Some(lab) = Lab::new() else { return };
    let file = lab.path("device");
    fs::File::create(&file).unwrap().set_len(8 << 20).unwrap();
    for sectors in ["512", "4096"] {
        let options = ["--find", "--show", "--sector-size", sectors];
        let Some(device) = Loop::with(&options, &file) else {
            return;
        };
        lab.img(&format!("create -q -f qcow2 {} 4M", device.0));
        let options = Options::default().block_size(512);
        let image = Image::open(&device.0, Settings::default(), &options).unwrap();
        let mut client = Client::new(&image);
        let (at, len) = (CLUSTER as u64, CLUSTER as u64);
        for seed in 1..=2 {
            client.write_bytes(at, &pattern(seed, CLUSTER)).unwrap();
        }
        client.run(zeroes(at, len, Unmap::Forbidden)).unwrap();
        client.write_bytes(at, &pattern(3, 512)).unwrap();
        let mut expected = vec![0; CLUSTER];
        expected[..512].copy_from_slice(&pattern(3, 512));
        assert!(client.read_bytes(at, CLUSTER) == expected, "{sectors}");
        drop((client, image));
        assert!(lab.raw(device.0.as_ref())[CLUSTER..2 * CLUSTER] == expected);
    }
}

/// The backing file was once longer: what it has there is not the disk's.
#[test]
fn a_disk_that_grows_shows_nothing_that_lies_below_behind_its_end() {
    const END: usize = CLUSTER + CLUSTER / 2;
    let Some(lab) = Lab::new() else { return };
    let base = lab.create("base.qcow2", "cluster_size=64k", 2 * CLUSTER as u64);
    lab.io(&base, &[format!("write -P 9 0 {}", 2 * CLUSTER)]);
    lab.img(&format!("resize -q --shrink base.qcow2 {END}"));
    let options = "backing_file=base.qcow2,backing_fmt=qcow2";
    let path = lab.create("grows.qcow2", options, END as u64);
    let image = open(&path);
    let mut client = Client::new(&image);
    for _ in 0..2 {
        assert!(client.read_bytes(0, END) == vec![9; END]);
    }
    image.resize(Some(4 * CLUSTER as u64)).unwrap();
    let beyond = client.read_bytes(END as u64, 2 * CLUSTER - END);
    assert!(beyond.iter().all(|byte| *byte == 0));
    assert!(client.read_bytes(0, END) == vec![9; END]);
}

#[test]
fn a_data_file_that_is_longer_than_the_disk_stays_so_as_it_grows() {
    let Some(lab) = Lab::new() else { return };
    let options = "data_file=long.raw,data_file_raw=on";
    let path = lab.create("long.qcow2", options, 1 << 20);
    let mut bytes = vec![5; 8 << 20];
    fs::write(lab.path("long.raw"), &bytes).unwrap();
    let image = open(&path);
    image.resize(Some(2 << 20)).unwrap();
    let mut client = Client::new(&image);
    client.write_bytes((2 << 20) - 512, &[6; 512]).unwrap();
    bytes[(2 << 20) - 512..2 << 20].fill(6);
    let stays = fs::read(lab.path("long.raw")).unwrap();
    assert_eq!(stays.len(), bytes.len());
    assert!(stays[(2 << 20) - 512..] == bytes[(2 << 20) - 512..]);
    image.resize(Some(16 << 20)).unwrap();
    assert_eq!(fs::metadata(lab.path("long.raw")).unwrap().len(), 16 << 20);
}
