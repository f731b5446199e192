//! What is shown while a run goes on, on a terminal.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::phase::Phase;
use crate::units::rate;

/// How often it is drawn anew.
const INTERVAL: Duration = Duration::from_millis(200);
/// Without a terminal there is nothing to draw; it is only waited for the jobs.
const NEVER: Duration = Duration::from_secs(3600);

/// A line on the terminal, if there is one.
pub struct Progress {
    bar: Option<ProgressBar>,
    /// When the phase began, and how many requests had ended before.
    begun: Instant,
    before: u64,
    last: u64,
}

impl Progress {
    /// Of a run that takes so long.
    pub fn new(runtime: Duration) -> Self {
        let length = u64::try_from(runtime.as_millis()).ok();
        let bar = || ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr());
        Self {
            bar: stderr().is_terminal().then(bar),
            begun: Instant::now(),
            before: 0,
            last: 0,
        }
    }

    /// How long to wait between two polls.
    pub fn interval(&self) -> Duration {
        if self.bar.is_some() { INTERVAL } else { NEVER }
    }

    /// The next phase begins. Only of one it is known how long it takes.
    pub fn enter(&mut self, phase: Phase) {
        (self.begun, self.before) = (Instant::now(), self.last);
        let Some(bar) = &self.bar else { return };
        let style = ProgressStyle::with_template(match phase {
            Phase::Fill => "filling the disk: {msg}",
            Phase::Run => "measuring [{bar:30}] {msg}",
            Phase::ReadBack => "reading back: {msg}",
        });
        bar.set_style(style.expect("the template is right").progress_chars("=> "));
    }

    /// So many requests have ended since the start.
    pub fn show(&mut self, requests: u64) {
        self.last = requests;
        let Some(bar) = &self.bar else { return };
        let elapsed = self.begun.elapsed();
        bar.set_position(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX));
        let now = elapsed.as_secs();
        let rate = rate(requests - self.before, elapsed);
        bar.set_message(format!("{now} s, {rate:.0} requests a second"));
    }

    /// The line goes.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
