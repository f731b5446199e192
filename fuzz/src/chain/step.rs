//! What happens in a run, one step after the other.

use arbitrary::Arbitrary;
use pollux_blk::SECTOR;
use pollux_disk::Failure;
use pollux_ring::{DescriptorFlags, descriptor};
use rustix::io::Errno;

use super::memory::{LOW, Rig, SEAM, TOP, place};
use super::model::Model;

#[derive(Arbitrary, Debug)]
pub enum Step {
    /// The driver writes.
    Driver(Write),
    /// The worker turns.
    Turn,
    /// It is about to sleep.
    Arm,
    /// It has slept.
    Disarm,
    /// The slow disk ends one of its requests.
    End { which: u8, how: How },
}

/// How the disk ends a request.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum How {
    Well,
    Badly,
    Unsupported,
    Lost,
}

impl How {
    pub fn result(self) -> Result<(), Failure> {
        match self {
            Self::Well => Ok(()),
            Self::Badly => Err(Failure::Io(Errno::IO)),
            Self::Unsupported => Err(Failure::Unsupported),
            Self::Lost => Err(Failure::Lost),
        }
    }
}

/// What a driver writes, into the ring or into memory.
#[derive(Arbitrary, Debug)]
pub enum Write {
    /// A descriptor, of the ring's table or of an indirect one.
    Descriptor {
        table: Table,
        at: u8,
        descriptor: Descriptor,
    },
    /// A request in the usual layout, made available: header, data, status.
    Request {
        head: u8,
        header: Header,
        data: [Buffer; 2],
        status: Address,
        indirect: bool,
    },
    Header {
        to: Address,
        header: Header,
    },
    Range {
        to: Address,
        range: Range,
    },
    Bytes {
        to: Address,
        bytes: [u8; 8],
    },
    Offer {
        head: Number,
    },
    AvailableIdx {
        ahead: Number,
    },
    Wishes {
        flags: u8,
        event: u16,
    },
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Table {
    Ring,
    At(Address),
}

/// A small number, as most that mean something are; one about the ring's size; or any.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Number {
    Few(u8),
    Small(u8),
    Size(i8),
    Any(u16),
}

impl Number {
    fn get(self, size: u16) -> u16 {
        match self {
            Self::Few(number) => u16::from(number % 8),
            Self::Small(number) => u16::from(number),
            Self::Size(by) => size.wrapping_add_signed(i16::from(by % 3)),
            Self::Any(number) => number,
        }
    }
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Address {
    Low(u16),
    Seam(i8),
    Top(u16),
    Any(u64),
}

impl Address {
    fn get(self) -> u64 {
        match self {
            Self::Low(at) => LOW + u64::from(at),
            Self::Seam(by) => SEAM.wrapping_add_signed(i64::from(by)),
            Self::Top(at) => TOP.wrapping_add(u64::from(at)),
            Self::Any(address) => address,
        }
    }
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Len {
    Bytes(u8),
    Sectors(u8),
    Descriptors(u16),
    Any(u32),
}

impl Len {
    fn get(self) -> u32 {
        match self {
            Self::Bytes(len) => u32::from(len),
            Self::Sectors(count) => 512 * u32::from(count % 20),
            Self::Descriptors(count) => 16 * u32::from(count % 0x800),
            Self::Any(len) => len,
        }
    }
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct Buffer {
    address: Address,
    len: Len,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct Descriptor {
    buffer: Buffer,
    flags: Number,
    next: Number,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Sector {
    Small(u8),
    Last(u8),
    Any(u64),
}

impl Sector {
    fn get(self) -> u64 {
        match self {
            Self::Small(sector) => u64::from(sector % 20),
            Self::Last(before) => u64::MAX / SECTOR - u64::from(before),
            Self::Any(sector) => sector,
        }
    }
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct Header {
    kind: Kind,
    sector: Sector,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Kind {
    In,
    Out,
    Flush,
    GetId,
    Discard,
    WriteZeroes,
    Any(u32),
}

impl Header {
    fn bytes(self) -> [u8; 16] {
        let kind = match self.kind {
            Kind::In => 0,
            Kind::Out => 1,
            Kind::Flush => 4,
            Kind::GetId => 8,
            Kind::Discard => 11,
            Kind::WriteZeroes => 13,
            Kind::Any(kind) => kind,
        };
        (u128::from(kind) | u128::from(self.sector.get()) << 64).to_le_bytes()
    }
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct Range {
    sector: Sector,
    sectors: Number,
    flags: u8,
}

impl Range {
    fn bytes(self) -> [u8; 16] {
        let sectors = u128::from(self.sectors.get(16));
        let flags = u128::from(self.flags);
        (u128::from(self.sector.get()) | sectors << 64 | flags << 96).to_le_bytes()
    }
}

const NEXT: u16 = DescriptorFlags::NEXT;
const WRITE: u16 = DescriptorFlags::WRITE;
const INDIRECT: u16 = DescriptorFlags::INDIRECT;

impl Write {
    pub fn apply(&self, rig: &Rig, model: &mut Model) {
        let size = model.size();
        let mut to = Driver { rig, model };
        match *self {
            Self::Descriptor {
                table,
                at,
                descriptor: it,
            } => {
                let (flags, next) = (it.flags.get(size), it.next.get(size));
                let it = described(it.buffer, flags, next);
                to.describe(table, at, it);
            }
            Self::Request {
                head,
                header,
                data,
                status,
                indirect,
            } => to.request(head, header, data, status, indirect),
            Self::Header { to: at, header } => to.put(at.get(), &header.bytes()),
            Self::Range { to: at, range } => to.put(at.get(), &range.bytes()),
            Self::Bytes { to: at, bytes } => to.put(at.get(), &bytes),
            Self::Offer { head } => rig.offer(head.get(size), size),
            Self::AvailableIdx { ahead } => {
                let idx = to.model.next.wrapping_add(ahead.get(size));
                rig.set_available_idx(idx);
            }
            Self::Wishes { flags, event } => rig.set_wishes(u16::from(flags), event, size),
        }
    }
}

fn described(buffer: Buffer, flags: u16, next: u16) -> [u8; 16] {
    let (address, len) = (buffer.address.get(), buffer.len.get());
    descriptor(address, len, DescriptorFlags(flags), next)
}

struct Driver<'a> {
    rig: &'a Rig,
    model: &'a mut Model,
}

impl Driver<'_> {
    /// Writes as many of `bytes` to `address` as there is memory, there and in the model.
    fn put(&mut self, address: u64, bytes: &[u8]) {
        for (address, byte) in (address..=u64::MAX).zip(bytes) {
            if let Some(at) = place(address) {
                self.rig.set(at, *byte);
                self.model.memory[at] = *byte;
            }
        }
    }

    fn describe(&mut self, table: Table, at: u8, descriptor: [u8; 16]) {
        match table {
            Table::Ring => self.rig.describe(at, descriptor),
            Table::At(address) => {
                let address = address.get().wrapping_add(16 * u64::from(at));
                self.put(address, &descriptor);
            }
        }
    }

    /// The header lies at the start of memory, and so does, behind it, the indirect table.
    fn request(
        &mut self,
        head: u8,
        header: Header,
        data: [Buffer; 2],
        status: Address,
        indirect: bool,
    ) {
        const HEADERS: u16 = 0;
        const TABLE: u16 = 0x1000;
        let place = HEADERS + 16 * u16::from(head);
        self.put(LOW + u64::from(place), &header.bytes());
        let flow = match header.kind {
            Kind::In | Kind::GetId => WRITE,
            _ => 0,
        };
        let buffer = |address, len| Buffer { address, len };
        let chain = [
            (buffer(Address::Low(place), Len::Bytes(16)), NEXT),
            (data[0], NEXT | flow),
            (data[1], NEXT | flow),
            (buffer(status, Len::Bytes(1)), WRITE),
        ];
        let size = self.model.size();
        let table = if indirect {
            let to = buffer(Address::Low(TABLE), Len::Descriptors(4));
            self.rig.describe(head, described(to, INDIRECT, 0));
            Table::At(Address::Low(TABLE))
        } else {
            Table::Ring
        };
        let first = if indirect { 0 } else { head };
        for (number, (buffer, flags)) in (0u8..).zip(chain) {
            // Around the end of the ring's table, where there is one.
            let at = |number: u8| match table {
                Table::Ring => (u16::from(first) + u16::from(number)) % size,
                Table::At(_) => u16::from(number),
            };
            let here = u8::try_from(at(number)).expect("a table here has at most 256 entries");
            let descriptor = described(buffer, flags, at(number + 1));
            self.describe(table, here, descriptor);
        }
        self.rig.offer(u16::from(head) % size, size);
    }
}
