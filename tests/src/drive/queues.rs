//! The load of those who share a queue.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::time::Instant;

use pollux_disk::Failure;
use pollux_driver::{Buffer, CompletionMode, Driver, Pending, Queue};

use super::executor;
use super::work::{Job, Op, Work};
use super::{End, Kinds, Mode};

/// A request on its way, with memory of one kind or another.
enum Doing {
    Own(Pending<Buffer>),
    Buffer(Pending<Buffer>),
    Buffers(Pending<Vec<Buffer>>),
    Bytes(Pending<Vec<u8>>),
    Nothing(Pending<()>),
}

impl Doing {
    /// Submits `job`, to write `data`.
    fn start(
        driver: &Driver,
        queue: &Queue,
        work: &mut Work,
        (job, data): (Job, &[u8]),
        c: CompletionMode,
    ) -> io::Result<Self> {
        let (at, len) = (job.at, job.len as u64);
        let own = if job.has_data() && work.random.u64(..4) == 0 {
            work.own.take(job.len)
        } else {
            None
        };
        if let Some(own) = own {
            let own = fill(own, job, data);
            return Ok(Self::Own(match job.op {
                Op::Write(durability) => queue.write(at, own, durability, c),
                _ => queue.read(at, own, c),
            }));
        }
        Ok(match job.op {
            Op::Flush => Self::Nothing(queue.flush(c)),
            Op::Discard => Self::Nothing(queue.discard(at, len, c)),
            Op::WriteZeroes(unmap, durability) => {
                Self::Nothing(queue.write_zeroes(at, len, unmap, durability, c))
            }
            Op::Read | Op::Write(_) => match work.random.u64(..3) {
                0 => {
                    let mut bytes = vec![0xee; job.len];
                    if let Op::Write(durability) = job.op {
                        bytes.copy_from_slice(data);
                        Self::Bytes(queue.write(at, bytes, durability, c))
                    } else {
                        Self::Bytes(queue.read(at, bytes, c))
                    }
                }
                1 => {
                    let buffer = fill(driver.allocate(job.len)?, job, data);
                    Self::Buffer(match job.op {
                        Op::Write(durability) => queue.write(at, buffer, durability, c),
                        _ => queue.read(at, buffer, c),
                    })
                }
                _ => {
                    let mut buffers = vec![];
                    let mut done = 0;
                    for len in work.pieces(job.len, 40) {
                        let data = data.get(done..done + len).unwrap_or_default();
                        buffers.push(fill(driver.allocate(len)?, Job { len, ..job }, data));
                        done += len;
                    }
                    Self::Buffers(match job.op {
                        Op::Write(durability) => queue.write(at, buffers, durability, c),
                        _ => queue.read(at, buffers, c),
                    })
                }
            },
        })
    }

    fn is_done(&mut self) -> bool {
        match self {
            Self::Own(pending) | Self::Buffer(pending) => pending.is_done(),
            Self::Buffers(pending) => pending.is_done(),
            Self::Bytes(pending) => pending.is_done(),
            Self::Nothing(pending) => pending.is_done(),
        }
    }

    /// Waits for the end.
    fn wait(self) -> Result<Done, Failure> {
        Ok(match self {
            Self::Own(pending) => Done::Own(pending.wait()?),
            Self::Buffer(pending) => Done::Bytes(contents(&[pending.wait()?])),
            Self::Buffers(pending) => Done::Bytes(contents(&pending.wait()?)),
            Self::Bytes(pending) => Done::Bytes(pending.wait()?),
            Self::Nothing(pending) => {
                pending.wait()?;
                Done::Bytes(vec![])
            }
        })
    }

    async fn end(self) -> Result<Done, Failure> {
        Ok(match self {
            Self::Own(pending) => Done::Own(pending.await?),
            Self::Buffer(pending) => Done::Bytes(contents(&[pending.await?])),
            Self::Buffers(pending) => Done::Bytes(contents(&pending.await?)),
            Self::Bytes(pending) => Done::Bytes(pending.await?),
            Self::Nothing(pending) => {
                pending.await?;
                Done::Bytes(vec![])
            }
        })
    }
}

/// What the memory of a request holds at its end.
enum Done {
    /// In this, which is used again.
    Own(Buffer),
    Bytes(Vec<u8>),
}

/// `buffer` with the data that `job` is to write.
fn fill(mut buffer: Buffer, job: Job, data: &[u8]) -> Buffer {
    if job.op == Op::Read {
        buffer.write(0, &vec![0xee; job.len]);
    } else {
        buffer.write(0, data);
    }
    buffer
}

fn contents(buffers: &[Buffer]) -> Vec<u8> {
    let mut all = vec![];
    for buffer in buffers {
        let mut bytes = vec![0; buffer.len()];
        buffer.read(0, &mut bytes);
        all.append(&mut bytes);
    }
    all
}

/// What a load makes of the end of a request.
fn check(work: &mut Work, job: &Job, data: &[u8], ended: Result<Done, Failure>) {
    let found = match ended.unwrap_or_else(|error| panic!("{job:x?}: {error}")) {
        Done::Bytes(found) => found,
        Done::Own(own) => {
            let found = contents(std::slice::from_ref(&own));
            work.own.give_back(own);
            found
        }
    };
    if job.op == Op::Read {
        work.ended(job, &found);
    } else {
        assert!(found == data, "{job:x?} has changed what it was to write");
        work.ended(job, data);
    }
}

/// The next request and what it is to write; of the last ones, all of which read, if it is time.
fn next(work: &mut Work, end: &End) -> Option<(Job, Vec<u8>)> {
    let room = work.longest();
    let job = if end.has_come() {
        work.next_to_verify(room)?
    } else {
        work.next(room)
    };
    let data = match job.op {
        Op::Write(_) => work.noise(job.len),
        _ => vec![],
    };
    Some((job, data))
}

/// Keeps up to `depth` requests in flight until `end`, then reads everything.
pub(super) fn run(
    driver: &Driver,
    queue: &Queue,
    mode: Mode,
    kinds: Kinds,
    work: &mut Work,
    depth: usize,
    end: &End,
) -> io::Result<()> {
    let mut in_flight: VecDeque<(Job, Vec<u8>, Doing)> = VecDeque::new();
    loop {
        while in_flight.len() < depth {
            let Some((job, data)) = next(work, end) else {
                break;
            };
            let kind = kinds.choose(&mut work.random);
            let doing = Doing::start(driver, queue, work, (job, &data), kind)?;
            in_flight.push_back((job, data, doing));
            // At times alone, at times many.
            if work.random.u64(..4) == 0 {
                break;
            }
        }
        let index = match mode {
            Mode::Wait => 0,
            _ => loop {
                let done = in_flight.iter_mut().position(|(.., doing)| doing.is_done());
                match done {
                    Some(index) => break index,
                    None if in_flight.is_empty() => break 0,
                    None => {
                        if queue.poll() == 0 {
                            std::hint::spin_loop();
                        }
                    }
                }
            },
        };
        let Some((job, data, doing)) = in_flight.remove(index) else {
            return Ok(());
        };
        check(work, &job, &data, doing.wait());
    }
}

/// The same as `depth` tasks of one event loop.
pub(super) fn run_tasks(
    driver: &Driver,
    queue: &Queue,
    kinds: Kinds,
    work: &mut Work,
    depth: usize,
    end: &End,
) -> io::Result<()> {
    let work = RefCell::new(work);
    let task = || async {
        loop {
            let (job, data, doing) = {
                let work = &mut **work.borrow_mut();
                let Some((job, data)) = next(work, end) else {
                    return;
                };
                let kind = kinds.choose(&mut work.random);
                let doing = Doing::start(driver, queue, work, (job, &data), kind);
                (job, data, doing.expect("there is memory"))
            };
            let ended = doing.end().await;
            check(&mut work.borrow_mut(), &job, &data, ended);
        }
    };
    let tasks = (0..depth).map(|_| task());
    executor::run(queue, tasks)?;
    // A task leaves when what it was to read last is in use: the rest is read here.
    let mut work = work.borrow_mut();
    run(
        driver,
        queue,
        Mode::Wait,
        kinds,
        &mut work,
        1,
        &End::At(Instant::now()),
    )
}
