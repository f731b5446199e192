use std::os::fd::AsRawFd;

use super::*;

fn message(path: &Path, cache: Cache) -> String {
    open(path, cache.into(), Options::default())
        .unwrap_err()
        .to_string()
}

#[test]
fn what_is_no_disk_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    for (name, remedy) in [
        (
            "no.img",
            "no.img does not exist; correct the path, or create it, for",
        ),
        (
            "no/a.img",
            "a.img does not exist; correct the path: there is no folder",
        ),
        (
            "a.img,cache=none",
            "if options follow the path, write it as `file:path=PATH,",
        ),
        ("cache=none", "put brackets around the leg: `[file:path="),
    ] {
        let missing = message(&folder.path().join(name), Cache::Writeback);
        assert!(missing.contains(remedy), "{missing}");
    }
    let missing = message(Path::new("file:path=a.img,cache=none"), Cache::Writeback);
    assert!(missing.contains("give it with `--disk`"), "{missing}");
    for (path, remedy) in [
        ("/dev/sd/none", "does not exist; `lsblk`"),
        ("/dev/block/99:99", "a link that udev makes"),
    ] {
        let missing = message(Path::new(path), Cache::Writeback);
        assert!(missing.contains(remedy), "{missing}");
    }
    let directory = message(folder.path(), Cache::Writeback);
    assert!(directory.contains("is a directory"), "{directory}");
    let device = message(Path::new("/dev/null"), Cache::Writeback);
    assert!(device.contains("is a character device"), "{device}");
    let socket = folder.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    assert!(message(&socket, Cache::None).contains("is a socket"));
    let short = folder.path().join("short");
    fs::write(&short, [0; 511]).unwrap();
    let short = message(&short, Cache::Writeback);
    assert!(short.contains("holds 511 bytes"), "{short}");
}

#[test]
fn every_refusal_of_the_system_has_its_remedy() {
    let told = |errno: Errno, access| {
        refused(Path::new("a.img"), Cache::None, access, errno.into()).to_string()
    };
    assert!(told(Errno::ACCESS, Access::ReadWrite).contains("or open it read-only"));
    assert!(told(Errno::ROFS, Access::ReadWrite).contains("cannot be written"));
    assert!(told(Errno::ACCESS, Access::ReadOnly).contains("the right to read"));
    assert!(told(Errno::BUSY, Access::ReadWrite).contains("in use"));
    assert!(told(Errno::INVAL, Access::ReadWrite).contains("use `cache=writeback`"));
    assert_eq!(told(Errno::MFILE, Access::ReadWrite), "cannot open a.img");
}

#[test]
fn the_end_of_a_file_that_is_no_whole_block_is_out_of_reach() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("odd.img");
    fs::write(&path, [0; 10_000]).unwrap();
    let with = |block_size| {
        let options = Options::default().block_size(block_size);
        open(&path, Settings::default(), options)
            .unwrap()
            .geometry()
    };
    assert_eq!((with(None).bytes, with(None).block), (9728, 512));
    assert_eq!(with(Some(4096)).bytes, 8192);
    assert_eq!(with(Some(4096)).physical_block, 4096);
}

#[test]
fn blocks_that_direct_io_cannot_use_are_refused_although_nobody_told() {
    let block = |block_size, offset| {
        let options = Options::default().block_size(block_size);
        Direct::untold(offset).block(Path::new("a.img"), options, 512)
    };
    assert_eq!(block(None, 512).unwrap(), (512, 4096));
    assert_eq!(block(None, 4096).unwrap(), (4096, 4096));
    let refusal = block(Some(512), 4096).unwrap_err().to_string();
    assert!(refusal.contains("use blocks of 4096"), "{refusal}");
}

#[test]
fn limits_become_abilities_within_our_own() {
    let plain = Geometry {
        block: 4096,
        physical_block: 4096,
        ..Geometry::plain(1 << 30)
    };
    let with = |discard_max, discard_granularity, write_zeroes_max| {
        let limits = Limits {
            discard_granularity,
            discard_max,
            write_zeroes_max,
            ..Limits::default()
        };
        let geometry = abilities(plain, limits);
        let pair = |range: RangeLimits| (range.max_bytes, range.alignment);
        let zeroes = geometry.write_zeroes.map(pair);
        (geometry.discard.map(pair), zeroes.unwrap())
    };
    assert_eq!(with(0, 512, 0), (None, (MAX_WRITE_ZEROES, 4096)));
    let (discard, zeroes) = with(u64::MAX, 0, 1);
    assert_eq!(discard, Some((MAX_DISCARD, 4096)));
    assert_eq!(zeroes, (4096, 4096));
    let (discard, zeroes) = with((1 << 20) + 512, 1 << 16, (64 << 10) + 512);
    assert_eq!(discard, Some((1 << 20, 1 << 16)));
    assert_eq!(zeroes, (64 << 10, 4096));
}

#[test]
fn a_file_opened_read_only_promises_no_writes() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(1 << 20).unwrap();
    let options = Options::default().read_only(true);
    let geometry = open(file.path(), Settings::default(), options)
        .unwrap()
        .geometry();
    assert_eq!(geometry.access, Access::ReadOnly);
    assert_eq!((geometry.discard, geometry.write_zeroes), (None, None));
}

#[test]
fn what_lies_outside_of_the_folders_is_not_opened_whatever_leads_there() {
    let above = tempfile::tempdir().unwrap();
    let above = above.path().canonicalize().unwrap();
    let folder = above.join("images");
    fs::create_dir(&folder).unwrap();
    for image in ["secret", "images/disk.img"] {
        fs::write(above.join(image), [7; 4096]).unwrap();
    }
    std::os::unix::fs::symlink("../secret", folder.join("link")).unwrap();
    let folders = vec![folder].leak();
    let options = Options::default().within(folders);
    let opened = |path: &str| open(&above.join(path), Settings::default(), options);
    opened("images/disk.img").unwrap();
    for outside in ["secret", "images/link", "images/../secret"] {
        let told = opened(outside).unwrap_err();
        assert!(matches!(told, OpenError::Outside { .. }), "{told}");
        assert!(
            told.to_string().contains("outside of the folders"),
            "{told}"
        );
    }
    let told = opened("images/none").unwrap_err();
    assert!(matches!(told, OpenError::Missing { .. }), "{told}");
}

/// Its owner may be making it longer at this moment: room behind its end stands for what is written there.
#[test]
fn a_file_that_is_not_locked_yet_keeps_what_lies_behind_its_end() {
    const MIB: u64 = 1 << 20;
    // In memory, as ext4 keeps such room whatever it is asked.
    let owner = rustix::fs::memfd_create("image", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let owner = fs::File::from(owner);
    owner.set_len(MIB).unwrap();
    rustix::fs::fallocate(&owner, FallocateFlags::KEEP_SIZE, MIB, MIB).unwrap();
    let held = || {
        let metadata = owner.metadata().unwrap();
        (metadata.len(), metadata.blocks())
    };
    assert_eq!(held(), (MIB, MIB / 512));
    let settings = Settings {
        lock: Locked::Running,
        ..Settings::default()
    };
    let path = PathBuf::from(format!("/proc/self/fd/{}", owner.as_raw_fd()));
    let backing = open(&path, settings, Options::default()).unwrap();
    assert_eq!(held(), (MIB, MIB / 512));
    // It was asked all the same.
    assert!(backing.geometry().discard.is_some());
}
