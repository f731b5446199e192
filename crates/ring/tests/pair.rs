//! Our driver end against our device end, on one mapping.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use common::{BOTH, INDIRECT, NEXT, Rig, SEAM, WRITE, buffer, bytes, place, places};
use pollux_ring::{
    Armed, Chain, Completion, DeviceEnd, DriverEnd, Notify, Refused, RingIndex, Suppression,
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
    let completion = Completion {
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
fn a_direct_chain_may_end_in_an_indirect_table() {
    let mut rig = Rig::new(8);
    let table = rig.free;
    rig.describe(5, DATA, 16, NEXT, 2);
    rig.describe(2, DATA + 0x100, 100, NEXT, 7);
    rig.describe(7, table, 3 * 16, INDIRECT, 0);
    rig.describe_in(table, 0, DATA + 0x200, 200, NEXT, 2);
    rig.describe_in(table, 2, DATA + 0x300, 300, NEXT | WRITE, 1);
    rig.describe_in(table, 1, DATA + 0x500, 1, WRITE, 0);
    let chain = rig.walk(5).unwrap();
    let readable = [
        buffer(DATA, 16),
        buffer(DATA + 0x100, 100),
        buffer(DATA + 0x200, 200),
    ];
    let writable = [buffer(DATA + 0x300, 300), buffer(DATA + 0x500, 1)];
    assert_eq!(places(chain.readable()), rig.spans(&readable));
    assert_eq!(places(chain.writable()), rig.spans(&writable));
}

#[test]
fn the_write_flag_of_a_descriptor_for_a_table_means_nothing() {
    // VIRTIO 1.3, 2.7.5.3.2: the device ignores it there.
    let mut rig = Rig::new(2);
    let table = rig.free;
    rig.describe(0, table, 16, INDIRECT | WRITE, 0);
    rig.describe_in(table, 0, DATA, 16, 0, 0);
    let chain = rig.walk(0).unwrap();
    assert_eq!(places(chain.readable()), rig.spans(&[buffer(DATA, 16)]));
    assert!(chain.writable().is_empty());
}

#[test]
fn a_header_split_over_three_descriptors_is_read_whole() {
    let mut rig = Rig::new(4);
    let header: [u8; 16] = *b"0123456789abcdef";
    for (at, (from, len)) in (0..).zip([(0, 1), (1, 10), (11, 5)]) {
        let address = DATA + 0x100 * u64::from(at);
        rig.fill(address, &header[from..from + len]);
        rig.describe(at, address, u32::try_from(len).unwrap(), NEXT, at + 1);
    }
    rig.describe(3, DATA + 0x1000, 513, WRITE, 0);
    let mut chain = rig.walk(0).unwrap();
    assert_eq!(chain.take_front::<16>(), Some(header));
    assert!(chain.readable().is_empty());
    assert_eq!(
        places(chain.writable()),
        rig.spans(&[buffer(DATA + 0x1000, 513)])
    );
}

#[test]
fn a_header_merged_with_data_leaves_the_data() {
    let mut rig = Rig::new(4);
    rig.fill(DATA, b"0123456789abcdefdata");
    rig.describe(0, DATA, 20, NEXT, 1);
    rig.describe(1, DATA + 0x1000, 1, WRITE, 0);
    let mut chain = rig.walk(0).unwrap();
    assert_eq!(chain.take_front::<16>(), Some(*b"0123456789abcdef"));
    assert_eq!(bytes(chain.readable()), b"data");

    // And one whose last part is merged.
    rig.describe(0, DATA, 12, NEXT, 2);
    rig.describe(2, DATA + 12, 8, NEXT, 1);
    let mut chain = rig.walk(0).unwrap();
    assert_eq!(chain.take_front::<16>(), Some(*b"0123456789abcdef"));
    assert_eq!(bytes(chain.readable()), b"data");
}

#[test]
fn a_header_that_is_not_all_there_is_left_where_it_is() {
    let mut rig = Rig::new(4);
    rig.describe(0, DATA, 10, NEXT, 1);
    rig.describe(1, DATA + 0x1000, 5, NEXT, 2);
    rig.describe(2, DATA + 0x2000, 20, WRITE, 0);
    let mut chain = rig.walk(0).unwrap();
    assert_eq!(chain.take_front::<16>(), None);
    assert_eq!(bytes(chain.readable()).len(), 15);
    assert_eq!(chain.take_front::<15>().map(|front| front.len()), Some(15));
    assert_eq!(
        chain.take_front::<1>(),
        None,
        "the writable part is not read"
    );
}

#[test]
fn a_status_byte_merged_into_the_data_is_split_off() {
    let mut rig = Rig::new(4);
    rig.describe(0, DATA, 513, WRITE, 0);
    let mut chain = rig.walk(0).unwrap();
    let status = chain.take_last_byte().unwrap();
    assert_eq!(place(status), place(rig.at(DATA + 512, 1)));
    assert_eq!(places(chain.writable()), rig.spans(&[buffer(DATA, 512)]));

    // In a descriptor of its own it leaves nothing behind.
    rig.describe(0, DATA, 512, WRITE | NEXT, 1);
    rig.describe(1, DATA + 0x1000, 1, WRITE, 0);
    let mut chain = rig.walk(0).unwrap();
    let status = chain.take_last_byte().unwrap();
    assert_eq!(place(status), place(rig.at(DATA + 0x1000, 1)));
    assert_eq!(places(chain.writable()), rig.spans(&[buffer(DATA, 512)]));
}

#[test]
fn a_chain_without_a_writable_part_has_no_status_byte() {
    let mut rig = Rig::new(4);
    rig.describe(0, DATA, 16, 0, 0);
    assert!(rig.walk(0).unwrap().take_last_byte().is_none());
}

#[test]
fn descriptors_of_no_bytes_are_passed_over() {
    let mut rig = Rig::new(4);
    rig.describe(0, 0, 0, NEXT, 1);
    rig.describe(1, DATA, 16, NEXT, 2);
    rig.describe(2, u64::MAX, 0, NEXT | WRITE, 3);
    rig.describe(3, DATA, 1, WRITE, 0);
    let chain = rig.walk(0).unwrap();
    assert_eq!(places(chain.readable()), rig.spans(&[buffer(DATA, 16)]));
    assert_eq!(places(chain.writable()), rig.spans(&[buffer(DATA, 1)]));
}

#[test]
fn a_buffer_that_crosses_into_a_touching_region_becomes_two_spans() {
    let rig = Rig::new(4);
    let mut driver = rig.driver(Suppression::EventIdx);
    let mut device = rig.device(Suppression::EventIdx);
    let header = *b"0123456789abcdef";
    rig.fill(SEAM - 9, &header);
    driver
        .stage(&[buffer(SEAM - 9, 16)], &[buffer(SEAM - 100, 4096)], 0)
        .unwrap();
    let _ = driver.publish();
    device.look().unwrap();
    let mut chain = Chain::default();
    rig.take(&mut device, &mut chain).unwrap();
    let lens = |spans: &[pollux_memory::Span]| -> Vec<usize> {
        spans.iter().map(|span| span.len()).collect()
    };
    assert_eq!(lens(chain.readable()), [9, 7]);
    assert_eq!(lens(chain.writable()), [100, 3996]);
    assert_eq!(chain.take_front::<16>(), Some(header));
}

#[test]
fn an_indirect_table_that_crosses_into_a_touching_region_is_walked() {
    let mut rig = Rig::new(4);
    // At 24 the seam splits a descriptor; at 32 it lies between two.
    for before in [1, 8, 24, 32, 40, 47] {
        let table = SEAM - before;
        rig.describe(0, table, 3 * 16, INDIRECT, 0);
        rig.describe_in(table, 0, DATA, 16, NEXT, 1);
        rig.describe_in(table, 1, DATA + 0x1000, 4096, NEXT | WRITE, 2);
        rig.describe_in(table, 2, DATA + 0x3000, 1, WRITE, 0);
        let chain = rig.walk(0).unwrap();
        assert_eq!(places(chain.readable()), rig.spans(&[buffer(DATA, 16)]));
        let writable = [buffer(DATA + 0x1000, 4096), buffer(DATA + 0x3000, 1)];
        assert_eq!(places(chain.writable()), rig.spans(&writable));
    }
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
    // Whoever had the ring before may have left them set.
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
