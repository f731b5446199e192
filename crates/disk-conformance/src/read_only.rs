//! A disk that may not be written.

use pollux_disk::{Access, Failure, Op, Unmap};

use crate::held::Held;
use crate::{Buffer, Client, read, write, zeroes};

pub fn changes_nothing(disk: &Held) {
    let geometry = disk.geometry();
    assert_eq!(geometry.access, Access::ReadOnly, "it says that it is");
    let len = u64::from(geometry.block);
    let bytes = usize::try_from(len).expect("a block is small");
    let mut client = Client::new(&***disk);
    let before = client.read_bytes(0, bytes);
    let buffer = Buffer::holding(&vec![!before[0]; bytes]);
    for op in [
        write(0, &buffer),
        Op::Discard { at: 0, len },
        zeroes(0, len, Unmap::Allowed),
        zeroes(0, len, Unmap::Forbidden),
    ] {
        assert_eq!(client.run(op), Err(Failure::ReadOnly), "{op:?}");
    }
    assert_eq!(client.run(Op::Flush), Ok(()), "a flush changes nothing");
    let at = geometry.bytes - len;
    assert_eq!(client.run(read(at, &buffer)), Ok(()), "its last block");
    drop(client);
    let after = Client::new(&***disk).read_bytes(0, bytes);
    assert!(after == before, "a refused write has changed the disk");
}
