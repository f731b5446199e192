//! One request (5.2.6): what its chain says, and doing it.

use super::disk::{Disk, Limits, Status, kind};
use super::memory::Memory;
use super::plan::feature;

const HEADER: usize = 16;
/// Bytes of the answer to a question for the serial number.
const ID: u64 = 20;
/// The serial number.
pub const SERIAL: &[u8] = b"written by hand";

/// A piece of a chain, by the address that descriptors use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Where it begins.
    pub address: u64,
    /// Bytes.
    pub len: u32,
}

/// A chain that was taken.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub head: u16,
    pub readable: Vec<Part>,
    pub writable: Vec<Part>,
}

impl Request {
    pub const fn new(head: u16) -> Self {
        Self {
            head,
            readable: vec![],
            writable: vec![],
        }
    }

    /// The parts that carry data: not the header in front, not the status byte at the end.
    pub fn data(&self) -> (Vec<Part>, Vec<Part>) {
        let mut to_device = self.readable.clone();
        let mut header = HEADER;
        to_device.retain_mut(|part| {
            let cut = header.min(size(part.len));
            header -= cut;
            let cut = u32::try_from(cut).expect("at most a header");
            part.address += u64::from(cut);
            part.len -= cut;
            part.len > 0
        });
        let mut to_driver = self.writable.clone();
        if let Some(last) = to_driver.last_mut() {
            last.len -= 1;
        }
        to_driver.retain(|part| part.len > 0);
        (to_device, to_driver)
    }

    /// How much may be written.
    pub fn room(&self) -> u64 {
        self.writable.iter().map(|part| u64::from(part.len)).sum()
    }

    /// Does it, without a word about how it ended. Returns status and bytes written, and what the driver
    /// did wrong.
    pub fn perform(
        &self,
        memory: &Memory,
        disk: &mut Disk,
        features: u64,
    ) -> (Status, u32, Option<String>) {
        match self.try_to(memory, disk, features) {
            Ok(written) => (Status::Ok, written + 1, None),
            Err(complaint) => {
                let status = if complaint.contains("is not offered") {
                    Status::Unsupported
                } else {
                    Status::IoErr
                };
                (status, 1, Some(format!("chain {}: {complaint}", self.head)))
            }
        }
    }

    fn try_to(&self, memory: &Memory, disk: &mut Disk, features: u64) -> Result<u32, String> {
        let header = collect(memory, &self.readable)?;
        let header: [u8; HEADER] = (header.get(..HEADER).and_then(|bytes| bytes.try_into().ok()))
            .ok_or("a header of fewer than 16 bytes")?;
        let kind = u32::from_le_bytes([0, 1, 2, 3].map(|at| header[at]));
        let sector = u64::from_le_bytes(std::array::from_fn(|at| header[8 + at]));
        if !Disk::offers(kind, features) {
            return Err(format!("a request of type {kind}, which is not offered"));
        }
        let (to_device, to_driver) = self.data();
        check_segments(disk.limits, features, [&to_device, &to_driver])?;
        let wanted = match kind {
            kind::READ | kind::GET_ID => [false, true],
            kind::FLUSH => [false, false],
            _ => [true, false],
        };
        if [!to_device.is_empty(), !to_driver.is_empty()] != wanted {
            return Err(format!(
                "a request of type {kind} with {to_device:x?} and {to_driver:x?}"
            ));
        }
        match kind {
            kind::READ => {
                let room = to_driver.iter().map(|part| u64::from(part.len)).sum();
                scatter(memory, &to_driver, disk.range(sector, room)?)
            }
            kind::WRITE => {
                let data = collect(memory, &to_device)?;
                disk.range(sector, data.len() as u64)?
                    .copy_from_slice(&data);
                Ok(0)
            }
            kind::FLUSH => Ok(0),
            kind::GET_ID => {
                let room: u64 = to_driver.iter().map(|part| u64::from(part.len)).sum();
                if room != ID {
                    return Err(format!("room for {room} bytes of a serial number"));
                }
                let mut serial = SERIAL.to_vec();
                serial.resize(size(u32::try_from(ID).expect("20")), 0);
                scatter(memory, &to_driver, &serial)
            }
            _ => zero(disk, kind, &collect(memory, &to_device)?),
        }
    }

    /// Writes the status byte.
    pub fn end(&self, memory: &Memory, status: u8) -> Result<(), String> {
        let last = self.writable.last();
        let at = last.map(|part| part.address + u64::from(part.len) - 1);
        let place = at.and_then(|at| memory.guest(at, 1));
        let place =
            place.ok_or_else(|| format!("chain {} has no place for a status", self.head))?;
        place.store(status);
        Ok(())
    }
}

fn size(len: u32) -> usize {
    usize::try_from(len).expect("32 bits")
}

/// 5.2.6.1: a driver keeps to `seg_max` and `size_max`.
fn check_segments(limits: Limits, features: u64, data: [&[Part]; 2]) -> Result<(), String> {
    for parts in data {
        let count = u32::try_from(parts.len()).expect("at most a queue's size");
        if features & feature::SEG_MAX != 0 && limits.seg_max > 0 && count > limits.seg_max {
            return Err(format!("{count} segments; seg_max is {}", limits.seg_max));
        }
        let longest = parts.iter().map(|part| part.len).max().unwrap_or(0);
        if features & feature::SIZE_MAX != 0 && limits.size_max > 0 && longest > limits.size_max {
            return Err(format!("{longest} bytes; size_max is {}", limits.size_max));
        }
    }
    Ok(())
}

/// A discard, a secure erase, or zeroes: zeroes either way, in a range as 5.2.6 lays it out.
fn zero(disk: &mut Disk, kind: u32, range: &[u8]) -> Result<u32, String> {
    let range: [u8; 16] =
        (range.try_into()).map_err(|_| format!("{} bytes of ranges", range.len()))?;
    let sector = u64::from_le_bytes(std::array::from_fn(|at| range[at]));
    let count = u32::from_le_bytes(std::array::from_fn(|at| range[8 + at]));
    let flags = u32::from_le_bytes(std::array::from_fn(|at| range[12 + at]));
    let (max, allowed) = match kind {
        kind::DISCARD => (36, 0),
        kind::SECURE_ERASE => (60, 0),
        _ => (48, 1),
    };
    let max = u32::from_le_bytes(std::array::from_fn(|at| disk.config(max, 4)[at]));
    if count > max || flags & !allowed != 0 {
        return Err(format!(
            "type {kind}: {count} sectors of {max}, flags {flags}"
        ));
    }
    disk.range(sector, u64::from(count) * super::disk::SECTOR)?
        .fill(0);
    Ok(0)
}

/// What the driver has put into `parts`.
fn collect(memory: &Memory, parts: &[Part]) -> Result<Vec<u8>, String> {
    let mut bytes = vec![];
    for part in parts {
        bytes.extend(place(memory, *part)?.get());
    }
    Ok(bytes)
}

/// Puts `bytes` where `parts` are; returns how many.
pub(super) fn scatter(memory: &Memory, parts: &[Part], bytes: &[u8]) -> Result<u32, String> {
    let mut rest = bytes;
    for part in parts {
        let (now, later) = rest.split_at(size(part.len).min(rest.len()));
        let place = place(
            memory,
            Part {
                len: u32::try_from(now.len()).expect("as long"),
                ..*part
            },
        )?;
        place.put(now);
        rest = later;
    }
    u32::try_from(bytes.len() - rest.len()).map_err(|_| "4 GiB at once".to_owned())
}

fn place(memory: &Memory, part: Part) -> Result<super::memory::Place<'_>, String> {
    let place = memory.guest(part.address, size(part.len));
    place.ok_or_else(|| format!("{part:x?}, whose memory was taken away while it was in flight"))
}
