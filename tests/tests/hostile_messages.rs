//! The table of malformed messages: what a frontend may send.
//!
//! A message that cannot be costs its session: the connection is closed, the log says why, and nothing that
//! came with it is left behind.

#![allow(clippy::unwrap_used)] // in a test, an `unwrap` is an assertion

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use pollux_tests::frontend::{
    Code, Frontend, NEED_REPLY, REPLY, Raw, VERSION, new_eventfd, pair, words,
};
use pollux_tests::hostile::{
    DISCONNECTED, EMPTY, INVALID, Target, is_turned_away, refused, refused_at_once,
};
use pollux_tests::row;

/// Every message with a body of a fixed size, and that size.
const BODIES: [(Code, usize); 15] = [
    (Code::SetFeatures, 8),
    (Code::SetVringNum, 8),
    (Code::SetVringAddr, 40),
    (Code::SetVringBase, 8),
    (Code::GetVringBase, 8),
    (Code::SetVringKick, 8),
    (Code::SetVringCall, 8),
    (Code::SetVringErr, 8),
    (Code::SetProtocolFeatures, 8),
    (Code::SetVringEnable, 8),
    (Code::GetConfig, 12),
    (Code::SetConfig, 12),
    (Code::AddMemReg, 40),
    (Code::RemMemReg, 40),
    (Code::SetMemTable, 40),
];

/// A descriptor where the message must have one, so that only its body is wrong.
fn fds_of(code: Code, fd: &OwnedFd) -> Vec<BorrowedFd<'_>> {
    match code {
        Code::SetVringKick
        | Code::SetVringCall
        | Code::SetVringErr
        | Code::AddMemReg
        | Code::SetMemTable => vec![fd.as_fd()],
        _ => vec![],
    }
}

fn bodies_are_refused(target: &Target, spoil: fn(usize) -> usize) {
    let event = new_eventfd().unwrap();
    for (code, len) in BODIES {
        let raw = Raw::new(code, vec![0; spoil(len)]).with(fds_of(code, &event));
        refused(target, DISCONNECTED, &raw);
    }
}

row!(bodies_that_are_short, |target| bodies_are_refused(
    target,
    |len| len - 1
));
row!(bodies_that_are_long, |target| bodies_are_refused(
    target,
    |len| len + 1
));
row!(bodies_that_are_missing, |target| bodies_are_refused(
    target,
    |_| 0
));
row!(bodies_as_long_as_can_be, |target| bodies_are_refused(
    target,
    |_| 4096
));

row!(bodies_where_none_may_be, |target| {
    for code in EMPTY {
        refused(target, DISCONNECTED, &Raw::new(code, vec![0; 8]));
    }
});

row!(a_body_longer_than_any, |target| {
    for len in [4097, 0x7fff_ffff, u32::MAX] {
        let mut raw = Raw::new(Code::SetVringNum, pair(0, 256));
        raw.len = Some(len);
        refused(target, INVALID, &raw);
    }
});

row!(a_wrong_version, |target| {
    for flags in [0, 2, 3] {
        let mut raw = Raw::new(Code::SetOwner, vec![]);
        raw.flags = flags;
        refused_at_once(target, INVALID, &raw);
    }
});

row!(unknown_flags, |target| {
    for bit in 4..32 {
        let mut raw = Raw::new(Code::SetOwner, vec![]);
        raw.flags = VERSION | 1 << bit;
        refused_at_once(target, INVALID, &raw);
    }
});

row!(a_reply_that_nobody_asked_for, |target| {
    let mut raw = Raw::new(Code::GetFeatures, vec![]);
    raw.flags = VERSION | REPLY;
    refused_at_once(target, INVALID, &raw);
});

row!(unknown_requests, |target| {
    for code in [0, 45, 99, 1 << 16, u32::MAX] {
        let mut raw = Raw::new(Code::SetOwner, vec![]);
        raw.code = code;
        refused_at_once(target, INVALID, &raw);
    }
});

// Requests of the protocol whose features were not offered.
row!(requests_that_were_not_offered, |target| {
    let event = new_eventfd().unwrap();
    // SET_LOG_BASE, SET_LOG_FD, SEND_RARP, NET_SET_MTU, IOTLB_MSG, the three of post-copy, RESET_DEVICE,
    // VRING_KICK, GET_SHARED_OBJECT.
    for (code, len) in [
        (6, 16),
        (7, 0),
        (19, 8),
        (20, 8),
        (22, 32),
        (28, 0),
        (29, 0),
        (30, 0),
        (34, 0),
        (35, 8),
        (41, 16),
    ] {
        for fds in [vec![], vec![event.as_fd()]] {
            let mut raw = Raw::new(Code::SetOwner, vec![0; len]).with(fds);
            raw.code = code;
            refused(target, DISCONNECTED, &raw);
        }
    }
});

// The same as a datagram of one byte each, which is no lie.
row!(a_message_in_single_bytes_is_understood, |target| {
    let driver = target.driver();
    for byte in Raw::new(Code::GetFeatures, vec![]).bytes() {
        driver.frontend.send_bytes(&[byte], &[]).unwrap();
    }
    driver.frontend.number(Code::GetQueueNum).unwrap_err(); // that was the answer to the other
});

row!(features_that_were_not_offered, |target| {
    for code in [Code::SetFeatures, Code::SetProtocolFeatures] {
        let raw = Raw::new(code, u64::MAX.to_le_bytes().to_vec());
        refused_at_once(target, "which were not offered", &raw);
    }
});

row!(configurations_that_cannot_be, |target| {
    for (offset, len) in [(0, 0), (4096, 1), (1, 4096), (u32::MAX, 1), (0, u32::MAX)] {
        for code in [Code::GetConfig, Code::SetConfig] {
            let there = usize::try_from(len).unwrap().min(300);
            let payload = [words(&[offset, len, 0]), vec![0; there]].concat();
            refused(target, INVALID, &Raw::new(code, payload));
        }
    }
    let raw = Raw::new(Code::SetConfig, [words(&[0, 8, 0]), vec![0xff; 8]].concat());
    refused(target, "only the cache byte can be written", &raw);
    let raw = Raw::new(Code::SetConfig, [words(&[32, 1, 0]), vec![7]].concat());
    refused(target, "only the cache byte can be written", &raw);
});

row!(a_refusal_is_told_before_the_end, |target| {
    let driver = target.driver();
    let error = driver
        .frontend
        .vring_state(Code::SetVringBase, 0, 7)
        .unwrap_err();
    assert!(error.to_string().contains("SetVringBase failed"), "{error}");
    is_turned_away(target, &driver.frontend, DISCONNECTED);
});

// Acknowledgements that nobody reads fill the socket; then the back end waits, but only in this session.
row!(answers_that_nobody_reads, |target| {
    let frontend: Frontend = target.frontend();
    frontend.send_until_full(&Raw::new(Code::GetFeatures, vec![]).bytes());
    frontend
});

row!(a_message_that_asks_for_an_answer_twice, |target| {
    let driver = target.driver();
    let mut raw = Raw::new(Code::GetFeatures, vec![]);
    raw.flags = VERSION | NEED_REPLY;
    for _ in 0..10 {
        driver.frontend.send_raw(&raw).unwrap();
        assert_eq!(driver.frontend.receive(Code::GetFeatures).unwrap().len(), 8);
    }
});
