//! Requests, laid out in the slots of a queue.

use super::{INDIRECT, PAGE, Part, Queue, WRITE};

impl Queue {
    /// Writes the header of a request into `slot`, and a status that no device writes.
    pub fn begin(&self, slot: u16, kind: u32, sector: u64) {
        let header = [u64::from(kind).to_le_bytes(), sector.to_le_bytes()].concat();
        self.memory.put(self.header(slot), &header);
        self.memory.put(self.header(slot) + 16, &[0xff]);
    }

    /// A piece of a chain that lies at `offset` in the memory.
    pub fn part(&self, offset: usize, len: u32, flags: u16) -> Part {
        Part {
            address: self.memory.guest(offset),
            len,
            flags,
        }
    }

    fn chain(&self, slot: u16, data: &[Part]) -> Vec<Part> {
        let mut parts = vec![self.part(self.header(slot), 16, 0)];
        parts.extend(data);
        parts.push(self.part(self.header(slot) + 16, 1, WRITE));
        parts
    }

    /// Stages a read of a page into the data of `slot`.
    pub fn read(&mut self, slot: u16, sector: u64) {
        let address = self.memory.guest(self.data(slot));
        self.read_to(slot, sector, address);
    }

    /// Stages a read of a page to a guest address of the caller's choice.
    pub fn read_to(&mut self, slot: u16, sector: u64, address: u64) {
        self.read_over(slot, sector, &[(address, 4096)]);
    }

    /// Stages a read to one or two buffers, guest addresses and lengths.
    pub fn read_over(&mut self, slot: u16, sector: u64, buffers: &[(u64, u32)]) {
        self.begin(slot, 0, sector);
        let data: Vec<Part> = buffers
            .iter()
            .map(|&(address, len)| Part {
                address,
                len,
                flags: WRITE,
            })
            .collect();
        self.stage(slot, &self.chain(slot, &data));
    }

    /// Stages a write of a page of `byte`.
    pub fn write(&mut self, slot: u16, sector: u64, byte: u8) {
        self.write_page(slot, sector, &[byte; PAGE]);
    }

    /// Stages a write of `page`.
    pub fn write_page(&mut self, slot: u16, sector: u64, page: &[u8; PAGE]) {
        self.memory.put(self.data(slot), page);
        self.begin(slot, 1, sector);
        let data = self.part(self.data(slot), 4096, 0);
        self.stage(slot, &self.chain(slot, &[data]));
    }

    /// Stages a write whose header is split over three descriptors, in one indirect table.
    pub fn write_indirect(&mut self, slot: u16, sector: u64, byte: u8) {
        self.memory.put(self.data(slot), &[byte; PAGE]);
        self.begin(slot, 1, sector);
        let (header, data) = (self.header(slot), self.data(slot));
        let table = self.table(slot);
        let parts = [
            self.part(header, 3, 0),
            self.part(header + 3, 12, 0),
            self.part(header + 15, 1, 0),
            self.part(data, 1000, 0),
            self.part(data + 1000, 3096, 0),
            self.part(header + 16, 1, WRITE),
        ];
        self.write_table(table, &parts, 0);
        self.stage(slot, &[self.part(table, 16 * 6, INDIRECT)]);
    }

    /// Stages a request to make a page read as zeroes, which may not be given back.
    pub fn zero(&mut self, slot: u16, sector: u64) {
        let sectors = PAGE as u64 / 512; // in the lower half; no flags in the upper
        let segment = [sector, sectors].map(u64::to_le_bytes).concat();
        self.memory.put(self.data(slot), &segment);
        self.begin(slot, 13, 0);
        let data = self.part(self.data(slot), 16, 0);
        self.stage(slot, &self.chain(slot, &[data]));
    }

    /// Stages a request without data of any type: 4 is a flush.
    pub fn bare(&mut self, slot: u16, kind: u32) {
        self.begin(slot, kind, 0);
        self.stage(slot, &self.chain(slot, &[]));
    }

    /// Stages `VIRTIO_BLK_T_GET_ID`, 20 bytes into the data of `slot`.
    pub fn get_id(&mut self, slot: u16) {
        self.begin(slot, 8, 0);
        let data = self.part(self.data(slot), 20, WRITE);
        self.stage(slot, &self.chain(slot, &[data]));
    }
}
