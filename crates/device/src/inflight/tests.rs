//! Records that are refused. What a crash leaves is in `model`.

mod model;

use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use super::*;

const ENTRIES: u16 = 128;

fn options() -> Options {
    Options::new("test").num_queues(4).queue_size(ENTRIES)
}

fn message(queues: u16, entries: u16) -> VhostUserInflight {
    VhostUserInflight::new(bytes(queues, entries), 0, queues, entries)
}

fn file(bytes: u64) -> File {
    let file = tempfile::tempfile_in("/dev/shm").unwrap();
    file.set_len(bytes).unwrap();
    file
}

fn refusal(given: &VhostUserInflight, file: File) -> RecordError {
    Inflight::map(given, file, &options()).unwrap_err()
}

#[test]
fn a_queue_has_as_much_room_as_other_back_ends_give_it() {
    // From DPDK's and libvhost-user's formulas, which agree.
    for (entries, bytes) in [(1, 64), (3, 64), (4, 128), (128, 2112), (1024, 16448)] {
        assert_eq!(area_bytes(entries), bytes, "{entries} entries");
    }
}

#[test]
fn a_record_is_made_blank_sealed_and_as_large_as_it_must_be() {
    let (made, file) = Inflight::create(&message(3, 100), &options()).unwrap();
    assert_eq!((made.num_queues, made.queue_size), (3, 100));
    assert_eq!((made.mmap_size, made.mmap_offset), (3 * 1664 + 64, 0));
    let mut bytes = vec![1; 3 * 1664 + 64];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0));
    file.set_len(0).unwrap_err();
    Inflight::map(&made, file, &options()).unwrap();
}

#[test]
fn a_record_for_another_device_is_refused() {
    for (queues, entries) in [(5, ENTRIES), (4, ENTRIES + 1), (u16::MAX, u16::MAX)] {
        let wanted = message(queues, entries);
        let refused = refusal(&wanted, file(1 << 20));
        assert!(matches!(refused, RecordError::Shape { .. }), "{refused}");
        let made = Inflight::create(&wanted, &options()).map(|(_, file)| file);
        let refused = made.unwrap_err();
        let shape = matches!(refused, RecordError::Shape { .. });
        assert!(shape, "{refused}");
    }
}

#[test]
fn a_record_that_is_not_all_there_is_refused() {
    let mut given = message(4, ENTRIES);
    let refused = refusal(&given, file(given.mmap_size - 1));
    assert!(matches!(refused, RecordError::Map(_)), "{refused}");
    given.mmap_size -= 1;
    let refused = refusal(&given, file(1 << 20));
    assert!(matches!(refused, RecordError::Short { .. }), "{refused}");
    given.mmap_size = u64::MAX;
    Inflight::map(&given, file(1 << 20), &options()).expect("what is not used may be missing");
}

#[test]
fn a_record_of_an_earlier_version_says_nothing_of_the_cache() {
    let given = message(4, ENTRIES);
    let earlier = Inflight::map(&given, file(given.mmap_size), &options()).unwrap();
    earlier.set_cache(Cache::Writeback);
    assert_eq!((earlier.cache(), earlier.is_blank()), (None, true));
    let (made, memory) = Inflight::create(&given, &options()).unwrap();
    let kept = Inflight::map(&made, memory.try_clone().unwrap(), &options()).unwrap();
    assert_eq!(kept.cache(), None);
    for cache in [Cache::Writeback, Cache::Writethrough] {
        kept.set_cache(cache);
        assert_eq!((kept.cache(), kept.is_blank()), (Some(cache), true));
    }
    // The version of the last queue.
    memory.write_all_at(&[1], 3 * 2112 + 8).unwrap();
    assert!(!kept.is_blank());
}

#[test]
fn a_record_that_starts_nowhere_is_refused() {
    let mut given = message(4, ENTRIES);
    for offset in [1, 8, 63] {
        given.mmap_offset = offset;
        let refused = refusal(&given, file(1 << 20));
        assert!(matches!(refused, RecordError::Offset(_)), "{refused}");
    }
    for offset in [1 << 20, 1 << 62, u64::MAX - 63] {
        given.mmap_offset = offset;
        let refused = refusal(&given, file(1 << 20));
        assert!(matches!(refused, RecordError::Map(_)), "{refused}");
    }
    given.mmap_offset = 64;
    Inflight::map(&given, file(1 << 20), &options()).unwrap();
}

#[test]
fn what_cannot_be_mapped_is_refused() {
    let (pipe, _other_end) = std::io::pipe().unwrap();
    let files = [File::open("/").unwrap(), File::from(OwnedFd::from(pipe))];
    for file in files {
        let refused = refusal(&message(1, ENTRIES), file);
        assert!(matches!(refused, RecordError::Map(_)), "{refused}");
    }
}
