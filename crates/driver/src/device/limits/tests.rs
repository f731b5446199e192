use std::sync::{Arc, LazyLock};

use pollux_memory::Region;
use proptest::prelude::*;

use super::*;
use crate::memory::memfd::memfd_region;

const BYTES: usize = 1 << 20;

/// Memory that the device knows, and memory that it does not.
static MEMORY: LazyLock<[Arc<Region>; 2]> =
    LazyLock::new(|| [(); 2].map(|()| memfd_region("limits-test", BYTES).unwrap()));

fn shared(span: Span) -> bool {
    MEMORY[0].addresses().contains(&span.as_ptr().addr())
}

fn memory(which: usize) -> Span {
    // SAFETY: it stays as long as the program.
    unsafe { MEMORY[which].span() }
}

fn limits() -> impl Strategy<Value = Limits> {
    let buffer = prop_oneof![1..5000u32, Just(4096), Just(u32::MAX)];
    (buffer, 1..300usize, 9..14u32).prop_map(|(buffer, buffers, exponent)| {
        let block = 1 << exponent;
        Limits {
            buffer,
            // A device that takes less than a block is not connected to.
            buffers: buffers.max((block as usize).div_ceil(buffer as usize)),
            block,
            discard: 1 << 20,
            write_zeroes: 1 << 20,
        }
    })
}

/// Memory of all kinds, in all lengths.
fn spans() -> impl Strategy<Value = Vec<Span>> {
    let len = prop_oneof![0..4usize, 0..2000usize, (1..64usize).prop_map(|n| n * 512)];
    let span = (0..2usize, 0..BYTES / 2, len);
    let span = span.prop_map(|(of, at, len)| memory(of).slice(at, len).unwrap());
    proptest::collection::vec(span, 1..40)
}

fn total(spans: impl IntoIterator<Item = Span>) -> u64 {
    spans.into_iter().map(|span| span.len() as u64).sum()
}

proptest! {
    #[test]
    fn the_pieces_are_all_of_a_request_and_each_fits(limits in limits(), mut spans in spans()) {
        let block = u64::from(limits.block);
        let missing = total(spans.clone()).next_multiple_of(block) - total(spans.clone());
        let last = memory(0).slice(0, usize::try_from(missing).unwrap());
        spans.push(last.unwrap());
        let all = total(spans.clone());
        let mut done = 0;
        while done < all {
            let part = limits.cut(&spans, done, shared);
            prop_assert_eq!(part.skip, done);
            prop_assert!(part.len > 0 && part.len % block == 0, "{:?}", part);
            let pieces: Vec<_> = within(&spans, part.skip, part.len).collect();
            prop_assert_eq!(total(pieces.clone()), part.len);
            let buffers = |len: u64| len.div_ceil(u64::from(limits.buffer));
            let used: u64 = if part.bounced {
                prop_assert!(part.len <= BOUNCED.max(block));
                buffers(part.len)
            } else {
                prop_assert!(pieces.iter().all(|piece| shared(*piece)));
                pieces.iter().map(|piece| buffers(piece.len() as u64)).sum()
            };
            prop_assert!(used <= limits.buffers as u64, "{} buffers", used);
            done += part.len;
        }
        prop_assert_eq!(done, all);
    }

    #[test]
    fn what_is_within_is_what_lies_there(spans in spans(), skip in 0..9000u64, len in 0..9000u64) {
        let bytes = |spans: &mut dyn Iterator<Item = Span>| -> Vec<*const u8> {
            let addresses = |span: Span| {
                (0..span.len()).map(move |at| span.as_ptr().wrapping_add(at).cast_const())
            };
            spans.flat_map(addresses).collect()
        };
        let all = bytes(&mut spans.iter().copied());
        let from = usize::try_from(skip).unwrap().min(all.len());
        let to = usize::try_from(skip + len).unwrap().min(all.len());
        let here = bytes(&mut within(&spans, skip, len));
        prop_assert_eq!(&all[from..to], &here[..]);
    }
}

#[test]
fn what_a_device_does_not_say_limits_nothing() {
    let mut config = Config::parse(&[0; Config::SIZE]);
    let none = Limits::new(0, &config, 128, 512);
    assert_eq!((none.buffer, none.buffers), (u32::MAX, 1));
    let features = feature::SIZE_MAX | feature::SEG_MAX;
    let zeroes = Limits::new(features, &config, 128, 512);
    assert_eq!((zeroes.buffer, zeroes.buffers), (u32::MAX, 1));
    (config.size_max, config.seg_max) = (8192, u32::MAX);
    for (size, buffers) in [(4, 2), (128, 126), (32768, MOST_BUFFERS)] {
        let limits = Limits::new(features, &config, size, 512);
        assert_eq!((limits.buffer, limits.buffers), (8192, buffers));
    }
}
