//! What a job does in one of its phases, and when its next request is due.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pollux_driver::CompletionMode;

use crate::arrivals::Arrivals;
use crate::latency::Direction;
use crate::pattern::Pattern;
use crate::plan::Plan;
use crate::verify::Model;

/// A request to start now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub direction: Direction,
    /// Which block of the job's part.
    pub block: usize,
    pub completion: CompletionMode,
    /// From when its latency counts, in nanoseconds since the start.
    pub since: u64,
}

impl Choice {
    /// For a slot that has carried nothing yet.
    pub const NOTHING: Self = Self {
        direction: Direction::Read,
        block: 0,
        completion: CompletionMode::Polled,
        since: 0,
    };
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// This request, now.
    Start(Choice),
    /// Nothing before that time.
    Later(u64),
    /// Nothing any more.
    Over,
}

/// What a job does in one of its phases.
#[derive(Debug)]
pub enum Task {
    /// Writes every block once, so that all can be verified.
    Fill {
        /// The next.
        block: usize,
    },
    /// What is measured, or the same load before that.
    Run(Run),
    /// Reads every block that was written.
    ReadBack {
        /// The next that may be one of these.
        block: usize,
    },
}

impl Task {
    /// What is measured of `plan`.
    pub fn run(plan: &Plan) -> Self {
        Self::Run(Run::new(plan, plan.runtime, true))
    }

    /// The same load for `time`, before that: it is not measured.
    pub fn ramp(plan: &Plan, time: Duration) -> Self {
        Self::Run(Run::new(plan, time, false))
    }

    /// What is measured of `plan` after this: it goes on with the next blocks.
    #[must_use]
    pub fn then_run(self, plan: &Plan) -> Self {
        let mut run = Run::new(plan, plan.runtime, true);
        if let Self::Run(before) = self {
            run.pattern = before.pattern;
        }
        Self::Run(run)
    }

    /// That of writing everything.
    pub fn fill() -> Self {
        Self::Fill { block: 0 }
    }

    /// That of reading what was written.
    pub fn read_back() -> Self {
        Self::ReadBack { block: 0 }
    }

    /// The next request at `now`. With a `model`, its block is claimed there.
    pub(crate) fn next(&mut self, now: u64, stop: &AtomicBool, model: Option<&mut Model>) -> Next {
        if stop.load(Ordering::Relaxed) {
            return Next::Over;
        }
        match self {
            Self::Run(run) => run.next(now, model),
            Self::Fill { block } => sweep(block, Direction::Write, model, |_, _| true),
            Self::ReadBack { block } => sweep(block, Direction::Read, model, |model, block| {
                model.holds(block).is_some()
            }),
        }
    }

    /// How many requests were due before `now`, and had to stay in line.
    pub fn unstarted(&self, now: u64) -> u64 {
        match self {
            Self::Run(run) => run.unstarted(now),
            Self::Fill { .. } | Self::ReadBack { .. } => 0,
        }
    }

    /// Is it what is measured?
    pub(crate) fn is_measured(&self) -> bool {
        matches!(self, Self::Run(run) if run.is_measured)
    }
}

/// The next block of those that are `wanted`, one after the other.
fn sweep(
    from: &mut usize,
    direction: Direction,
    model: Option<&mut Model>,
    wanted: fn(&Model, usize) -> bool,
) -> Next {
    let Some(model) = model else {
        return Next::Over;
    };
    let Some(block) = (*from..model.len()).find(|&block| wanted(model, block)) else {
        *from = model.len();
        return Next::Over;
    };
    // Blocks are passed once each, and nothing else is in flight meanwhile.
    let claimed = model.claim(block);
    debug_assert_eq!(claimed, Some(block), "a sweep meets no request in flight");
    *from = block + 1;
    Next::Start(Choice {
        direction,
        block,
        completion: CompletionMode::Polled,
        since: 0,
    })
}

/// The load that is measured.
#[derive(Debug)]
pub struct Run {
    pattern: Pattern,
    arrivals: Option<Arrivals>,
    /// When no more requests are started.
    end: u64,
    /// The first reading of the clock after that.
    last: Option<u64>,
    is_measured: bool,
}

impl Run {
    fn new(plan: &Plan, time: Duration, is_measured: bool) -> Self {
        Self {
            pattern: plan.pattern.clone(),
            arrivals: plan.rate.map(Arrivals::new),
            end: u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
            last: None,
            is_measured,
        }
    }

    fn unstarted(&self, now: u64) -> u64 {
        self.arrivals
            .as_ref()
            .map_or(0, |arrivals| arrivals.left_before(now.min(self.end)))
    }

    #[inline]
    fn next(&mut self, now: u64, model: Option<&mut Model>) -> Next {
        let since = match &mut self.arrivals {
            None if now >= self.end => return Next::Over,
            None => now,
            // What was due before the end is started after it, as far as there is room at once.
            Some(_) if now >= self.end && *self.last.get_or_insert(now) != now => {
                return Next::Over;
            }
            Some(arrivals) => {
                let due = arrivals.next();
                if due >= self.end {
                    return Next::Over;
                }
                if due > now {
                    return Next::Later(due);
                }
                arrivals.take();
                due
            }
        };
        let direction = self.pattern.direction();
        let mut block = self.pattern.block(direction);
        if let Some(model) = model {
            block = model
                .claim(block)
                .expect("there are as many blocks as slots");
            self.pattern.used(direction, block);
        }
        Next::Start(Choice {
            direction,
            block,
            completion: self.pattern.completion(),
            since,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;
    use crate::pattern::Order;

    static GO: AtomicBool = AtomicBool::new(false);
    const MS: u64 = 1_000_000;

    fn plan(order: Order) -> Plan {
        Plan {
            runtime: Duration::from_millis(10),
            ..Plan::new(Pattern::new(order, 4), 4, 512)
        }
    }

    fn run(plan: &Plan) -> Run {
        Run::new(plan, plan.runtime, true)
    }

    fn choice(next: Next) -> Choice {
        match next {
            Next::Start(choice) => choice,
            other => panic!("{other:?} is no request"),
        }
    }

    #[test]
    fn a_run_is_over_at_its_end() {
        let mut run = run(&plan(Order::Sequential));
        let blocks: Vec<_> = (0..6)
            .map(|now| choice(run.next(now, None)).block)
            .collect();
        assert_eq!(blocks, [0, 1, 2, 3, 0, 1]);
        assert_eq!(run.next(10 * MS, None), Next::Over);
    }

    #[test]
    fn what_is_measured_goes_on_after_the_ramp() {
        let plan = plan(Order::Sequential);
        let mut ramp = Task::ramp(&plan, Duration::from_millis(2));
        assert!(!ramp.is_measured());
        for block in 0..3 {
            assert_eq!(choice(ramp.next(0, &GO, None)).block, block);
        }
        assert_eq!(ramp.next(2 * MS, &GO, None), Next::Over);
        let mut run = ramp.then_run(&plan);
        assert!(run.is_measured());
        assert_eq!(choice(run.next(9 * MS, &GO, None)).block, 3);
        assert_eq!(run.next(10 * MS, &GO, None), Next::Over);
    }

    #[test]
    fn a_block_in_flight_is_passed_over() {
        let mut model = Model::new(4);
        let mut run = run(&plan(Order::Sequential));
        let mut next = |model: &mut Model| choice(run.next(0, Some(model))).block;
        let blocks: Vec<_> = (0..4).map(|_| next(&mut model)).collect();
        assert_eq!(blocks, [0, 1, 2, 3]);
        model.release(2, None);
        assert_eq!(next(&mut model), 2);
    }

    #[test]
    fn an_open_loop_starts_what_is_due_and_counts_from_then() {
        let mut plan = plan(Order::Random(1));
        plan.rate = NonZeroU32::new(1000);
        let mut run = run(&plan);
        assert_eq!(choice(run.next(0, None)).since, 0);
        assert_eq!(run.next(0, None), Next::Later(MS));
        // The server stalled for three milliseconds: none of the three is skipped.
        let since: Vec<_> = (0..3)
            .map(|_| choice(run.next(3 * MS, None)).since)
            .collect();
        assert_eq!(since, [MS, 2 * MS, 3 * MS]);
        assert_eq!(run.next(3 * MS, None), Next::Later(4 * MS));
        assert_eq!(run.unstarted(6 * MS + 1), 3);
    }

    #[test]
    fn the_line_of_an_open_loop_is_cut_off_at_the_end() {
        let mut plan = plan(Order::Random(1));
        plan.rate = NonZeroU32::new(1000);
        let mut run = run(&plan);
        assert_eq!(choice(run.next(11 * MS, None)).since, 0);
        assert_eq!(choice(run.next(11 * MS, None)).since, MS);
        // Full. By the next poll another one would fit, but this is after the end.
        assert_eq!(run.next(12 * MS, None), Next::Over);
        assert_eq!(run.unstarted(12 * MS), 8);
    }

    #[test]
    fn told_to_stop_it_stops() {
        let stop = AtomicBool::new(true);
        let mut task = Task::run(&plan(Order::Sequential));
        assert_eq!(task.next(0, &stop, None), Next::Over);
    }

    #[test]
    fn a_fill_writes_all_and_reading_back_reads_what_was_written() {
        let mut model = Model::new(3);
        let mut fill = Task::fill();
        for block in 0..3 {
            let next = choice(fill.next(0, &GO, Some(&mut model)));
            assert_eq!((next.direction, next.block), (Direction::Write, block));
        }
        assert_eq!(fill.next(0, &GO, Some(&mut model)), Next::Over);
        for (block, sequence) in [(0, None), (1, Some(1)), (2, None)] {
            model.release(block, sequence);
        }
        let mut back = Task::read_back();
        let next = choice(back.next(0, &GO, Some(&mut model)));
        assert_eq!((next.direction, next.block), (Direction::Read, 1));
        assert_eq!(back.next(0, &GO, Some(&mut model)), Next::Over);
    }
}
