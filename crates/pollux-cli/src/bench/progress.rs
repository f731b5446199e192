//! What is shown while a run goes on: how far it is, on a terminal, and that nothing comes back.

use std::io::{IsTerminal, Write as _, stderr};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::phase::Phase;
use crate::units::rate;

/// How often it is drawn anew.
const INTERVAL: Duration = Duration::from_millis(200);
/// Without a terminal there is nothing to draw.
const SELDOM: Duration = Duration::from_secs(1);
/// For so long no request may end before that is told.
const PATIENCE: Duration = Duration::from_secs(5);

/// A line on the terminal, if there is one.
pub struct Progress {
    bar: Option<ProgressBar>,
    /// When the phase began, and how many requests had ended before.
    begun: Instant,
    before: u64,
    last: u64,
    /// When a request was last found to have ended, or the end was found to have been asked for.
    moved: Instant,
    is_ending: bool,
    is_told: bool,
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
            moved: Instant::now(),
            is_ending: false,
            is_told: false,
        }
    }

    /// How long to wait between two polls.
    pub fn interval(&self) -> Duration {
        if self.bar.is_some() { INTERVAL } else { SELDOM }
    }

    /// The next phase begins. Only of one it is known how long it takes.
    pub fn enter(&mut self, phase: Phase) {
        (self.begun, self.before) = (Instant::now(), self.last);
        let Some(bar) = &self.bar else { return };
        let style = ProgressStyle::with_template(match phase {
            Phase::Fill => "filling the disk: {msg}",
            Phase::Ramp => "not measured yet: {msg}",
            Phase::Run => "measuring [{bar:30}] {msg}",
            Phase::ReadBack => "reading back: {msg}",
        });
        bar.set_style(style.expect("the template is right").progress_chars("=> "));
    }

    /// So many requests have ended since the start. False: the end was asked for, and none has ended for long.
    pub fn show(&mut self, requests: u64, is_ending: bool) -> bool {
        if requests != self.last || is_ending != self.is_ending {
            (self.moved, self.is_told) = (Instant::now(), false);
        }
        (self.last, self.is_ending) = (requests, is_ending);
        self.draw(requests);
        let is_stuck = self.moved.elapsed() >= PATIENCE;
        if is_stuck && !is_ending && !self.is_told {
            self.is_told = true;
            let seconds = PATIENCE.as_secs();
            self.say(&format!(
                "no request has ended for {seconds} s; the disk is waited for, and Ctrl-C or SIGTERM ends the run"
            ));
        }
        !(is_stuck && is_ending)
    }

    /// Says something above the line.
    pub fn say(&self, what: &str) {
        // Its reader may be gone.
        let line = || drop(writeln!(stderr(), "pollux: {what}"));
        match &self.bar {
            Some(bar) => bar.suspend(line),
            None => line(),
        }
    }

    fn draw(&self, requests: u64) {
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
