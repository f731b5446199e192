//! What is looked at, and what keys change of that.

use std::cmp::Ordering;

use ratatui::crossterm::event::KeyCode;

use super::rates::{DiskRates, Rates};

/// By what disks are in order, the largest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    #[default]
    Iops,
    Bandwidth,
    P99,
    Depth,
    /// In the order of the alphabet.
    Name,
}

/// What is to be done for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// To draw anew.
    Draw,
    Quit,
    /// To switch the counting of times of the chosen disk.
    SwitchLatencies,
}

/// What is looked at.
#[derive(Debug, Default)]
pub struct View {
    pub sort: Sort,
    pub paused: bool,
    pub detail: bool,
    /// The place of the chosen disk in the list.
    pub chosen: usize,
}

pub const KEYS: &str = "q quit  ↑↓ choose  ⏎ detail  s sort  p pause  l latencies on/off";

impl Sort {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Iops => "IOPS",
            Self::Bandwidth => "bandwidth",
            Self::P99 => "p99",
            Self::Depth => "depth",
            Self::Name => "name",
        }
    }

    const fn next(self) -> Self {
        match self {
            Self::Iops => Self::Bandwidth,
            Self::Bandwidth => Self::P99,
            Self::P99 => Self::Depth,
            Self::Depth => Self::Name,
            Self::Name => Self::Iops,
        }
    }

    fn compare(self, one: &DiskRates, other: &DiskRates) -> Ordering {
        let bytes = |of: &DiskRates| of.read_bytes_per_second + of.written_bytes_per_second;
        let names = one
            .name
            .cmp(&other.name)
            .then_with(|| one.control.cmp(&other.control));
        match self {
            Self::Iops => other.iops.total_cmp(&one.iops),
            Self::Bandwidth => bytes(other).total_cmp(&bytes(one)),
            Self::P99 => other.p99_ns.cmp(&one.p99_ns),
            Self::Depth => other.depth.total_cmp(&one.depth),
            Self::Name => Ordering::Equal,
        }
        .then(names)
    }
}

impl View {
    /// The disks in order.
    pub fn order(&self, rates: &mut Rates) {
        rates
            .disks
            .sort_by(|one, other| self.sort.compare(one, other));
    }

    /// The disk that is chosen.
    pub fn disk<'a>(&self, rates: &'a Rates) -> Option<&'a DiskRates> {
        let last = rates.disks.len().checked_sub(1)?;
        rates.disks.get(self.chosen.min(last))
    }

    /// A key was pressed.
    pub fn key(&mut self, key: KeyCode, rates: &mut Rates) -> Act {
        let last = rates.disks.len().saturating_sub(1);
        self.chosen = self.chosen.min(last);
        match key {
            KeyCode::Char('q') => return Act::Quit,
            KeyCode::Esc if !self.detail => return Act::Quit,
            KeyCode::Esc => self.detail = false,
            KeyCode::Enter => self.detail = !self.detail,
            KeyCode::Up | KeyCode::Char('k') => self.chosen = self.chosen.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.chosen = (self.chosen + 1).min(last),
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('l') => return Act::SwitchLatencies,
            KeyCode::Char('s') => {
                self.sort = self.sort.next();
                self.order(rates);
            }
            _ => {}
        }
        Act::Draw
    }

    /// There are new rates: the same disk stays chosen, wherever it comes to be.
    pub fn take(&mut self, mut rates: Rates, before: &Rates) -> Rates {
        let chosen = self
            .disk(before)
            .map(|disk| (disk.control.clone(), disk.name.clone()));
        self.order(&mut rates);
        let place = chosen.and_then(|(control, name)| {
            let mut disks = rates.disks.iter();
            disks.position(|disk| disk.control == control && disk.name == name)
        });
        self.chosen = place.unwrap_or(self.chosen);
        rates
    }
}

#[cfg(test)]
mod tests;
