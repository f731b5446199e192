use super::*;
use crate::queue::{BUDGET, SLICE, WORK};

fn of(positions: u16) -> Active {
    let mut active = Active::default();
    (0..positions).for_each(|position| active.add(position));
    active
}

/// Turns in which each position of `busy` has one; those that are due leave.
fn turns(active: &mut Active, busy: &[u16], turns: u16) {
    for _ in 0..turns {
        if active.turn(&mut Budget::default(), |position, _| {
            busy.contains(&position).into()
        }) {
            active.leave(|_| true);
        }
    }
}

fn polled(active: &Active) -> Vec<u16> {
    let mut polled: Vec<_> = active.iter().collect();
    polled.sort_unstable();
    polled
}

#[test]
fn those_that_bring_nothing_leave_and_come_back() {
    let mut active = of(128);
    turns(&mut active, &[5], IDLE_AFTER - 1);
    assert_eq!(polled(&active).len(), 128);
    turns(&mut active, &[5], 1);
    assert_eq!(polled(&active), [5]);
    (0..127).for_each(|_| active.poll_idle(|position| position == 9));
    assert_eq!(polled(&active), [5, 9], "each is polled in as many polls");
    active.kicked(7);
    active.kicked(7);
    assert_eq!(polled(&active), [5, 7, 9]);
    turns(&mut active, &[5, 9], IDLE_AFTER);
    assert_eq!(polled(&active), [5, 9]);
}

#[test]
fn sleeps_leave_those_alone_that_bring_nothing() {
    let mut active = of(3);
    for sleeps in 1..=8 {
        turns(&mut active, &[0], 1);
        active.kicked(1);
        active.slept();
        active.leave(|_| true);
        let all = polled(&active);
        assert_eq!(
            all.len(),
            if sleeps < 8 { 3 } else { 2 },
            "{sleeps}: {all:?}"
        );
    }
    assert_eq!(polled(&active), [0, 1], "a queue that kicks is not idle");
}

#[test]
fn one_that_cannot_be_armed_stays() {
    let mut active = of(1);
    let mut asked = 0;
    for _ in 0..2 * IDLE_AFTER {
        if active.turn(&mut Budget::default(), |_, _| 0) {
            active.leave(|_| {
                asked += 1;
                false
            });
        }
    }
    assert_eq!((asked, polled(&active)), (2, vec![0]));
    (0..100).for_each(|_| active.slept());
    assert!(active.turn(&mut Budget::default(), |_, _| 0));
}

/// A worker that never sleeps lets none leave.
#[test]
fn one_that_brings_nothing_for_ever_may_stay() {
    let mut active = of(1);
    for _ in 0..=u32::from(u16::MAX) {
        let _ = active.turn(&mut Budget::default(), |_, _| 0);
    }
    active.leave(|_| true);
    assert!(active.is_empty());
}

/// How much of a turn so many requests are, each of so much work.
#[expect(clippy::cast_precision_loss, reason = "a few MiB")]
fn turns_of((requests, work): (u16, u64)) -> f64 {
    let each = (1.0 / f64::from(BUDGET)).max(work as f64 / WORK as f64);
    f64::from(requests) * each
}

/// Queues whose drivers keep so many requests in flight, each of so much work: how much each got in so many turns, in
/// turns.
fn served(queues: &[(u16, u64)], turns: u32) -> Vec<f64> {
    let mut active = of(u16::try_from(queues.len()).unwrap());
    let mut served = vec![0.0; queues.len()];
    for _ in 0..turns {
        active.turn(&mut Budget::default(), |position, budget| {
            let (depth, work) = queues[usize::from(position)];
            let mut found = 0;
            while found < depth && !budget.is_spent() {
                budget.chains -= 1;
                budget.spend(work);
                found += 1;
            }
            served[usize::from(position)] += turns_of((found, work));
            found
        });
    }
    served
}

#[test]
fn no_queue_starves_another_whatever_each_sends() {
    const TURNS: u32 = 100;
    let small = [0, 1, 20, 33, 63, 64, 256].map(|depth| (depth, 0));
    let large = [(64, 4096), (1, SLICE), (2, SLICE), (64, SLICE)];
    let kinds = [&small[..], &large].concat();
    let mut mixes = vec![vec![]];
    for _ in 0..3 {
        let longer = |mix: &Vec<_>| {
            let mix = mix.clone();
            kinds.iter().map(move |kind| [&mix[..], &[*kind]].concat())
        };
        mixes = mixes.iter().flat_map(longer).collect();
        for mix in &mixes {
            // By turns, each would get what it sends, up to a turn; so it does, give or take the half.
            let sent: Vec<_> = mix.iter().map(|queue| turns_of(*queue).min(1.0)).collect();
            let rounds = f64::from(TURNS) / sent.iter().sum::<f64>().max(1.0);
            let got = served(mix, TURNS);
            for (sent, each) in sent.iter().zip(&got) {
                let least = 0.5 * sent * rounds - 2.0;
                assert!(*each >= least, "{each} of {least} in {mix:?}: {got:?}");
            }
        }
    }
}

#[test]
fn a_queue_cut_short_begins_the_next_turn_and_not_the_one_after() {
    // Of a driver with 63 in flight and one with more than a turn takes, and many that send nothing now.
    for silent in [0, 1, 125] {
        let mut queues = vec![(63, 0), (256, 0)];
        queues.resize(2 + silent, (0, 0));
        let got = served(&queues, 1000);
        assert!((0.9..1.1).contains(&(got[0] / got[1])), "{silent}: {got:?}");
    }
}

#[test]
fn positions_come_and_go() {
    let mut active = of(2);
    active.remove(0);
    assert_eq!(polled(&active), [1]);
    active.add(0);
    active.add(0);
    assert_eq!(polled(&active), [0, 1]);
    turns(&mut active, &[], IDLE_AFTER);
    assert!(active.is_empty());
    active.remove(0);
    (0..2).for_each(|_| active.poll_idle(|_| true));
    assert_eq!(polled(&active), [1]);
}
