use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

use super::*;

const PAGES: usize = 64;

fn page() -> usize {
    rustix::param::page_size()
}

/// A pool of small arenas, of which the server takes `slots`.
fn pool(slots: usize) -> Pool {
    let taken = AtomicUsize::new(0);
    let register = move |_: &Arc<Region>| {
        if taken.fetch_add(1, Ordering::Relaxed) < slots {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::QuotaExceeded, "no slot"))
    };
    Pool::with_arenas_of(PAGES * page(), Box::new(register))
}

fn overlap(one: &std::ops::Range<usize>, other: &std::ops::Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}

#[test]
fn a_buffer_starts_at_a_page_and_keeps_what_is_written() {
    let pool = pool(1);
    let mut buffer = pool.allocate(1000).unwrap();
    assert_eq!(buffer.len(), 1000);
    assert!(buffer.addresses().start.is_multiple_of(page()));
    buffer.write(990, b"0123456789");
    let mut seen = [0; 5];
    buffer.read(993, &mut seen);
    assert_eq!(&seen, b"34567");
}

#[test]
#[should_panic(expected = "2 bytes at 999 of a buffer of 1000")]
fn a_copy_beyond_the_end_of_a_buffer_is_refused() {
    pool(1).allocate(1000).unwrap().read(999, &mut [0; 2]);
}

#[test]
fn a_full_pool_grows_until_the_server_has_no_slot() {
    let pool = pool(2);
    let first = pool.allocate(PAGES * page()).unwrap();
    let second = pool.allocate(1).unwrap();
    let refused = pool.allocate(PAGES * page()).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::QuotaExceeded);
    let cause = std::error::Error::source(&refused).unwrap().to_string();
    assert!(cause.contains("no slot"), "{cause}");
    drop(second);
    let again = pool.allocate(PAGES * page()).unwrap();
    assert!(!overlap(&first.addresses(), &again.addresses()));
}

#[test]
fn a_buffer_larger_than_an_arena_has_one_made_for_it() {
    let pool = pool(1);
    // Not a size that the allocator has a class of its own for.
    let len = (17 * PAGES + 1) * page();
    let buffer = pool.allocate(len).unwrap();
    drop(buffer);
    pool.allocate(len).unwrap();
}

#[test]
fn no_machine_has_room_for_every_length() {
    for len in [usize::MAX, usize::MAX / 2, isize::MAX.unsigned_abs()] {
        let refused = pool(1).allocate(len).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::OutOfMemory);
    }
}

#[test]
fn buffers_outlive_their_pool() {
    let pool = pool(1);
    let mut buffer = pool.allocate(8).unwrap();
    let retired = pool.allocate(8).unwrap();
    drop(pool);
    retired.retire();
    buffer.write(0, b"still me");
    let mut seen = [0; 8];
    buffer.read(0, &mut seen);
    assert_eq!(&seen, b"still me");
}

#[test]
fn once_given_up_nothing_that_comes_back_is_handed_out_again() {
    let pool = pool(1);
    let lent = pool.allocate(5000).unwrap();
    let theirs = lent.addresses();
    pool.give_up();
    drop(lent);
    assert_eq!(pool.retired(), 5000);
    let mut all = Vec::new();
    while let Ok(buffer) = pool.allocate(1) {
        let ours = buffer.addresses();
        assert!(ours.end <= theirs.start || theirs.end <= ours.start);
        all.push(buffer);
    }
    assert!(!all.is_empty(), "what was never lent can be");
}

#[derive(Clone, Debug)]
enum Step {
    Allocate(usize),
    Free(prop::sample::Index),
    Retire(prop::sample::Index),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..10 * 4096_usize).prop_map(Step::Allocate),
        1 => (0..2 * PAGES * 4096).prop_map(Step::Allocate),
        3 => any::<prop::sample::Index>().prop_map(Step::Free),
        1 => any::<prop::sample::Index>().prop_map(Step::Retire),
    ]
}

proptest! {
    #[test]
    fn live_buffers_never_overlap_and_retired_ones_never_come_back(
        steps in prop::collection::vec(step(), 1..200),
        slots in 1..6_usize,
    ) {
        let pool = pool(slots);
        let mut live: Vec<Buffer> = Vec::new();
        let mut retired = Vec::new();
        for step in steps {
            match step {
                Step::Allocate(len) => {
                    // An empty buffer occupies no byte.
                    let Ok(buffer) = pool.allocate(len) else { continue };
                    let new = buffer.addresses();
                    let taken = live.iter().map(Buffer::addresses).chain(retired.iter().cloned());
                    for taken in taken {
                        prop_assert!(!overlap(&new, &taken), "{new:x?} {taken:x?}");
                    }
                    live.push(buffer);
                }
                Step::Free(index) if !live.is_empty() => {
                    live.swap_remove(index.index(live.len()));
                }
                Step::Retire(index) if !live.is_empty() => {
                    let buffer = live.swap_remove(index.index(live.len()));
                    retired.push(buffer.addresses());
                    buffer.retire();
                }
                Step::Free(_) | Step::Retire(_) => {}
            }
        }
        let lost: usize = retired.iter().map(ExactSizeIterator::len).sum();
        prop_assert_eq!(pool.retired(), lost as u64);
    }

    #[test]
    fn once_all_is_freed_all_can_be_allocated_again(
        lens in prop::collection::vec(1..10 * 4096_usize, 1..100),
        order in any::<prop::sample::Index>(),
    ) {
        let pool = pool(1);
        let mut live: Vec<_> = lens.iter().map_while(|&len| pool.allocate(len).ok()).collect();
        while !live.is_empty() {
            live.swap_remove(order.index(live.len()));
        }
        let whole = pool.allocate(PAGES * page()).unwrap();
        drop(whole);
        let single: Result<Vec<_>, _> = (0..PAGES).map(|_| pool.allocate(1)).collect();
        prop_assert_eq!(single.unwrap().len(), PAGES);
    }
}
