//! The table of malformed rings: what a guest may write into its own memory.
//!
//! A broken ring costs its queue, a malformed request its own status, and nobody else notices.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use pollux_tests::frontend::{INDIRECT, NEXT, Part, QUEUE_ENTRIES, Queue, WRITE};
use pollux_tests::hostile::{Target, breaks_queue};
use pollux_tests::row;

/// Offers the chain at head 0, which `parts` make in the ring's own table: each as it is, with its `next`.
fn offer(queue: &mut Queue, parts: &[(Part, u16)]) {
    for (number, (part, next)) in (0u16..).zip(parts) {
        queue.write_descriptor(queue.descriptor(number), *part, *next);
    }
    queue.offer(0);
}

/// A header of a read of sector 0 in slot 0.
fn header(queue: &Queue) -> Part {
    queue.begin(0, 0, 0);
    queue.part(queue.header(0), 16, NEXT)
}

fn status(queue: &Queue) -> Part {
    queue.part(queue.header(0) + 16, 1, WRITE)
}

fn at(address: u64, len: u32) -> Part {
    Part {
        address,
        len,
        flags: NEXT | WRITE,
    }
}

/// A read whose data is said to be somewhere.
fn read_into(target: &Target, address: u64, len: u32) {
    breaks_queue(target, "outside the shared memory", |queue| {
        let parts = [
            (header(queue), 1),
            (at(address, len), 2),
            (status(queue), 0),
        ];
        offer(queue, &parts);
    });
}

/// A request whose indirect table is `bytes` long and begins with `table`.
fn indirect(target: &Target, why: &str, bytes: u32, table: fn(&Queue) -> Vec<Part>) {
    breaks_queue(target, why, |queue| {
        let at = queue.table(0);
        queue.write_table(at, &table(queue), 0);
        let part = queue.part(at, bytes, INDIRECT);
        offer(queue, &[(part, 0)]);
    });
}

fn whole(queue: &Queue) -> Vec<Part> {
    vec![
        header(queue),
        queue.part(queue.data(0), 512, WRITE),
        status(queue),
    ]
}

row!(a_descriptor_that_continues_with_itself, |target| {
    breaks_queue(target, "never ends", |queue| {
        let part = header(queue);
        offer(queue, &[(part, 0)]);
    });
});

row!(a_loop_of_two_descriptors, |target| {
    breaks_queue(target, "never ends", |queue| {
        let part = header(queue);
        offer(queue, &[(part, 1), (part, 0)]);
    });
});

row!(a_loop_through_the_whole_table, |target| {
    breaks_queue(target, "never ends", |queue| {
        let part = header(queue);
        let parts: Vec<_> = (1..=QUEUE_ENTRIES)
            .map(|next| (part, next % QUEUE_ENTRIES))
            .collect();
        offer(queue, &parts);
    });
});

row!(a_loop_in_an_indirect_table, |target| {
    breaks_queue(target, "never ends", |queue| {
        let table = queue.table(0);
        let part = header(queue);
        queue.write_descriptor(table, part, 1);
        queue.write_descriptor(table + 16, part, 0);
        let part = queue.part(table, 32, INDIRECT);
        offer(queue, &[(part, 0)]);
    });
});

row!(a_successor_beyond_the_table, |target| {
    breaks_queue(target, "continues at descriptor 256", |queue| {
        let part = header(queue);
        offer(queue, &[(part, QUEUE_ENTRIES)]);
    });
});

row!(a_successor_beyond_an_indirect_table, |target| {
    breaks_queue(target, "its table has 2", |queue| {
        let table = queue.table(0);
        let part = header(queue);
        queue.write_descriptor(table, part, 2);
        let part = queue.part(table, 32, INDIRECT);
        offer(queue, &[(part, 0)]);
    });
});

row!(an_address_outside_memory, |target| read_into(
    target,
    0xdead_0000_0000,
    512
));
row!(an_address_of_zero, |target| read_into(target, 0, 512));
row!(an_address_just_before_memory, |target| read_into(
    target,
    (1 << 32) - 511,
    512
));
row!(an_address_that_leaves_memory, |target| {
    let end = (1 << 32) + u64::from(target.queues) * 0x10_0000;
    read_into(target, end - 511, 512);
});
row!(a_length_of_four_gigabytes, |target| read_into(
    target,
    1 << 32,
    u32::MAX
));
row!(an_address_that_ends_at_the_wrap, |target| read_into(
    target,
    u64::MAX - 511,
    512
));
row!(an_address_that_wraps, |target| read_into(
    target,
    u64::MAX - 100,
    512
));
row!(the_last_address_of_all, |target| read_into(
    target,
    u64::MAX,
    u32::MAX
));
row!(a_frontends_address_in_a_descriptor, |target| read_into(
    target,
    (1 << 44) + (1 << 32),
    512
));

row!(a_header_outside_memory, |target| {
    breaks_queue(target, "outside the shared memory", |queue| {
        let mut part = header(queue);
        part.address = 8;
        offer(queue, &[(part, 1), (status(queue), 0)]);
    });
});

row!(a_status_outside_memory, |target| {
    breaks_queue(target, "outside the shared memory", |queue| {
        let mut last = status(queue);
        last.address = u64::MAX;
        offer(queue, &[(header(queue), 1), (last, 0)]);
    });
});

row!(an_empty_indirect_table, |target| indirect(
    target,
    "has 0 bytes",
    0,
    whole
));
row!(an_indirect_table_of_odd_size, |target| indirect(
    target,
    "has 47 bytes",
    47,
    whole
));
row!(an_indirect_table_shorter_than_a_descriptor, |target| {
    indirect(target, "has 15 bytes", 15, whole);
});
row!(a_huge_indirect_table, |target| indirect(
    target,
    "has 4294967280 bytes",
    u32::MAX - 15,
    whole
));
row!(an_indirect_table_one_longer_than_allowed, |target| {
    indirect(target, "has 16432 bytes", 1027 * 16, whole);
});
row!(a_nested_indirect_table, |target| indirect(
    target,
    "an indirect descriptor where none may be",
    48,
    |queue| {
        let mut nested = whole(queue);
        nested[2] = queue.part(queue.table(1), 48, INDIRECT);
        queue.write_table(queue.table(1), &whole(queue), 0);
        nested
    }
));
row!(an_indirect_table_that_names_itself, |target| indirect(
    target,
    "an indirect descriptor where none may be",
    16,
    |queue| vec![queue.part(queue.table(0), 16, INDIRECT)]
));
row!(an_indirect_table_outside_memory, |target| {
    breaks_queue(target, "outside the shared memory", |queue| {
        let part = Part {
            address: 0x1000,
            len: 48,
            flags: INDIRECT,
        };
        offer(queue, &[(part, 0)]);
    });
});
row!(an_indirect_table_at_the_wrap, |target| {
    breaks_queue(target, "outside the shared memory", |queue| {
        let part = Part {
            address: u64::MAX - 31,
            len: 48,
            flags: INDIRECT,
        };
        offer(queue, &[(part, 0)]);
    });
});
row!(an_indirect_descriptor_that_is_continued, |target| {
    breaks_queue(
        target,
        "an indirect descriptor where none may be",
        |queue| {
            queue.write_table(queue.table(0), &whole(queue), 0);
            let part = queue.part(queue.table(0), 48, INDIRECT | NEXT);
            offer(queue, &[(part, 1), (status(queue), 0)]);
        },
    );
});

row!(readable_after_writable, |target| {
    breaks_queue(
        target,
        "a readable descriptor after a writable one",
        |queue| {
            let data = queue.part(queue.data(0), 512, NEXT | WRITE);
            let more = queue.part(queue.data(0), 512, NEXT);
            let parts = [(header(queue), 1), (data, 2), (more, 3), (status(queue), 0)];
            offer(queue, &parts);
        },
    );
});

row!(an_index_that_jumps, |target| breaks_queue(
    target,
    "the ring's index jumped by 257",
    |queue| queue.jump(QUEUE_ENTRIES + 1)
));
row!(an_index_that_jumps_by_half_the_circle, |target| {
    breaks_queue(target, "the ring's index jumped by 32768", |queue| {
        queue.jump(1 << 15);
    });
});
row!(an_index_that_goes_back, |target| breaks_queue(
    target,
    "the ring's index jumped by 65535",
    |queue| queue.jump(u16::MAX)
));
row!(a_head_beyond_the_ring, |target| breaks_queue(
    target,
    "names descriptor 256",
    |queue| queue.offer(QUEUE_ENTRIES)
));
row!(the_last_head_of_all, |target| breaks_queue(
    target,
    "names descriptor 65535",
    |queue| queue.offer(u16::MAX)
));

// Left broken, it is looked at no more, and kicks wake nobody for long.
row!(a_queue_that_stays_broken, |target| {
    let mut driver = target.driver();
    for queue in &mut driver.queues {
        queue.jump(QUEUE_ENTRIES + 1);
        queue.publish_and_kick();
        queue.publish_and_kick();
    }
    assert!(target.server.says("the queue stops"));
    driver
});
