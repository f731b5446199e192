//! Tasks of a runtime that many people use, on one queue with a blocked thread and a poller.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::sync::atomic::{AtomicBool, Ordering};

use common::Served;
use pollux_disk::Durability;
use pollux_driver::{CompletionMode, Driver, Options, Queue};
use tokio::task::JoinSet;

const TASKS: u8 = 32;
const BLOCK: u64 = 4096;

#[test]
fn tasks_share_a_queue_with_a_blocked_thread_and_a_poller() {
    let served = Served::disk("memory:size=1M", 1);
    let driver = served.connect(
        &Options::default()
            // Fewer than there are tasks: some wait for room.
            .queue_size(16),
    );
    let queue = driver.queue(0).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                queue.poll();
                std::thread::yield_now();
            }
        });
        scope.spawn(|| {
            for round in 0..200 {
                let at = (u64::from(TASKS) + round % 8) * BLOCK;
                let written = vec![7; 512];
                let durability = Durability::Volatile;
                let write = queue.write(at, written.clone(), durability, CompletionMode::Polled);
                write.wait().unwrap();
                let read = queue.read(at, vec![0; 512], CompletionMode::Call);
                assert_eq!(read.wait().unwrap(), written);
            }
        });
        run_tasks(&driver, &queue);
        over.store(true, Ordering::Relaxed);
    });
    drop((queue, driver));
    served.join();
}

#[test]
fn outside_a_runtime_nothing_drives_a_queue() {
    let served = Served::disk("memory:size=1M", 1);
    let driver = served.connect(&Options::default());
    let queue = driver.queue(0).unwrap();
    assert!(queue.drive_in_tokio().is_err());
    drop((queue, driver));
    served.join();
}

fn run_tasks(driver: &Driver, queue: &Queue) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_io()
        .build();
    runtime.unwrap().block_on(async {
        let driving = queue.drive_in_tokio().unwrap();
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            tasks.spawn(write_and_read(driver.clone(), queue.clone(), task));
        }
        while let Some(task) = tasks.join_next().await {
            task.unwrap();
        }
        drop(driving);
    });
}

async fn write_and_read(driver: Driver, queue: Queue, task: u8) {
    let at = u64::from(task) * BLOCK;
    let mut buffer = driver.allocate(4096).unwrap();
    for round in 0..100u8 {
        let byte = task.wrapping_mul(101).wrapping_add(round);
        buffer.write(0, &[byte; 4096]);
        let completion = [CompletionMode::Call, CompletionMode::Polled][usize::from(round % 2)];
        let written = queue.write(at, buffer, Durability::Volatile, completion);
        buffer = written.await.unwrap();
        buffer.write(0, &[0; 4096]);
        buffer = queue.read(at, buffer, completion).await.unwrap();
        let mut bytes = [0; 4096];
        buffer.read(0, &mut bytes);
        assert!(bytes == [byte; 4096], "task {task}, round {round}");
    }
}
