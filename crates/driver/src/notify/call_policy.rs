//! Are calls needed? A machine without ring, lock or clock, so that each rule is a line of a test.
//!
//! *Calls are needed while a call-driven request is in flight or any owner sleeps on the queue*, those
//! included that wait for room; else they are off. A request that its owner goes to sleep over is
//! call-driven from then on, whatever it was submitted as: no owner polls for it any more.
//!
//! The Linux RFC of 2021 turned calls off while *any* polled request was in flight. A poller that is
//! stopped then holds up everybody else on the queue without bound: `tests/loom` shows it.

use crate::{CompletionMode, Mixed};

/// What is in flight on a queue, and how many owners sleep.
#[derive(Clone, Debug)]
pub struct CallPolicy {
    mixed: Mixed,
    polled: usize,
    call_driven: usize,
    /// Those that sleep without a request of theirs being counted as call-driven: they wait for room, or
    /// for anything at all.
    sleepers: usize,
    /// Somebody has waited for as long as calls may be suspended, and no poller has come by since.
    overdue: bool,
}

impl CallPolicy {
    /// Of a queue without requests.
    pub const fn new(mixed: Mixed) -> Self {
        Self {
            mixed,
            polled: 0,
            call_driven: 0,
            sleepers: 0,
            overdue: false,
        }
    }

    /// A request begins.
    #[inline]
    pub fn begin(&mut self, completion: CompletionMode) {
        match completion {
            CompletionMode::Polled => self.polled += 1,
            CompletionMode::Call => self.call_driven += 1,
        }
    }

    /// It has ended.
    #[inline]
    pub fn end(&mut self, completion: CompletionMode) {
        match completion {
            CompletionMode::Polled => self.polled -= 1,
            CompletionMode::Call => self.call_driven -= 1,
        }
    }

    /// The owner of a polled request goes to sleep over it.
    pub fn turn_over(&mut self) {
        self.polled -= 1;
        self.call_driven += 1;
    }

    /// Somebody goes to sleep, for room or for anything.
    pub fn sleep(&mut self) {
        self.sleepers += 1;
    }

    /// An owner that went to sleep does not sleep any more.
    pub fn wake(&mut self) {
        self.sleepers -= 1;
    }

    /// Somebody has waited for a call for as long as it may be suspended.
    pub fn overdue(&mut self) {
        self.overdue = true;
    }

    /// A poller has come by and has found something.
    #[inline]
    pub fn polled(&mut self) {
        self.overdue = false;
    }

    /// Does an owner wait for a call that is suspended? An alarm has to bound that.
    pub fn suspended(&self) -> bool {
        matches!(self.mixed, Mixed::SuspendedFor(_)) && self.waited_for() && !self.wanted()
    }

    #[inline]
    fn waited_for(&self) -> bool {
        self.call_driven > 0 || self.sleepers > 0
    }

    /// Must the device call?
    #[inline]
    pub fn wanted(&self) -> bool {
        // Where everything is polled, that is all there is to ask.
        self.waited_for()
            && match self.mixed {
                Mixed::WhileNeeded => true,
                Mixed::SuspendedFor(_) => self.polled == 0 || self.overdue,
            }
    }
}

#[cfg(test)]
mod tests {
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
                Mixed::SuspendedFor(_) => {
                    needed && (self.overdue || !self.requests.contains(&Polled))
                }
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
}
