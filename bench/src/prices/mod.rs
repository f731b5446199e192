//! What this machine charges for what every server must do: so that a reader can tell a slow machine
//! from slow code.
//!
//! Each price is the median of many short measurements, with the values below which one in twenty
//! and nineteen in twenty of them lie. What takes less than reading the clock is measured in
//! batches.

mod called;
mod memory;
mod storage;
mod wake;

use std::fmt::{self, Write};
use std::io;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::images::Images;
use crate::quiet;
use crate::results::table::Table;
use crate::round_trip::Processors;
use crate::statistics::quantile;

/// What one thing costs.
#[derive(Clone, Debug, Serialize)]
pub struct Price {
    /// What.
    pub name: &'static str,
    /// Nanoseconds, in the middle.
    pub median_ns: f64,
    /// One in twenty measurements was below.
    pub low_ns: f64,
    /// One in twenty measurements was above.
    pub high_ns: f64,
}

/// All of them.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct Prices(Vec<Price>);

/// How long one price is measured.
const TIME: Duration = Duration::from_millis(400);

impl Prices {
    /// Measures all of them on a quiet machine; `images` are for the files.
    pub fn measure(processors: Processors, images: &Images) -> io::Result<Self> {
        quiet::wait_for_quiet(Duration::from_secs(5))?;
        let mut prices = memory::prices(processors)?;
        prices.extend(wake::prices(processors)?);
        prices.extend(called::prices(processors)?);
        prices.extend(storage::prices(processors, images)?);
        Ok(Self(prices))
    }

    fn table(&self) -> Table {
        let mut table = Table::new(&["price", "median", "5 %", "95 %"]);
        for price in &self.0 {
            table.add([
                price.name.to_owned(),
                human(price.median_ns),
                human(price.low_ns),
                human(price.high_ns),
            ]);
        }
        table
    }

    /// The section of `RESULTS.md`.
    pub fn markdown(&self) -> String {
        let mut text = String::from(
            "## The machine's own prices\n\n\
             Each the median of many short measurements, and between which values nine in ten of them lie; the two\n\
             threads of one price are on the processors of the comparisons.\n\n",
        );
        write!(text, "{}", self.table().markdown()).expect("a string takes everything");
        text
    }
}

impl fmt::Display for Prices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.table().plain())
    }
}

impl Price {
    /// From measurements in nanoseconds.
    fn of(name: &'static str, measured: &[f64]) -> Self {
        Self {
            name,
            median_ns: quantile(measured, 0.5),
            low_ns: quantile(measured, 0.05),
            high_ns: quantile(measured, 0.95),
        }
    }

    /// Of `operation`, timed `batch` at once.
    fn of_batches(
        name: &'static str,
        batch: u32,
        mut operation: impl FnMut() -> io::Result<()>,
    ) -> io::Result<Self> {
        let mut measured = vec![];
        let start = Instant::now();
        while start.elapsed() < TIME {
            let before = Instant::now();
            for _ in 0..batch {
                operation()?;
            }
            measured.push(nanoseconds(before.elapsed()) / f64::from(batch));
        }
        Ok(Self::of(name, &measured))
    }

    /// Of one of `number` things that were measured together.
    fn divided_by(self, number: f64) -> Self {
        Self {
            name: self.name,
            median_ns: self.median_ns / number,
            low_ns: self.low_ns / number,
            high_ns: self.high_ns / number,
        }
    }
}

fn nanoseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e9
}

fn human(nanoseconds: f64) -> String {
    if nanoseconds < 1000.0 {
        format!("{nanoseconds:.0} ns")
    } else {
        format!("{:.2} µs", nanoseconds / 1000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_is_a_median_with_its_spread() {
        let measured: Vec<f64> = (0..=100).map(f64::from).collect();
        let price = Price::of("counting", &measured);
        let all = [price.low_ns, price.median_ns, price.high_ns];
        assert_eq!(all.map(human), ["5 ns", "50 ns", "95 ns"]);
        assert_eq!(human(12_345.0), "12.35 µs");
    }
}
