//! What a study found, and its table.

use serde::Serialize;

use super::outcome::short;
use super::plot::Plot;
use super::table::Table;
use crate::statistics::{Estimate, median};
use crate::studies::Finding;

/// A study.
#[derive(Debug, Serialize)]
pub struct Section {
    /// Its heading.
    pub title: &'static str,
    /// What is compared, and how to read it.
    #[serde(skip)]
    pub explanation: &'static str,
    /// What was compared.
    pub rows: Vec<Row>,
    /// A picture of it.
    #[serde(skip)]
    pub plot: Option<Plot>,
}

/// Two things that took turns.
#[derive(Debug, Serialize)]
pub struct Row {
    name: String,
    numbers: Vec<Number>,
}

/// One number of both.
#[derive(Debug, Serialize)]
struct Number {
    heading: &'static str,
    /// Of the one and of the other, pair by pair; none where it could not be had.
    values: [Vec<f64>; 2],
    /// The one by the other within a pair, where that was asked for.
    ratio: Option<Estimate>,
}

impl Row {
    /// Of what was found pair by pair; with the ratios of the numbers with these headings.
    pub fn new(name: String, found: &[Vec<Finding>; 2], ratios: &[&str]) -> Self {
        let mut headings: Vec<&'static str> = vec![];
        for (heading, _) in found.iter().flatten().flatten() {
            if !headings.contains(heading) {
                headings.push(heading);
            }
        }
        let number = |heading: &'static str| {
            let values = found.each_ref().map(|all| values(all, heading));
            let [one, other] = &values;
            let comparable = ratios.contains(&heading) && one.len() == other.len();
            let pairs = one.iter().zip(other).map(|(one, other)| one / other);
            let ratio = comparable.then(|| Estimate::bootstrap(&pairs.collect::<Vec<_>>()));
            Number {
                heading,
                values,
                ratio,
            }
        };
        Self {
            numbers: headings.into_iter().map(number).collect(),
            name,
        }
    }

    fn number(&self, heading: &str) -> Option<&Number> {
        self.numbers.iter().find(|one| one.heading == heading)
    }
}

fn values(found: &[Finding], heading: &str) -> Vec<f64> {
    let numbers = found.iter().flatten();
    let named = numbers.filter(|(name, _)| *name == heading);
    named.map(|(_, value)| *value).collect()
}

impl Section {
    fn table(&self) -> Table {
        let mut columns: Vec<(&'static str, bool)> = vec![];
        for number in self.rows.iter().flat_map(|row| &row.numbers) {
            let column = (number.heading, number.ratio.is_some());
            match columns.iter_mut().find(|known| known.0 == column.0) {
                Some(known) => known.1 |= column.1,
                None => columns.push(column),
            }
        }
        let mut headings = vec![""];
        for (heading, ratio) in &columns {
            headings.push(heading);
            if *ratio {
                headings.push("ratio (95 %)");
            }
        }
        let mut table = Table::new(&headings);
        for row in &self.rows {
            let mut cells = vec![row.name.clone()];
            for (heading, ratio) in &columns {
                let number = row.number(heading);
                cells.push(number.map_or_else(|| "-".into(), Number::both));
                if *ratio {
                    let ratio = number.and_then(|number| number.ratio);
                    cells.push(ratio.map_or_else(|| "-".into(), |ratio| ratio.to_string()));
                }
            }
            table.add(cells);
        }
        table
    }

    /// For the terminal.
    pub fn plain(&self) -> String {
        format!("{}, one / other\n{}", self.title, self.table().plain())
    }

    /// For `RESULTS.md`.
    pub fn markdown(&self) -> String {
        let Self {
            title, explanation, ..
        } = self;
        let plot = self
            .plot
            .as_ref()
            .map(|plot| format!("\n{}", plot.markdown()));
        format!(
            "## {title}\n\n{explanation}\n{}{}",
            self.table().markdown(),
            plot.unwrap_or_default()
        )
    }
}

impl Number {
    fn both(&self) -> String {
        let one = |values: &Vec<f64>| match &values[..] {
            [] => "-".to_owned(),
            values => short(median(values)),
        };
        let [one, other] = self.values.each_ref().map(one);
        format!("{one} / {other}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_one_side_lacks_has_no_ratio() {
        let full: Finding = vec![("k IOPS", 4.0), ("hold µs", 1.0)];
        let bare: Finding = vec![("k IOPS", 8.0)];
        let found = [vec![full; 3], vec![bare; 3]];
        let row = Row::new("lock".into(), &found, &["k IOPS", "hold µs"]);
        let section = Section {
            title: "Locks",
            explanation: "",
            rows: vec![row],
            plot: None,
        };
        let text = section.plain();
        assert!(
            text.contains("4.00 / 8.00  0.50 (0.50–0.50)  1.00 / -"),
            "{text}"
        );
    }
}
