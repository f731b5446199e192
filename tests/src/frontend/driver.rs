//! The driver's side of a session: what is negotiated, and how queues start and stop.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

use super::feature;
use super::message::Code;
use super::queue::{Logs, QUEUE_BYTES, QUEUE_ENTRIES, Queue, TABLES};
use super::{Frontend, GuestMemory};

/// Protocol features: MQ, `REPLY_ACK`, CONFIG, `CONFIGURE_MEM_SLOTS`.
const PROTOCOL: u64 = 1 << 0 | 1 << 3 | 1 << 9 | 1 << 15;
/// `LOG_SHMFD`, taken where it is offered.
const LOG_SHMFD: u64 = 1 << 1;
/// Taken where it is offered.
const INFLIGHT_SHMFD: u64 = 1 << 12;
/// A channel for the back end's own messages, taken where it is offered.
const BACKEND_REQ: u64 = 1 << 5;

/// What a session is to be like.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Queues to start.
    pub queues: u16,
    /// Offered features that are not taken.
    pub without: u64,
}

/// Two queues, and every feature that is offered.
pub const TWO_QUEUES: Plan = Plan {
    queues: 2,
    without: 0,
};

/// A session with started queues.
pub struct Driver {
    /// The connection.
    pub frontend: Frontend,
    /// Memory of the rings, and of the data unless a request says otherwise.
    pub memory: Arc<GuestMemory>,
    /// The queues.
    pub queues: Vec<Queue>,
    /// What was negotiated.
    pub features: u64,
}

impl Driver {
    /// Connects, negotiates, and starts the queues.
    pub fn connect(socket: &Path, plan: Plan) -> io::Result<Self> {
        Self::over(Frontend::connect(socket)?, plan)
    }

    /// The same over a connection that exists.
    pub fn over(frontend: Frontend, plan: Plan) -> io::Result<Self> {
        let features = Self::negotiate(&frontend, plan.without)?;
        // As every driver does that begins.
        frontend.get_config(0, 60)?;
        let memory = GuestMemory::new(1 << 32, usize::from(plan.queues) * QUEUE_BYTES)?;
        frontend.set_mem_table(&[memory.region()])?;
        let memory = Arc::new(memory);
        let queues = (0..plan.queues).map(|index| Queue::new(&memory, index, features));
        let mut driver = Self {
            frontend,
            queues: queues.collect::<io::Result<_>>()?,
            memory,
            features,
        };
        for index in 0..driver.queues.len() {
            driver.start(index)?;
        }
        Ok(driver)
    }

    /// Agrees on features, all that are known and offered but those `without`.
    pub(super) fn negotiate(frontend: &Frontend, without: u64) -> io::Result<u64> {
        frontend.tell_early(Code::SetOwner, &[])?;
        let features = frontend.number(Code::GetFeatures)? & feature::KNOWN & !without;
        assert_ne!(
            features & feature::PROTOCOL_FEATURES,
            0,
            "features of the protocol are offered"
        );
        let protocol = frontend.number(Code::GetProtocolFeatures)?;
        assert_eq!(protocol & PROTOCOL, PROTOCOL, "offered: {protocol:#x}");
        let protocol = protocol & (PROTOCOL | BACKEND_REQ | LOG_SHMFD | INFLIGHT_SHMFD);
        frontend.tell_early(Code::SetProtocolFeatures, &protocol.to_le_bytes())?;
        frontend.tell(Code::SetFeatures, &features.to_le_bytes(), &[])?;
        Ok(features)
    }

    /// Starts queue `index` where it stopped.
    pub fn start(&mut self, index: usize) -> io::Result<()> {
        let queue = &self.queues[index];
        let number = queue.number();
        let frontend = &self.frontend;
        frontend.vring_state(Code::SetVringNum, number, u32::from(QUEUE_ENTRIES))?;
        frontend.vring_state(Code::SetVringBase, number, u32::from(queue.base))?;
        frontend.tell(Code::SetVringAddr, &queue.addresses(queue.logs), &[])?;
        frontend.vring_fd(Code::SetVringCall, number, Some(queue.call.as_fd()))?;
        frontend.vring_fd(Code::SetVringKick, number, Some(queue.kick.as_fd()))?;
        frontend.vring_state(Code::SetVringEnable, number, 1)
    }

    /// Has the device log what it writes from now on, or no longer: as QEMU does it, while the rings run.
    pub fn set_logging(&mut self, logs: Logs) -> io::Result<()> {
        let bit = match logs {
            Logs::Everything => feature::LOG_ALL,
            Logs::Nothing => 0,
        };
        let features = self.features & !feature::LOG_ALL | bit;
        let frontend = &self.frontend;
        frontend.tell(Code::SetFeatures, &features.to_le_bytes(), &[])?;
        for queue in &mut self.queues {
            queue.logs = logs;
            frontend.tell(Code::SetVringAddr, &queue.addresses(logs), &[])?;
        }
        Ok(())
    }

    /// Queue `index` as it was at first: nothing staged, nothing seen, its ring empty.
    ///
    /// # Panics
    /// When there are no more descriptors.
    pub fn anew(&self, index: usize) -> Queue {
        let number = self.queues[index].index;
        let start = usize::from(number) * QUEUE_BYTES;
        self.memory.put(start, &vec![0; TABLES]);
        Queue::new(&self.memory, number, self.features).expect("two eventfds")
    }

    /// Stops queue `index`, and returns where it stopped.
    pub fn stop(&mut self, index: usize) -> io::Result<u16> {
        let queue = &mut self.queues[index];
        let base = self.frontend.get_vring_base(queue.number())?;
        queue.base = u16::try_from(base).map_err(|_| io::Error::other("a base beyond 16 bits"))?;
        Ok(queue.base)
    }
}
