use super::*;
use crate::queue::unpublished::Unpublished;

#[test]
fn a_full_turn_is_one_call_and_one_of_large_requests_more() {
    for (data, expected) in [(0, 1), (4096, 1), (128 << 10, 8)] {
        let (mut unpublished, mut calls) = (Unpublished::default(), 0);
        let mut left = crate::queue::budget::BUDGET;
        let mut armed = true;
        while left > 0 {
            (0..SHOW_EVERY).for_each(|_| unpublished.add(data));
            left -= SHOW_EVERY;
            if is_time_to_call(left, &LeadTime::default(), unpublished.worth) {
                unpublished.worth = 0;
                // Small requests are many before the driver runs; large ones it waits for one by one.
                calls += u32::from(armed);
                armed = data > 4096;
            }
        }
        assert_eq!(calls, expected, "{data} bytes each");
    }
}
