use super::*;

/// Turns of 64 requests under a driver that is back when the worker has done `away` more. How much
/// is left at a call in the end, and how many of the last calls were late?
fn settle(away: u16) -> (u16, u32) {
    let mut lead = LeadTime::default();
    let mut late = 0;
    for turn in 0..2000 {
        lead.call();
        if lead.requests() < away {
            lead.ran_dry();
            late += u32::from(turn >= 1000);
        }
    }
    (lead.requests(), late)
}

#[test]
fn a_driver_is_called_as_early_as_it_takes_to_come_back() {
    for away in [2, 10, 24, 50] {
        let (left, late) = settle(away);
        assert!((away - 1..=away + 10).contains(&left), "{left} for {away}");
        assert!((16..=32).contains(&late), "{late} of 1000 for {away}");
    }
}

#[test]
fn one_that_is_never_in_time_is_called_as_early_as_can_be() {
    assert_eq!(settle(u16::MAX).0, BUDGET);
}

#[test]
fn one_that_is_always_in_time_is_called_at_the_end() {
    assert_eq!(settle(0), (0, 0));
}

#[test]
fn nothing_is_learnt_from_a_driver_that_was_not_called() {
    let mut lead = LeadTime::default();
    (0..100).for_each(|_| lead.ran_dry());
    assert_eq!(lead.requests(), LeadTime::default().requests());
}

#[test]
fn a_call_is_late_once() {
    let (mut once, mut often) = (LeadTime::default(), LeadTime::default());
    for (lead, times) in [(&mut once, 1), (&mut often, 100)] {
        lead.call();
        (0..times).for_each(|_| lead.ran_dry());
    }
    assert_eq!(once.requests(), often.requests());
}

#[test]
fn a_call_that_waits_tells_of_the_one_before_and_not_of_itself() {
    let mut lead = LeadTime::default();
    let before = lead.fractions;
    lead.wait();
    lead.ran_dry();
    assert_eq!(lead.fractions, before);
    lead.call();
    lead.wait();
    lead.ran_dry();
    assert_eq!(lead.fractions, before - 1);
}
