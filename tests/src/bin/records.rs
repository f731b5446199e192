//! The guest's side of the power-cut tests: writes records to a disk and says which are durable.
//!
//! `records DISK SEED JOBS PLACES`: each job writes a few records past the page cache, waits for a flush,
//! and goes on so until the disk or the guest ends. `guest: covered DISK JOB WRITES` on the output means:
//! a completed flush covers so many writes of this job.

use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::time::{Duration, Instant};

use fastrand::Rng;
use pollux_tests::records::{Job, RECORD};

/// The console is slow; a report says it all, so one now and then is enough.
const BETWEEN_REPORTS: Duration = Duration::from_millis(20);
const MOST_BETWEEN_FLUSHES: u64 = 8;

/// A record where direct I/O wants it.
#[repr(align(4096))]
struct Aligned([u8; RECORD]);

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [disk, seed, jobs, places] = args.as_slice() else {
        return Err("usage: records DISK SEED JOBS PLACES".into());
    };
    let (seed, jobs, places) = (seed.parse()?, jobs.parse()?, places.parse()?);
    let device = OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(format!("/dev/{disk}"))?;
    std::thread::scope(|scope| {
        for index in 0..jobs {
            let (device, job) = (&device, Job::new(seed, index, places));
            scope.spawn(move || {
                let Err(error) = write_for_ever(device, job, |covered| {
                    println!("guest: covered {disk} {index} {covered}");
                });
                println!("guest: job {index} of {disk} ends: {error}");
            });
        }
    });
    Ok(())
}

fn write_for_ever(
    device: &File,
    mut job: Job,
    report: impl Fn(u64),
) -> io::Result<std::convert::Infallible> {
    let mut random = Rng::with_seed(0);
    let mut written = 0;
    let mut reported = Instant::now();
    loop {
        for _ in 0..=random.u64(..MOST_BETWEEN_FLUSHES) {
            let record = job.next_record();
            let block = Aligned(record.encode());
            device.write_all_at(&block.0, record.place * RECORD as u64)?;
            written += 1;
        }
        device.sync_data()?;
        if reported.elapsed() >= BETWEEN_REPORTS {
            report(written);
            reported = Instant::now();
        }
    }
}
