//! A queue and its device for loom: the real lanes, and around them as little as will do.

mod events;
mod request;
mod ring;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::task::Waker;

use loom::sync::Mutex;
use loom::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use pollux_disk::Failure;
use pollux_driver::model::{
    Call, CallPolicy, Ends, EventFd as _, Listener, Owner, Switchboard, Transport, Turn,
};
use pollux_driver::{CompletionMode, KickLock, Mixed};
use pollux_ring::{
    Armed, Head, IndexView, Notify, Reader, RingIndex, Suppression, UsedElem, Writer,
};

use self::events::{CallFd, Event, Handle, ModelSleeper, Point};
pub use self::request::Request;
use self::ring::{Ring, Rings, SIZE, START};

/// The driver's end: as many requests in flight as there is room for, the others in a backlog.
pub struct DriverEnd {
    available: Writer<Head>,
    used: Reader<UsedElem>,
    flights: [Option<Request>; SIZE],
    room: usize,
    backlog: VecDeque<Request>,
    /// Which server it is, and which it is to its knowledge.
    epoch: Arc<AtomicU16>,
    known: u16,
    /// On which it goes on at the next.
    fresh: Arc<Rings>,
    _rings: Arc<Rings>,
}

impl DriverEnd {
    /// Goes on at the next server, with everything that is in flight.
    fn follow(&mut self, epoch: u16) {
        let suppression = self.fresh.suppression;
        self.available = Writer::new(self.fresh.available.lane(suppression), START);
        self.used = Reader::new(self.fresh.used.lane(suppression), START);
        self.known = epoch;
        let flights = self.flights.iter_mut().filter_map(Option::take);
        let again: Vec<_> = flights.chain(self.backlog.drain(..)).collect();
        self.backlog = again.into();
    }

    pub fn accept(&mut self, request: Request) {
        self.backlog.push_back(request);
        self.refill();
    }

    fn refill(&mut self) {
        while self.flights.iter().flatten().count() < self.room
            && let Some(request) = self.backlog.pop_front()
        {
            let head = self.flights.iter().position(Option::is_none).unwrap();
            self.flights[head] = Some(request);
            self.available.stage(Head(u16::try_from(head).unwrap()));
        }
    }
}

impl Ends for DriverEnd {
    type Owner = Request;

    fn reap(&mut self, done: &mut impl FnMut(Request, Result<(), Failure>)) -> u16 {
        let chains = self.used.look().unwrap();
        while let Some(UsedElem { id, .. }) = self.used.take() {
            let head = usize::try_from(id).unwrap();
            done(self.flights[head].take().unwrap(), Ok(()));
        }
        let epoch = self.epoch.load(Ordering::Relaxed);
        if epoch != self.known {
            self.follow(epoch);
        }
        self.refill();
        chains
    }

    fn publish(&mut self) -> Notify {
        self.available.publish()
    }

    fn has_failed(&self) -> bool {
        false
    }

    fn arm(&mut self) -> Armed {
        self.used.arm().unwrap()
    }

    fn is_armed(&self) -> bool {
        self.used.is_armed()
    }

    fn disarm(&mut self) {
        self.used.disarm();
    }

    fn has_room(&self) -> bool {
        self.backlog.is_empty() && self.flights.iter().flatten().count() < self.room
    }

    fn is_gone(&self) -> bool {
        false
    }

    fn next(&self) -> RingIndex {
        self.used.next()
    }
}

/// When a suspended call comes back: told by a thread of its own, at any moment after it was set.
#[derive(Debug, Default)]
pub struct CallTimer {
    pub set: Event,
    fired: Mutex<bool>,
}

/// What is outside the lock.
pub struct ModelTransport {
    view: IndexView<UsedElem>,
    epoch: Arc<AtomicU16>,
    kick: Arc<Event>,
    call: Arc<Call<CallFd>>,
    pub timer: Arc<CallTimer>,
    _rings: Arc<Rings>,
}

impl Transport for ModelTransport {
    type EventFd = CallFd;
    type Point = Handle;

    fn call(&self) -> &Call<CallFd> {
        &self.call
    }

    fn watched_by(&self, point: &Handle) -> io::Result<()> {
        self.call.fd().watched_by(&point.0);
        Ok(())
    }

    fn unwatched_by(&self, point: &Handle) {
        self.call.fd().unwatched_by(&point.0);
    }

    fn sees_more_than(&self, next: RingIndex) -> bool {
        self.view.sees_more_than(next) || self.epoch.load(Ordering::Relaxed) > 0
    }

    fn kick(&self) {
        self.kick.signal();
    }

    fn start_timer(&self) {
        self.timer.set.signal();
    }

    fn timer(&self) -> bool {
        std::mem::take(&mut *self.timer.fired.lock().unwrap())
    }

    fn polled(&self, _chains: u16) {}

    fn slept(&self) {}
}

pub type Board = Switchboard<DriverEnd, ModelSleeper, ModelTransport>;

/// What a device needs, in a thread of its own.
pub struct Device {
    rings: Arc<Rings>,
    fresh: Arc<Rings>,
    epoch: Arc<AtomicU16>,
    kick: Arc<Event>,
    call: Arc<Call<CallFd>>,
    sleeper: Arc<Point>,
}

/// A queue with room for so many requests in flight.
pub fn queue(
    room: usize,
    suppression: Suppression,
    mixed: Mixed,
    kick_lock: KickLock,
) -> (Arc<Board>, Device) {
    let rings = || {
        Arc::new(Rings {
            available: Ring::new(|| AtomicU16::new(0xdead)),
            used: Ring::new(|| [AtomicU32::new(0xdead), AtomicU32::new(0xdead)]),
            suppression,
        })
    };
    let (rings, fresh, epoch) = (rings(), rings(), Arc::<AtomicU16>::default());
    let used = Reader::new(rings.used.lane(suppression), START);
    let kick = Arc::new(Event::default());
    let call = Arc::new(Call::new(CallFd::default(), Arc::default()));
    let sleeper = Arc::new(Point::default());
    call.fd().watched_by(&sleeper);
    let transport = ModelTransport {
        view: used.index_view(),
        epoch: Arc::clone(&epoch),
        kick: Arc::clone(&kick),
        call: Arc::clone(&call),
        timer: Arc::default(),
        _rings: Arc::clone(&rings),
    };
    let ends = DriverEnd {
        available: Writer::new(rings.available.lane(suppression), START),
        used,
        flights: [const { None }; SIZE],
        room,
        backlog: VecDeque::new(),
        epoch: Arc::clone(&epoch),
        known: 0,
        fresh: Arc::clone(&fresh),
        _rings: Arc::clone(&rings),
    };
    let bed = ModelSleeper(Arc::clone(&sleeper));
    let board = Switchboard::new(ends, bed, transport, mixed, kick_lock);
    let device = Device {
        rings,
        fresh,
        epoch,
        kick,
        call,
        sleeper,
    };
    (Arc::new(board), device)
}

impl Device {
    /// The wait point where calls are heard.
    pub fn sleeper(&self) -> &Arc<Point> {
        &self.sleeper
    }

    /// It is gone. Another one is there instead, which has been told of everything; the users of the queue
    /// hear of it now.
    pub fn restart(self) -> Self {
        self.epoch.store(1, Ordering::SeqCst);
        self.call.fd().wake_always();
        Self {
            rings: Arc::clone(&self.fresh),
            ..self
        }
    }

    /// Serves so many requests, each published alone, and calls only when that is needed. It sleeps when
    /// there is nothing to do.
    pub fn serve(self, mut requests: u32) {
        let suppression = self.rings.suppression;
        let mut available = Reader::new(self.rings.available.lane(suppression), START);
        let mut used = Writer::new(self.rings.used.lane(suppression), START);
        loop {
            while let Some(Head(head)) = available.take() {
                let (id, len) = (u32::from(head), 0);
                used.stage(UsedElem { id, len });
                if used.publish() == Notify::Needed {
                    self.call.fd().signal();
                }
                requests -= 1;
            }
            if requests == 0 {
                return;
            }
            if available.arm().unwrap() == Armed::Idle {
                self.kick.sleep();
            }
            available.disarm();
            available.look().unwrap();
        }
    }
}

/// Hands `request` over, if there is room.
pub fn submit(board: &Board, turn: &mut Option<Turn>, request: &Request) -> bool {
    board.submit(turn, |ends: &mut DriverEnd, policy: &mut CallPolicy| {
        policy.begin(request.completion());
        ends.accept(request.clone());
    })
}

/// Hands `request` over, and sleeps until there is room for it.
pub fn submit_blocking(board: &Board, request: &Request) {
    let mut turn = None;
    board.block(|waker: &Waker| {
        loop {
            if submit(board, &mut turn, request) {
                return std::task::Poll::Ready(());
            }
            if board.poll_room(&mut turn, waker).is_pending() {
                return std::task::Poll::Pending;
            }
        }
    });
}

/// The same as a task, which only its waker wakes.
pub fn submit_as_task(board: &Board, request: &Request) {
    let event = Arc::new(Event::default());
    let waker = Waker::from(Arc::clone(&event));
    let mut turn = None;
    while !submit(board, &mut turn, request) {
        if board.poll_room(&mut turn, &waker).is_pending() {
            event.sleep();
        }
    }
}

/// Sleeps until `request` has ended.
pub fn wait(board: &Board, request: &Request) {
    let result = board.block(|waker| board.poll_end(&request.0, waker));
    assert_eq!(result, Ok(()));
}

/// A timer goes off once, after it was set, at the wait point where calls are heard.
pub fn go_off(timer: &CallTimer, sleeper: &Point) {
    timer.set.sleep();
    *timer.fired.lock().unwrap() = true;
    sleeper.event.signal();
}

/// A channel into the queue, in the steps of the driver's own: its requests arrive at a wait point of its own.
pub struct Channel {
    board: Arc<Board>,
    point: Arc<Point>,
    listener: Listener<Handle>,
}

impl Channel {
    pub fn open(board: &Arc<Board>) -> Self {
        let point = Arc::<Point>::default();
        let listener = board.listener(&Handle(Arc::clone(&point)));
        board.hear();
        Self {
            board: Arc::clone(board),
            point,
            listener,
        }
    }

    /// A request of its, in flight.
    pub fn flying(&self, completion: CompletionMode) -> Request {
        let mut request = Request::new(completion);
        request.1 = Some(Arc::clone(&self.point));
        self.board.submit_all(|ends, policy| {
            policy.begin(completion);
            ends.accept(request.clone());
        });
        request
    }

    /// Sleeps until `request` has ended.
    pub fn wait(&self, request: &Request) {
        while !request.0.has_ended() {
            self.point.flag.arm();
            self.board.sleeps(&self.listener).unwrap();
            if request.0.has_ended() {
                self.point.flag.disarm();
            } else {
                self.point.event.sleep();
                self.point.flag.disarm();
            }
            self.board.wakes(&self.listener);
        }
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.board.leaves(&self.listener);
    }
}
