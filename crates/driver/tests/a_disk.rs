//! A driver does what every disk does, whatever the server offers: the expectations are those of every engine.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::cell::RefCell;
use std::sync::Arc;

use common::Served;
use pollux_blk::feature;
use pollux_disk_conformance::behaves_like_a_disk;
use pollux_driver::{Experiment, Options};

fn behaves(options: &Options) {
    let served = RefCell::new(Vec::new());
    behaves_like_a_disk(&|bytes| {
        let disk = Served::disk(&format!("memory:size={bytes}"), 1);
        let driver = disk.connect(options);
        served.borrow_mut().push(disk);
        Arc::new(driver)
    });
    // All drivers are gone, and none of their sessions ended in an error.
    served.into_inner().into_iter().for_each(Served::join);
}

#[test]
fn a_driver_behaves() {
    behaves(&Options::default());
}

#[test]
fn a_driver_of_one_shared_queue_behaves() {
    behaves(&Options::default().queues(1));
}

#[test]
fn a_driver_behaves_with_the_smallest_queue() {
    behaves(&Options::default().queue_size(4));
}

#[test]
fn a_driver_behaves_with_as_little_as_a_server_can_offer() {
    for without in [
        feature::INDIRECT_DESC,
        feature::EVENT_IDX,
        feature::SEG_MAX | feature::SIZE_MAX,
        feature::INDIRECT_DESC | feature::EVENT_IDX | feature::FLUSH | feature::CONFIG_WCE,
    ] {
        behaves(&Options::default().queue_size(16).experiment(Experiment {
            without,
            ..Experiment::default()
        }));
    }
}

#[test]
fn a_driver_behaves_where_memory_cannot_be_added_one_by_one() {
    let all_but_config = !(1 << 9);
    behaves(&Options::default().experiment(Experiment {
        without_protocol: all_but_config,
        ..Experiment::default()
    }));
}
