//! What is not served is refused by its name, and says what can be done.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use pollux_disk::file::Cache;
use pollux_disk::qcow2::{Backing, Settings};
use pollux_disk::{Disk, Image, OpenError, Options, Spec};
use pollux_disk_conformance::{Client, pattern};

use super::images::{Lab, open, try_open};

fn said(result: Result<impl Sized, OpenError>) -> String {
    let Err(error) = result else {
        panic!("it is served")
    };
    let mut said = error.to_string();
    let mut error: &dyn std::error::Error = &error;
    while let Some(source) = error.source() {
        said = format!("{said}: {source}");
        error = source;
    }
    said
}

fn poke(path: &Path, at: u64, bytes: &[u8]) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.write_all_at(bytes, at).unwrap();
}

fn read_only() -> Options {
    Options::default().read_only(true)
}

#[test]
fn what_is_not_served_is_refused_by_its_name() {
    let Some(lab) = Lab::new() else { return };
    let refused = |options: &str, word: &str| {
        let path = lab.create("refused.qcow2", options, 1 << 20);
        let said = said(try_open(&path));
        assert!(
            said.contains(word) && said.contains("refused.qcow2"),
            "{said}"
        );
    };
    refused("extended_l2=on", "extended_l2=off");
    refused("compression_type=zstd", "compression_type=zlib");
    let path = lab.create("small.qcow2", "cluster_size=2k", 1 << 20);
    let direct = Settings::from(Cache::None);
    let small = said(Image::open(&path, direct.clone(), &Options::default()));
    assert!(
        small.contains("`--block-size` takes 4096 at least"),
        "{small}"
    );
    Image::open(&path, direct, &read_only()).unwrap();
    let secret = ["--object", "secret,id=key,data=secret"];
    let options = "encrypt.format=luks,encrypt.key-secret=key,encrypt.iter-time=10";
    let create = [
        "create",
        "-q",
        "-f",
        "qcow2",
        "-o",
        options,
        "luks.qcow2",
        "1M",
    ];
    let create = [&create[..1], &secret, &create[1..]].concat();
    // It times the processor, and gives up where others are on it.
    let made = |_| lab.tool("qemu-img", &create).status.success();
    assert!((0..100).any(made), "no encrypted image can be made");
    let encrypted = said(try_open(&lab.path("luks.qcow2")));
    assert!(encrypted.contains("is encrypted"), "{encrypted}");
    let poked = |at: u64, bytes: &[u8], word: &str| {
        let path = lab.create("poked.qcow2", "lazy_refcounts=on", 1 << 20);
        poke(&path, at, bytes);
        let said = said(try_open(&path));
        assert!(said.contains(word), "{said}, not {word}");
        path
    };
    poked(0, b"QFI\0", "no qcow2 image");
    poked(4, &9u32.to_be_bytes(), "version 9");
    poked(32, &1u32.to_be_bytes(), "encrypted");
    poked(72, &[0x80], "not known here");
    // As QEMU: such an image is not written, and may be read.
    for (bit, word) in [(1, "qemu-img check -r all"), (2, "marked corrupt")] {
        let path = poked(79, &[bit], word);
        let image = Image::open(&path, Settings::default(), &read_only()).unwrap();
        assert_eq!(Client::new(&image).read_bytes(0, 4096), [0; 4096]);
    }
    let raw = lab.create("as-raw.qcow2", "", 1 << 20);
    let spec: Spec = format!("file:path={}", raw.display()).parse().unwrap();
    let said = said(spec.open(&Options::default()));
    assert!(said.contains("--disk qcow2:path="), "{said}");
}

#[test]
fn fields_without_sense_are_refused_before_memory_is_taken_for_them() {
    let Some(lab) = Lab::new() else { return };
    for (at, bytes, word) in [
        (20, 60u32.to_be_bytes().to_vec(), "clusters of 2^60"),
        (20, 3u32.to_be_bytes().to_vec(), "clusters of 2^3"),
        (24, u64::MAX.to_be_bytes().to_vec(), "too small for"),
        (36, u32::MAX.to_be_bytes().to_vec(), "an L1 table of"),
        (36, 0u32.to_be_bytes().to_vec(), "too small for"),
        (40, 77u64.to_be_bytes().to_vec(), "its L1 table lies at"),
        (
            48,
            (1u64 << 60).to_be_bytes().to_vec(),
            "its refcount table lies at",
        ),
        (56, u32::MAX.to_be_bytes().to_vec(), "a refcount table of"),
        (56, 0u32.to_be_bytes().to_vec(), "a refcount table of"),
        (96, 7u32.to_be_bytes().to_vec(), "reference counts of 2^7"),
        (100, 5u32.to_be_bytes().to_vec(), "a header of 5 bytes"),
        (100, u32::MAX.to_be_bytes().to_vec(), "a header of"),
        (
            8,
            [99u64.to_be_bytes().as_slice(), &u32::MAX.to_be_bytes()].concat(),
            "backing file has",
        ),
        // The L1 table in the place of the header, and in that of the refcount table.
        (40, 0u64.to_be_bytes().to_vec(), "its L1 table lies at"),
        (0x1_0000, vec![0xff; 8], "inside a cluster"),
        // The second refcount block is the first once more.
        (
            0x1_0008,
            0x2_0000u64.to_be_bytes().to_vec(),
            "is used twice",
        ),
        // The counts of all tables are gone.
        (0x2_0000, vec![0; 64], "not counted"),
    ] {
        let path = lab.create("senseless.qcow2", "", 1 << 20);
        poke(&path, at, &bytes);
        let said = said(try_open(&path));
        assert!(said.contains(word), "{at}: {said}, not {word}");
    }
}

/// The guest's data must not go where the image keeps its own tables, whatever an L2 table says.
#[test]
fn a_guest_cannot_write_to_the_tables_of_its_image() {
    let Some(lab) = Lab::new() else { return };
    for target in [0u64, 0x1_0000, 0x2_0000, 0x3_0000, 0x4_0000] {
        let path = lab.create("hostile.qcow2", "preallocation=metadata", 1 << 20);
        let (mut l1, mut l2_at) = ([0; 8], [0; 8]);
        let file = fs::File::options()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        file.read_exact_at(&mut l1, 40).unwrap();
        file.read_exact_at(&mut l2_at, u64::from_be_bytes(l1))
            .unwrap();
        let l2 = u64::from_be_bytes(l2_at) & 0x00ff_ffff_ffff_fe00;
        // Cluster 0 of the guest is said to be at `target`, and to be its alone.
        poke(&path, l2, &(target | 1 << 63).to_be_bytes());
        let before = fs::read(&path).unwrap();
        let image = open(&path);
        let mut client = Client::new(&image);
        // 0 is not allocated, and the guest gets a cluster of its own.
        let wrote = client.write_bytes(0, &pattern(1, 4096));
        assert_eq!(wrote.is_ok(), target == 0, "{target:#x}");
        if target > 0 {
            let (at, len) = (0, 65536);
            client
                .run(pollux_disk::Op::Discard { at, len })
                .unwrap_err();
        }
        drop((client, image));
        let cluster = usize::try_from(target).unwrap();
        if target > 0 && target != 0x2_0000 {
            assert!(fs::read(&path).unwrap()[cluster..][..65536] == before[cluster..][..65536]);
        }
    }
}

#[test]
fn a_chain_is_followed_within_bounds_and_only_where_it_may_be() {
    let Some(lab) = Lab::new() else { return };
    lab.create("base.qcow2", "", 1 << 20);
    let top = lab.create(
        "top.qcow2",
        "backing_file=base.qcow2,backing_fmt=qcow2",
        1 << 20,
    );
    open(&top);
    let untrusted = Settings {
        backing: Backing::None,
        ..Settings::default()
    };
    let denied = said(Image::open(&top, untrusted.clone(), &Options::default()));
    assert!(
        denied.contains("`base.qcow2`, which `backing=none` forbids"),
        "{denied}"
    );

    let apart = lab.create("apart.qcow2", "data_file=data.raw", 1 << 20);
    let denied = said(Image::open(&apart, untrusted, &Options::default()));
    assert!(
        denied.contains("`data.raw`, which `backing=none` forbids"),
        "{denied}"
    );
    open(&apart);

    let base = lab.path("base.qcow2");
    lab.img("rebase -u -F qcow2 -b top.qcow2 base.qcow2");
    let looped = said(try_open(&top));
    assert!(looped.contains("its own backing file"), "{looped}");
    for (name, word) in [
        (
            "gone.raw",
            "gone.raw; put it back, or name it by `backing=PATH`",
        ),
        ("nbd://localhost/disk", "no plain path"),
        ("json:{\"driver\":\"null-co\"}", "no plain path"),
    ] {
        lab.img(&format!("rebase -u -F raw -b {name} base.qcow2"));
        let bad = said(try_open(&base));
        assert!(bad.contains(word), "{bad}");
    }
    lab.img("rebase -u -F vmdk -b gone.vmdk base.qcow2");
    let format = said(try_open(&base));
    assert!(format.contains("format `vmdk`"), "{format}");

    let alone = lab.tool("qemu-img", &["rebase", "-u", "-b", "", "base.qcow2"]);
    assert!(alone.status.success(), "{alone:?}");
    for number in 0..70 {
        let below = if number == 0 {
            "base.qcow2".to_owned()
        } else {
            format!("{}.qcow2", number - 1)
        };
        let options = format!("backing_file={below},backing_fmt=qcow2");
        lab.create(&format!("{number}.qcow2"), &options, 1 << 20);
    }
    let deep = said(try_open(&lab.path("69.qcow2")));
    assert!(deep.contains("more than 63 images"), "{deep}");
    open(&lab.path("60.qcow2"));
}

#[test]
fn another_backing_file_takes_the_place_of_the_named_one() {
    let Some(lab) = Lab::new() else { return };
    fs::write(lab.path("named.raw"), pattern(1, 1 << 20)).unwrap();
    fs::create_dir(lab.path("else")).unwrap();
    let moved = lab.path("else/moved.raw");
    let top = lab.create(
        "top.qcow2",
        "backing_file=named.raw,backing_fmt=raw",
        1 << 20,
    );
    fs::rename(lab.path("named.raw"), &moved).unwrap();
    let at = |path: &Path| Settings {
        backing: Backing::At(path.to_owned()),
        ..Settings::default()
    };
    said(try_open(&top));
    let image = Image::open(&top, at(&moved), &Options::default()).unwrap();
    assert!(Client::new(&image).read_bytes(0, 1 << 20) == pattern(1, 1 << 20));
    drop(image);
    let missing = said(Image::open(
        &top,
        at(Path::new("gone")),
        &Options::default(),
    ));
    assert!(missing.contains("gone"), "{missing}");
    let itself = said(Image::open(&top, at(&top), &Options::default()));
    assert!(itself.contains("its own backing file"), "{itself}");
    let alone = lab.create("alone.qcow2", "", 1 << 20);
    let none = said(Image::open(&alone, at(&moved), &Options::default()));
    assert!(none.contains("has no backing file"), "{none}");
}

/// A guest could have made an image of the raw disk that a backing file is.
#[test]
fn a_backing_file_of_no_named_format_is_raw_or_refused() {
    let Some(lab) = Lab::new() else { return };
    let path = lab.create("top.qcow2", "", 1 << 20);
    lab.create("base", "", 1 << 20);
    let unnamed = |name: &str| {
        let size = (1u64 << 20).to_be_bytes();
        // What `rebase` does not write any more: a name without a format.
        poke(
            &path,
            8,
            &[&512u64.to_be_bytes()[..], &4u32.to_be_bytes()].concat(),
        );
        poke(&path, 24, &size);
        poke(&path, 512, name.as_bytes());
        try_open(&path)
    };
    let refused = said(unnamed("base"));
    assert!(
        refused.contains("does not say of which format"),
        "{refused}"
    );
    fs::write(lab.path("rawb"), pattern(3, 1 << 20)).unwrap();
    let image = unnamed("rawb").unwrap();
    assert!(Client::new(&image).read_bytes(0, 1 << 20) == pattern(3, 1 << 20));
}

#[test]
fn all_files_of_a_chain_are_locked() {
    let Some(lab) = Lab::new() else { return };
    let base = lab.create("base.qcow2", "", 1 << 20);
    let options = "backing_file=base.qcow2,backing_fmt=qcow2";
    let tops = ["one.qcow2", "two.qcow2"].map(|name| lab.create(name, options, 1 << 20));
    // Any number of images stand on one that is not written.
    let [one, two] = tops.each_ref().map(|path| open(path));
    let twice = said(try_open(&tops[0]));
    assert!(twice.contains("in use"), "{twice}");
    let written = said(try_open(&base));
    assert!(written.contains("in use"), "{written}");
    let by_qemu = lab.tool(
        "qemu-io",
        &["-f", "qcow2", "-c", "write 0 512", "base.qcow2"],
    );
    assert!(!by_qemu.status.success(), "{by_qemu:?}");
    assert_eq!(one.geometry().bytes, 1 << 20);
    drop((one, two));
    open(&base);
}
