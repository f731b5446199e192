//! Queues of one session share its turn.

use super::*;
use crate::share::Share;
use crate::tuning::Tuning;
use crate::worker::SessionId;

/// A flush has a header and a status, and so each takes two descriptors.
const FLUSHES: u16 = RING / 2;

#[test]
fn a_turn_takes_so_many_chains_and_nobody_waits_for_more_than_the_turn_of_others() {
    let sleeper = Sleeper::new().unwrap();
    let disk = pollux_disk::Memory::new(Geometry::plain(DISK)).unwrap();
    let channel = disk.open_channel(sleeper.point()).unwrap();
    let mut share = Share::new(SessionId(0), channel, sleeper.point().clone());
    // Twice as much as a turn takes.
    let queues = 2 * BUDGET / FLUSHES;
    let mut drivers = vec![];
    for _ in 0..queues {
        let mut rig = Rig::new();
        let flush = RequestHeader {
            kind: Kind::Flush,
            sector: 0,
        };
        let header = rig.buffer(&flush.to_bytes());
        for _ in 0..FLUSHES {
            let status = rig.buffer(&[0xee]);
            rig.driver.stage(&[header], &[status], 7).unwrap();
        }
        let _ = rig.driver.publish();
        let Rig { driver, queue, .. } = rig;
        share.start(Box::new(queue));
        drivers.push(driver);
    }
    let mut ended = vec![0; drivers.len()];
    for turn in 1..=2 {
        assert_eq!(share.turn(Tuning::default()).chains, BUDGET);
        for (driver, ended) in drivers.iter_mut().zip(&mut ended) {
            let _ = driver.look().unwrap();
            while driver.take().unwrap().is_some() {
                *ended += 1;
            }
        }
        let all: u16 = ended.iter().sum();
        assert_eq!(all, turn * BUDGET, "{ended:?}");
    }
    assert_eq!(ended, vec![FLUSHES; drivers.len()]);
    assert_eq!(share.turn(Tuning::default()).chains, 0);
}
