//! One frontend after the other, on a thread of the test's process: its messages, its kicks, and what
//! the test wants.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use fastrand::Rng;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::disk::Disk;
use super::memory::Memory;
use super::message::{Connection, Message, code, tell_config_change};
use super::plan::{Conduct, Plan, Silence, feature, protocol};
use super::queue::Queue;
use super::shared::{Command, Shared};
use super::stray::Stray;

/// Regions that a frontend may announce one by one.
const MEMORY_SLOTS: u64 = 32;
/// Regions of one memory table, by the protocol.
const TABLE: u32 = 8;

/// What comes after a session, or a round of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    Stay,
    Next,
    Stop,
}

/// Serves whoever comes until it is told to stop.
pub(super) fn serve(
    listener: &UnixListener,
    plan: &Plan,
    shared: &Arc<Shared>,
    commands: &Receiver<Command>,
) -> io::Result<()> {
    loop {
        let mut fds = [
            PollFd::new(listener, PollFlags::IN),
            PollFd::new(&shared.wake, PollFlags::IN),
        ];
        poll(&mut fds, None)?;
        let comes = !fds[0].revents().is_empty();
        shared.awake();
        if commands.try_iter().any(|command| command == Command::Stop) {
            return Ok(());
        }
        if comes {
            let (socket, _) = listener.accept()?;
            shared.tell(|seen| seen.sessions += 1);
            // With the session goes what it has mapped.
            let flow = Session::new(socket, plan, shared, commands).run();
            shared.tell(|seen| {
                seen.held.clear();
                seen.over += 1;
            });
            if flow? == Flow::Stop {
                return Ok(());
            }
        }
    }
}

pub(super) struct Session<'a> {
    pub(super) plan: &'a Plan,
    pub(super) shared: &'a Arc<Shared>,
    commands: &'a Receiver<Command>,
    /// `None` once the device has hung up; what it has of the frontend's memory it keeps.
    connection: Option<Connection>,
    /// After a silence there are no more answers.
    mute: bool,
    pub(super) disk: Disk,
    pub(super) memory: Memory,
    pub(super) queues: Vec<Queue>,
    pub(super) features: u64,
    protocol: u64,
    to_frontend: Option<OwnedFd>,
    pub(super) scribble: Option<u8>,
    stray: Option<Stray>,
    pub(super) random: Rng,
}

impl<'a> Session<'a> {
    fn new(
        socket: UnixStream,
        plan: &'a Plan,
        shared: &'a Arc<Shared>,
        commands: &'a Receiver<Command>,
    ) -> Self {
        let stray = Stray::start(shared, plan.calls);
        Self {
            plan,
            shared,
            commands,
            connection: Some(Connection::new(socket)),
            mute: false,
            disk: Disk::new(plan),
            memory: Memory::default(),
            queues: (0..plan.queues).map(|_| Queue::default()).collect(),
            features: 0,
            protocol: 0,
            to_frontend: None,
            scribble: None,
            stray,
            random: Rng::with_seed(1),
        }
    }

    /// Is there somebody at the other end?
    pub(super) fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    fn run(&mut self) -> io::Result<Flow> {
        loop {
            let talks = self.wait()?;
            for command in self.commands.try_iter().collect::<Vec<_>>() {
                match self.obey(command)? {
                    Flow::Stay => {}
                    end => return Ok(end),
                }
            }
            if talks && self.connection.is_some() && self.listen()? == Flow::Next {
                if self.scribble.is_none() {
                    return Ok(Flow::Next);
                }
                // One that writes where it should not goes on without a connection.
                self.connection = None;
            }
            for index in 0..self.queues.len() {
                if let Err(complaint) = self.turn(index) {
                    self.shared.complain(&format!("queue {index}: {complaint}"));
                    self.queues[index].started = false;
                }
            }
            self.scribble();
            self.report();
        }
    }

    /// Sleeps until there is something to do. Has the frontend said something?
    fn wait(&self) -> io::Result<bool> {
        let mut fds = vec![PollFd::new(&self.shared.wake, PollFlags::IN)];
        let hears = !self.mute;
        let connection = self.connection.as_ref().filter(|_| hears);
        fds.extend(connection.map(|socket| PollFd::new(socket, PollFlags::IN)));
        let first_kick = fds.len();
        let kicks = self.queues.iter().filter_map(Queue::kick_fd);
        fds.extend(kicks.map(|kick| PollFd::from_borrowed_fd(kick, PollFlags::IN)));
        let timeout = self.timeout();
        let timeout = timeout.map(|left| Timespec::try_from(left).expect("a short time"));
        poll(&mut fds, timeout.as_ref())?;
        self.shared.awake();
        let talks = connection.is_some() && !fds[1].revents().is_empty();
        let mut kicks = 0;
        for (fd, kick) in fds[first_kick..]
            .iter()
            .zip(self.queues.iter().filter_map(Queue::kick_fd))
        {
            if fd.revents().contains(PollFlags::IN) {
                let _ = rustix::io::read(kick, &mut [0; 8]);
                kicks += 1;
            }
        }
        self.shared.tell(|seen| seen.kicks += kicks);
        Ok(talks)
    }

    fn timeout(&self) -> Option<Duration> {
        if self.scribble.is_some() {
            return Some(Duration::ZERO);
        }
        let Conduct::Late { patience, .. } = self.shared.conduct() else {
            return None;
        };
        self.queues
            .iter()
            .filter_map(|queue| queue.left(patience))
            .min()
    }

    fn obey(&mut self, command: Command) -> io::Result<Flow> {
        match command {
            Command::Stop => return Ok(Flow::Stop),
            Command::HangUp => self.connection = None,
            Command::LetGo if self.connection.is_none() => return Ok(Flow::Next),
            Command::LetGo => {}
            Command::Settle => self.shared.tell(|seen| seen.settled += 1),
            Command::BlockKicks => self.queues.iter_mut().try_for_each(Queue::block_kicks)?,
            Command::FillCalls => self.queues.iter().try_for_each(Queue::fill_calls)?,
            Command::Scribble(byte) => self.scribble = byte,
            Command::Resize(sectors) => {
                self.disk.resize(sectors);
                self.tell_change()?;
            }
            Command::Configure(at, word) => {
                self.disk.put(at, &word.to_le_bytes());
                self.tell_change()?;
            }
        }
        Ok(Flow::Stay)
    }

    fn tell_change(&mut self) -> io::Result<()> {
        let to = self.to_frontend.take();
        self.to_frontend = to.map(tell_config_change).transpose()?;
        Ok(())
    }

    /// Takes one message and answers it.
    fn listen(&mut self) -> io::Result<Flow> {
        let connection = self.connection.as_ref().expect("it was readable");
        let Some(mut message) = connection.receive()? else {
            return Ok(Flow::Next);
        };
        let silence = *self.shared.silence.lock().expect("nobody panics with it");
        let silence = silence.filter(|(code, _)| *code == message.code);
        let silence = silence.map(|(_, silence)| silence);
        if silence == Some(Silence::HangUp) {
            return Ok(Flow::Next);
        }
        if silence == Some(Silence::Refusal) {
            connection.reply(message.code, &1u64.to_le_bytes(), usize::MAX)?;
            return Ok(Flow::Next);
        }
        if self.refuses(&message)? {
            connection.reply(message.code, &1u64.to_le_bytes(), usize::MAX)?;
            let ends = self.plan.ends_over_memory;
            return Ok(if ends { Flow::Next } else { Flow::Stay });
        }
        let answer = self.handle(&mut message);
        let acknowledge = message.needs_reply() && self.protocol & protocol::REPLY_ACK != 0;
        let reply = match answer {
            Ok(Some(reply)) => Some(reply),
            Ok(None) => acknowledge.then(|| 0u64.to_le_bytes().to_vec()),
            Err(error) => {
                self.shared
                    .complain(&format!("message {}: {error}", message.code));
                acknowledge.then(|| 1u64.to_le_bytes().to_vec())
            }
        };
        let connection = self.connection.as_ref().expect("it has just spoken");
        let answered = match (silence, reply) {
            (Some(Silence::Half), Some(reply)) => {
                connection.reply(message.code, &reply, reply.len().midpoint(12))
            }
            (None, Some(reply)) => connection.reply(message.code, &reply, usize::MAX),
            _ => Ok(()),
        };
        if silence.is_some() {
            self.mute = true;
            self.shared.tell(|seen| seen.silences += 1);
        }
        // A frontend that has gone before it heard the answer has gone all the same.
        Ok(answered.map_or(Flow::Next, |()| Flow::Stay))
    }

    fn queue(&mut self, index: usize) -> io::Result<&mut Queue> {
        let queue = self.queues.get_mut(index);
        queue.ok_or_else(|| io::Error::other(format!("there is no queue {index}")))
    }

    /// Does what the frontend asks; returns the answer of messages that have one.
    fn handle(&mut self, message: &mut Message) -> io::Result<Option<Vec<u8>>> {
        let number = |number: u64| Ok(Some(number.to_le_bytes().to_vec()));
        match message.code {
            code::GET_FEATURES => return number(feature::ALL & !self.plan.without),
            code::GET_PROTOCOL_FEATURES => {
                return number(protocol::ALL & !self.plan.without_protocol);
            }
            code::GET_QUEUE_NUM => return number(self.plan.queues.into()),
            code::GET_MAX_MEM_SLOTS => return number(MEMORY_SLOTS),
            code::SET_FEATURES => self.set_features(message.u64_at(0)?)?,
            code::SET_PROTOCOL_FEATURES => {
                self.protocol = message.u64_at(0)?;
                subset(self.protocol, protocol::ALL & !self.plan.without_protocol)?;
            }
            code::SET_OWNER | code::SET_VRING_ERR => {}
            code::SET_BACKEND_REQ_FD => self.to_frontend = message.fds.pop(),
            code::GET_CONFIG | code::SET_CONFIG => return self.configuration(message),
            code::SET_MEM_TABLE | code::ADD_MEM_REG | code::REM_MEM_REG => {
                self.change_memory(message)?;
            }
            code::SET_VRING_KICK | code::SET_VRING_CALL => self.set_ring_fd(message)?,
            _ => return self.set_up_queue(message),
        }
        Ok(None)
    }

    fn set_features(&mut self, features: u64) -> io::Result<()> {
        self.features = features;
        let enabled = features & feature::PROTOCOL_FEATURES == 0;
        for queue in &mut self.queues {
            queue.enabled = enabled;
            queue.features = features;
        }
        subset(features, feature::ALL & !self.plan.without)
    }

    fn configuration(&mut self, message: &Message) -> io::Result<Option<Vec<u8>>> {
        if self.to_frontend.is_none() {
            self.shared.tell(|seen| seen.deaf_reads += 1);
        }
        let [offset, len] = [message.u32(0)?, message.u32(1)?]
            .map(|field| usize::try_from(field).expect("32 bits"));
        let bytes = &message.payload()[12..];
        if bytes.len() != len {
            return Err(io::Error::other(format!(
                "{len} bytes of config are {}",
                bytes.len()
            )));
        }
        if message.code == code::SET_CONFIG {
            let stored = self.disk.store_config(offset, bytes);
            return stored.map(|()| None).map_err(io::Error::other);
        }
        let head = message.payload()[..12].to_vec();
        Ok(Some([head, self.disk.config(offset, len)].concat()))
    }

    /// Is there memory in it that is larger than what it takes?
    fn refuses(&self, message: &Message) -> io::Result<bool> {
        let at: Vec<_> = match message.code {
            code::ADD_MEM_REG => vec![8],
            code::SET_MEM_TABLE => (0..message.fds.len()).map(|index| 8 + 32 * index).collect(),
            _ => vec![],
        };
        let mut extents = at.into_iter().map(|at| message.extent(at));
        extents.try_fold(false, |refuses, extent| {
            Ok(refuses || extent?.len > self.plan.largest_region)
        })
    }

    fn change_memory(&mut self, message: &mut Message) -> io::Result<()> {
        if message.code == code::SET_MEM_TABLE {
            let count = message.u32(0)?;
            if count > TABLE || usize::try_from(count).ok() != Some(message.fds.len()) {
                let fds = message.fds.len();
                return Err(io::Error::other(format!("{count} regions, {fds} files")));
            }
            // It would find them in the old memory no more.
            if !self.shared.seen().held.is_empty() {
                return Err(io::Error::other("with requests in flight"));
            }
            self.memory = Memory::default();
            for (index, file) in message.fds.iter().enumerate() {
                self.memory.add(message.extent(8 + 32 * index)?, file)?;
            }
            return Ok(());
        }
        if self.protocol & protocol::CONFIGURE_MEM_SLOTS == 0 {
            return Err(io::Error::other("which was not negotiated"));
        }
        let extent = message.extent(8)?;
        match (message.code, message.fds.as_slice()) {
            (code::ADD_MEM_REG, [file]) => self.memory.add(extent, file),
            (code::REM_MEM_REG, _) if self.memory.remove(extent) => Ok(()),
            (_, fds) => Err(io::Error::other(format!(
                "{extent:x?} with {} files",
                fds.len()
            ))),
        }
    }

    fn set_ring_fd(&mut self, message: &mut Message) -> io::Result<()> {
        let (index, fd) = message.ring_fd()?;
        let code = message.code;
        let queue = self.queue(index)?;
        if code == code::SET_VRING_CALL {
            queue.call = fd.map(Arc::new);
            let calls = self.queues.iter().filter_map(|queue| queue.call.clone());
            if let Some(stray) = &self.stray {
                stray.set(calls.collect());
            }
            return Ok(());
        }
        queue.kick = fd;
        let queue = &mut self.queues[index];
        queue.start(&self.memory).map_err(io::Error::other)
    }

    fn set_up_queue(&mut self, message: &Message) -> io::Result<Option<Vec<u8>>> {
        let [index, value] = [message.u32(0)?, message.u32(1)?];
        let queue = self.queue(usize::try_from(index).expect("32 bits"))?;
        let short = u16::try_from(value);
        let short = short.map_err(|_| io::Error::other(format!("{value} for queue {index}")));
        match message.code {
            code::SET_VRING_NUM => queue.size = short?,
            code::SET_VRING_BASE => {
                // A frontend may have let go of the ring without a word: User-Mode Linux does.
                queue.stop();
                queue.next_available = short?;
            }
            code::SET_VRING_ENABLE => queue.enabled = value != 0,
            code::SET_VRING_ADDR => {
                queue.descriptors = message.u64_at(8)?;
                queue.used = message.u64_at(16)?;
                queue.available = message.u64_at(24)?;
            }
            code::GET_VRING_BASE => {
                let base = u32::from(queue.stop());
                return Ok(Some([index.to_le_bytes(), base.to_le_bytes()].concat()));
            }
            other => return Err(io::Error::other(format!("{other} is not known here"))),
        }
        Ok(None)
    }
}

fn subset(chosen: u64, offered: u64) -> io::Result<()> {
    if chosen & !offered == 0 {
        return Ok(());
    }
    Err(io::Error::other(format!("{chosen:#x} of {offered:#x}")))
}
