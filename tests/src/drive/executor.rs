//! An event loop of one thread, as small as can be: tasks, and a queue's readiness.

use std::future::Future;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use pollux_driver::Queue;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;

use super::PATIENCE;
use crate::frontend::new_eventfd;

/// Which tasks are to be polled, and what ends the sleep of the loop.
struct Woken {
    tasks: Mutex<Vec<usize>>,
    event: OwnedFd,
}

struct TaskWaker {
    index: usize,
    woken: Arc<Woken>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        let mut tasks = self.woken.tasks.lock().expect("nobody panics with it");
        tasks.push(self.index);
        drop(tasks);
        let _ = rustix::io::write(&self.woken.event, &1u64.to_ne_bytes());
    }
}

/// Runs `tasks` to their ends, sleeping where all of them wait.
///
/// # Panics
///
/// When nothing happens for a minute.
pub fn run<F: Future<Output = ()>>(
    queue: &Queue,
    tasks: impl IntoIterator<Item = F>,
) -> io::Result<()> {
    let readiness = queue.readiness()?;
    let mut tasks: Vec<Option<Pin<Box<F>>>> =
        tasks.into_iter().map(|task| Some(Box::pin(task))).collect();
    let woken = Arc::new(Woken {
        tasks: Mutex::new((0..tasks.len()).collect()),
        event: new_eventfd()?,
    });
    let wakers: Vec<Waker> = (0..tasks.len())
        .map(|index| {
            let woken = Arc::clone(&woken);
            Arc::new(TaskWaker { index, woken }).into()
        })
        .collect();
    loop {
        let now = std::mem::take(&mut *woken.tasks.lock().expect("nobody panics with it"));
        for index in &now {
            let Some(task) = &mut tasks[*index] else {
                continue;
            };
            if task
                .as_mut()
                .poll(&mut Context::from_waker(&wakers[*index]))
                == Poll::Ready(())
            {
                tasks[*index] = None;
            }
        }
        let left = tasks.iter().flatten().count();
        if left == 0 {
            return Ok(());
        }
        if !now.is_empty() {
            continue;
        }
        let mut fds = [
            PollFd::new(&readiness, PollFlags::IN),
            PollFd::new(&woken.event, PollFlags::IN),
        ];
        let patience = Timespec::try_from(PATIENCE).expect("a minute");
        let ready = retry_on_intr(|| poll(&mut fds, Some(&patience)))?;
        assert!(ready > 0, "{left} tasks wait for nothing");
        let is_ready = !fds[0].revents().is_empty();
        let _ = rustix::io::read(woken.event.as_fd(), &mut [0; 8]);
        if is_ready {
            readiness.drive();
        }
    }
}
