//! Our driver end against our device end, on one mapping.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use common::{BOTH, Rig, SEAM, buffer, places};
use pollux_ring::{
    Armed, Chain, DeviceEnd, DriverEnd, Notify, Refused, RingIndex, Suppression, UsedChain,
};

const DATA: u64 = SEAM + 0x1000;

/// The device takes what the last look saw, and completes it in the order of arrival.
fn serve(device: &mut DeviceEnd, rig: &Rig, written: u32) -> u16 {
    let mut chain = Chain::default();
    let mut served = 0;
    device.look().unwrap();
    while let Some(head) = rig.take(device, &mut chain).unwrap() {
        device.stage(head, written);
        served += 1;
    }
    served
}

/// All tokens that the driver finds.
fn reap(driver: &mut DriverEnd) -> Vec<u64> {
    driver.look().unwrap();
    std::iter::from_fn(|| driver.take().unwrap())
        .map(|completion| completion.token)
        .collect()
}

#[test]
fn a_chain_of_direct_descriptors_arrives_as_it_was_staged() {
    let rig = Rig::new(8);
    let mut driver = rig.driver(Suppression::EventIdx);
    let mut device = rig.device(Suppression::EventIdx);
    let readable = [buffer(DATA, 16), buffer(DATA + 0x100, 512)];
    let writable = [buffer(DATA + 0x1000, 4096), buffer(DATA + 0x3000, 1)];
    driver.stage(&readable, &writable, 77).unwrap();
    assert_eq!(driver.room(), 4, "it takes a descriptor for each buffer");
    assert_eq!(
        device.look().unwrap(),
        0,
        "nothing is there before it is published"
    );
    let _ = driver.publish();

    assert_eq!(device.look().unwrap(), 1);
    let mut chain = Chain::default();
    let head = rig.take(&mut device, &mut chain).unwrap().unwrap();
    assert_eq!(chain.head(), head);
    assert_eq!(places(chain.readable()), rig.spans(&readable));
    assert_eq!(places(chain.writable()), rig.spans(&writable));
    assert_eq!(rig.take(&mut device, &mut chain), Ok(None));

    device.stage(head, 4097);
    assert_eq!(driver.look().unwrap(), 0);
    let _ = device.publish();
    assert_eq!(driver.look().unwrap(), 1);
    let completion = UsedChain {
        token: 77,
        written: 4097,
    };
    assert_eq!(driver.take(), Ok(Some(completion)));
    assert_eq!(driver.take(), Ok(None));
    assert_eq!(driver.room(), 8);
}

#[test]
fn with_tables_a_chain_takes_one_descriptor() {
    let rig = Rig::new(4);
    let mut driver = rig.driver_with_tables(Suppression::Flags, 16);
    let mut device = rig.device(Suppression::Flags);
    let readable: Vec<_> = (0..10).map(|at| buffer(DATA + 64 * at, 64)).collect();
    let writable: Vec<_> = (10..16).map(|at| buffer(DATA + 64 * at, 64)).collect();
    for token in 0..4 {
        driver.stage(&readable, &writable, token).unwrap();
    }
    assert_eq!(driver.stage(&readable, &writable, 4), Err(Refused::Full));
    let _ = driver.publish();
    assert_eq!(device.look().unwrap(), 4);
    let mut chain = Chain::default();
    while let Some(head) = rig.take(&mut device, &mut chain).unwrap() {
        assert_eq!(places(chain.readable()), rig.spans(&readable));
        assert_eq!(places(chain.writable()), rig.spans(&writable));
        device.stage(head, 0);
    }
    let _ = device.publish();
    assert_eq!(reap(&mut driver), [0, 1, 2, 3]);
    assert_eq!(driver.room(), 4);
}

#[test]
fn a_chain_too_long_for_its_table_is_made_of_direct_descriptors() {
    let rig = Rig::new(8);
    let mut driver = rig.driver_with_tables(Suppression::Flags, 4);
    let mut device = rig.device(Suppression::Flags);
    let buffers: Vec<_> = (0..5).map(|at| buffer(DATA + 64 * at, 64)).collect();
    driver.stage(&buffers, &[], 0).unwrap();
    assert_eq!(driver.room(), 3);
    let _ = driver.publish();
    device.look().unwrap();
    let mut chain = Chain::default();
    assert!(rig.take(&mut device, &mut chain).unwrap().is_some());
    assert_eq!(places(chain.readable()), rig.spans(&buffers));
}

#[test]
fn a_refusal_says_whether_waiting_helps() {
    let rig = Rig::new(4);
    let some = [buffer(DATA, 1); 20];
    let mut direct = rig.driver(Suppression::Flags);
    assert_eq!(direct.stage(&[], &[], 0), Err(Refused::Empty));
    assert_eq!(
        direct.stage(&some[..3], &some[..2], 0),
        Err(Refused::TooLong {
            buffers: 5,
            most: 4
        })
    );
    direct.stage(&some[..1], &[], 0).unwrap();
    assert_eq!(direct.stage(&some[..2], &some[..2], 0), Err(Refused::Full));
    direct.stage(&some[..1], &some[..2], 0).unwrap();
    assert_eq!(direct.stage(&some[..1], &[], 0), Err(Refused::Full));

    let mut indirect = rig.driver_with_tables(Suppression::Flags, 16);
    assert_eq!(
        indirect.stage(&some[..17], &[], 0),
        Err(Refused::TooLong {
            buffers: 17,
            most: 16
        })
    );
    indirect.stage(&some[..16], &[], 0).unwrap();
}

#[test]
fn rings_of_every_size_carry_full_batches_across_the_index_wrap() {
    for suppression in BOTH {
        for size in (0..=10).map(|bits| 1 << bits) {
            let rig = Rig::new(size);
            let mut driver = rig.driver(suppression);
            let mut device = rig.device(suppression);
            let mut token = 0;
            let mut passed = 0u32;
            while passed <= 0x1_0000 + 2 * u32::from(size) {
                let first = token;
                while driver.stage(&[], &[buffer(DATA, 7)], token).is_ok() {
                    token += 1;
                }
                assert_eq!(token - first, u64::from(size));
                let _ = driver.publish();
                assert_eq!(serve(&mut device, &rig, 7), size);
                assert_eq!(device.staged(), size);
                let _ = device.publish();
                assert_eq!(reap(&mut driver), (first..token).collect::<Vec<_>>());
                passed += u32::from(size);
            }
        }
    }
}

#[test]
fn the_awake_are_left_alone_and_sleepers_are_woken() {
    for suppression in BOTH {
        let rig = Rig::new(4);
        let mut driver = rig.driver(suppression);
        let mut device = rig.device(suppression);
        let send = |driver: &mut DriverEnd| {
            driver.stage(&[buffer(DATA, 1)], &[], 0).unwrap();
            driver.publish()
        };
        assert_eq!(driver.publish(), Notify::Suppressed, "nothing was staged");
        assert_eq!(send(&mut driver), Notify::Suppressed, "a new end is awake");
        assert_eq!(
            device.arm(),
            Ok(Armed::Pending),
            "an entry came before the wish"
        );
        device.disarm();
        assert_eq!(serve(&mut device, &rig, 0), 1);
        assert_eq!(device.arm(), Ok(Armed::Idle));
        assert_eq!(send(&mut driver), Notify::Needed);
        device.disarm();
        assert_eq!(send(&mut driver), Notify::Suppressed);

        assert_eq!(driver.arm(), Ok(Armed::Idle), "what is staged is not there");
        assert_eq!(device.publish(), Notify::Needed);
        driver.disarm();
        assert_eq!(reap(&mut driver).len(), 1);
        assert_eq!(serve(&mut device, &rig, 0), 2);
        assert_eq!(device.publish(), Notify::Suppressed);
        assert_eq!(driver.arm(), Ok(Armed::Pending));
        assert_eq!(reap(&mut driver).len(), 2);
    }
}

#[test]
fn a_batch_wakes_a_sleeper_once() {
    for suppression in BOTH {
        let rig = Rig::new(8);
        let mut driver = rig.driver(suppression);
        let mut device = rig.device(suppression);
        assert_eq!(device.arm(), Ok(Armed::Idle));
        for token in 0..5 {
            driver.stage(&[buffer(DATA, 1)], &[], token).unwrap();
        }
        assert_eq!(driver.publish(), Notify::Needed);
        assert_eq!(
            driver.publish(),
            Notify::Suppressed,
            "nothing new was staged"
        );
        if suppression == Suppression::EventIdx {
            driver.stage(&[buffer(DATA, 1)], &[], 5).unwrap();
            assert_eq!(
                driver.publish(),
                Notify::Suppressed,
                "the event has been passed"
            );
        }
    }
}

#[test]
fn an_end_that_looks_for_itself_is_disturbed_once_in_65536_entries_at_most() {
    let rig = Rig::new(4);
    let mut driver = rig.driver(Suppression::EventIdx);
    let mut device = rig.device(Suppression::EventIdx);
    let mut kicks = 0;
    for token in 0..3 * 0x1_0000 {
        driver.stage(&[buffer(DATA, 1)], &[], token).unwrap();
        kicks += u32::from(driver.publish() == Notify::Needed);
        serve(&mut device, &rig, 0);
        assert!(device.publish() == Notify::Suppressed || token % 0x1_0000 == 0xffff);
        assert_eq!(reap(&mut driver), [token]);
    }
    assert_eq!(kicks, 3);
}

#[test]
fn an_end_writes_only_the_flags_that_its_mode_has() {
    let rig = Rig::new(4);
    let flags = || (rig.available_flags(), rig.used_flags());
    let (mut driver, mut device) = (
        rig.driver(Suppression::Flags),
        rig.device(Suppression::Flags),
    );
    assert_eq!(flags(), (1, 1));
    let _ = (driver.arm(), device.arm());
    assert_eq!(flags(), (0, 0));
    driver.disarm();
    device.disarm();
    assert_eq!(flags(), (1, 1));
    // Earlier ends of the ring may have left them set.
    let _ends = (
        rig.driver(Suppression::EventIdx),
        rig.device(Suppression::EventIdx),
    );
    assert_eq!(flags(), (0, 0));
}

#[test]
fn a_restarted_device_end_goes_on_in_the_middle_of_the_index_space() {
    for suppression in BOTH {
        let rig = Rig::new(8);
        let mut driver = rig.driver(suppression);
        let mut device = rig.device(suppression);
        // Far enough that chains lie on both sides of the wrap.
        for token in 0..0xfffe {
            driver.stage(&[], &[buffer(DATA, 1)], token).unwrap();
            let _ = driver.publish();
            serve(&mut device, &rig, 1);
            let _ = device.publish();
            assert_eq!(reap(&mut driver), [token]);
        }
        for token in 0..4 {
            driver.stage(&[], &[buffer(DATA, 1)], token).unwrap();
        }
        let _ = driver.publish();
        assert_eq!(device.look(), Ok(4));
        let mut chain = Chain::default();
        let mut take = || rig.take(&mut device, &mut chain).unwrap().unwrap();
        let (first, second, held) = (take(), take(), take());
        device.stage(second, 1);
        device.stage(first, 1);
        let _ = device.publish();
        let next = device.next();
        assert_eq!(next, RingIndex(1), "0xfffe and three more");

        // The used ring stands at 0: one chain is still to be completed, one to be taken.
        let mut device = DeviceEnd::new(&rig.areas, next, suppression, true);
        device.stage(held, 1);
        assert_eq!(driver.arm(), Ok(Armed::Pending));
        assert_eq!(reap(&mut driver), [1, 0]);
        assert_eq!(driver.arm(), Ok(Armed::Idle));
        assert_eq!(device.publish(), Notify::Needed);
        assert_eq!(reap(&mut driver), [2]);
        assert_eq!(serve(&mut device, &rig, 1), 1);
        assert_eq!(driver.arm(), Ok(Armed::Idle));
        assert_eq!(device.publish(), Notify::Needed);
        assert_eq!(reap(&mut driver), [3]);
        assert_eq!(driver.room(), 8);
    }
}
