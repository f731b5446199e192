//! The loop: daemons are asked on a thread of its own, so that keys work while one of them does not answer.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::sleep;
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use rustix::event::{PollFd, PollFlags, poll};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::Error;
use super::rates::{DiskRates, Rates, between};
use super::sample::{Sample, take};
use super::screen::draw;
use super::view::{Act, View};
use crate::control::client::patch;
use crate::log::chain;
use crate::model::Disk;

/// How long a key may wait.
const TICK: Duration = Duration::from_millis(100);

type Told = Result<Sample, String>;

/// Shows what happens until the user quits.
pub fn watch(asked: Option<&Path>, interval: Duration) -> Result<(), Error> {
    // That there is no daemon is said before the screen is taken.
    let first = take(asked)?;
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&ended))?;
    }
    let (samples, told) = channel();
    let (asked, answers) = (asked.map(Path::to_owned), samples.clone());
    std::thread::Builder::new()
        .name("samples".to_owned())
        .spawn(move || ask(asked.as_deref(), interval, &samples))?;
    std::thread::Builder::new()
        .name("terminal".to_owned())
        .spawn(end_with_terminal)?;
    let mut terminal = ratatui::try_init()?;
    let shown = show(&mut terminal, first, (&answers, &told), &ended);
    ratatui::restore();
    Ok(shown?)
}

/// Ends the process once its terminal is gone: crate `crossterm` polls for keys of such a terminal for ever.
fn end_with_terminal() {
    let stdout = io::stdout();
    // That it hung up is told whether or not it is asked for.
    let mut fds = [PollFd::new(&stdout, PollFlags::empty())];
    while poll(&mut fds, None).is_err() {}
    std::process::exit(1);
}

fn ask(asked: Option<&Path>, interval: Duration, samples: &Sender<Told>) {
    loop {
        sleep(interval);
        if samples.send(take(asked)).is_err() {
            return;
        }
    }
}

fn show(
    terminal: &mut DefaultTerminal,
    mut before: Sample,
    (answers, told): (&Sender<Told>, &Receiver<Told>),
    ended: &AtomicBool,
) -> io::Result<()> {
    let (mut view, mut rates, mut message) = (View::default(), Rates::default(), String::new());
    while !ended.load(Ordering::Relaxed) {
        for sample in told.try_iter() {
            match sample {
                Ok(_) if view.paused => {}
                Ok(sample) => {
                    rates = view.take(between(&before, &sample), &rates);
                    before = sample;
                    message.clear();
                }
                Err(error) => message = error,
            }
        }
        terminal.draw(|frame| draw(frame, &rates, &view, &message))?;
        if !event::poll(TICK)? {
            continue;
        }
        let Event::Key(key) = event::read()? else {
            continue;
        };
        let interrupts = key.code == KeyCode::Char('c') && key.modifiers == KeyModifiers::CONTROL;
        if interrupts {
            return Ok(());
        }
        if key.kind != KeyEventKind::Press {
            continue;
        }
        match view.key(key.code, &mut rates) {
            Act::Draw => {}
            Act::Quit => return Ok(()),
            Act::SwitchLatencies => {
                if let Some(disk) = view.disk(&rates) {
                    switch(disk, answers.clone())?;
                }
            }
        }
    }
    Ok(())
}

/// Has the times of requests of a disk counted, or not any more, by a thread of its own: the daemon may not answer.
fn switch(disk: &DiskRates, answers: Sender<Told>) -> io::Result<()> {
    let path = format!("/v1/disks/{}", disk.name);
    let change = json!({ "latencies": !disk.latencies });
    let control = disk.control.clone();
    let ask = move || {
        if let Err(error) = patch::<Disk>(&control, &path, &change) {
            // Nothing is left to tell it to once the user has quit.
            let _ = answers.send(Err(chain(&error)));
        }
    };
    let thread = std::thread::Builder::new().name("switch".to_owned());
    thread.spawn(ask).map(drop)
}
