use vhost::vhost_user::message::VhostUserInflight;

use super::*;
use crate::device::Options;

const ALL: u32 = 256;

fn options() -> Options {
    Options::new("test").num_queues(2).queue_size(128)
}

/// A record that the frontend keeps, as one session after the other sees it.
struct Kept(VhostUserInflight, std::fs::File);

impl Kept {
    fn new() -> Self {
        let wanted = VhostUserInflight::new(0, 0, 2, 128);
        let (description, file) = Inflight::create(&wanted, &options()).ok().unwrap();
        Self(description, file)
    }

    fn see(&self) -> Inflight {
        Inflight::map(&self.0, self.1.try_clone().unwrap(), &options()).unwrap()
    }
}

/// The mode of a new session.
fn found(read: bool, inflight: Option<&Inflight>, rings: Rings) -> Cache {
    let mut mode = CacheMode::default();
    if read {
        mode.is_read(0, ALL);
    }
    mode.settle(inflight, rings);
    mode.shown()
}

#[test]
fn only_a_driver_that_begins_and_was_told_so_is_write_back() {
    for (read, rings, expected) in [
        (true, Rings::Begin, Cache::Writeback),
        (true, Rings::GoOn, Cache::Writethrough),
        (false, Rings::Begin, Cache::Writethrough),
        (false, Rings::GoOn, Cache::Writethrough),
    ] {
        let blank = Kept::new().see();
        for inflight in [None, Some(&blank)] {
            assert_eq!(found(read, inflight, rings), expected, "{read} {rings:?}");
            // What was found is kept.
            assert_eq!(
                inflight.and_then(Inflight::cache),
                inflight.map(|_| expected)
            );
        }
    }
}

#[test]
fn a_driver_that_only_seemed_to_begin_is_write_through() {
    let kept = Kept::new().see();
    for inflight in [None, Some(&kept)] {
        for told in [None, Some(Cache::Writeback)] {
            let mut mode = CacheMode::default();
            mode.is_read(0, ALL);
            let queue = mode.for_queue(feature::CONFIG_WCE);
            assert!(!mode.settle(inflight, Rings::Begin));
            assert!(!mode.settle(inflight, Rings::Begin));
            if let Some(told) = told {
                mode.switch(told, inflight);
            }
            assert_eq!(mode.settle(inflight, Rings::GoOn), told.is_none());
            let expected = told.unwrap_or(Cache::Writethrough);
            assert_eq!(mode.shown(), expected);
            assert_eq!(queue.load(Ordering::Relaxed), told.is_some());
            assert_eq!(
                inflight.and_then(Inflight::cache),
                inflight.map(|_| expected)
            );
            if let Some(inflight) = inflight {
                inflight.set_cache(Cache::Writeback);
            }
        }
    }
}

#[test]
fn the_record_tells_the_next_session() {
    for cache in [Cache::Writethrough, Cache::Writeback] {
        let kept = Kept::new();
        let mut mode = CacheMode::default();
        mode.is_read(0, ALL);
        mode.settle(Some(&kept.see()), Rings::Begin);
        assert_eq!(mode.shown(), Cache::Writeback);
        mode.switch(cache, Some(&kept.see()));
        for (read, rings) in [(false, Rings::GoOn), (true, Rings::Begin)] {
            assert_eq!(found(read, Some(&kept.see()), rings), cache);
        }
        // A reset of the guest brings a blank record; what the frontend shows to the guest stays.
        let blank = Kept::new().see();
        mode.settle(Some(&blank), Rings::Begin);
        assert_eq!((mode.shown(), blank.cache()), (cache, Some(cache)));
    }
}

#[test]
fn a_read_beside_the_mode_tells_nothing() {
    for (offset, len, read) in [
        (0, 32, false),
        (33, 8, false),
        (0, 33, true),
        (0x120, 1, true),
    ] {
        let mut mode = CacheMode::default();
        mode.is_read(offset, len);
        assert_eq!(mode.read, read, "{len} at {offset}");
    }
}

#[test]
fn a_driver_that_cannot_switch_flushes() {
    let mut mode = CacheMode::default();
    mode.switch(Cache::Writethrough, None);
    assert!(mode.for_queue(0).load(Ordering::Relaxed));
    assert!(!mode.for_queue(feature::CONFIG_WCE).load(Ordering::Relaxed));
}
