//! Images of other formats are not served as raw disks, and guests make none of theirs.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::loops::Loop;
use common::{engines, skip, sparse};
use pollux_disk::file::{Cache, Engine, Format, Settings};
use pollux_disk::{Failure, File, Op, OpenError, Options, Spec, Unmap};
use pollux_disk_conformance::{Buffer, Client, pattern, write, zeroes};
use rustix::io::Errno;
use tempfile::TempDir;

const SIZE: u64 = 8 << 20;

fn open(path: &Path, settings: Settings) -> Result<File, OpenError> {
    File::open(path, settings, &Options::default())
}

fn raw() -> Settings {
    Settings {
        format: Format::Raw,
        ..Settings::default()
    }
}

/// An image of 8 MiB; `None`, with a word, where what makes it is missing.
fn made_by_qemu(folder: &TempDir, format: &str, options: &[&str]) -> Option<PathBuf> {
    let path = folder.path().join(format!("{format}.img"));
    let mut command = Command::new("qemu-img");
    command.args(["create", "-q", "-f", format]).args(options);
    command.arg(&path).arg(SIZE.to_string());
    made_by(command).then_some(path)
}

/// `qemu-img` makes such images too, but it first measures the processor, which fails where a thread's time is counted
/// coarsely.
fn made_by_cryptsetup(folder: &TempDir) -> Option<PathBuf> {
    let (path, key) = (folder.path().join("luks.img"), folder.path().join("key"));
    fs::write(&key, "abc").unwrap();
    let file = fs::File::create(&path).unwrap();
    file.set_len(SIZE).unwrap();
    let mut command = Command::new("cryptsetup");
    command.args(["luksFormat", "--type=luks1", "--batch-mode"]);
    command.arg("--pbkdf-force-iterations=1000");
    command.arg(&path).arg(&key);
    made_by(command).then_some(path)
}

fn made_by(mut command: Command) -> bool {
    let why = match command.output() {
        Ok(output) if output.status.success() => return true,
        Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    skip(&format!("{command:?}: {why}"));
    false
}

#[test]
fn images_of_other_tools_are_refused_by_name() {
    let table: [(&str, &[&str], &str); 11] = [
        ("qcow2", &[], "qcow2"),
        ("qcow", &[], "qcow"),
        ("qed", &[], "qed"),
        ("vmdk", &[], "VMDK"),
        ("vmdk", &["-o", "subformat=monolithicFlat"], "VMDK"),
        ("vpc", &[], "VHD"),
        ("vpc", &["-o", "subformat=fixed"], "VHD"),
        ("vhdx", &[], "VHDX"),
        ("vdi", &[], "VDI"),
        ("parallels", &[], "Parallels"),
        ("luks", &[], "LUKS"),
    ];
    for (format, options, name) in table {
        let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let made = match format {
            "luks" => made_by_cryptsetup(&folder),
            _ => made_by_qemu(&folder, format, options),
        };
        let Some(path) = made else {
            continue;
        };
        // Some are smaller than a block.
        let file = fs::File::options().write(true).open(&path).unwrap();
        let size = file.metadata().unwrap().len();
        if size < 4096 {
            file.set_len(4096).unwrap();
        }
        let before = fs::read(&path).unwrap();
        for cache in [Cache::Writeback, Cache::None] {
            let refusal = open(&path, cache.into()).unwrap_err().to_string();
            let told = format!("is a {name} image");
            assert!(refusal.contains(&told), "{format}: {refusal}");
            let convert = match format {
                "qcow2" => "qcow2:path=",
                _ => "qemu-img convert -O raw",
            };
            for remedy in [convert, "format=raw"] {
                assert!(refusal.contains(remedy), "{refusal}");
            }
        }
        for spec in [
            "linear:{}",
            "table:0 1 linear {} 0",
            "fault:delay=1ms,on=file:path={}",
        ] {
            let spec = spec.replace("{}", path.to_str().unwrap());
            let spec: Spec = spec.parse().unwrap();
            let refused = spec.open(&Options::default()).err().unwrap();
            assert!(matches!(refused, OpenError::Format { .. }), "{refused}");
        }
        assert!(fs::read(&path).unwrap() == before);
        open(&path, raw()).unwrap();
    }
}

fn header(signature: &[u8]) -> Vec<u8> {
    let mut bytes = pattern(9, 4096);
    bytes[..signature.len()].copy_from_slice(signature);
    bytes
}

#[test]
fn a_guest_cannot_make_another_image_of_its_disk() {
    for engine in engines() {
        for cache in [Cache::Writeback, Cache::None] {
            let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
            let path = sparse(&folder, SIZE);
            let settings = Settings {
                engine,
                ..cache.into()
            };
            the_guest_is_stopped(&path, settings);
        }
    }
    // Files in memory are written by the worker itself.
    let Some(folder) = common::tmpfs() else {
        return;
    };
    the_guest_is_stopped(&sparse(&folder, SIZE), Settings::default());
}

fn the_guest_is_stopped(path: &Path, settings: Settings) {
    let disk = open(path, settings).unwrap();
    let mut client = Client::new(&disk);
    let refused = Err(Failure::Io(Errno::PERM));
    for signature in [&b"QFI\xfb\0\0\0\x03"[..], b"LUKS\xba\xbe", b"KDMV"] {
        let bytes = header(signature);
        assert_eq!(client.write_bytes(0, &bytes), refused);
        // In spans of which none holds it.
        let cut = Buffer::cut(4096, &[2]);
        cut.fill(&bytes);
        assert_eq!(client.run(write(0, &cut)), refused);
        assert!(
            client.read_bytes(0, 4096) == vec![0; 4096],
            "nothing was written"
        );
        assert_eq!(
            client.write_bytes(4096, &bytes),
            Ok(()),
            "elsewhere it is data"
        );
        assert!(client.read_bytes(4096, 4096) == bytes);
        assert_eq!(client.run(zeroes(4096, 4096, Unmap::Allowed)), Ok(()));
    }
    let mut footer = pattern(3, 4096);
    footer[4096 - 512..][..8].copy_from_slice(b"conectix");
    assert_eq!(client.write_bytes(SIZE - 4096, &footer), refused);
    for at in [0, SIZE - 4096, SIZE - 8192] {
        assert_eq!(client.write_bytes(at, &pattern(4, 4096)), Ok(()));
        assert!(client.read_bytes(at, 4096) == pattern(4, 4096));
    }
    assert_eq!(client.run(Op::Flush), Ok(()));
    drop(client);
    drop(disk);
    let settings = Settings {
        format: Format::Raw,
        ..settings
    };
    let disk = open(path, settings).unwrap();
    let mut client = Client::new(&disk);
    let luks = header(b"LUKS\xba\xbe");
    assert_eq!(client.write_bytes(0, &luks), Ok(()));
    assert!(client.read_bytes(0, 4096) == luks);
    drop(client);
    drop(disk);
    let settings = Settings {
        format: Format::Probe,
        ..settings
    };
    open(path, settings).unwrap_err();
}

#[test]
fn a_guest_may_encrypt_a_block_device() {
    let folder = TempDir::new().unwrap();
    let Some(device) = Loop::in_folder(&folder) else {
        return;
    };
    let path = Path::new(&device.0);
    let settings = Settings {
        engine: Engine::Threads,
        ..Cache::None.into()
    };
    for _ in 0..2 {
        let disk = open(path, settings).unwrap();
        let mut client = Client::new(&disk);
        let (luks, qcow2) = (header(b"LUKS\xba\xbe"), header(b"QFI\xfb"));
        assert_eq!(client.write_bytes(0, &luks), Ok(()));
        assert_eq!(client.write_bytes(0, &qcow2), Err(Failure::Io(Errno::PERM)));
        assert!(client.read_bytes(0, 4096) == luks);
    }
}

#[test]
fn what_a_guest_can_write_keeps_no_disk_from_being_opened_whatever_its_size() {
    // What is no whole block at the end is out of reach.
    for beyond in [1, 100, 511] {
        let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = sparse(&folder, SIZE + 512 + beyond);
        let disk = open(&path, Settings::default()).unwrap();
        let mut client = Client::new(&disk);
        let mut footer = pattern(5, 512);
        footer[..8].copy_from_slice(b"conectix");
        let refused = Err(Failure::Io(Errno::PERM));
        assert_eq!(client.write_bytes(SIZE, &footer), refused);
        // As much as fits of one in the last 512 bytes of the file.
        footer = pattern(5, 512);
        let at = usize::try_from(beyond).unwrap();
        let part = 8.min(512 - at);
        footer[at..][..part].copy_from_slice(&b"conectix"[..part]);
        assert_eq!(client.write_bytes(SIZE, &footer), Ok(()));
        drop(client);
        drop(disk);
        open(&path, Settings::default()).unwrap();
    }
}
