use std::cell::RefCell;

use pollux_disk::WaitPoint;
use pollux_disk::wait::Sleeper;

use super::*;

/// Three that sleep, and how often the descriptor was handed over.
struct Fixture {
    all: Listeners<WaitPoint>,
    three: [Listener<WaitPoint>; 3],
    moves: RefCell<usize>,
    _sleepers: [Sleeper; 3],
}

impl Fixture {
    fn new() -> Self {
        let sleepers = [(); 3].map(|()| Sleeper::new().unwrap());
        let all = Listeners::new();
        Self {
            three: std::array::from_fn(|at| all.add(sleepers[at].point())),
            all,
            moves: RefCell::default(),
            _sleepers: sleepers,
        }
    }

    fn hand(&self) -> impl Hand<WaitPoint, ()> + '_ {
        |_: Option<&WaitPoint>, _: Option<&WaitPoint>| {
            *self.moves.borrow_mut() += 1;
            Ok(None)
        }
    }

    fn sleep(&self, index: usize) {
        let _ = self.all.sleep(&self.three[index], self.hand()).unwrap();
    }

    fn wake(&self, index: usize) {
        let _ = self.all.wake(&self.three[index], self.hand());
    }

    fn holder(&self) -> Option<usize> {
        let inside = lock(&self.all.inside);
        (0..3).find(|index| inside.holds(self.three[*index].name))
    }
}

#[test]
fn a_lone_sleeper_keeps_it() {
    let fixture = Fixture::new();
    for _ in 0..3 {
        fixture.sleep(0);
        fixture.wake(0);
    }
    assert_eq!((fixture.holder(), *fixture.moves.borrow()), (Some(0), 1));
}

#[test]
fn one_that_leaves_hands_it_on_and_none_awake_keeps_it_from_a_sleeper() {
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
    assert_eq!(fixture.holder(), Some(2), "it is not needed");
    fixture.sleep(1);
    assert_eq!(fixture.holder(), Some(1));
    fixture.all.remove(&fixture.three[1], fixture.hand());
    assert_eq!(fixture.holder(), None);
}

#[test]
fn one_that_cannot_be_called_does_not_sleep() {
    let fixture = Fixture::new();
    let refuse = |_: Option<&WaitPoint>, to: Option<&WaitPoint>| match to {
        Some(_) => Err(io::ErrorKind::OutOfMemory.into()),
        None => Ok(None::<()>),
    };
    fixture.all.sleep(&fixture.three[0], refuse).unwrap_err();
    fixture.sleep(1);
    fixture.sleep(2);
    fixture.all.wake(&fixture.three[1], refuse);
    assert!(lock(&fixture.all.inside).asleep.is_empty(), "woken instead");
}
