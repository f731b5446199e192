//! The table of set-ups that cannot be: queues, rings and memory that are not there, and the right messages in the
//! wrong order.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::os::fd::AsFd;

use pollux_tests::frontend::{
    Code, Driver, GuestMemory, Logs, PAGE, REPLY, Raw, Region, new_eventfd, pair, words,
};
use pollux_tests::hostile::{
    DISCONNECTED, INVALID, Target, is_turned_away, refused, refused_at_once,
};
use pollux_tests::row;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

fn queue_numbers(target: &Target) -> [u32; 5] {
    let queues = u32::from(target.queues);
    [queues, 255, 256 + queues, 1 << 16, u32::MAX]
}

row!(a_queue_beyond_the_last, |target| {
    for index in queue_numbers(target) {
        let why = format!("there is no queue {index}");
        for (code, number) in [
            (Code::SetVringNum, 256),
            (Code::SetVringBase, 0),
            (Code::GetVringBase, 0),
            (Code::SetVringEnable, 1),
            (Code::SetVringEnable, 0),
        ] {
            refused(target, &why, &Raw::new(code, pair(index, number)));
        }
        refused(
            target,
            &why,
            &Raw::new(
                Code::SetVringAddr,
                words(&[index, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
            ),
        );
    }
    let event = new_eventfd().unwrap();
    for index in [u64::from(target.queues), 255] {
        for code in [Code::SetVringKick, Code::SetVringCall, Code::SetVringErr] {
            let raw = Raw::new(code, index.to_le_bytes().to_vec()).with(vec![event.as_fd()]);
            refused(target, &format!("there is no queue {index}"), &raw);
        }
    }
});

row!(ring_sizes_that_cannot_be, |target| {
    for size in [0, 3, 255, 2048, 65535, 65536, 1 << 31, u32::MAX] {
        let mut driver = target.driver();
        driver.stop(0).unwrap();
        driver
            .frontend
            .send_raw(&Raw::new(Code::SetVringNum, pair(0, size)))
            .unwrap();
        is_turned_away(
            target,
            &driver.frontend,
            &format!("cannot have {size} entries"),
        );
    }
});

/// Describes the stopped queue 0 anew, and starts it.
fn restarted(target: &Target, why: &str, describe: impl Fn(&Driver) -> [u64; 3]) {
    let mut driver = target.driver();
    driver.stop(0).unwrap();
    let mut payload = pair(0, 0);
    for address in describe(&driver).into_iter().chain([0]) {
        payload.extend(address.to_le_bytes());
    }
    driver
        .frontend
        .send_raw(&Raw::new(Code::SetVringAddr, payload))
        .unwrap();
    let kick = Raw::new(Code::SetVringKick, vec![0; 8]).with(vec![driver.queues[0].kick.as_fd()]);
    let _ = driver.frontend.send_raw(&kick);
    is_turned_away(target, &driver.frontend, why);
}

/// Descriptors, used ring, available ring: as in the message.
const AREAS: [usize; 3] = [0, 0x1_0000, 0x8000];

row!(rings_that_are_unaligned, |target| {
    for (area, by) in [(0, 8), (1, 2), (2, 1)] {
        restarted(target, INVALID, |driver| {
            let mut at = AREAS.map(|area| driver.memory.user(area));
            at[area] += by;
            at
        });
    }
});

row!(rings_outside_memory, |target| {
    let outside = [0, 0x1000, 1 << 32, !15, !0xfff];
    for address in outside {
        for area in 0..3 {
            restarted(target, "is not in the shared memory", |driver| {
                let mut at = AREAS.map(|area| driver.memory.user(area));
                at[area] = address;
                at
            });
        }
    }
});

row!(rings_that_leave_memory, |target| {
    for area in 0..3 {
        restarted(target, "is not in the shared memory", |driver| {
            let mut at = AREAS.map(|area| driver.memory.user(area));
            let end = usize::from(target.queues) * 0x10_0000;
            at[area] = driver.memory.user(end - 16);
            at
        });
    }
});

// All three areas in one place: nonsense, but only the guest's own.
row!(rings_that_overlap, |target| {
    let mut driver = target.driver();
    driver.stop(0).unwrap();
    let at = driver.memory.user(0);
    let mut payload = pair(0, 0);
    for address in [at, at, at, 0] {
        payload.extend(u64::to_le_bytes(address));
    }
    driver
        .frontend
        .tell(Code::SetVringAddr, &payload, &[])
        .unwrap();
    let kick = driver.queues[0].kick.as_fd();
    driver
        .frontend
        .vring_fd(Code::SetVringKick, 0, Some(kick))
        .unwrap();
    for number in 0..200u8 {
        driver.memory.put(0, &[number; 64]);
        driver.queues[0].publish_and_kick();
    }
    driver.stop(0).unwrap();
});

fn region(memory: &GuestMemory, guest: u64, user: u64) -> Region<'_> {
    Region {
        guest,
        user,
        ..memory.region()
    }
}

fn table(regions: &[Region<'_>]) -> Vec<u8> {
    let count = u32::try_from(regions.len()).unwrap();
    let mut payload = pair(count, 0);
    payload.extend(regions.iter().flat_map(Region::bytes));
    payload
}

row!(regions_that_overlap, |target| {
    let memory = GuestMemory::new(0, 4 * PAGE).unwrap();
    let page = PAGE as u64;
    let base = 8 << 32;
    for (guest, user) in [
        (base, base + (1 << 40)),
        (base + (1 << 40), base),
        (base + page, base + page),
        (base, base),
    ] {
        let both = [region(&memory, base, base), region(&memory, guest, user)];
        let raw = Raw::new(Code::SetMemTable, table(&both)).with(vec![both[0].fd; 2]);
        refused(target, "a memory region is refused", &raw);
        let driver = target.driver();
        driver.frontend.add_mem_reg(&both[0]).unwrap();
        driver.frontend.add_mem_reg(&both[1]).unwrap_err();
        is_turned_away(
            target,
            &driver.frontend,
            "overlaps one that is there already",
        );
    }
});

row!(regions_that_cannot_be, |target| {
    let memory = GuestMemory::new(0, PAGE).unwrap();
    let (page, last) = (PAGE as u64, u64::MAX);
    for (guest, user, len, offset) in [
        (8 << 32, 8 << 32, 0, 0),
        (last - 100, 8 << 32, page, 0),
        (8 << 32, last - 100, page, 0),
        (8 << 32, 8 << 32, page, last - 100),
        (8 << 32, 8 << 32, last, 0),
        (0, 0, last, 0),
        (8 << 32, 8 << 32, 1 << 62, 0),
    ] {
        let fields = [guest, len, user, offset]
            .iter()
            .flat_map(|n: &u64| n.to_le_bytes())
            .collect();
        let one = [pair(1, 0), fields].concat();
        let fds = vec![memory.region().fd];
        refused(
            target,
            DISCONNECTED,
            &Raw::new(Code::SetMemTable, one.clone()).with(fds.clone()),
        );
        let single = [vec![0; 8], one[8..].to_vec()].concat();
        refused(
            target,
            DISCONNECTED,
            &Raw::new(Code::AddMemReg, single).with(fds),
        );
    }
});

row!(a_region_longer_than_its_file, |target| {
    let memory = GuestMemory::new(8 << 32, PAGE).unwrap();
    let long = Region {
        len: 1 << 30,
        ..memory.region()
    };
    let raw = Raw::new(Code::SetMemTable, table(&[long])).with(vec![long.fd]);
    refused(target, "the file has only 0x1000 bytes", &raw);
});

// A sparse file takes up nothing, but its mapping takes addresses, which all disks of the process need.
row!(more_memory_than_a_frontend_needs, |target| {
    let memory = GuestMemory::new(8 << 32, PAGE).unwrap();
    let sparse = memfd_create("sparse", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&sparse, 33 << 40).unwrap();
    let huge = Region {
        len: 33 << 40,
        fd: sparse.as_fd(),
        ..memory.region()
    };
    let raw = Raw::new(Code::SetMemTable, table(&[huge])).with(vec![huge.fd]);
    let text = "the frontend shares more than 0x200000000000 bytes of memory";
    refused(target, text, &raw);
    let fd = huge.fd;
    let log = Raw::new(
        Code::SetLogBase,
        [(1u64 << 38).to_le_bytes(), [0; 8]].concat(),
    );
    let text = "the log of dirty pages has 0x4000000000 bytes";
    refused(target, text, &log.with(vec![fd]));
});

row!(a_region_that_was_never_there_is_removed, |target| {
    let memory = GuestMemory::new(8 << 32, PAGE).unwrap();
    let payload = [vec![0; 8], memory.region().bytes()].concat();
    refused(
        target,
        "there is no region",
        &Raw::new(Code::RemMemReg, payload),
    );
});

row!(tables_of_too_many_regions, |target| {
    let memory = GuestMemory::new(0, PAGE).unwrap();
    for count in [33u64, 126, 127, 255, 600] {
        let at = |number| (16 << 32) + number * PAGE as u64;
        let regions: Vec<_> = (0..count).map(|n| region(&memory, at(n), at(n))).collect();
        let fds = vec![memory.region().fd; regions.len().min(32)];
        let raw = Raw::new(Code::SetMemTable, table(&regions)).with(fds);
        let driver = target.driver();
        // It need not read it to the end.
        let _ = driver.frontend.send_raw(&raw);
        is_turned_away(target, &driver.frontend, INVALID);
    }
});

row!(tables_that_lie_about_their_length, |target| {
    let memory = GuestMemory::new(8 << 32, PAGE).unwrap();
    for claimed in [0, 2, 8, 255, u32::MAX] {
        let mut payload = table(&[memory.region()]);
        payload[..4].copy_from_slice(&claimed.to_le_bytes());
        let raw = Raw::new(Code::SetMemTable, payload).with(vec![memory.region().fd]);
        refused(target, INVALID, &raw);
    }
});

/// A table of one region with room for so many more, as User-Mode Linux sends it.
fn padded(memory: &GuestMemory, claimed: u32, more: usize) -> Vec<u8> {
    let mut payload = table(&[memory.region()]);
    payload[..4].copy_from_slice(&claimed.to_le_bytes());
    payload.extend(vec![0xee; 32 * more]);
    payload
}

row!(tables_with_more_room_than_regions, |target| {
    let memory = GuestMemory::new(8 << 32, PAGE).unwrap();
    let fd = memory.region().fd;
    for (claimed, more, fds, why) in [
        (1, 1, vec![], INVALID),
        (1, 1, vec![fd; 2], INVALID),
        (0, 1, vec![fd], INVALID),
        (3, 1, vec![fd; 2], INVALID),
        (1, 8, vec![fd], INVALID),
        // What is said of the second region is nonsense.
        (2, 2, vec![fd; 2], DISCONNECTED),
    ] {
        let raw = Raw::new(Code::SetMemTable, padded(&memory, claimed, more)).with(fds);
        refused(target, why, &raw);
    }
    let mut payload = padded(&memory, 1, 1);
    payload.push(0);
    refused(
        target,
        INVALID,
        &Raw::new(Code::SetMemTable, payload).with(vec![fd]),
    );
    let mut raw = Raw::new(Code::SetMemTable, padded(&memory, 1, 1)).with(vec![fd]);
    raw.flags |= REPLY;
    refused(target, INVALID, &raw);
});

row!(more_regions_than_there_are_slots, |target| {
    let memory = GuestMemory::new(0, PAGE).unwrap();
    let driver = target.driver();
    for number in 0..600u64 {
        let at = (16 << 32) + number * PAGE as u64;
        if driver
            .frontend
            .add_mem_reg(&region(&memory, at, at))
            .is_err()
        {
            assert_eq!(number, 508, "with the session's own it is the 510th");
            break;
        }
    }
    is_turned_away(target, &driver.frontend, "more than 509 memory regions");
});

row!(a_kick_before_anything_is_known, |target| {
    let event = new_eventfd().unwrap();
    let raw = Raw::new(Code::SetVringKick, vec![0; 8]).with(vec![event.as_fd()]);
    refused_at_once(target, "its size (SET_VRING_NUM) is missing", &raw);
});

row!(an_enable_before_the_features, |target| {
    refused_at_once(
        target,
        DISCONNECTED,
        &Raw::new(Code::SetVringEnable, pair(0, 1)),
    );
});

row!(protocol_requests_before_their_features, |target| {
    for code in [Code::GetQueueNum, Code::GetMaxMemSlots] {
        refused_at_once(target, DISCONNECTED, &Raw::new(code, vec![]));
    }
    refused_at_once(
        target,
        DISCONNECTED,
        &Raw::new(Code::GetConfig, vec![0; 72]),
    );
});

row!(a_queue_that_never_ran_is_stopped, |target| {
    let frontend = target.frontend();
    assert_eq!(frontend.get_vring_base(0).unwrap(), 0);
    let mut driver = Driver::over(frontend, target.plan()).unwrap();
    driver.queues[0].round(1);
    for _ in 0..10 {
        driver.stop(0).unwrap();
    }
});

row!(a_base_while_the_queue_runs, |target| {
    refused(
        target,
        "its base cannot change",
        &Raw::new(Code::SetVringBase, pair(0, 7)),
    );
});

row!(a_size_while_the_queue_runs, |target| {
    refused(
        target,
        "its size cannot change",
        &Raw::new(Code::SetVringNum, pair(0, 128)),
    );
});

row!(bases_of_all_kinds, |target| {
    for base in [1, 255, 0xffff, 0x1_0000, u32::MAX] {
        let mut driver = target.driver();
        driver.stop(0).unwrap();
        driver
            .frontend
            .vring_state(Code::SetVringBase, 0, base)
            .unwrap();
        let kick = driver.queues[0].kick.as_fd();
        driver
            .frontend
            .vring_fd(Code::SetVringKick, 0, Some(kick))
            .unwrap();
        driver.queues[0].publish_and_kick();
        driver.stop(0).unwrap();
    }
});

// What a frontend may do twice.
row!(the_same_once_more, |target| {
    let mut driver = target.driver();
    let memory = std::sync::Arc::clone(&driver.memory);
    for byte in 0..20 {
        let frontend = &driver.frontend;
        let features = driver.features.to_le_bytes();
        frontend.tell(Code::SetOwner, &[], &[]).unwrap();
        frontend.tell(Code::SetFeatures, &features, &[]).unwrap();
        frontend.set_mem_table(&[memory.region()]).unwrap();
        frontend.vring_state(Code::SetVringEnable, 0, 1).unwrap();
        frontend
            .tell(
                Code::SetVringAddr,
                &driver.queues[0].addresses(Logs::Nothing),
                &[],
            )
            .unwrap();
        for code in [Code::SetVringKick, Code::SetVringKick] {
            let kick = driver.queues[0].kick.as_fd();
            frontend.vring_fd(code, 0, Some(kick)).unwrap();
        }
        driver.queues[0].round(byte);
    }
});

row!(a_session_that_begins_again, |target| {
    let mut frontend = target.frontend();
    for byte in 0..5 {
        let mut driver = Driver::over(frontend, target.plan()).unwrap();
        driver.queues[0].round(byte);
        for queue in 0..driver.queues.len() {
            driver.stop(queue).unwrap();
        }
        frontend = driver.frontend;
    }
});

row!(all_memory_taken_from_a_running_queue, |target| {
    let driver = target.driver();
    let memory = GuestMemory::new(8 << 32, PAGE).unwrap();
    driver
        .frontend
        .set_mem_table(&[memory.region()])
        .unwrap_err();
    is_turned_away(target, &driver.frontend, "is not in the shared memory");
});
