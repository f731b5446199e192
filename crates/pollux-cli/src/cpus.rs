//! Lists of CPUs: `0,2-3`.

use std::fs;

use rustix::thread::CpuSet;

/// `--cpus` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadCpus {
    #[error(
        "--cpus {list:?}: {part:?} is neither a CPU nor a range of CPUs; write for example 0,2-3"
    )]
    NotAList { list: String, part: String },
    #[error("--cpus {list:?}: there is no CPU {cpu}; this machine has the CPUs {online}")]
    Absent {
        list: String,
        cpu: usize,
        online: String,
    },
}

/// The CPUs of `list`, in its order. All of them are there.
pub fn there(list: &str) -> Result<Vec<usize>, BadCpus> {
    let cpus = numbers(list)?;
    // Where the kernel does not tell, it refuses those that are not there.
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    match absent(&cpus, online.trim()) {
        None => Ok(cpus),
        Some(cpu) => Err(BadCpus::Absent {
            list: list.to_owned(),
            cpu,
            online: online.trim().to_owned(),
        }),
    }
}

/// The first of `cpus` that is not in the list `online`.
fn absent(cpus: &[usize], online: &str) -> Option<usize> {
    let online = numbers(online).ok()?;
    cpus.iter().copied().find(|cpu| !online.contains(cpu))
}

fn numbers(text: &str) -> Result<Vec<usize>, BadCpus> {
    let mut cpus = Vec::new();
    for part in text.split(',').map(str::trim) {
        let bad = || BadCpus::NotAList {
            list: text.to_owned(),
            part: part.to_owned(),
        };
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let range = from.parse::<usize>().ok().zip(to.parse().ok());
        // Beyond what a set of CPUs can hold there is none: a list of them would only take up memory.
        let (from, to) = range
            .filter(|(from, to)| from <= to && *to < CpuSet::MAX_CPU)
            .ok_or_else(bad)?;
        cpus.extend(from..=to);
    }
    Ok(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_numbers_and_ranges() {
        assert_eq!(numbers("0,2-4, 7").unwrap(), [0, 2, 3, 4, 7]);
        for bad in ["", "a", "3-1", "1-", "-1", "1,,2", "1024", "0-65535"] {
            assert!(numbers(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_cpu_that_is_not_there_is_named() {
        assert_eq!(absent(&[0, 1, 3], "0-1,3"), None);
        assert_eq!(absent(&[0, 2, 9], "0-1,3"), Some(2));
        assert_eq!(absent(&[9], ""), None);
        // No machine that runs these tests has so many.
        let told = there("0,1000").unwrap_err().to_string();
        let words = "--cpus \"0,1000\": there is no CPU 1000; this machine has the CPUs 0";
        assert!(told.starts_with(words), "{told}");
    }
}
