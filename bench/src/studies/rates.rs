//! Few requests a second: what does polling for completions cost the client?

use std::fmt;
use std::io;
use std::time::Duration;

use pollux_driver::Waiting;
use pollux_load::microseconds;

use super::open_loop;
use super::site::{Setup, Site};
use super::study::{Case, Study, count, only};
use crate::cell::Disk;
use crate::client::Client;
use crate::measure::Spent;
use crate::results::findings::Finding;

/// The study.
pub struct Rates;

const DISK: Disk = Disk::Null;

/// So many requests a second, waited for in this way.
#[derive(Clone, Copy)]
pub struct Trial {
    rate: u32,
    waiting: Waiting,
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Client::Driver(self.waiting).waiting())
    }
}

impl Study for Rates {
    type Trial = Trial;

    const TITLE: &'static str = "The driver at low rates";
    const EXPLANATION: &'static str = "\
`adaptive` beside `call`, as *one / other*: requests arrive at fixed times, whether or not those before them have ended
(an open loop), and the client sleeps until the next is due. Latencies count from the time that a request was due.
Processor time is all of the client's thread, its timer included.
";
    const RATIOS: &'static [&'static str] = &["client µs"];
    const SHARE_OF_RUNTIME: f64 = 1.5;
    const PINNED: bool = true;

    fn cases() -> Vec<Case<Trial>> {
        let case = |rate| Case {
            name: format!("rate/{rate}"),
            trials: [Waiting::Adaptive, Waiting::Call]
                .map(|waiting| Trial { rate, waiting })
                .into(),
            rows: vec![("adaptive:call", [only(0), only(1)])],
        };
        [100, 1000].map(case).into()
    }

    fn setup(_: Trial) -> Setup {
        Setup::ours(DISK)
    }

    fn run(trial: Trial, site: &Site) -> io::Result<Vec<Finding>> {
        let time = site.time;
        let Trial { rate, waiting } = trial;
        let mut client = open_loop::connect(site.socket(), DISK, waiting, rate, Duration::ZERO)?;
        client.run_for(time / 4)?;
        let before = Spent::by_this_thread()?;
        client.run_for(time)?;
        let spent = Spent::by_this_thread()?;
        let latencies = client.measured.latencies.all();
        let each = before.until(&spent, count(latencies.len()));
        Ok(vec![vec![
            ("client µs", each.cpu_us),
            ("client sleeps", each.sleeps),
            ("p50 µs", microseconds(&latencies, 0.5)),
            ("p99 µs", microseconds(&latencies, 0.99)),
        ]])
    }
}
