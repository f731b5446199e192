use std::time::Duration;

use super::*;
use CompletionMode::{Call, Polled};

#[test]
fn calls_are_on_while_a_call_driven_request_is_in_flight_or_anybody_sleeps() {
    let mut policy = CallPolicy::new(Mixed::WhileNeeded);
    assert!(!policy.wanted());
    policy.begin(Polled);
    assert!(!policy.wanted());
    policy.begin(Call);
    assert!(policy.wanted(), "whatever else is in flight");
    policy.end(Call);
    assert!(!policy.wanted());
    policy.sleep();
    assert!(policy.wanted(), "for room, for instance");
    policy.wake();
    policy.turn_over();
    assert!(policy.wanted(), "its owner does not poll any more");
    policy.end(Call);
    assert!(!policy.wanted());
}

#[test]
fn suspended_calls_come_back_when_somebody_has_waited_long_enough() {
    let bound = Duration::from_millis(2);
    let mut policy = CallPolicy::new(Mixed::SuspendedFor(bound));
    policy.begin(Call);
    assert!(
        policy.wanted(),
        "without pollers there is nothing to rely on"
    );
    policy.begin(Polled);
    assert!(!policy.wanted());
    assert!(policy.suspended());
    policy.overdue();
    assert!(policy.wanted() && !policy.suspended());
    policy.polled();
    assert!(!policy.wanted(), "a poller is there again");
    policy.end(Polled);
    assert!(policy.wanted());
}

/// The rule as it is written, over the list of all that is in flight.
#[derive(Default)]
struct Naive {
    requests: Vec<CompletionMode>,
    sleepers: usize,
    overdue: bool,
}

impl Naive {
    fn wanted(&self, mixed: Mixed) -> bool {
        let needed = self.requests.contains(&Call) || self.sleepers > 0;
        match mixed {
            Mixed::WhileNeeded => needed,
            Mixed::SuspendedFor(_) => needed && (self.overdue || !self.requests.contains(&Polled)),
        }
    }
}

proptest::proptest! {
    #[test]
    fn it_counts_right(steps in proptest::collection::vec((0..8u8, 0..16usize), 0..200)) {
        for mixed in [
            Mixed::WhileNeeded,
            Mixed::SuspendedFor(Duration::from_millis(1)),
        ] {
            let (mut policy, mut naive) = (CallPolicy::new(mixed), Naive::default());
            for &(step, which) in &steps {
                let at = which % naive.requests.len().max(1);
                match (step, naive.requests.get(at)) {
                    (0 | 1, _) => {
                        let completion = if step == 0 { Polled } else { Call };
                        policy.begin(completion);
                        naive.requests.push(completion);
                    }
                    (2, Some(_)) => policy.end(naive.requests.swap_remove(at)),
                    (3, Some(Polled)) => {
                        policy.turn_over();
                        naive.requests[at] = Call;
                    }
                    (4, _) => {
                        policy.sleep();
                        naive.sleepers += 1;
                    }
                    (5, _) if naive.sleepers > 0 => {
                        policy.wake();
                        naive.sleepers -= 1;
                    }
                    (6 | 7, _) => {
                        naive.overdue = step == 6;
                        if naive.overdue { policy.overdue() } else { policy.polled() }
                    }
                    _ => {}
                }
                proptest::prop_assert_eq!(policy.wanted(), naive.wanted(mixed));
                let bounded = matches!(mixed, Mixed::SuspendedFor(_));
                let held_back = naive.wanted(Mixed::WhileNeeded) && !naive.wanted(mixed);
                proptest::prop_assert_eq!(policy.suspended(), bounded && held_back);
            }
        }
    }
}
