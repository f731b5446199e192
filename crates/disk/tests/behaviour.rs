//! Every disk does what a disk does.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use common::loops::Loop;
use common::{engines, skip, sparse, tmpfs};
use pollux_disk::file::{Buffers, Cache, Engine, Inline, Settings};
use pollux_disk::{Disk, Failure, File, Geometry, Memory, Null, Op, OpenError, Options, Unmap};
use pollux_disk_conformance::{
    Buffer, Client, answers_like_a_disk, behaves_like_a_disk, changes_nothing, pattern, read,
    write, zeroes,
};
use tempfile::TempDir;

fn file_behaves(folder: &TempDir, settings: impl Into<Settings>) {
    let settings = settings.into();
    behaves_like_a_disk(&|bytes| {
        let path = sparse(folder, bytes);
        Arc::new(File::open(path, settings, &Options::default()).unwrap())
    });
}

/// A file disk in every way in which requests can go, in all folders that there are.
fn file_behaves_everywhere(cache: Cache) {
    let mut behaved = false;
    for folder in folders().iter().flatten() {
        let probe = File::open(sparse(folder, 1 << 20), cache, &Options::default());
        if let Err(OpenError::NoDirect { .. }) = probe.map(drop) {
            continue; // as in memory before Linux 6.6
        }
        behaved = true;
        for engine in engines() {
            for inline in [Inline::On, Inline::Off] {
                file_behaves(
                    folder,
                    Settings {
                        cache,
                        engine,
                        inline,
                        ..Settings::default()
                    },
                );
            }
        }
    }
    if !behaved {
        skip("no folder here takes direct I/O");
    }
}

/// On the usual file system and in memory.
fn folders() -> [Option<TempDir>; 2] {
    let usual = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    [Some(usual), tmpfs()]
}

#[test]
fn a_memory_disk_behaves() {
    behaves_like_a_disk(&|bytes| Arc::new(Memory::new(Geometry::plain(bytes)).unwrap()));
}

#[test]
fn a_file_behaves_with_writeback() {
    file_behaves_everywhere(Cache::Writeback);
}

#[test]
fn a_file_behaves_with_writethrough() {
    file_behaves_everywhere(Cache::Writethrough);
}

#[test]
fn a_file_behaves_past_the_page_cache() {
    file_behaves_everywhere(Cache::None);
}

/// How a file is opened that registers memory, where there is `io_uring`.
fn registering() -> Option<Settings> {
    (engines()[0] == Engine::IoUring).then(|| Settings {
        inline: Inline::Off,
        buffers: Buffers::Registered,
        ..Settings::default()
    })
}

#[test]
fn memory_that_is_registered_is_used_by_its_place_until_it_is_taken_back() {
    let Some(settings) = registering() else {
        return; // and it was said
    };
    let folder = TempDir::new().unwrap();
    let path = sparse(&folder, 1 << 20);
    let disk = File::open(&path, settings, &Options::default()).unwrap();
    let registered = || {
        let counters = disk.counters();
        let found = counters.iter().find(|(name, _)| *name == "registered");
        found.unwrap().1
    };
    let (first, second) = (Buffer::holding(&pattern(1, 65536)), Buffer::new(65536));
    disk.map(first.region()).unwrap();
    let mut early = Client::new(&disk);
    disk.map(second.region()).unwrap();
    let mut late = Client::new(&disk);
    for (uses, client) in [(2, &mut early), (4, &mut late)] {
        second.fill(&vec![0; 65536]);
        assert_eq!(client.run(write(4096, &first)), Ok(()));
        assert_eq!(client.run(read(4096, &second)), Ok(()));
        assert!(second.bytes() == first.bytes());
        assert_eq!(registered(), uses);
    }
    disk.unmap(first.region());
    let cut = Buffer::cut(65536, &[512]);
    for client in [&mut early, &mut late] {
        assert_eq!(client.run(write(0, &first)), Ok(()));
        assert_eq!(client.run(read(0, &cut)), Ok(()));
        assert!(cut.bytes() == first.bytes());
    }
    assert_eq!(
        registered(),
        4,
        "neither memory that is not registered nor several spans"
    );
    drop(late);
    disk.unmap(second.region());
    assert_eq!(early.run(read(0, &second)), Ok(()));
    assert!(second.bytes() == first.bytes());
    assert_eq!(registered(), 4);
}

/// The kernel has the pages of a region that is registered, whatever lies at its addresses by then.
#[test]
fn memory_that_was_dropped_and_not_taken_back_is_not_mistaken_for_what_comes_after_it() {
    let Some(settings) = registering() else {
        return; // and it was said
    };
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("disk.img");
    fs::write(&path, pattern(1, 65536)).unwrap();
    let disk = File::open(&path, settings, &Options::default()).unwrap();
    let mut client = Client::new(&disk);
    disk.map(Buffer::new(65536).region()).unwrap();
    // One of them lies where that was, unless it is still there.
    let later: Vec<_> = (0..64).map(|_| Buffer::new(65536)).collect();
    for buffer in &later {
        assert_eq!(client.run(read(0, buffer)), Ok(()));
        assert!(buffer.bytes() == pattern(1, 65536));
    }
}

#[test]
fn a_read_only_disk_is_not_changed() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("disk.img");
    fs::write(&path, pattern(1, 65536)).unwrap();
    let options = Options::default().read_only(true);
    let memory = Memory::new(options.geometry(65536).unwrap()).unwrap();
    let null = Null::new(options.geometry(65536).unwrap());
    let file = File::open(&path, Cache::Writeback, &options).unwrap();
    let file = Arc::new(file);
    let disks: [Arc<dyn Disk>; 3] = [Arc::new(memory), Arc::new(null), Arc::clone(&file) as _];
    disks.into_iter().for_each(changes_nothing);
    assert!(Client::new(&*file).read_bytes(0, 65536) == pattern(1, 65536));
}

#[test]
fn a_null_disk_answers() {
    answers_like_a_disk(Arc::new(Null::new(Geometry::plain(1 << 20))));
}

#[test]
fn a_null_disk_touches_no_memory_and_knows_its_end() {
    let disk = Null::new(Geometry::plain(1 << 20));
    let mut client = Client::new(&disk);
    let buffer = Buffer::holding(&[7; 4096]);
    assert_eq!(client.run(read(0, &buffer)), Ok(()));
    assert_eq!(buffer.bytes(), [7; 4096]);
    assert_eq!(client.run(write((1 << 20) - 4096, &buffer)), Ok(()));
    assert_eq!(
        client.run(read((1 << 20) - 512, &buffer)),
        Err(Failure::OutOfRange)
    );
    assert_eq!(client.sleeps(), 0, "everything is done when it is queued");
}

#[test]
fn a_memory_disk_takes_up_what_is_written_and_gives_it_back() {
    let disk = Memory::new(Geometry::plain(1 << 40)).unwrap();
    let mut client = Client::new(&disk);
    assert_eq!(client.read_bytes(1 << 39, 1 << 20), vec![0; 1 << 20]);
    assert_eq!(disk.allocated().unwrap(), 0);
    client.write_bytes(1 << 39, &pattern(1, 4 << 20)).unwrap();
    assert_eq!(disk.allocated().unwrap(), 4 << 20);
    let at = 1 << 39;
    let discard = Op::Discard { at, len: 1 << 20 };
    assert_eq!(client.run(discard), Ok(()));
    assert_eq!(disk.allocated().unwrap(), 3 << 20);
    let at = at + (1 << 20);
    assert_eq!(client.run(zeroes(at, 1 << 20, Unmap::Allowed)), Ok(()));
    assert_eq!(disk.allocated().unwrap(), 2 << 20);
    let at = at + (1 << 20);
    assert_eq!(client.run(zeroes(at, 1 << 20, Unmap::Forbidden)), Ok(()));
    assert_eq!(
        disk.allocated().unwrap(),
        2 << 20,
        "it was to stay allocated"
    );
    let left = client.read_bytes(1 << 39, 4 << 20);
    assert!(left[..3 << 20].iter().all(|&byte| byte == 0));
    assert!(left[3 << 20..] == pattern(1, 4 << 20)[3 << 20..]);
}

fn blocks(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

#[test]
fn a_file_gives_blocks_back() {
    for folder in folders().iter().flatten() {
        let path = sparse(folder, 16 << 20);
        let disk = File::open(&path, Cache::Writeback, &Options::default()).unwrap();
        if disk.geometry().discard.is_none() {
            skip(&format!("no holes in files at {}", folder.path().display()));
            continue;
        }
        let mut client = Client::new(&disk);
        client.write_bytes(0, &pattern(1, 8 << 20)).unwrap();
        assert_eq!(client.run(Op::Flush), Ok(()));
        let full = blocks(&path);
        assert!(full >= 8 << 20, "{full}");
        let (at, len) = (1 << 20, 4 << 20);
        assert_eq!(client.run(Op::Discard { at, len }), Ok(()));
        assert!(blocks(&path) <= full - len, "discard gives blocks back");
        let at = 5 << 20;
        assert_eq!(client.run(zeroes(at, 1 << 20, Unmap::Allowed)), Ok(()));
        assert!(blocks(&path) <= full - (5 << 20), "so does unmap");
        let at = 6 << 20;
        assert_eq!(client.run(zeroes(at, 2 << 20, Unmap::Forbidden)), Ok(()));
        let left = blocks(&path);
        assert!(left >= 3 << 20, "{left}: these were to stay allocated");
        assert!(client.read_bytes(1 << 20, 7 << 20) == vec![0; 7 << 20]);
        assert_eq!(fs::metadata(&path).unwrap().len(), 16 << 20);
    }
}

/// The disk may have smaller blocks than the device has sectors.
#[test]
fn parts_of_the_sectors_of_a_device_are_made_zero_and_kept_where_they_are_given_back() {
    let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let options = ["--find", "--show", "--sector-size", "4096"];
    let Some(device) = Loop::with(&options, &sparse(&folder, 8 << 20)) else {
        return;
    };
    let options = Options::default().block_size(512);
    let disk = File::open(&device.0, Settings::default(), &options).unwrap();
    let mut client = Client::new(&disk);
    let mut expected = pattern(1, 32768);
    client.write_bytes(0, &expected).unwrap();
    for (at, unmap) in [(512, Unmap::Forbidden), (1536, Unmap::Allowed)] {
        assert_eq!(client.run(zeroes(at, 512, unmap)), Ok(()), "{unmap:?}");
        expected[usize::try_from(at).unwrap()..][..512].fill(0);
        assert!(client.read_bytes(0, 32768) == expected, "{unmap:?}");
    }
    if disk.geometry().discard.is_none() {
        return skip("the file system below a loop device has no holes");
    }
    // Parts of one sector, of two, and of two with a whole one between them, which a loop device makes zero.
    for (at, len) in [(2560, 512), (3584, 1024), (7680, 8192)] {
        assert_eq!(client.run(Op::Discard { at, len }), Ok(()), "{len}");
    }
    expected[8192..12288].fill(0);
    assert!(client.read_bytes(0, 32768) == expected);
}
