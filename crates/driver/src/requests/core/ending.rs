//! How requests end: by the device, as parts of a whole, or given up.

use std::sync::Arc;

use pollux_disk::{Failure, Op};

use super::Core;
use crate::device::limits::Part;
use crate::device::rings::Rings;
use crate::requests::bounce::Bounce;
use crate::requests::command::Command;
use crate::requests::flight::{Flight, Job, Whose};

impl<T> Core<T> {
    #[cold]
    pub(super) fn end(
        &mut self,
        Flight { whose, cut }: Flight<T>,
        result: Result<(), Failure>,
        done: &mut impl FnMut(T, Result<(), Failure>),
    ) {
        if let (Whose::Part(key), Some(cut), Ok(())) = (&whose, &cut, result) {
            self.wholes[*key].has_done(cut.part);
        }
        if let Some(bounce) = cut.and_then(|cut| cut.bounce) {
            bounce.end(result);
        }
        self.end_part(whose, result, done);
    }

    pub(super) fn end_part(
        &mut self,
        whose: Whose<T>,
        result: Result<(), Failure>,
        done: &mut impl FnMut(T, Result<(), Failure>),
    ) {
        let key = match whose {
            Whose::Sole(owner) => return done(owner, result),
            Whose::Part(key) => key,
        };
        let request = &mut self.wholes[key];
        request.parts -= 1;
        request.failure = request.failure.or(result.err());
        if request.parts > 0 {
            return;
        }
        if request.flush && request.failure.is_none() {
            (request.flush, request.parts) = (false, 1);
            self.backlog.push_back(Job {
                command: Command::Op(Op::Flush),
                part: Part::default(),
                whose: Whose::Part(key),
                bounce: None,
            });
            self.refill();
            return;
        }
        let request = self.wholes.remove(key);
        done(request.owner, request.failure.map_or(Ok(()), Err));
    }

    /// Gives up everything that is in flight: the device is gone, or cannot be trusted. Memory that it
    /// may still write to is not used again before the rings are.
    ///
    /// Returns how many requests that were.
    pub fn give_up(&mut self, done: &mut impl FnMut(T, Result<(), Failure>)) -> u16 {
        self.given_up = true;
        let mut count = 0u16;
        let mut done = |owner| {
            count = count.saturating_add(1);
            done(owner, Err(Failure::Lost));
        };
        let flights = self.flights.iter_mut().filter_map(Option::take);
        let mut ended: Vec<_> = flights
            .map(|Flight { whose, cut }| {
                retire(&self.rings, cut.and_then(|cut| cut.bounce));
                whose
            })
            .collect();
        ended.extend(self.backlog.drain(..).map(|job| {
            retire(&self.rings, job.bounce);
            job.whose
        }));
        ended.extend(self.failed.drain(..).map(|(whose, _)| whose));
        for whose in ended {
            if let Whose::Sole(owner) = whose {
                done(owner);
            }
        }
        for whole in self.wholes.drain() {
            done(whole.owner);
        }
        count
    }

    /// The queue is closed. Nobody waits for its requests any more, and what was lent with them is let go.
    /// Where the device has taken chains that it has not handed back, it may use their memory for as long as the
    /// rings: all of them are given up.
    pub fn close(&mut self, done: &mut impl FnMut(T, Result<(), Failure>)) {
        let stopped = self.rings.stopped_at();
        if stopped.is_some() && self.ring.look().is_ok() {
            while let Ok(Some(_)) = self.ring.take() {}
        }
        if stopped == Some(self.ring.next()) {
            self.flights.fill_with(|| None);
            self.backlog.clear();
            self.failed.clear();
            self.wholes.clear();
        }
        self.give_up(done);
    }
}

/// What was in flight by those rings may still be written to.
fn retire(rings: &Rings, bounce: Option<Bounce>) {
    match bounce.map(Bounce::into_buffer) {
        Some(buffer) if rings.are_known() => rings.retire_with(buffer),
        // A server that has let go of the rings, and not of all requests, never says that it has.
        Some(buffer) => buffer.retire(),
        None => {}
    }
}

impl<T> Drop for Core<T> {
    fn drop(&mut self) {
        self.close(&mut |_, _| ());
        let rings = Arc::clone(&self.rings);
        self.device.keep(self.epoch, rings);
    }
}
