use std::io::Write;

use super::*;
use crate::Access;

const CLUSTER: u64 = 512;
const WHOLE: usize = 512;
/// Where things are, in clusters: the header, the refcount table, its blocks, the L1 table and an L2 table.
const REFTABLE: u64 = 1;
const BLOCKS: u64 = 4;

/// An image of small clusters with so many refcount blocks, each of which counts 256 clusters.
struct Lab {
    file: tempfile::NamedTempFile,
    order: Order,
    blocks: u64,
}

impl Lab {
    fn new(blocks: u64) -> Self {
        let l1 = BLOCKS + blocks;
        let mut bytes = vec![0; 256 << 10];
        let mut put = |at: u64, value: &[u8]| {
            let at = usize::try_from(at).unwrap();
            bytes[at..at + value.len()].copy_from_slice(value);
        };
        put(0, b"QFI\xfb\0\0\0\x03");
        put(20, &9u32.to_be_bytes());
        put(24, &(32u64 << 10).to_be_bytes());
        put(36, &8u32.to_be_bytes());
        put(40, &(l1 * CLUSTER).to_be_bytes());
        put(48, &(REFTABLE * CLUSTER).to_be_bytes());
        put(56, &3u32.to_be_bytes());
        put(96, &4u32.to_be_bytes());
        put(100, &104u32.to_be_bytes());
        for block in 0..blocks {
            let at = (BLOCKS + block) * CLUSTER;
            put(REFTABLE * CLUSTER + block * 8, &at.to_be_bytes());
        }
        let l2 = (l1 + 1) * CLUSTER;
        put(l1 * CLUSTER, &(l2 | 1 << 63).to_be_bytes());
        for cluster in 0..l1 + 2 {
            put(BLOCKS * CLUSTER + cluster * 2, &[0, 1]);
        }
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&bytes).unwrap();
        let opened = fs::File::options()
            .read(true)
            .write(true)
            .open(file.path())
            .unwrap();
        let header = Header::read(&opened, Access::ReadWrite).unwrap().unwrap();
        let barrier = Arc::new(Mutex::new(Barrier::new(Vec::new()).unwrap()));
        let order = Order::new(Arc::new(opened), header, barrier, true)
            .unwrap()
            .unwrap();
        order.opened();
        Self {
            file,
            order,
            blocks,
        }
    }

    fn read<const LEN: usize>(&self, at: u64) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        read_or_zero(self.file.as_file(), &mut bytes, at).unwrap();
        bytes
    }

    /// What the file says of the references to a cluster.
    fn count(&self, cluster: u64) -> [u8; 2] {
        self.read((BLOCKS + cluster / 256) * CLUSTER + cluster % 256 * 2)
    }

    fn l1(&self) -> u64 {
        (BLOCKS + self.blocks) * CLUSTER
    }
}

/// `imago` has the count in its memory, and writes it later than the entry.
#[test]
fn a_refcount_block_is_counted_before_anything_refers_to_it() {
    let lab = Lab::new(2);
    let block = 300;
    assert_eq!(lab.count(block), [0, 0]);
    let at = block * CLUSTER;
    lab.order.write(at, &[0; WHOLE]).unwrap();
    lab.order
        .write(REFTABLE * CLUSTER + 16, &at.to_be_bytes())
        .unwrap();
    assert_eq!(lab.read(REFTABLE * CLUSTER + 16), at.to_be_bytes());
    assert_eq!(lab.count(block), [0, 1]);
}

/// What a commit that failed has left to write must not take the refcount table back to where it was.
#[test]
fn a_header_that_waits_gives_way_to_a_later_one() {
    let lab = Lab::new(2);
    let mut header: [u8; 72] = lab.read(0);
    header[24..32].copy_from_slice(&(64u64 << 10).to_be_bytes());
    lab.order.write(0, &header).unwrap();
    let before: [u8; 72] = lab.read(0);
    assert_ne!(header, before, "it waits");
    // The refcount table has moved.
    let table: [u8; 3 * WHOLE] = lab.read(REFTABLE * CLUSTER);
    let moved = 400 * CLUSTER;
    lab.order.write(moved, &table).unwrap();
    header[48..56].copy_from_slice(&moved.to_be_bytes());
    lab.order.write(0, &header).unwrap();
    lab.order.commit().unwrap();
    assert_eq!(lab.read(0), header);
}

/// An L1 entry that waits keeps the storage as it was, and so the counts of what that refers to.
#[test]
fn no_count_is_lowered_while_an_entry_waits() {
    let lab = Lab::new(80);
    let old = lab.l1() / CLUSTER + 1;
    let new = 256 * CLUSTER;
    lab.order.write(new, &[1; WHOLE]).unwrap();
    lab.order
        .write(lab.l1(), &(new | 1 << 63).to_be_bytes())
        .unwrap();
    // The old table is given back, the new one is counted, and so is something in every other block.
    let mut first: [u8; WHOLE] = lab.read(BLOCKS * CLUSTER);
    let at = usize::try_from(old * 2).unwrap();
    first[at..at + 2].fill(0);
    lab.order.write(BLOCKS * CLUSTER, &first).unwrap();
    for block in 1..lab.blocks {
        let mut counts = [0; WHOLE];
        counts[1] = 1;
        let at = (BLOCKS + block) * CLUSTER;
        lab.order.write(at, &counts).unwrap();
    }
    assert_ne!(
        lab.read(lab.l1()),
        (new | 1 << 63).to_be_bytes(),
        "it waits"
    );
    assert_eq!(lab.count(old), [0, 1]);
    lab.order.commit().unwrap();
    assert_eq!(lab.read(lab.l1()), (new | 1 << 63).to_be_bytes());
    assert_eq!(lab.count(old), [0, 0], "nothing refers to it any more");
}

#[test]
fn zeroes_do_not_go_where_a_table_is() {
    let lab = Lab::new(2);
    for cluster in 0..8 {
        let before: [u8; WHOLE] = lab.read(cluster * CLUSTER);
        lab.order.zero(cluster * CLUSTER, CLUSTER).unwrap_err();
        assert_eq!(lab.read(cluster * CLUSTER), before);
    }
}

/// A block counts what is before it; a table far behind that was written first.
#[test]
fn a_file_that_gets_longer_keeps_what_lies_behind() {
    let lab = Lab::new(4);
    let far = 900 * CLUSTER;
    lab.order.write(far, &[7; WHOLE]).unwrap();
    let mut counts = [0; WHOLE];
    counts[301] = 1;
    lab.order.write((BLOCKS + 2) * CLUSTER, &counts).unwrap();
    assert_eq!(lab.read(far), [7; WHOLE]);
}

/// A new L2 table, whose entry waits while the refcount table moves.
#[test]
fn a_table_is_one_before_the_file_says_so() {
    let lab = Lab::new(2);
    let table = 300 * CLUSTER;
    lab.order.write(table, &[0; WHOLE]).unwrap();
    lab.order
        .write(lab.l1() + 8, &(table | 1 << 63).to_be_bytes())
        .unwrap();
    let mut header: [u8; 72] = lab.read(0);
    let reftable: [u8; 3 * WHOLE] = lab.read(REFTABLE * CLUSTER);
    let moved = 400 * CLUSTER;
    lab.order.write(moved, &reftable).unwrap();
    header[48..56].copy_from_slice(&moved.to_be_bytes());
    lab.order.write(0, &header).unwrap();
    assert!(lab.order.is_table(table));
}

/// `imago` counts in the block all the same, and does not write the entry again.
#[test]
fn an_entry_of_the_refcount_table_that_failed_is_written_before_all_else() {
    let lab = Lab::new(2);
    let at = 300 * CLUSTER;
    let entry = REFTABLE * CLUSTER + 16;
    lab.order.write(at, &[0; WHOLE]).unwrap();
    let unwritable = Arc::new(fs::File::open(lab.file.path()).unwrap());
    let file = std::mem::replace(&mut lab.order.state().file, unwritable);
    lab.order.write(entry, &at.to_be_bytes()).unwrap_err();
    lab.order.prepare().unwrap_err();
    lab.order.state().file = file;
    assert_eq!(lab.read(entry), [0; 8]);
    lab.order.prepare().unwrap();
    assert_eq!(lab.read(entry), at.to_be_bytes());
}

/// Whether the storage has the old header or the new one nobody knows.
#[test]
fn nothing_is_written_after_a_move_of_the_refcount_table_that_failed() {
    let lab = Lab::new(2);
    let mut header: [u8; 72] = lab.read(0);
    header[48..56].copy_from_slice(&(400 * CLUSTER).to_be_bytes());
    let unwritable = Arc::new(fs::File::open(lab.file.path()).unwrap());
    let file = std::mem::replace(&mut lab.order.state().file, unwritable);
    lab.order.write(0, &header).unwrap_err();
    lab.order.state().file = file;
    lab.order.write(300 * CLUSTER, &[1; WHOLE]).unwrap_err();
    lab.order.prepare().unwrap_err();
}

/// The entry of a cluster of the reserve is in the file at once; any other waits for what it rests on.
#[test]
fn an_entry_is_written_alone_only_where_the_file_has_its_count_and_table() {
    let lab = Lab::new(2);
    let entry = lab.l1() + CLUSTER + 5 * 8;
    let at = 200 * CLUSTER;
    let link = |cluster, at| lab.order.link(&[Link { cluster, at }]).unwrap();
    assert!(!link(5, at), "it is not counted");
    let mut counts: [u8; WHOLE] = lab.read(BLOCKS * CLUSTER);
    counts[199 * 2 + 1] = 1;
    lab.order.write(BLOCKS * CLUSTER, &counts).unwrap();
    assert!(!link(64, at), "it has no table");
    assert!(!link(1 << 40, at), "it has no entry of the L1 table");
    assert_eq!(lab.read(entry), [0; 8]);
    assert!(link(5, at), "it is in the reserve");
    assert_eq!(lab.read(entry), (at | 1 << 63).to_be_bytes());
    // A new table for the same entries waits.
    let table = 210 * CLUSTER;
    lab.order.write(table, &[1; WHOLE]).unwrap();
    let new = (table | 1 << 63).to_be_bytes();
    lab.order.write(lab.l1(), &new).unwrap();
    assert!(!link(6, at + CLUSTER), "its table is about to change");
    assert_eq!(lab.read(entry + 8), [0; 8]);
}

/// What is written before an entry is on stable storage before it.
#[test]
fn an_entry_that_is_written_alone_comes_after_its_count_on_stable_storage() {
    let lab = Lab::new(2);
    let mut counts: [u8; WHOLE] = lab.read(BLOCKS * CLUSTER);
    counts[199 * 2 + 1] = 1;
    lab.order.write(BLOCKS * CLUSTER, &counts).unwrap();
    assert!(lab.order.state().unsynced);
    let at = 200 * CLUSTER;
    assert!(lab.order.link(&[Link { cluster: 5, at }]).unwrap());
    assert!(!lab.order.state().unsynced);
}
