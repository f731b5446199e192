use std::fs::File;
use std::io::Write as _;
use std::ptr::NonNull;

use super::*;

/// Memory cut into spans, as a request lends it.
struct Lent {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

impl Lent {
    fn holding(mut bytes: Vec<u8>, pieces: usize) -> Self {
        let len = bytes.len();
        let base = NonNull::new(bytes.as_mut_ptr()).unwrap();
        // SAFETY: the tests keep `bytes` and read it only when nothing is in flight.
        let mut rest = unsafe { Span::new(base, len) };
        let mut spans = Vec::new();
        for _ in 1..pieces {
            let (now, later) = rest.split_at(len / pieces);
            spans.push(now);
            rest = later;
        }
        spans.push(rest);
        Self { bytes, spans }
    }

    fn transfer(&self, flow: Flow, skip: u64, at: u64) -> Transfer {
        // SAFETY: the list is neither moved nor changed while the tests have something in flight.
        let spans = unsafe { Spans::new(&self.spans) };
        Transfer {
            flow,
            spans,
            skip,
            at,
            buffer: None,
        }
    }
}

/// A ring; none, with a word, where the machine forbids it.
pub fn ring(file: &File) -> Option<Ring> {
    let forbidden = |error: &io::Error| {
        let required = std::env::var_os("REQUIRE_PEERS").is_some_and(|value| value == "1");
        assert!(!required, "io_uring must work here: {error}");
        // Not `println!`, of which a test that passes shows nothing.
        let _ = writeln!(io::stderr(), "SKIP: no io_uring here: {error}");
    };
    Ring::new(file).inspect_err(forbidden).ok()
}

fn wait(ring: &mut Ring) -> Vec<Ended> {
    let mut ended = Vec::new();
    ring.submit().unwrap();
    while ring.in_flight() > 0 {
        ring.collect(&mut ended);
        thread::yield_now();
    }
    ended.sort_by_key(|ended| ended.token);
    ended
}

#[test]
fn what_is_written_is_read_in_any_cut_and_after_any_skip() {
    let file = tempfile::tempfile().unwrap();
    let Some(mut ring) = ring(&file) else { return };
    Ring::probe(&file).unwrap();
    for (pieces, skip) in [(1, 0), (3, 0), (3, 5), (2, 50), (2, 60)] {
        let from = Lent::holding((0..100).collect(), pieces);
        ring.queue(1, &from.transfer(Flow::ToFile, 0, 7));
        assert_eq!(
            wait(&mut ring),
            [Ended {
                token: 1,
                result: Ok(100)
            }]
        );
        let into = Lent::holding(vec![0; 100], pieces);
        ring.queue(2, &into.transfer(Flow::FromFile, skip, 7 + skip));
        let moved = usize::try_from(100 - skip).unwrap();
        assert_eq!(
            wait(&mut ring),
            [Ended {
                token: 2,
                result: Ok(moved)
            }]
        );
        assert_eq!(into.bytes[100 - moved..], from.bytes[100 - moved..]);
    }
}

#[test]
fn a_registered_buffer_carries_and_one_that_was_taken_out_does_not() {
    let file = tempfile::tempfile().unwrap();
    let Some(mut ring) = ring(&file) else { return };
    let buffers = ring.buffers().unwrap();
    let lent = Lent::holding(vec![7; 8192], 1);
    let last = Buffers::SLOTS - 1;
    buffers.set(last, Some(lent.spans[0])).unwrap();
    let mut write = |skip| {
        let transfer = Transfer {
            buffer: Some(last),
            ..lent.transfer(Flow::ToFile, skip, 0)
        };
        ring.queue(0, &transfer);
        wait(&mut ring)[0].result
    };
    assert_eq!(write(0), Ok(8192));
    assert_eq!(write(512), Ok(8192 - 512));
    buffers.set(last, None).unwrap();
    assert_eq!(write(0), Err(Errno::FAULT));
    assert_eq!(buffers.set(Buffers::SLOTS, None), Err(Errno::INVAL));
}

/// The list of what is left of one that goes on is the ring's own, and stays until the kernel has copied it.
#[test]
fn one_that_goes_on_finds_its_list_though_the_queue_was_full() {
    let file = tempfile::tempfile().unwrap();
    let from: Vec<u8> = (0..90).collect();
    rustix::io::pwrite(&file, &from, 0).unwrap();
    let Some(mut ring) = ring(&file) else { return };
    let one = Lent::holding(vec![0; 8], 1);
    for token in 0..u64::from(ENTRIES) {
        ring.queue(token, &one.transfer(Flow::FromFile, 0, 0));
    }
    let into = Lent::holding(vec![0; 90], 3);
    let last = u64::from(ENTRIES);
    ring.queue(last, &into.transfer(Flow::FromFile, 10, 10));
    // As large as the list, in its place if that was given back.
    let others: Vec<_> = (0..64).map(|_| vec![Span::EMPTY; 3]).collect();
    let ended = wait(&mut ring);
    drop(others);
    let token = last;
    let result = Ok(80);
    assert_eq!(ended.last(), Some(&Ended { token, result }));
    assert_eq!(into.bytes[10..], from[10..]);
}

#[test]
fn more_than_the_kernel_takes_at_once_all_ends() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(1 << 20).unwrap();
    let Some(mut ring) = ring(&file) else { return };
    let lent = Lent::holding(vec![7; 512], 1);
    for token in 0..u64::from(MOST) {
        ring.queue(token, &lent.transfer(Flow::ToFile, 0, token * 512));
    }
    assert!(!ring.has_room());
    let ended = wait(&mut ring);
    assert_eq!(ended.len(), MOST as usize);
    for (token, ended) in (0..).zip(ended) {
        assert_eq!((ended.token, ended.result), (token, Ok(512)));
    }
    assert!(ring.has_room() && !ring.has_staged() && !ring.has_ended());
}

#[test]
fn an_error_of_the_system_is_told() {
    let file = File::open("/dev/null").unwrap();
    let Some(mut ring) = ring(&file) else { return };
    let lent = Lent::holding(vec![7; 512], 1);
    ring.queue(0, &lent.transfer(Flow::ToFile, 0, 0));
    assert_eq!(
        wait(&mut ring)[0].result,
        Err(Errno::BADF),
        "opened for reading only"
    );
}

#[test]
fn a_ring_that_is_dropped_waits_for_what_is_in_flight() {
    let file = tempfile::tempfile().unwrap();
    let Some(mut ring) = ring(&file) else { return };
    let lent = Lent::holding(vec![7; 1 << 20], 3);
    ring.queue(0, &lent.transfer(Flow::ToFile, 0, 0));
    drop(ring);
    assert_eq!(file.metadata().unwrap().len(), 1 << 20, "it was written");
}

#[test]
fn no_ring_waits_for_the_slow_requests_of_another() {
    let file = tempfile::tempfile().unwrap();
    let ring = Ring::new(&file).unwrap();
    // Zeroes change nothing, and are answered by what there is.
    let mut waiting = [0; 2];
    let submitter = ring.uring.submitter();
    submitter.register_iowq_max_workers(&mut waiting).unwrap();
    assert!(waiting[0] > ENTRIES, "{waiting:?}");
}
