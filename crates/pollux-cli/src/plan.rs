//! For fuzzers: what `pollux serve --config` makes of a file, up to where it would open the disks.

use std::error::Error;
use std::path::Path;

pub use crate::export::Offer;
use crate::file;
use crate::log::chain;
pub use crate::socket::Endpoint;
use crate::socket::Passed;

/// All that a configuration says, checked.
#[derive(Debug)]
pub struct Plan {
    /// The number of workers.
    pub threads: usize,
    /// Their CPUs.
    pub cpus: Vec<usize>,
    /// How they work.
    pub tuning: pollux::device::Tuning,
    /// The disks, and where each listens.
    pub disks: Vec<(Endpoint, Offer)>,
}

/// Reads `text` as the program reads the file at `path`; an error is what it would print.
///
/// # Errors
///
/// When the program would not start.
pub fn plan(text: &str, path: &Path) -> Result<Plan, String> {
    let file = file::parse(text, path).map_err(|error| chain(&error))?;
    let process = file.process;
    let disks = file.disk.iter().enumerate().map(|(index, disk)| {
        let told = |error: Box<dyn Error>| {
            let section = file::disk_number(index);
            format!("{}: {section}: {}", path.display(), chain(&*error))
        };
        let endpoint = disk.endpoint(&mut Passed::default()).map_err(told)?;
        let offer = disk.offer(endpoint.name()).map_err(told)?;
        Ok((endpoint, offer))
    });
    Ok(Plan {
        threads: usize::from(process.threads.unwrap_or(1)),
        cpus: process.cpu_list().map_err(|error| chain(&error))?,
        tuning: process.tuning().map_err(|error| chain(&error))?,
        disks: disks.collect::<Result<_, String>>()?,
    })
}
