//! What the device end makes of descriptors, in whatever layout they come.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use common::{INDIRECT, NEXT, Rig, SEAM, WRITE, buffer, bytes, place, places};
use pollux_ring::{Chain, Suppression};

const DATA: u64 = SEAM + 0x1000;

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
    assert_eq!(chain.steps(), 4);
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
        // Its three descriptors are copied, and then walked.
        assert_eq!(chain.steps(), 6);
    }
}
