//! Which of the channels that sleep over a shared queue holds its call descriptor.
//!
//! One does. A call wakes that one alone; it reaps for everybody, and whose requests it reaps is woken at
//! its own wait point. When it leaves, it hands the descriptor on to another that sleeps. Alone on its
//! queue, a channel keeps it from one sleep to the next, which costs nothing.
//!
//! `EPOLLEXCLUSIVE` would seem to do that in the kernel: all channels watch the descriptor all the time,
//! and one thread of those that sleep in `epoll_wait` is woken. But that a thread sleeps at a wait point
//! does not say over what. One that has two channels, and sleeps over the other one, would be woken, would
//! not look at this queue, and would sleep on, while the call was meant for somebody else. So only who has
//! armed here may hold the descriptor, and `epoll` cannot know who that is.

use std::collections::VecDeque;
use std::io;

use pollux_disk::WaitPoint;

use crate::sync::{Mutex, lock};

/// Those that sleep, and who of them holds the descriptor.
#[derive(Debug, Default)]
pub struct Listeners {
    inside: Mutex<Inside>,
}

#[derive(Debug, Default)]
struct Inside {
    /// In the order in which they went to sleep.
    asleep: VecDeque<Listener>,
    /// It sleeps, unless nobody does.
    holder: Option<Listener>,
    /// Who comes next is called that.
    next: u64,
}

/// One that sleeps from time to time.
#[derive(Clone, Debug)]
pub struct Listener {
    name: u64,
    point: WaitPoint,
}

/// Moves the descriptor from one wait point, if any, to another, if any.
pub trait Hand: Fn(Option<&WaitPoint>, Option<&WaitPoint>) -> io::Result<()> {}

impl<F: Fn(Option<&WaitPoint>, Option<&WaitPoint>) -> io::Result<()>> Hand for F {}

impl Listeners {
    /// One more, which sleeps at `point`, awake at first.
    pub fn add(&self, point: &WaitPoint) -> Listener {
        let mut inside = lock(&self.inside);
        inside.next += 1;
        Listener {
            name: inside.next,
            point: point.clone(),
        }
    }

    /// It goes to sleep. Handing the descriptor over may swallow a call: **the caller looks at the ring
    /// after this**.
    ///
    /// # Errors
    ///
    /// Where it ought to hold the descriptor and cannot: it may not sleep.
    pub fn sleep(&self, who: &Listener, hand: impl Hand) -> io::Result<()> {
        let mut inside = lock(&self.inside);
        inside.asleep.push_back(who.clone());
        inside.settle(hand).inspect_err(|_| {
            inside.asleep.pop_back();
        })
    }

    /// It sleeps no more. **The caller looks at the ring after this**, as for [`Listeners::sleep`].
    pub fn wake(&self, who: &Listener, hand: impl Hand) {
        let mut inside = lock(&self.inside);
        inside.asleep.retain(|other| other.name != who.name);
        while let Err(error) = inside.settle(&hand) {
            // It looks for itself then, and tries to listen again before it sleeps.
            tracing::warn!(%error, "a sleeper cannot be called, and is woken");
            if let Some(deaf) = inside.asleep.pop_front() {
                deaf.point.wake();
            }
        }
    }

    /// It will sleep no more: [`Listeners::wake`], and nothing of it stays behind.
    pub fn remove(&self, who: &Listener, hand: impl Hand) {
        self.wake(who, &hand);
        let mut inside = lock(&self.inside);
        if inside.holds(who.name) {
            let unheld = hand(Some(&who.point), None);
            debug_assert!(unheld.is_ok(), "{unheld:?}");
            inside.holder = None;
        }
    }
}

impl Inside {
    fn holds(&self, name: u64) -> bool {
        self.holder
            .as_ref()
            .is_some_and(|holder| holder.name == name)
    }

    /// Sees to it that one that sleeps holds the descriptor.
    fn settle(&mut self, hand: impl Hand) -> io::Result<()> {
        let Some(first) = self.asleep.front() else {
            return Ok(());
        };
        if self.asleep.iter().any(|one| self.holds(one.name)) {
            return Ok(());
        }
        let holder = self.holder.as_ref();
        hand(holder.map(|holder| &holder.point), Some(&first.point))?;
        self.holder = Some(first.clone());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use pollux_disk::wait::Sleeper;

    use super::*;

    /// Three that sleep, and how often the descriptor was handed over.
    struct Fixture {
        all: Listeners,
        three: [Listener; 3],
        moves: RefCell<usize>,
        _sleepers: [Sleeper; 3],
    }

    impl Fixture {
        fn new() -> Self {
            let sleepers = [(); 3].map(|()| Sleeper::new().unwrap());
            let all = Listeners::default();
            Self {
                three: std::array::from_fn(|at| all.add(sleepers[at].point())),
                all,
                moves: RefCell::default(),
                _sleepers: sleepers,
            }
        }

        fn hand(&self) -> impl Hand + '_ {
            |_: Option<&WaitPoint>, _: Option<&WaitPoint>| {
                *self.moves.borrow_mut() += 1;
                Ok(())
            }
        }

        fn sleep(&self, who: usize) {
            self.all.sleep(&self.three[who], self.hand()).unwrap();
        }

        fn wake(&self, who: usize) {
            self.all.wake(&self.three[who], self.hand());
        }

        fn holder(&self) -> Option<usize> {
            let inside = lock(&self.all.inside);
            (0..3).find(|who| inside.holds(self.three[*who].name))
        }
    }

    #[test]
    fn who_sleeps_alone_keeps_it() {
        let fixture = Fixture::new();
        for _ in 0..3 {
            fixture.sleep(0);
            fixture.wake(0);
        }
        assert_eq!((fixture.holder(), *fixture.moves.borrow()), (Some(0), 1));
    }

    #[test]
    fn who_leaves_hands_it_on_and_nobody_awake_keeps_it_from_a_sleeper() {
        let fixture = Fixture::new();
        fixture.sleep(0);
        fixture.sleep(1);
        fixture.sleep(2);
        assert_eq!(fixture.holder(), Some(0));
        fixture.wake(1);
        assert_eq!((fixture.holder(), *fixture.moves.borrow()), (Some(0), 1));
        fixture.wake(0);
        assert_eq!(fixture.holder(), Some(2));
        fixture.wake(2);
        assert_eq!(fixture.holder(), Some(2), "nobody needs it");
        fixture.sleep(1);
        assert_eq!(fixture.holder(), Some(1));
        fixture.all.remove(&fixture.three[1], fixture.hand());
        assert_eq!(fixture.holder(), None);
    }

    #[test]
    fn who_cannot_be_called_does_not_sleep() {
        let fixture = Fixture::new();
        let refuse = |_: Option<&WaitPoint>, to: Option<&WaitPoint>| match to {
            Some(_) => Err(io::ErrorKind::OutOfMemory.into()),
            None => Ok(()),
        };
        fixture.all.sleep(&fixture.three[0], refuse).unwrap_err();
        fixture.sleep(1);
        fixture.sleep(2);
        fixture.all.wake(&fixture.three[1], refuse);
        assert!(lock(&fixture.all.inside).asleep.is_empty(), "woken instead");
    }
}
