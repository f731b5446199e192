//! Few requests a second: does looking for completions cost what it must not?

use std::fmt;
use std::io;

use pollux_driver::Waiting;

use super::open_loop::OpenLoop;
use super::site::{Setup, Site};
use super::study::{Case, Study, count, only};
use crate::cell::Disk;
use crate::client::Client;
use crate::load::microseconds;
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
        let mut client = OpenLoop::connect(site.socket(), DISK, trial.waiting, trial.rate)?;
        client.run_for(time / 4)?;
        client.latencies.reset();
        let before = Spent::by_this_thread()?;
        client.run_for(time)?;
        let requests = client.latencies.len();
        let each = before.until(&Spent::by_this_thread()?, count(requests));
        Ok(vec![vec![
            ("client µs", each.cpu_us),
            ("client sleeps", each.sleeps),
            ("p50 µs", microseconds(&client.latencies, 0.5)),
            ("p99 µs", microseconds(&client.latencies, 0.99)),
        ]])
    }
}
