//! The thread that may wait: requests that need the tables, one after the other, and what they have changed written
//! back once for all that came together.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use pollux_threads::lock;
use tracing::error;

use super::engine::{Engine, failure};
use crate::file::Pool;
use crate::inbox::Address;
use crate::{Admitted, Completion, Durability, Op, Quota, Request};

/// A request, whose end is delivered.
#[derive(Debug)]
pub struct Job {
    pub request: Request,
    pub to: Address,
}

/// What is to be done, and the thread that does it.
pub struct Work {
    line: Arc<Line>,
    /// Of one thread: it alone uses the tables.
    pool: Pool<Task>,
    started: AtomicBool,
}

/// What is done with the tables, if they are in use.
type Call = Box<dyn FnOnce(&mut Option<Engine>) + Send>;

/// What the thread is to do.
#[derive(Clone, Copy)]
enum Task {
    /// All that is in the queue.
    Queue,
    /// Leave the image in order: it is used no more.
    Close,
}

struct Line {
    queue: Mutex<Queue>,
    /// With `lock=running`, while the image is in use.
    engine: Mutex<Option<Engine>>,
    /// Every write is durable before it is told as done.
    writethrough: bool,
    path: PathBuf,
    /// How much is said of requests that fail: a guest can go on with those, too.
    log_quota: Quota,
}

#[derive(Default)]
struct Queue {
    jobs: Vec<Job>,
    /// They wait for the jobs that are there when the thread comes to them, and for none that come later: a guest that
    /// always has some in flight does not hold them off.
    calls: Vec<Call>,
    /// A thread will look at them.
    taken: bool,
}

impl Work {
    pub fn new(engine: Option<Engine>, writethrough: bool, path: PathBuf) -> Self {
        let line = Arc::new(Line {
            queue: Mutex::default(),
            engine: Mutex::new(engine),
            writethrough,
            path,
            log_quota: Quota::default(),
        });
        let work = Arc::clone(&line);
        Self {
            line,
            pool: Pool::new(1, move |task| work.run(task)),
            started: AtomicBool::new(false),
        }
    }

    /// Makes sure that there is a thread.
    pub fn ensure_thread(&self) -> io::Result<()> {
        self.pool.ensure_thread()?;
        self.started.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Hands over all of `jobs`.
    pub fn submit(&self, jobs: &mut Vec<Job>) {
        if jobs.is_empty() {
            return;
        }
        self.enqueue(|queue| queue.jobs.append(jobs));
    }

    fn enqueue(&self, add: impl FnOnce(&mut Queue)) {
        let mut queue = lock(&self.line.queue);
        add(&mut queue);
        if !std::mem::replace(&mut queue.taken, true) {
            drop(queue);
            self.pool.submit(&mut vec![Task::Queue]);
        }
    }

    /// What `body` says, which the thread does. It waits.
    pub fn call<T: Send + 'static>(
        &self,
        body: impl FnOnce(&mut Option<Engine>) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        self.ensure_thread()?;
        let (told, hears) = channel();
        let call = move |engine: &mut Option<Engine>| {
            // The caller may have gone meanwhile.
            let _ = told.send(body(engine));
        };
        self.enqueue(|queue| queue.calls.push(Box::new(call)));
        let gone = |_| Err(io::Error::other("the thread of the image has ended"));
        hears.recv().unwrap_or_else(gone)
    }

    /// Makes the disk `bytes` large. It waits. `None`: the image is not in use.
    pub fn grow(&self, bytes: u64) -> io::Result<Option<()>> {
        self.call(move |engine| engine.as_mut().map(|engine| engine.grow(bytes)).transpose())
    }
}

/// What its thread has written is left in order; where there was none, nothing was written.
impl Drop for Work {
    fn drop(&mut self) {
        if self.started.load(Ordering::Relaxed) {
            self.pool.submit(&mut vec![Task::Close]);
        }
    }
}

impl Line {
    fn run(&self, task: Task) {
        match task {
            Task::Queue => self.run_queue(),
            Task::Close => self.close(),
        }
    }

    /// What fails is logged.
    fn close(&self) {
        let closed = lock(&self.engine).as_mut().map_or(Ok(()), Engine::close);
        if let Err(error) = closed {
            let path = self.path.display();
            error!(%path, %error, "the image is not closed in order: clusters of it may leak");
        }
    }

    fn run_queue(&self) {
        while let Some((jobs, calls)) = self.take() {
            self.run_requests(jobs);
            for call in calls {
                call(&mut lock(&self.engine));
            }
        }
    }

    /// All that is in the queue now. `None`: there is nothing, and the thread is asked for anew.
    fn take(&self) -> Option<(Vec<Job>, Vec<Call>)> {
        let mut queue = lock(&self.queue);
        queue.taken = !queue.jobs.is_empty() || !queue.calls.is_empty();
        let Queue { jobs, calls, taken } = &mut *queue;
        taken.then(|| (std::mem::take(jobs), std::mem::take(calls)))
    }

    fn run_requests(&self, jobs: Vec<Job>) {
        match lock(&self.engine).as_mut() {
            Some(engine) => self.run_all(jobs, engine),
            None => {
                for Job { request, to } in jobs {
                    self.end(&request, Err(unused()), &to);
                }
            }
        }
    }

    fn run_all(&self, jobs: Vec<Job>, engine: &mut Engine) {
        let mut changed = Vec::new();
        for Job { request, to } in jobs {
            let result = run(engine, &request.op);
            match request.op {
                Op::Read { at, into } => {
                    if result.is_ok() {
                        engine.publish(at, into.bytes());
                    }
                    self.end(&request, result, &to);
                }
                _ => changed.push((request, result.and_then(|()| engine.bound()), to)),
            }
        }
        if changed.is_empty() {
            return;
        }
        let durable = self.writethrough || changed.iter().any(|(request, ..)| stable(&request.op));
        let mut written = engine.commit();
        if durable {
            written = written.and_then(|()| engine.sync());
        }
        for (request, result, to) in changed {
            let result = result.and_then(|()| written.as_ref().copied().map_err(copy));
            if let (Ok(()), Op::Write { at, from, .. }) = (&result, request.op) {
                engine.publish(at, from.bytes());
            }
            self.end(&request, result, &to);
        }
    }

    /// Tells how a request has ended.
    fn end(&self, request: &Request, result: io::Result<()>, to: &Address) {
        let result = result.map_err(|error| {
            if let Some(Admitted { withheld }) = self.log_quota.admits() {
                let (doing, at, len) = told(&request.op);
                let path = self.path.display();
                error!(%path, at, len, %error, withheld, "cannot {doing}");
            }
            failure(&error)
        });
        let ticket = request.ticket;
        to.deliver(Completion { ticket, result });
    }
}

fn run(engine: &mut Engine, op: &Op) -> io::Result<()> {
    match *op {
        Op::Read { at, into } => engine.read(at, into),
        Op::Write { at, from, .. } => engine.write(at, from),
        Op::Discard { at, len } => engine.discard(at, len),
        Op::WriteZeroes { at, len, unmap, .. } => engine.zero(at, len, unmap),
        Op::Flush => Ok(()),
    }
}

fn stable(op: &Op) -> bool {
    let (Op::Write { durability, .. } | Op::WriteZeroes { durability, .. }) = op else {
        return false;
    };
    *durability == Durability::Stable
}

fn told(op: &Op) -> (&'static str, u64, u64) {
    match *op {
        Op::Read { at, into } => ("read", at, into.bytes()),
        Op::Write { at, from, .. } => ("write", at, from.bytes()),
        Op::Discard { at, len } => ("discard", at, len),
        Op::WriteZeroes { at, len, .. } => ("zero", at, len),
        Op::Flush => ("flush", 0, 0),
    }
}

fn unused() -> io::Error {
    io::Error::other("the image is not in use now, and may be elsewhere: `lock=running`")
}

/// The same once more, for another request that it concerns.
fn copy(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}
