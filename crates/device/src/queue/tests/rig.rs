//! A driver end, its memory, and a queue over a real memory disk.

use super::*;

/// Calls at once, whatever that makes of the requests a second.
pub const AT_ONCE: Tuning = Tuning {
    calls: Calls::AtOnce,
    polling: Polling::Adaptive,
    poll_bounds: Bounds {
        max: Window::MOST,
        cpu: 100,
    },
    signal: Signal::CompletionsFirst,
    kicks: Kicks::OffWhileAwake,
};

pub const RING: u16 = 16;
pub const DISK: u64 = 64 * SECTOR;
/// Where the driver's buffers start, behind the ring.
pub const BUFFERS: u64 = 0x1_0000;

/// A driver, its memory, and a queue over a memory disk.
pub struct Rig {
    pub memory: std::fs::File,
    pub driver: DriverEnd,
    pub areas: Areas,
    pub table: Memory,
    pub rules: Rules,
    pub writeback: bool,
    pub queue: Queue,
    pub channel: Box<dyn Channel>,
    _sleeper: Sleeper,
    pub next: u64,
}

impl Rig {
    pub fn new() -> Self {
        Self::with(Geometry::plain(DISK), true)
    }

    pub fn with(geometry: Geometry, writeback: bool) -> Self {
        Self::sized(RING, geometry, writeback)
    }

    pub fn sized(entries: u16, geometry: Geometry, writeback: bool) -> Self {
        Self::in_memory_of(0x10_0000, entries, geometry, writeback)
    }

    pub fn in_memory_of(bytes: u64, entries: u16, geometry: Geometry, writeback: bool) -> Self {
        let memory = tempfile::tempfile_in("/dev/shm").unwrap();
        memory.set_len(bytes).unwrap();
        let region = Region::map(memory.try_clone().unwrap(), 0, 0, 0, bytes).unwrap();
        let table = Memory::default().with(Arc::new(region)).unwrap();
        let layout = Layout::of(entries);
        // SAFETY: the rig has the table and the ring, and every test keeps the rig until its end.
        let span = |at, len: usize| unsafe { table.span(at, len as u64) }.unwrap();
        let areas = Areas::new(
            u32::from(entries),
            span(0, layout.descriptor),
            span(0x4000, layout.driver),
            span(0x8000, layout.device),
        )
        .unwrap();
        let disk = pollux_disk::Memory::new(geometry).unwrap();
        let rules = Rules {
            geometry: Geometry {
                access: geometry.access,
                ..disk.geometry()
            },
            bytes: Arc::new(AtomicU64::new(disk.geometry().bytes)),
            size_max: Some(0x8000),
            seg_max: 4,
            max_ranges: MAX_RANGES,
            pace: Pace::of(disk.effort()),
        };
        let ring = DeviceEnd::new(&areas, RingIndex(0), Suppression::EventIdx, true);
        let setup = setup(ring, &table, &rules, writeback);
        let sleeper = Sleeper::new().unwrap();
        Self {
            memory,
            driver: DriverEnd::new(&areas, Suppression::EventIdx, None),
            areas,
            table,
            rules,
            writeback,
            queue: Queue::new(setup, AT_ONCE),
            channel: disk.open_channel(sleeper.point()).unwrap(),
            _sleeper: sleeper,
            next: BUFFERS,
        }
    }

    /// A buffer with these bytes.
    pub fn buffer(&mut self, bytes: &[u8]) -> Buffer {
        let address = self.next;
        self.memory.write_all_at(bytes, address).unwrap();
        self.next += bytes.len() as u64;
        Buffer {
            address,
            len: u32::try_from(bytes.len()).unwrap(),
        }
    }

    pub fn bytes(&self, buffer: Buffer) -> Vec<u8> {
        let mut bytes = vec![0; buffer.len as usize];
        self.memory
            .read_exact_at(&mut bytes, buffer.address)
            .unwrap();
        bytes
    }

    /// Sends one chain; returns the length that came back.
    pub fn send(&mut self, readable: &[Buffer], writable: &[Buffer]) -> u32 {
        self.driver.stage(readable, writable, 7).unwrap();
        let _ = self.driver.publish();
        assert!(
            self.queue
                .take(0, &mut Budget::default(), &mut *self.channel)
                > 0
        );
        self.queue.publish();
        assert_eq!(self.driver.look(), Ok(1));
        let done = self.driver.take().unwrap().unwrap();
        assert_eq!(done.token, 7);
        done.written
    }

    /// Sends a request in the usual layout; returns its status, and what it read.
    pub fn request(&mut self, kind: Kind, sector: u64, out: &[u8], room: usize) -> (u8, Vec<u8>) {
        let header = self.buffer(&RequestHeader { kind, sector }.to_bytes());
        let mut readable = vec![header];
        if !out.is_empty() {
            readable.push(self.buffer(out));
        }
        let data = self.buffer(&vec![0xee; room]);
        let status = self.buffer(&[0xff]);
        let writable = if room > 0 {
            vec![data, status]
        } else {
            vec![status]
        };
        self.send(&readable, &writable);
        (self.bytes(status)[0], self.bytes(data))
    }
}

/// An alarm of a session whose frontend has gone.
pub fn alarm() -> Arc<Alarm> {
    let (connection, _) = UnixStream::pair().unwrap();
    Arc::new(Alarm::new(connection.into()))
}

pub fn setup(ring: DeviceEnd, table: &Memory, rules: &Rules, writeback: bool) -> Setup {
    Setup {
        index: 0,
        ring,
        record: None,
        memory: Arc::new(table.clone()),
        alarm: alarm(),
        kick: None,
        call: None,
        error: None,
        rules: rules.clone(),
        serial: pollux_blk::serial("serial-7"),
        flush: true,
        writeback: Arc::new(AtomicBool::new(writeback)),
        dirty: None,
        stats: Arc::default(),
        limiter: Arc::default(),
        observation: Arc::new(Observation::of(1)),
        log_quotas: Arc::default(),
        disk: String::new(),
    }
}

pub const OK: u8 = Status::Ok as u8;
pub const IOERR: u8 = Status::IoErr as u8;
pub const UNSUPP: u8 = Status::Unsupp as u8;

pub fn pattern(sectors: u64) -> Vec<u8> {
    (0..sectors * SECTOR)
        .map(|at| u8::try_from(at % 251).unwrap())
        .collect()
}

pub fn ranges(segments: &[(u64, u32, bool)]) -> Vec<u8> {
    let segment = |&(sector, sectors, unmap): &(u64, u32, bool)| RangeSegment {
        sector,
        sectors,
        unmap,
    };
    segments
        .iter()
        .flat_map(|each| segment(each).to_bytes())
        .collect()
}
