use super::*;

fn linear(start: u64, len: u64, leg: usize, at: u64) -> Target {
    let layout = Layout::Linear(Stretch { leg, at });
    Target { start, len, layout }
}

fn of_table(targets: &[Target], legs: &[Geometry]) -> Result<Whole, StackError> {
    Plan::Table(targets.to_vec()).whole(legs)
}

#[test]
fn what_does_not_fit_is_named() {
    let legs = [Geometry::plain(4096), Geometry::plain(8192)];
    let refused = |targets: &[Target]| of_table(targets, &legs).unwrap_err().to_string();
    for (targets, error) in [
        (vec![], "target 1 has an impossible length"),
        (
            vec![linear(512, 512, 0, 0)],
            "begins at sector 1, and those before it end at sector 0; let it",
        ),
        (
            vec![linear(0, 512, 0, 0), linear(0, 512, 1, 0)],
            "target 2 begins at sector 0, and those before it end at sector 1",
        ),
        (
            vec![linear(0, 4608, 0, 0)],
            "leg 1 holds 4096 bytes (8 sectors), and the table uses it up to 4608 (9); enlarge",
        ),
        (
            vec![linear(0, 512, 1, u64::MAX - 511)],
            "impossible length or place",
        ),
        (vec![linear(0, 512, 2, 0)], "names leg 3, and there are 2"),
        (
            vec![linear(0, 512, 1, 256)],
            "an offset of target 1 is 256 bytes",
        ),
    ] {
        let seen = refused(&targets);
        assert!(seen.contains(error), "{seen}, not {error}");
    }
    for chunk in [0, 256, 768, 1 << 31] {
        let refused = Plan::Striped(chunk).whole(&legs).unwrap_err();
        assert!(matches!(refused, StackError::Chunk { .. }), "{refused}");
    }
    let small = Plan::Striped(8192).whole(&legs).unwrap_err();
    assert!(
        matches!(small, StackError::TooSmall { leg: 1, .. }),
        "{small}"
    );
}

#[test]
fn nothing_is_larger_than_a_disk_can_be() {
    const MOST: u64 = i64::MAX.cast_unsigned();
    let half = Geometry::plain((1 << 62) - 512);
    let legs = |count: usize, leg: Geometry| vec![leg; count];
    let joined = |legs: &[Geometry]| {
        let sizes = legs.iter().map(|leg| leg.bytes).collect();
        Plan::Joined(sizes)
            .whole(legs)
            .map(|whole| whole.geometry.bytes)
    };
    assert_eq!(joined(&legs(2, half)), Ok(MOST - 1023));
    // 2^63, 2^64 - 2048 and, past the end of all numbers, 2^64 + 1 MiB.
    let quarter = Geometry::plain(1 << 62);
    for legs in [
        legs(2, quarter),
        legs(4, half),
        [legs(4, quarter), legs(1, Geometry::plain(1 << 20))].concat(),
    ] {
        assert_eq!(joined(&legs), Err(StackError::TooLarge));
    }
    let striped = |count, leg| Plan::Striped(512).whole(&legs(count, leg)).map(drop);
    assert_eq!(striped(2, half), Ok(()));
    for count in [3, 4, 5, 1 << 12] {
        assert_eq!(striped(count, half), Err(StackError::TooLarge), "{count}");
    }
    let table =
        |at: u64, len: u64| of_table(&[linear(0, at, 0, 0), linear(at, len, 0, 0)], &[half]);
    let most = (1 << 62) - 512;
    assert_eq!(table(most, most).unwrap().geometry.bytes, MOST - 1023);
    for len in [1 << 63, u64::MAX - 511] {
        assert_eq!(table(most, len).unwrap_err(), StackError::TooLarge, "{len}");
    }
}

#[test]
fn the_whole_can_do_what_all_legs_can() {
    let limits = |max_bytes, alignment| {
        Some(RangeLimits {
            max_bytes,
            alignment,
        })
    };
    let one = Geometry {
        discard: limits(1 << 20, 4096),
        write_zeroes: limits(1 << 20, 512),
        ..Geometry::plain(1 << 20)
    };
    let other = Geometry {
        block: 4096,
        physical_block: 4096,
        discard: limits(1 << 30, 512),
        access: Access::ReadOnly,
        ..Geometry::plain(3 << 20)
    };
    let whole = Plan::Striped(65536).whole(&[one, other]).unwrap().geometry;
    let expected = Geometry {
        bytes: 2 << 20,
        access: Access::ReadOnly,
        block: 4096,
        physical_block: 4096,
        optimal_io: 65536,
        discard: limits(1 << 20, 4096),
        write_zeroes: None,
        ..Geometry::plain(0)
    };
    assert_eq!(whole, expected);
}

#[test]
fn only_the_last_of_joined_legs_grows() {
    let sizes = |one, other| [Geometry::plain(one), Geometry::plain(other)];
    let plan = Plan::Joined(vec![4096, 4096]);
    assert_eq!(
        plan.whole(&sizes(4096, 8192)).unwrap().geometry.bytes,
        12288
    );
    assert_eq!(plan.whole(&sizes(8192, 4096)).unwrap().geometry.bytes, 8192);
}
