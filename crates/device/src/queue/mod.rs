//! One virtqueue as its worker sees it: chains become requests, completions become used elements.
//!
//! A request lives in a [`Slot`] from `take` to `stage`. The slot keeps the chain's spans, so the
//! guest's descriptors are never walked twice, and dirty-page logging (which guest memory a request
//! writes) and the in-flight record (which chains are in flight) find there what they need.

mod budget;
mod deferral;
mod dirty;
mod lead_time;
mod limit;
mod ongoing;
mod parse;
mod publish;
mod requests;
mod slices;
mod take;
mod unpublished;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use pollux_blk::{Kind, SERIAL_BYTES, Status};
use pollux_disk::Admitted;
use pollux_memory::{Alarm, Memory, Span};
use pollux_ring::{Armed, Chain, DeviceEnd, Head, PeerFault};
use pollux_stats::QueueStats;

use crate::inflight::Record;
use crate::limits::{Limiter, Throttle};
use crate::log_quotas::LogQuotas;
use crate::notify::{Call, KickFd};
use crate::observe::{Extent, Observation, Observer};
use crate::tuning::{Calls, Signal, Tuning};
use deferral::Deferral;
use lead_time::LeadTime;
use ongoing::Ongoing;
use parse::Range;
use unpublished::Unpublished;

#[cfg(test)]
pub use budget::{BUDGET, SLICE};
pub use budget::{Budget, Pace, WORK};
#[cfg(feature = "fuzzing")]
pub use budget::{ENOUGH, STEP};
pub use dirty::{Dirty, UsedRing};
pub use parse::Rules;

/// What a frontend set up and a worker needs to run a queue.
pub struct Setup {
    /// The queue's number in its session.
    pub index: u16,
    pub ring: DeviceEnd,
    /// Tells the next daemon what is in flight; `None`: the frontend keeps no record.
    pub record: Option<Record>,
    pub memory: Arc<Memory>,
    /// The session's: once it has rung, what is read from memory of the session may be zeroes of our own.
    pub alarm: Arc<Alarm>,
    /// `None`: the frontend sends no kicks, the worker has to poll.
    pub kick: Option<Arc<KickFd>>,
    /// `None`: the driver wants no calls.
    pub call: Option<Call>,
    /// Told when the ring is broken.
    pub error: Option<Call>,
    pub rules: Rules,
    pub serial: [u8; SERIAL_BYTES],
    /// Was FLUSH negotiated?
    pub flush: bool,
    /// The session's cache mode, which `CONFIG_WCE` switches at run time: true is write-back.
    pub writeback: Arc<AtomicBool>,
    /// Where to log what is written to guest memory, while the guest migrates.
    pub dirty: Option<Dirty>,
    pub stats: Arc<QueueStats>,
    /// How many requests may be begun.
    pub limiter: Arc<Limiter>,
    /// What is noted of requests.
    pub observation: Arc<Observation>,
    /// How much of it the log is told.
    pub log_quotas: Arc<LogQuotas>,
    /// What the log calls the disk.
    pub disk: String,
}

impl Setup {
    /// Is memory of the session's lost? From then on nothing is taken, begun or published: the session ends as if this
    /// process had been killed, and the in-flight record says what the next one does again. The handler of SIGBUS rings
    /// before it maps zeroes, so whatever was read from zeroes, by us or by the kernel, was read before this says so.
    #[inline]
    fn is_lost(&self) -> bool {
        self.alarm.is_rung()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    /// Takes nothing more; ends once nothing is in flight.
    Draining,
    /// As draining, because the driver broke the ring; ends when it is stopped.
    Broken,
}

/// One request in flight.
struct Slot {
    head: Head,
    chain: Chain,
    status: Option<Span>,
    kind: Kind,
    /// Bytes of data that move when it succeeds.
    bytes: u64,
    /// Sub-requests that have not ended; one more while the request is done in slices.
    pending: u16,
    outcome: Status,
    /// When it was found, if it is noted; else 0.
    found_ns: u64,
    /// What of the disk it is about, if it is noted.
    extent: Extent,
}

impl Default for Slot {
    fn default() -> Self {
        Self {
            head: Head(0),
            chain: Chain::default(),
            status: None,
            kind: Kind::Flush,
            bytes: 0,
            pending: 0,
            outcome: Status::Ok,
            found_ns: 0,
            extent: Extent::default(),
        }
    }
}

/// A running queue.
pub struct Queue {
    setup: Setup,
    state: State,
    /// Never grows: requests in flight point into it.
    slots: Box<[Slot]>,
    free: Vec<u16>,
    ranges: Vec<Range>,
    /// Large requests, which are done in slices.
    ongoing: VecDeque<Ongoing>,
    /// For the next of them: what they have allocated is used again.
    spare: Vec<Ongoing>,
    unpublished: Unpublished,
    lead_time: LeadTime,
    calls: Calls,
    deferral: Deferral,
    /// What has been completed since a call waits.
    deferred_worth: u64,
    throttle: Throttle,
    observer: Observer,
    /// Is the driver shown what has ended in the middle of a turn?
    shows: bool,
}

impl Queue {
    /// A queue ready to run, whose driver is called once: what was published through an earlier call
    /// descriptor, or by an earlier daemon, may be unseen.
    pub fn new(mut setup: Setup, tuning: Tuning) -> Self {
        let size = setup.ring.size();
        let call = setup.call.take();
        let mut queue = Self {
            slots: (0..size).map(|_| Slot::default()).collect(),
            free: (0..size).rev().collect(),
            ranges: Vec::with_capacity(setup.rules.max_ranges as usize),
            ongoing: VecDeque::new(),
            spare: Vec::new(),
            state: State::Running,
            unpublished: Unpublished::default(),
            lead_time: LeadTime::default(),
            calls: tuning.calls_when(),
            deferral: Deferral::new(Instant::now()),
            deferred_worth: 0,
            throttle: Throttle::new(Arc::clone(&setup.limiter)),
            observer: Observer::new(Arc::clone(&setup.observation), setup.index, size),
            shows: tuning.signal == Signal::CompletionsFirst,
            setup,
        };
        queue.log_ring();
        queue.set_call(call);
        queue
    }

    pub fn index(&self) -> u16 {
        self.setup.index
    }

    #[cfg(test)]
    pub fn stats(&self) -> &QueueStats {
        &self.setup.stats
    }

    /// The worker had nothing to do for so long: with requests in flight, it waited for the disk.
    #[inline]
    pub fn waited(&self, ns: u64) {
        if self.in_flight() > 0 {
            self.setup.stats.disk_wait.add(ns);
        }
    }

    /// The worker sleeps from now on: with requests in flight, it waits for the disk.
    pub fn falls_asleep(&self, now: Instant) {
        if self.in_flight() > 0 {
            self.setup.stats.disk_wait.begin(now);
        }
    }

    /// The worker has slept for so long, until now.
    pub fn woke(&self, now: Instant, slept_ns: u64) {
        let stats = &self.setup.stats;
        stats.sleeps.add(1);
        stats.asleep_ns.add(slept_ns);
        stats.disk_wait.end(now);
    }

    /// Makes the call that waits and asks for kicks, then polls once more. Where kicks were asked for already, the
    /// driver kicks, and nothing needs to be done.
    pub fn arm(&mut self) -> Armed {
        self.release();
        if self.resumes() || self.has_slices() {
            return Armed::Pending;
        }
        if self.setup.ring.is_armed() {
            return Armed::Idle;
        }
        if self.state == State::Running && self.throttle.is_waiting() {
            // It sleeps no longer than its wait.
            self.throttle.hurry();
            return Armed::Idle;
        }
        // Without a free slot there is nothing to take: a completion comes first.
        if self.state != State::Running || self.free.is_empty() || self.setup.is_lost() {
            return Armed::Idle;
        }
        let armed = self.setup.ring.arm();
        self.log_ring();
        match armed {
            Ok(Armed::Idle) if self.setup.kick.is_some() => Armed::Idle,
            // What is there already causes no kick, nor does a frontend that has none: the wish does not stand.
            Ok(_) => {
                self.disarm();
                Armed::Pending
            }
            Err(fault) => {
                self.disarm();
                self.broken(fault);
                Armed::Idle
            }
        }
    }

    /// Is nothing there, and does the driver kick with the next chain?
    pub fn becomes_idle(&mut self) -> bool {
        let may = self.setup.kick.is_some() && self.in_flight() == 0;
        let idle = may && self.arm() == Armed::Idle && self.setup.ring.is_armed();
        if !idle {
            self.disarm();
        }
        idle
    }

    /// Would a turn find anything? Then kicks are off from now on.
    pub fn ends_idleness(&mut self) -> bool {
        let finds = !matches!(self.setup.ring.look(), Ok(0));
        if finds {
            self.disarm();
        }
        finds
    }

    /// Asks for no kicks.
    #[inline]
    pub fn disarm(&mut self) {
        self.setup.ring.disarm();
        self.log_ring();
    }

    /// The descriptor that carries kicks.
    pub fn kick(&self) -> Option<&Arc<KickFd>> {
        self.setup.kick.as_ref()
    }

    /// Its driver may have kicked: counts that if it has, as far as can be told.
    pub fn kicked(&self) {
        let heard = self.setup.kick.as_ref().is_some_and(|kick| kick.heard());
        self.setup.stats.kicks.add(heard.into());
    }

    /// Is there no sign that a driver ever wrote to its ring?
    pub fn is_untouched(&mut self) -> bool {
        !self.setup.is_lost() && self.setup.ring.is_untouched()
    }

    /// Its driver has kicked, and no ring of the session was ever written to.
    pub fn warn_of_private_memory(&self) {
        if let Some(Admitted { withheld }) = self.setup.log_quotas.rings.admits() {
            tracing::warn!(
                disk = self.setup.disk,
                queue = self.setup.index,
                withheld,
                "the driver kicks, but its ring is empty and was never written to: if the virtual machine hangs, its \
                 memory is not shared; in QEMU, give the memory backend share=on"
            );
        }
    }

    /// Resolves addresses in `memory` from now on, which holds all that the old one held.
    pub fn set_memory(&mut self, memory: Arc<Memory>) {
        self.setup.memory = memory;
    }

    /// Logs there from now on, what is in flight as well: that is logged as it ends. Of the ring, what was written before
    /// may not have been logged.
    pub fn set_dirty(&mut self, dirty: Option<Dirty>) {
        self.setup.dirty = dirty;
        self.log_ring();
    }

    /// Takes nothing more.
    pub fn drain(&mut self) {
        self.state = State::Draining;
        self.setup.stats.throttled_time.end(Instant::now());
    }

    /// How many requests have not ended.
    pub fn in_flight(&self) -> u16 {
        let many = self.slots.len() - self.free.len();
        u16::try_from(many).expect("a queue has 32768 slots at most")
    }

    /// Has it been told to drain, and is nothing in flight? If so, the index of the chain that would
    /// have been taken next.
    pub fn drained(&self) -> Option<u16> {
        let idle = self.in_flight() == 0 && !self.resumes();
        let done = self.state == State::Draining && idle;
        done.then(|| self.setup.ring.next().0)
    }

    /// It has drained and goes: shows the driver what has ended, and calls it.
    pub fn end(&mut self) {
        self.publish();
        self.release();
        if let Some(kick) = self.kick() {
            kick.empty();
        }
        self.setup.stats.in_flight.set(0);
    }

    /// Tells through `error` that the ring is broken, from now on; at once, if it is broken already.
    pub fn set_error(&mut self, error: Option<Call>) {
        self.setup.error = error;
        if self.state == State::Broken {
            self.tell_of_the_break();
        }
    }

    fn tell_of_the_break(&self) {
        if let Some(error) = &self.setup.error {
            error.call();
        }
    }

    /// The ring is broken, which counts as one chain: the turn was not empty.
    #[cold]
    fn broken(&mut self, fault: PeerFault) -> u16 {
        if self.setup.is_lost() {
            return self.give_up();
        }
        if let Some(Admitted { withheld }) = self.setup.log_quotas.rings.admits() {
            let (disk, queue) = (&self.setup.disk, self.setup.index);
            tracing::warn!(disk, queue, %fault, withheld, "the driver broke the ring: the queue stops");
        }
        self.setup.stats.peer_faults.add(1);
        if let Some(record) = &mut self.setup.record {
            record.give_up();
        }
        // One that drains goes on doing so: the session waits for its end.
        if self.state == State::Running {
            self.state = State::Broken;
        }
        self.tell_of_the_break();
        1
    }
}

/// The slot `at`, borrowed apart from the rest of the queue.
fn slot_of(slots: &mut [Slot], at: u16) -> &mut Slot {
    &mut slots[usize::from(at)]
}

#[cfg(test)]
mod tests;
