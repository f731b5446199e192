//! A disk that misbehaves as it is told to, over any other: to see what becomes of errors, delays, torn
//! writes and silence.
//!
//! ```text
//! fault:[seed=N,][log=PATH,][RULE,]...on=SPEC    SPEC is the disk below, taken as it stands
//!
//! RULE       ACTION[,CONDITION]...            for example error=EIO,op=write,every=100
//! ACTION     delay=TIME                       the completion comes so much later than below
//!            delay=TIME-TIME                  ... evenly distributed between the two
//!            delay=exp:TIME                   ... exponentially distributed, that long on average
//!            delay=pareto:TIME                ... that long at least, and with a long tail
//!            error=ERRNO                      the request fails and does not reach the disk below
//!            torn=BYTES|random                of a write only the first bytes reach the disk below
//!            hang=request|device              it is never answered, or from then on nothing is
//! CONDITION  op=read+write+flush+discard+write-zeroes+resize   only these (all, but torn: write)
//!            range=BYTES-BYTES                only what touches this part of the disk
//!            after=N                          not the first N of those
//!            every=N                          of the rest every N-th only
//!            chance=P%                        of the rest so many only, by chance
//!            times=N                          only N times in all
//!            then=fail|ok|hang                what follows a torn write (fail)
//! TIME       10us, 3ms, 1s                    ERRNO   EIO, ENOSPC, ...
//! ```
//!
//! - Every rule counts for itself the requests that its `op` and `range` let pass, of all channels of
//!   the disk together, whatever the other rules do. Delays add up; of several rules that end one
//!   request otherwise, the first decides.
//! - Chance is drawn from `seed` (0 unless given), for each rule on its own: the same requests in the
//!   same order meet the same faults.
//! - A torn write keeps whole blocks. `then=fail` is the write that a failing disk reports; `then=ok`
//!   is a disk that lies (`torn=0,then=ok` loses writes without a word); `then=hang` leaves what a
//!   power cut in the middle of a write leaves: part of it is stored, and no completion was reported.
//! - A resize is a request as well, which touches no range. One that is never answered keeps the thread that asks for
//!   it, for ever.
//! - A device that hangs answers nothing any more: neither what comes, nor what is in flight, nor what
//!   is delayed. To its users it is a disk whose requests never end, so the session that uses it does
//!   not end either, nor does a polite request to end the program; a second one does not wait.
//! - With `log=` each request that reaches the disk below is appended to that file before it does, as a
//!   line: what it is, where, how many bytes, and of a write the first 32 in hexadecimal
//!   (`write 8192 4096 0a1b...`). The lines are there when the program is killed, and others may append
//!   theirs. The path has no comma.
//! - Geometry, counters and events are those of the disk below.

mod channel;
mod delay;
mod held;
mod log;
mod rule;
mod state;
mod timer;

use std::io;
use std::sync::Arc;
use std::thread;

use pollux_memory::Region;
use tracing::warn;

use channel::FaultChannel;
pub use delay::Delay;
use log::Log;
use rule::Asked;
pub use rule::{Action, Chance, Faults, Hang, Keep, Kind, Ops, Rule, Then, When};
use state::{Fate, Plan, RuleState};

use crate::{Channel, Disk, Effort, Events, Geometry, OpenError, ResizeError, WaitPoint};

/// A disk that misbehaves. See [the module](self).
pub struct Fault {
    below: Arc<dyn Disk>,
    state: Arc<RuleState>,
}

impl Fault {
    /// `below`, with such faults.
    ///
    /// # Errors
    ///
    /// [`OpenError::PartialBlock`] where a torn write would keep a part of a block, [`OpenError::Log`] where
    /// the log cannot be written.
    pub fn new(below: Arc<dyn Disk>, faults: &Faults) -> Result<Self, OpenError> {
        let block = below.geometry().block;
        for rule in &faults.rules {
            if let Action::Torn {
                keep: Keep::First(bytes),
                ..
            } = rule.action
                && !bytes.is_multiple_of(block.into())
            {
                return Err(OpenError::PartialBlock { bytes, block });
            }
        }
        let log = faults.log.as_ref().map(|path| {
            Log::open(path).map_err(|source| OpenError::Log {
                path: path.clone(),
                source,
            })
        });
        let state = Arc::new(RuleState::new(faults, block, log.transpose()?));
        Ok(Self { below, state })
    }
}

/// A resize that is never answered.
fn hang() -> ! {
    warn!("as the `fault` disk was told: a resize is never answered");
    loop {
        thread::park();
    }
}

impl Disk for Fault {
    fn geometry(&self) -> Geometry {
        self.below.geometry()
    }

    fn effort(&self) -> Effort {
        self.below.effort()
    }

    fn give_up(&self) {
        self.below.give_up();
    }

    fn open_channel(&self, wait: &WaitPoint) -> io::Result<Box<dyn Channel>> {
        let (below, state) = (Arc::clone(&self.below), Arc::clone(&self.state));
        Ok(Box::new(FaultChannel::new(below, state, wait)?))
    }

    fn map(&self, region: &Arc<Region>) -> io::Result<()> {
        self.below.map(region)
    }

    fn unmap(&self, region: &Arc<Region>) {
        self.below.unmap(region);
    }

    fn acquire(&self) -> io::Result<()> {
        self.below.acquire()
    }

    fn release(&self) -> io::Result<()> {
        self.below.release()
    }

    fn resize(&self, bytes: Option<u64>) -> Result<(), ResizeError> {
        if self.state.hung() {
            hang();
        }
        let Plan { delay, fate } = self.state.plan(Asked::Resize);
        match fate {
            Fate::Below => {}
            Fate::Torn { .. } => unreachable!("only writes are torn"),
            Fate::Fails(failure) => {
                return Err(ResizeError::Io {
                    doing: "resize",
                    path: "the `fault` disk".into(),
                    source: failure.into(),
                });
            }
            Fate::Never => hang(),
            Fate::DeviceHangs => {
                self.state.hang();
                hang();
            }
        }
        let resized = self.below.resize(bytes);
        thread::sleep(delay);
        resized
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.below.counters()
    }

    fn events(&self) -> &Events {
        self.below.events()
    }
}
