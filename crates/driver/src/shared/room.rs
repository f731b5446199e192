//! The requests that wait for room in a queue, in the order in which they came.

use std::collections::VecDeque;
use std::task::Waker;

/// Names one that waits for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn(u64);

/// Those that wait.
#[derive(Debug, Default)]
pub struct RoomQueue {
    waiting: VecDeque<(Turn, Waker)>,
    /// How many have ever waited.
    turns: u64,
}

impl RoomQueue {
    /// One more, to be woken by `waker`.
    pub fn push(&mut self, waker: Waker) -> Turn {
        self.turns += 1;
        let turn = Turn(self.turns);
        self.waiting.push_back((turn, waker));
        turn
    }

    /// The waker of the first, which waits no more.
    pub fn pop(&mut self) -> Option<Waker> {
        self.waiting.pop_front().map(|(_, waker)| waker)
    }

    /// How many are before it; `None` once it was woken.
    pub fn position(&self, turn: Option<Turn>) -> Option<usize> {
        self.waiting.iter().position(|one| Some(one.0) == turn)
    }

    /// The waker at that position.
    pub fn waker_mut(&mut self, position: usize) -> &mut Waker {
        &mut self.waiting[position].1
    }

    /// Takes the one at that position out.
    pub fn remove(&mut self, position: usize) -> Waker {
        let waiting = self.waiting.remove(position);
        waiting.expect("it was found there").1
    }
}
