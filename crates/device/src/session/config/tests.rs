use super::*;

const NEGOTIATED: Negotiated = Negotiated {
    num_queues: 4,
    queue_size: 1024,
    smallest_direct_ring: None,
    cache: Cache::Writeback,
};

#[test]
fn a_ring_without_indirect_descriptors_holds_the_longest_request() {
    let geometry = Geometry::plain(1 << 20);
    for (ring, expected) in [
        (None, 126),
        (Some(4), 2),
        (Some(256), 126),
        (Some(64), 62),
        (Some(2), 1),
        (Some(1), 1),
    ] {
        let negotiated = Negotiated {
            smallest_direct_ring: ring,
            ..NEGOTIATED
        };
        assert_eq!(config(&geometry, &negotiated).seg_max, expected);
    }
    assert_eq!(
        config(
            &geometry,
            &Negotiated {
                queue_size: 64,
                ..NEGOTIATED
            }
        )
        .seg_max,
        62
    );
}

#[test]
fn the_configuration_is_found_at_both_offsets_and_ends_in_zeroes() {
    let config = config(&Geometry::plain(0x1234 * 512), &NEGOTIATED);
    assert_eq!(window(&config, 0, 2), [0x34, 0x12]);
    assert_eq!(window(&config, 0x100, 2), [0x34, 0x12]);
    assert_eq!(window(&config, 0x20, 1), [1]);
    assert_eq!(window(&config, 200, 56), [0; 56]);
}

#[test]
fn a_read_only_disk_offers_nothing_that_changes_it() {
    let geometry = Geometry {
        access: Access::ReadOnly,
        ..Geometry::plain(512)
    };
    let offered = features(&geometry);
    assert_eq!(
        offered & (feature::RO | feature::DISCARD | feature::WRITE_ZEROES),
        feature::RO
    );
}
