use pollux_memory::Region;

use super::*;
use crate::memory::memfd::memfd_region;

fn region(bytes: usize) -> Arc<Region> {
    memfd_region("table-test", bytes).unwrap()
}

fn span(region: &Region) -> Span {
    // SAFETY: what it names is not touched.
    unsafe { region.span() }
}

fn addresses(span: Span) -> ops::Range<usize> {
    let start = span.as_ptr().addr();
    start..start + span.len()
}

#[test]
fn what_lies_in_one_region_is_held_and_nothing_else() {
    let known = KnownRegions::default();
    let mut view = RegionView::default();
    let memory = region(3 * 4096);
    let whole = span(&memory);
    let (first, rest) = whole.split_at(4096);
    let (second, third) = rest.split_at(4096);
    assert!(!view.of(&known).holds(first));

    known.add(addresses(third));
    known.add(addresses(first));
    assert!(view.of(&known).holds(first));
    assert!(view.of(&known).holds(third));
    assert!(view.of(&known).holds(first.slice(4095, 1).unwrap()));
    assert!(!view.of(&known).holds(second));
    assert!(!view.of(&known).holds(whole));
    assert!(!view.of(&known).holds(whole.slice(4095, 2).unwrap()));
    assert!(!view.of(&known).holds(whole.slice(8191, 2).unwrap()));

    known.add(addresses(second));
    assert!(view.of(&known).holds(second));
    let touching = whole.slice(4095, 2).unwrap();
    assert!(
        !view.of(&known).holds(touching),
        "the device may have the regions in different places"
    );

    known.remove(addresses(first));
    assert!(!view.of(&known).holds(first));
    assert!(view.of(&known).holds(second));
}

#[test]
fn a_view_is_renewed_only_by_a_change() {
    let known = KnownRegions::default();
    let mut view = RegionView::default();
    let memory = region(4096);
    known.add(memory.addresses());
    view.of(&known);
    let seen = Arc::clone(&view.table);
    view.of(&known);
    assert!(Arc::ptr_eq(&seen, &view.table));
    known.remove(memory.addresses());
    assert!(!view.of(&known).holds(span(&memory)));
    assert!(seen.holds(span(&memory)), "a snapshot does not change");
}
