//! User-Mode Linux as the frontend: what it says otherwise than QEMU does, by hand and by itself.
//!
//! Debian's (6.1) sends a memory table with room for two regions, of which it uses one; newer ones are called through
//! one end of a pair of sockets.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use pollux_tests::frontend::{Code, Driver, NEED_REPLY, Raw, TWO_QUEUES, pair};
use pollux_tests::server::Server;
use tempfile::TempDir;

#[test]
fn a_memory_table_may_have_more_room_than_regions() {
    let folder = TempDir::new().unwrap();
    let socket = folder.path().join("disk.sock");
    let server = Server::pollux(&socket, &["--disk", "memory:size=16M"]).unwrap();
    let mut driver = Driver::connect(&socket, TWO_QUEUES).unwrap();
    for more in [1, 7] {
        for needs_reply in [true, false] {
            let region = driver.memory.region();
            let payload = [pair(1, 0), region.bytes(), vec![0xee; 32 * more]].concat();
            let mut raw = Raw::new(Code::SetMemTable, payload).with(vec![region.fd]);
            if needs_reply {
                raw.flags |= NEED_REPLY;
            }
            driver.frontend.send_raw(&raw).unwrap();
            if needs_reply {
                assert_eq!(driver.frontend.receive(Code::SetMemTable).unwrap(), [0; 8]);
            }
            // What follows is read as ever.
            for queue in &mut driver.queues {
                queue.round(7);
            }
            driver.frontend.number(Code::GetFeatures).unwrap();
        }
    }
    // In two pieces.
    let region = driver.memory.region();
    let payload = [pair(1, 0), region.bytes(), vec![0; 32]].concat();
    let bytes = Raw::new(Code::SetMemTable, payload).bytes();
    driver
        .frontend
        .send_bytes(&bytes[..30], &[region.fd])
        .unwrap();
    driver.frontend.send_bytes(&bytes[30..], &[]).unwrap();
    driver.queues[0].round(8);
    let (status, log) = server.terminate().unwrap();
    assert_eq!(status.code(), Some(0), "{log}");
}
