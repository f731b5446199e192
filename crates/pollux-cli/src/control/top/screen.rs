//! The screen.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState, Wrap};

use super::rates::{DiskRates, Rates, WorkerRates};
use super::text::{self, DISKS};
use super::view::{KEYS, View};
use crate::control::table::Align;
use crate::units::count;

const BAR: usize = 40;
const WIDTHS: [u16; 10] = [8, 10, 10, 9, 9, 7, 7, 7, 8, 7];

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, rates: &Rates, view: &View, message: &str) {
    let workers = u16::try_from(rates.workers.len()).unwrap_or(u16::MAX);
    let heights = [
        Constraint::Length(1),
        Constraint::Min(4),
        Constraint::Length(workers.saturating_add(1).min(frame.area().height / 3)),
        Constraint::Length(2),
        Constraint::Length(1),
    ];
    let [head, main, below, why, keys] = Layout::vertical(heights).areas(frame.area());
    frame.render_widget(title(rates, view), head);
    let disk = view.disk(rates);
    match disk {
        Some(disk) if view.detail => detail(frame, disk, main),
        _ => disks(frame, rates, view, main),
    }
    frame.render_widget(Paragraph::new(all_workers(rates)), below);
    let line = match disk {
        _ if !message.is_empty() => message.to_owned().red().into(),
        Some(disk) => Line::from(text::why(disk)).bold(),
        None => Line::from("no disk, or only one look at it so far"),
    };
    frame.render_widget(Paragraph::new(line).wrap(Wrap { trim: true }), why);
    frame.render_widget(Paragraph::new(KEYS).dim(), keys);
}

fn title(rates: &Rates, view: &View) -> Line<'static> {
    let seconds = rates.disks.first().map_or(0.0, |disk| disk.seconds);
    let (disks, sort) = (rates.disks.len(), view.sort.name());
    let s = if disks == 1 { "" } else { "s" };
    let mut title = format!("pollux top  {disks} disk{s}, by {sort}, over {seconds:.1} s");
    if view.paused {
        title += "  PAUSED";
    }
    for failed in &rates.failed {
        title += "  ";
        title += failed;
    }
    Line::from(title).bold()
}

fn aligned((cell, (_, align)): (String, (&str, Align))) -> Cell<'static> {
    let line = Line::from(cell);
    match align {
        Align::Left => line.into(),
        Align::Right => line.right_aligned().into(),
    }
}

fn disks(frame: &mut Frame<'_>, rates: &Rates, view: &View, area: Rect) {
    let heads = DISKS.map(|(name, align)| aligned((name.to_owned(), (name, align))));
    let row = |of: &DiskRates| Row::new(text::disk(of).into_iter().zip(DISKS).map(aligned));
    let mut widths = vec![Constraint::Min(8)];
    widths.extend(WIDTHS.map(Constraint::Length));
    let table = Table::new(rates.disks.iter().map(row), widths)
        .header(Row::new(heads).style(Modifier::REVERSED))
        .row_highlight_style(Style::from(Modifier::BOLD).fg(Color::Cyan));
    let mut state = TableState::default().with_selected(view.chosen);
    frame.render_stateful_widget(table, area, &mut state);
}

/// A bar of shares of the whole, each in a colour and a pattern of its own.
fn bar(shares: &[(f64, &'static str, Color)]) -> Vec<Span<'static>> {
    let (mut spans, mut drawn, mut sum) = (Vec::new(), 0, 0.0);
    for (share, pattern, color) in shares {
        sum += share;
        let end = cells(sum).max(drawn);
        spans.push(Span::from(pattern.repeat(end - drawn)).fg(*color));
        drawn = end;
    }
    spans
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "it is a share of a short bar"
)]
fn cells(share: f64) -> usize {
    (share.clamp(0.0, 1.0) * BAR as f64).round() as usize
}

fn all_workers(rates: &Rates) -> Vec<Line<'static>> {
    let alone = rates.is_of_one_daemon();
    let head = format!(
        "{:<16}{:<BAR$}  {:>6}{:>6}{:>7}{:>6}{:>10}",
        "WORKER", "", "WORKS", "POLLS", "SLEEPS", "CPU", "SLEEPS/s"
    );
    let mut lines = vec![Line::from(head).reversed()];
    for of in &rates.workers {
        let mut line = vec![Span::from(format!("{:<16}", text::worker_name(of, alone)))];
        line.extend(worker_bar(of));
        let WorkerRates {
            working,
            polling,
            asleep,
            ..
        } = of;
        line.push(Span::from(format!(
            "  {:>6}{:>6}{:>7}{:>6}{:>10}",
            text::percent(*working),
            text::percent(*polling),
            text::percent(*asleep),
            text::optional(of.cpu, text::percent),
            count(of.sleeps_per_second),
        )));
        lines.push(line.into());
    }
    lines
}

fn worker_bar(of: &WorkerRates) -> Vec<Span<'static>> {
    bar(&[
        (of.working, "█", Color::Green),
        (of.polling, "▒", Color::Yellow),
        (1.0 - of.working - of.polling, "·", Color::DarkGray),
    ])
}

/// One disk in detail.
fn detail(frame: &mut Frame<'_>, of: &DiskRates, area: Rect) {
    let frontend = if of.connected {
        "connected"
    } else {
        "no frontend is connected"
    };
    let name = format!("{} at {}, {frontend}", of.name, of.control.display());
    let mut lines = vec![Line::from(name).bold(), held_by(of)];
    let limits = of.limits.iter();
    let limits = listed(
        limits.map(|(limit, number)| format!("{limit}={number}")),
        ",",
    );
    let limits = limits.unwrap_or_else(|| "none".to_owned());
    lines.push(format!("{:<12}{limits}", "limits").into());
    lines.extend(requests(of));
    lines.extend(queues(of));
    let counted = of.disk.iter().filter(|(_, rate)| *rate > 0.0);
    let counted = counted.map(|(name, rate)| format!("{name} {}/s", count(*rate)));
    if let Some(counted) = listed(counted, ", ") {
        lines.push(format!("{:<12}{counted}", "the disk").into());
    }
    frame.render_widget(Paragraph::new(lines), area);
}

/// All of them in a line, if there are any.
fn listed(words: impl Iterator<Item = String>, between: &str) -> Option<String> {
    let words: Vec<_> = words.collect();
    (!words.is_empty()).then(|| words.join(between))
}

/// What holds its requests up, and how much each.
fn held_by(of: &DiskRates) -> Line<'static> {
    let shares = of.bottleneck.shares;
    let mut held = vec![Span::from(format!("{:<12}", "held by"))];
    held.extend(bar(&[
        (shares.limit, "L", Color::Magenta),
        (shares.engine, "E", Color::Red),
        (shares.worker, "W", Color::Green),
        (shares.guest, "g", Color::Blue),
    ]));
    let percent = text::percent;
    held.push(Span::from(format!(
        "  limit {}  engine {}  worker {}  guest {}",
        percent(shares.limit),
        percent(shares.engine),
        percent(shares.worker),
        percent(shares.guest)
    )));
    Line::from(held)
}

/// Its requests, and those of each kind.
fn requests(of: &DiskRates) -> Vec<Line<'static>> {
    let all = format!(
        "{:<12}{}, {} failed a second, {:.1} at once",
        "requests",
        count(of.iops),
        count(of.errors_per_second),
        of.depth
    );
    let kinds = of.ops.iter().map(|op| {
        let (iops, p50, p99) = (
            count(op.iops),
            text::optional(op.p50_ns, text::time),
            text::optional(op.p99_ns, text::time),
        );
        format!("  {:<14}{iops:>8}/s  p50 {p50:>9}  p99 {p99:>9}", op.op)
    });
    [all].into_iter().chain(kinds).map(Line::from).collect()
}

/// Its queues, one a line.
fn queues(of: &DiskRates) -> Vec<Line<'static>> {
    let queues = of.queues.iter().map(|queue| {
        let (iops, kicks, calls) = (
            count(queue.iops),
            count(queue.kicks_per_second),
            count(queue.calls_per_second),
        );
        let (number, worker, in_flight) = (queue.queue, queue.worker, queue.in_flight);
        format!(
            "  {number:<3} worker {worker:<3}{iops:>8}/s  {in_flight:>4} in flight  {kicks:>7} kicks/s  {calls:>7} calls/s"
        )
    });
    let head = ["queues".to_owned()].into_iter();
    head.chain(queues).map(Line::from).collect()
}
