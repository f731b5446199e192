//! The frontend's messages, as QEMU's docs/interop/vhost-user.rst lays them out, and the descriptors that
//! go with them.

use std::fs::File;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use arbitrary::Arbitrary;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::guest::{BYTES, GUEST, SIZE, USER, ring};

const NEED_REPLY: u32 = 1 << 3;
/// In the body of a message that could carry a descriptor: it does not.
const NO_FD: u64 = 1 << 8;
/// The most descriptors of a message.
const MOST: usize = 40;

/// A descriptor to go with a message.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Fd {
    /// The guest's memory.
    Memory,
    /// Memory that may be cut short.
    Frail,
    /// The eventfd of a queue.
    Event(bool),
    /// An eventfd that a call can only wait for.
    Saturated,
    /// A pipe's end to write, with nobody to read it.
    Pipe,
    /// A pipe's end to read.
    Reader,
    /// A socket.
    Socket,
    /// A file that holds nothing.
    Nothing,
    /// A device that can be mapped.
    Zero,
    /// A folder.
    Folder,
}

/// The descriptors of a message: each so many times.
#[derive(Arbitrary, Clone, Debug, Default)]
pub struct Fds(Vec<(Fd, u8)>);

impl Fds {
    fn one(fd: Fd) -> Self {
        Self(vec![(fd, 1)])
    }
}

/// A memory region in a message.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Region {
    Whole,
    Page(u8),
    /// Where the whole ends, and as long.
    Beside,
    Any {
        guest: u64,
        len: u64,
        user: u64,
        offset: u64,
    },
}

impl Region {
    fn words(self) -> [u64; 4] {
        match self {
            Self::Whole => [GUEST, BYTES, USER, 0],
            Self::Page(page) => {
                let at = 0x1000 * u64::from(page);
                [GUEST + at, 0x1000, USER + at, at]
            }
            Self::Beside => [GUEST + BYTES, BYTES, USER + BYTES, 0],
            Self::Any {
                guest,
                len,
                user,
                offset,
            } => [guest, len, user, offset],
        }
    }
}

/// Where a ring is said to lie.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Place {
    /// Where the guest has its own.
    Usual,
    Inside(u16),
    Beside(u16),
    Any(u64),
}

#[derive(Arbitrary, Clone, Debug)]
pub enum Message {
    /// One without a body, or with none where there must be one.
    Bare(u8),
    Features(u64),
    ProtocolFeatures(u64),
    MemTable(Vec<(Region, Fd)>),
    AddReg(Region, Option<Fd>),
    RemReg(Region),
    Num(bool, u32),
    Base(bool, u32),
    GetBase(bool),
    Enable(bool, bool),
    Addresses(bool, [Place; 3], u32),
    Kick(bool, Option<Fd>),
    Call(bool, Option<Fd>),
    Err(bool, Option<Fd>),
    GetConfig(u32, u8),
    SetConfig(u32, Vec<u8>),
    BackendFd(Fd),
    /// `GET_INFLIGHT_FD`
    GetInflight([u16; 2]),
    /// `SET_INFLIGHT_FD`
    SetInflight(u64, u64, [u16; 2], Option<Fd>),
    /// The same, for the queues that are brought up.
    Record(Fd),
    /// `SET_LOG_BASE`
    LogBase(u64, u64, Option<Fd>),
    /// The same, for all of the guest's memory.
    Log(Fd),
    /// `SET_LOG_FD`
    LogFd(Option<Fd>),
    /// A queue that there may not be, in any message about one.
    Queue(u8, u32, u32),
    /// Anything.
    Raw {
        code: u8,
        flags: u8,
        claims: Option<u32>,
        body: Vec<u8>,
        fds: Fds,
    },
}

/// A message as it goes over the socket.
pub struct Said {
    pub bytes: Vec<u8>,
    pub fds: Fds,
    /// Is it as long as it says?
    pub whole: bool,
}

fn u32s(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn u64s(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

impl Message {
    /// What every back end answers.
    pub fn question() -> Self {
        Self::Bare(1)
    }

    /// What starts two queues, which keep a record of what is in flight and a log of what they write where
    /// there is a descriptor for it.
    pub fn bring_up(features: u64, record: Option<Fd>, log: Option<Fd>) -> Vec<Self> {
        // Whatever else is taken: indirect descriptors or not, EVENT_IDX or not, and the like.
        let offered = 1 << 9 | 1 << 11 | 1 << 12 | 1 << 13 | 1 << 14 | 1 << 26 | 1 << 28 | 1 << 29;
        let taken = 1 << 30 | 1 << 32 | features & offered;
        let mut all = vec![
            Self::Bare(3),
            Self::ProtocolFeatures(1 | 1 << 1 | 1 << 3 | 1 << 9 | 1 << 12 | 1 << 15),
            Self::Features(taken),
            Self::MemTable(vec![
                (Region::Whole, Fd::Memory),
                (Region::Beside, Fd::Frail),
            ]),
        ];
        all.extend(record.map(Self::Record));
        all.extend(log.map(Self::Log));
        for queue in [false, true] {
            all.extend([
                Self::Num(queue, SIZE.into()),
                Self::Base(queue, 0),
                Self::Addresses(queue, [Place::Usual; 3], 0),
                Self::Kick(queue, Some(Fd::Event(queue))),
                Self::Call(queue, Some(Fd::Event(!queue))),
                Self::Enable(queue, true),
            ]);
        }
        all
    }

    /// Its bytes and its descriptors.
    pub fn said(&self, need_reply: bool) -> Said {
        let (code, body, fds) = self.parts();
        let mut flags = 1 | if need_reply { NEED_REPLY } else { 0 };
        let mut claimed = u32::try_from(body.len()).expect("bodies are short");
        let mut whole = true;
        if let Self::Raw {
            flags: raw, claims, ..
        } = self
        {
            flags = u32::from(*raw);
            claimed = claims.unwrap_or(claimed);
            whole = claims.is_none();
        }
        let bytes = [u32s(&[code.into(), flags, claimed]), body].concat();
        Said { bytes, fds, whole }
    }

    /// Its number, its body and its descriptors.
    fn parts(&self) -> (u8, Vec<u8>, Fds) {
        let none = Fds::default;
        let optional = |fd: Option<Fd>| fd.map(Fds::one).unwrap_or_default();
        let state = |queue: bool, number| u32s(&[queue.into(), number]);
        let with_fd = |queue: bool, fd: Option<Fd>| {
            let flag = if fd.is_none() { NO_FD } else { 0 };
            (u64s(&[u64::from(queue) | flag]), optional(fd))
        };
        match self {
            Self::Bare(code) => (*code, Vec::new(), none()),
            Self::Features(bits) => (2, u64s(&[*bits]), none()),
            Self::ProtocolFeatures(bits) => (16, u64s(&[*bits]), none()),
            Self::MemTable(regions) => {
                let count = u32::try_from(regions.len()).expect("few regions");
                let words = regions.iter().flat_map(|(region, _)| region.words());
                let words: Vec<_> = words.collect();
                let fds = regions.iter().map(|(_, fd)| (*fd, 1)).collect();
                (5, [u32s(&[count, 0]), u64s(&words)].concat(), Fds(fds))
            }
            Self::AddReg(region, fd) => {
                let body = [u64s(&[0]), u64s(&region.words())].concat();
                (37, body, optional(*fd))
            }
            Self::RemReg(region) => (38, [u64s(&[0]), u64s(&region.words())].concat(), none()),
            Self::Num(queue, size) => (8, state(*queue, *size), none()),
            Self::Base(queue, base) => (10, state(*queue, *base), none()),
            Self::GetBase(queue) => (11, state(*queue, 0), none()),
            Self::Enable(queue, on) => (18, state(*queue, (*on).into()), none()),
            Self::Addresses(queue, places, flags) => {
                (9, addresses(*queue, *places, *flags), none())
            }
            Self::Kick(queue, fd) => {
                let (body, fds) = with_fd(*queue, *fd);
                (12, body, fds)
            }
            Self::Call(queue, fd) => {
                let (body, fds) = with_fd(*queue, *fd);
                (13, body, fds)
            }
            Self::Err(queue, fd) => {
                let (body, fds) = with_fd(*queue, *fd);
                (14, body, fds)
            }
            Self::GetConfig(offset, len) => {
                let head = u32s(&[*offset, (*len).into(), 0]);
                (24, [head, vec![0; (*len).into()]].concat(), none())
            }
            Self::SetConfig(offset, bytes) => {
                let len = u32::try_from(bytes.len()).expect("few bytes");
                (
                    25,
                    [u32s(&[*offset, len, 0]), bytes.clone()].concat(),
                    none(),
                )
            }
            Self::BackendFd(fd) => (21, Vec::new(), Fds::one(*fd)),
            Self::GetInflight(shape) => (31, inflight(0, 0, *shape), none()),
            Self::SetInflight(size, offset, shape, fd) => {
                (32, inflight(*size, *offset, *shape), optional(*fd))
            }
            Self::Record(fd) => (32, inflight(BYTES, 0, [2, SIZE]), Fds::one(*fd)),
            Self::Log(fd) => (6, u64s(&[0x1000, 0]), Fds::one(*fd)),
            Self::LogBase(size, offset, fd) => (6, u64s(&[*size, *offset]), optional(*fd)),
            Self::LogFd(fd) => (7, Vec::new(), optional(*fd)),
            Self::Queue(code, queue, number) => (*code, u32s(&[*queue, *number]), none()),
            Self::Raw {
                code, body, fds, ..
            } => (*code, body.clone(), fds.clone()),
        }
    }
}

fn addresses(queue: bool, places: [Place; 3], flags: u32) -> Vec<u8> {
    let mut usual = ring(queue).into_iter();
    let [descriptors, driver, device] = places.map(|place| {
        let usual = usual.next().expect("three parts");
        match place {
            Place::Usual => USER + usual,
            Place::Inside(at) => USER + u64::from(at),
            Place::Beside(at) => USER + BYTES + u64::from(at),
            Place::Any(address) => address,
        }
    });
    let parts = u64s(&[descriptors, device, driver, 0]);
    [u32s(&[queue.into(), flags]), parts].concat()
}

fn inflight(size: u64, offset: u64, [queues, entries]: [u16; 2]) -> Vec<u8> {
    let shape = u32::from(queues) | u32::from(entries) << 16;
    [u64s(&[size, offset]), u32s(&[shape, 0])].concat()
}

/// The descriptors that a frontend has. Those that cost something are made when they are sent first.
pub struct Descriptors {
    memory: OwnedFd,
    events: [OwnedFd; 2],
    frail: OwnedFd,
    made: Vec<OwnedFd>,
}

/// Why bytes were not sent.
pub enum Unsent {
    /// The other end has to read first.
    Full,
    /// There is no other end.
    Gone,
}

impl Descriptors {
    pub fn new(memory: &File) -> Self {
        let memory = memory.as_fd().try_clone_to_owned();
        let frail = memfd_create("frail", MemfdFlags::CLOEXEC).expect("a memfd can be made");
        ftruncate(&frail, BYTES).expect("a memfd can grow");
        Self {
            memory: memory.expect("a descriptor can be duplicated"),
            frail,
            events: [0, 1].map(|_| event(0)),
            made: Vec::new(),
        }
    }

    /// Cuts the frail memory to so many pages, whoever has mapped it, or lets it grow again.
    pub fn cut(&self, pages: u8) {
        let len = 0x1000 * u64::from(pages % 17);
        ftruncate(&self.frail, len).expect("a memfd can be cut");
    }

    pub fn kick(&self, queue: bool) {
        // Fails where it is full, which is a kick as well.
        let _ = rustix::io::write(&self.events[usize::from(queue)], &1u64.to_ne_bytes());
    }

    /// Sends what fits of `bytes`, and the descriptors with them.
    pub fn send(
        &mut self,
        socket: &UnixStream,
        bytes: &[u8],
        fds: Option<&Fds>,
    ) -> Result<usize, Unsent> {
        let wanted = fds.map_or(&[][..], |fds| &fds.0);
        let all = wanted
            .iter()
            .flat_map(|(fd, count)| std::iter::repeat_n(*fd, usize::from(*count)))
            .take(MOST);
        let places: Vec<_> = all.map(|fd| self.place(fd)).collect();
        let fds: Vec<_> = places.iter().map(|place| self.at(*place)).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            let message = SendAncillaryMessage::ScmRights(&fds);
            assert!(ancillary.push(message), "there is room for so many");
        }
        match sendmsg(
            socket,
            &[IoSlice::new(bytes)],
            &mut ancillary,
            SendFlags::NOSIGNAL,
        ) {
            Ok(sent) => Ok(sent),
            Err(Errno::AGAIN) => Err(Unsent::Full),
            Err(_) => Err(Unsent::Gone),
        }
    }

    /// Where the descriptor is found; makes it if need be.
    fn place(&mut self, fd: Fd) -> usize {
        let open = |path: &str| OwnedFd::from(File::open(path).expect("every machine has it"));
        let pipe = || rustix::pipe::pipe().expect("a pipe can be made");
        let made = match fd {
            Fd::Memory => return 0,
            Fd::Event(queue) => return 1 + usize::from(queue),
            Fd::Frail => return 3,
            Fd::Saturated => event(u64::MAX - 1),
            Fd::Pipe => pipe().1,
            Fd::Reader => pipe().0,
            Fd::Socket => UnixStream::pair()
                .expect("a socket pair can be made")
                .0
                .into(),
            Fd::Nothing => open("/dev/null"),
            Fd::Zero => open("/dev/zero"),
            Fd::Folder => open("/proc"),
        };
        self.made.push(made);
        3 + self.made.len()
    }

    fn at(&self, place: usize) -> BorrowedFd<'_> {
        match place {
            0 => self.memory.as_fd(),
            1 | 2 => self.events[place - 1].as_fd(),
            3 => self.frail.as_fd(),
            made => self.made[made - 4].as_fd(),
        }
    }
}

fn event(holds: u64) -> OwnedFd {
    let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
    let event = event.expect("an eventfd can be made");
    if holds > 0 {
        rustix::io::write(&event, &holds.to_ne_bytes()).expect("it holds that much");
    }
    event
}
