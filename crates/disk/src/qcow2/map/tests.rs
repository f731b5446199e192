use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::thread;

use proptest::prelude::*;

use super::*;

fn data(at: u64) -> Mapped {
    Mapped::Data(Data {
        leg: 3,
        at: at * 512,
        writable: true,
    })
}

/// Host clusters are freed and used anew, as fast as it goes, while requests are on their way to them.
#[test]
fn no_cluster_is_freed_under_a_request_that_goes_there() {
    const HOSTS: usize = 8;
    const CHANGES: usize = 20_000;
    const GUESTS: u64 = 2 * CLUSTERS;
    let map = Map::new(GUESTS);
    let live: [AtomicBool; HOSTS] = Default::default();
    let (done, hits) = (AtomicBool::new(false), AtomicUsize::new(0));
    let host = |mapped| match mapped {
        Mapped::Data(data) => Some(usize::try_from(data.at / 512).unwrap()),
        _ => None,
    };
    let request = |guest: u64| {
        // Some cross the border of a chunk.
        let Some(inside) = map.enter(guest..=guest + 1) else {
            return;
        };
        for cluster in [guest, guest + 1] {
            if let Some(host) = host(map.get(cluster)) {
                for _ in 0..20 {
                    assert!(live[host].load(Ordering::Relaxed), "{cluster} is freed");
                }
                hits.fetch_add(1, Ordering::Relaxed);
            }
        }
        map.leave(inside);
    };
    assert!(map.keep(0) && map.keep(CLUSTERS));
    thread::scope(|scope| {
        for thread in 0..2 {
            let (request, done) = (&request, &done);
            scope.spawn(move || {
                let mut guest = thread;
                while !done.load(Ordering::Relaxed) {
                    request(CLUSTERS - 4 + guest % 8);
                    guest += 1;
                }
            });
        }
        let mut random = fastrand::Rng::with_seed(1);
        for change in 0.. {
            let enough = hits.load(Ordering::Relaxed) > 1000;
            if change > CHANGES && enough {
                break;
            }
            let guest = CLUSTERS - 4 + random.u64(..8);
            let new = random.usize(..HOSTS);
            map.closed(guest..=guest, || {
                if let Some(old) = host(map.get(guest)) {
                    map.set(guest, Mapped::Unknown);
                    live[old].store(false, Ordering::Relaxed);
                }
                if !live[new].swap(true, Ordering::Relaxed) {
                    map.set(guest, data(new as u64));
                }
            });
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_chunk_gives_way_to_another_unless_it_is_in_use() {
    let map = Map::new(MAX_CHUNKS * CLUSTERS * 2);
    let (one, other) = (5, 5 + MAX_CHUNKS * CLUSTERS);
    assert!(map.keep(one));
    map.set(one, data(7));
    let inside = map.enter(one..=one).expect("it is there");
    assert!(!map.keep(other));
    assert!(map.enter(other..=other).is_none());
    map.leave(inside);
    assert!(map.keep(other));
    assert_eq!(map.get(one), Mapped::Unknown);
    assert_eq!(
        map.get(other),
        Mapped::Unknown,
        "what the other was is forgotten"
    );
    map.set(one, data(9));
    assert_eq!(
        map.get(other),
        Mapped::Unknown,
        "what is not kept cannot be set"
    );
    assert!(map.enter(one..=one).is_none());
}

#[test]
fn closing_waits_for_those_inside_and_for_no_others() {
    let map = Map::new(2 * CLUSTERS);
    assert!(map.keep(0) && map.keep(CLUSTERS));
    let inside = map.enter(0..=0).expect("it is there");
    map.closed(CLUSTERS..=CLUSTERS, || {
        assert!(map.enter(CLUSTERS..=CLUSTERS).is_none());
        assert!(
            map.enter(0..=CLUSTERS).is_none(),
            "and leaves what it has entered"
        );
    });
    let closed = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| map.closed(0..=0, || closed.store(true, Ordering::Relaxed)));
        while let Some(again) = map.enter(0..=0) {
            map.leave(again);
            thread::yield_now();
        }
        assert!(!closed.load(Ordering::Relaxed));
        map.leave(inside);
    });
    assert!(closed.load(Ordering::Relaxed));
    assert!(map.enter(0..=CLUSTERS).is_some());
}

proptest! {
    #[test]
    fn a_place_is_what_it_was_set_to(leg in 0..MAX_LEGS, at in 0u64..1 << 47, writable: bool) {
        let mapped = Mapped::Data(Data { leg, at: at * 512, writable });
        prop_assert_eq!(Mapped::from_entry(mapped.entry()), mapped);
        for mapped in [Mapped::Unknown, Mapped::Zero] {
            prop_assert_eq!(Mapped::from_entry(mapped.entry()), mapped);
        }
    }
}
