use pollux_blk::Cache;
use pollux_disk::Durability;

use super::*;
use crate::common::Served;
use crate::device::facts::tests::{FEATURES, sane};
use crate::options::{Options, Reconnect};
use crate::{CompletionMode, Driver};

fn facts(features: u64, config: &Config) -> Facts {
    Facts::new(features, config, &Options::default()).unwrap()
}

fn compare(config: &Config) -> Result<Option<Facts>, Difference> {
    let now = facts(FEATURES, config);
    facts(FEATURES, &sane()).compared_with(&now)
}

#[test]
fn the_same_disk_is_nothing_new_and_a_larger_one_is() {
    assert!(compare(&sane()).unwrap().is_none());
    // What nothing relies on may be what it likes.
    let config = Config {
        seg_max: 9,
        size_max: 1 << 20,
        ..sane()
    };
    assert!(compare(&config).unwrap().is_none());
    let config = Config {
        capacity: 4096,
        ..config
    };
    let facts = compare(&config).unwrap().unwrap();
    assert_eq!((facts.geometry.bytes, facts.generation), (4096 * 512, 1));
    let before = self::facts(FEATURES, &sane()).limits;
    assert_eq!(
        facts.limits, before,
        "requests are cut by what was said first"
    );
}

#[test]
fn what_requests_rely_on_must_be_there() {
    let differs = |config| compare(&config).unwrap_err();
    let now = 2040 * 512;
    let config = Config {
        capacity: 2040,
        ..sane()
    };
    let before = 2048 * 512;
    assert_eq!(differs(config), Difference::Smaller { before, now });
    let config = Config {
        blk_size: 512,
        ..sane()
    };
    let (before, now) = (4096, 512);
    assert_eq!(differs(config), Difference::Block { before, now });
    for config in [
        Config {
            seg_max: 3,
            ..sane()
        },
        Config {
            size_max: 4096,
            ..sane()
        },
    ] {
        assert_eq!(differs(config), Difference::Requests);
    }
}

#[test]
fn what_was_never_offered_may_be_limited_by_the_next() {
    let sectors = |max_sectors| Config {
        discard: pollux_blk::DiscardLimits {
            max_sectors,
            ..Default::default()
        },
        write_zeroes: pollux_blk::WriteZeroesLimits {
            max_sectors,
            ..Default::default()
        },
        ..sane()
    };
    let (ranges, config) = (feature::DISCARD | feature::WRITE_ZEROES, sectors(8));
    assert!(compare(&config).unwrap().is_none());
    let before = facts(FEATURES | ranges, &sectors(16));
    let now = facts(FEATURES | ranges, &config);
    assert_eq!(
        before.compared_with(&now).unwrap_err(),
        Difference::Requests
    );
}

#[test]
fn what_is_not_offered_any_more_is_told_by_its_name() {
    let before = (FEATURES | feature::DISCARD | feature::MQ, 4);
    let differs = |now, access| offers(before, now, access).unwrap_err();
    let (discard, both) = (feature::DISCARD, Access::ReadWrite);
    assert_eq!(offers(before, before, both), Ok(()));
    // Pollux offers neither to write nor to discard then.
    let read_only = (before.0 & !discard | feature::RO, 4);
    assert_eq!(differs(read_only, both), Difference::ReadOnly);
    let missing = Difference::Features { missing: discard };
    assert_eq!(differs(read_only, Access::ReadOnly), missing);
    let single = (before.0 & !feature::MQ, 1);
    let (before, now) = (4, 1);
    assert_eq!(differs(single, both), Difference::Queues { before, now });
}

/// Whatever it says of its cache.
#[test]
fn a_stable_write_is_flushed_on_a_disk_that_says_write_through() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let spec = format!("fault:log={},on=memory:size=1M", log.path().display());
    let served = Served::disk(&spec, 1);
    let driver: Driver = served.connect(&Options::default());
    let device = driver.device().unwrap();
    let before = device.facts();
    let through = Config {
        writeback: Cache::Writethrough,
        ..sane()
    };
    device.set_facts(before.followed_by(&through).unwrap());
    let queue = driver.queue(0).unwrap();
    let (stable, call) = (Durability::Stable, CompletionMode::Call);
    queue.write(0, vec![0; 512], stable, call).wait().unwrap();
    let told = std::fs::read_to_string(log.path()).unwrap();
    assert!(told.ends_with("flush 0 0\n"), "{told}");
    drop((queue, driver));
    served.join();
}

#[test]
fn a_request_waits_until_its_owner_has_shown_it_to_the_next_server() {
    let served = Served::devices(["fault:hang=device,on=memory:size=1M"]);
    let driver = served.connect(&Options::default().reconnect(Reconnect::Never));
    let (busy, idle) = (driver.queue(0).unwrap(), driver.queue(1).unwrap());
    let read = busy.read(0, vec![0; 512], CompletionMode::Polled);
    let device = driver.device().unwrap();
    let wait = || [0, 1].map(|index| device.with(index, |one| one.has_requests()));
    assert_eq!(wait(), [true, false]);
    for index in [0, 1] {
        let _ = device.prepare(1, index).unwrap();
    }
    device.advance();
    assert_eq!(wait(), [true, false]);
    // The owner is about to lay it out anew.
    device.claim(0);
    device.claim(1);
    assert_eq!(wait(), [true, false]);
    served.hang_up();
    assert!(read.wait().is_err());
    drop((busy, idle));
}
