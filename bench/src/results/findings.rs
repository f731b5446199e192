//! What a study found, and its table.

use serde::Serialize;

use super::outcome::short;
use super::plot::Plot;
use super::table::Table;
use crate::pairing::{Group, State, Tagged, alike};
use crate::statistics::{Estimate, median};

/// What a trial found of one thing: numbers, by the headings of their columns.
pub type Finding = Vec<(&'static str, f64)>;

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

/// Two things that took turns, in one state of the host.
#[derive(Debug, Serialize)]
pub struct Row {
    name: String,
    /// `None` if no two of them can be compared.
    state: Option<State>,
    /// How many of them could be compared in this state.
    pairs: usize,
    /// How many could not be, in any.
    dropped: usize,
    /// How many trials were made again: others disturbed them, or the host moved the processors.
    repeated: usize,
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

/// What tells modes apart, where a study has it.
pub const SPEED: &str = "k IOPS";

/// Which of `one[i]`, `other[i]` can be compared.
pub fn comparable(one: &[Tagged<Finding>], other: &[Tagged<Finding>]) -> Vec<Group> {
    let speed = |finding: &Finding| {
        let known = finding.iter().find(|(name, _)| *name == SPEED);
        known.map(|(_, value)| *value)
    };
    alike(one, other, speed)
}

impl Row {
    /// One for each state, of what was found pair by pair; with the ratios of the numbers with these headings.
    pub fn by_state(
        name: &str,
        [one, other]: &[Vec<Tagged<Finding>>; 2],
        repeated: usize,
        ratios: &[&str],
    ) -> Vec<Self> {
        let groups = comparable(one, other);
        let compared: usize = groups.iter().map(|group| group.pairs.len()).sum();
        let bare = Self {
            name: name.to_owned(),
            state: None,
            pairs: 0,
            dropped: one.len() - compared,
            repeated,
            numbers: vec![],
        };
        if groups.is_empty() {
            return vec![bare];
        }
        let row = |group: &Group| {
            let of = |side: &[Tagged<Finding>]| -> Vec<Finding> {
                group
                    .pairs
                    .iter()
                    .map(|&pair| side[pair].found.clone())
                    .collect()
            };
            Self {
                name: name.to_owned(),
                state: Some(group.state),
                pairs: group.pairs.len(),
                numbers: numbers(&[of(one), of(other)], ratios),
                ..bare
            }
        };
        groups.iter().map(row).collect()
    }

    fn number(&self, heading: &str) -> Option<&Number> {
        self.numbers.iter().find(|one| one.heading == heading)
    }
}

fn numbers(found: &[Vec<Finding>; 2], ratios: &[&str]) -> Vec<Number> {
    let mut headings: Vec<&'static str> = vec![];
    for (heading, _) in found.iter().flatten().flatten() {
        if !headings.contains(heading) {
            headings.push(heading);
        }
    }
    let number = |heading: &'static str| {
        let values = found.each_ref().map(|all| values(all, heading));
        let [one, other] = &values;
        let divides = one.len() == other.len() && !other.contains(&0.0);
        let comparable = ratios.contains(&heading) && divides;
        let pairs = one.iter().zip(other).map(|(one, other)| one / other);
        let ratio = comparable.then(|| Estimate::bootstrap(&pairs.collect::<Vec<_>>()));
        Number {
            heading,
            values,
            ratio,
        }
    };
    headings.into_iter().map(number).collect()
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
        let mut headings = vec!["", "host"];
        for (heading, ratio) in &columns {
            headings.push(heading);
            if *ratio {
                headings.push("ratio (95 %)");
            }
        }
        headings.extend(["pairs", "dropped/redone"]);
        let mut table = Table::new(&headings);
        for row in &self.rows {
            let state = row
                .state
                .map_or_else(|| "-".into(), |state| state.to_string());
            let mut cells = vec![row.name.clone(), state];
            for (heading, ratio) in &columns {
                let number = row.number(heading);
                cells.push(number.map_or_else(|| "-".into(), Number::both));
                if *ratio {
                    let ratio = number.and_then(|number| number.ratio);
                    cells.push(ratio.map_or_else(|| "-".into(), |ratio| ratio.to_string()));
                }
            }
            cells.push(row.pairs.to_string());
            cells.push(format!("{}/{}", row.dropped, row.repeated));
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
    use crate::pairing::Distance;

    #[test]
    fn a_number_that_one_side_lacks_or_has_none_of_has_no_ratio() {
        let near = |found| Tagged {
            distance: Some(Distance::Near),
            found,
        };
        let full: Finding = vec![("k IOPS", 4.0), ("hold µs", 1.0), ("calls", 0.0)];
        let bare: Finding = vec![("k IOPS", 8.0), ("calls", 0.0)];
        let found = [vec![near(full); 3], vec![near(bare); 3]];
        let rows = Row::by_state("lock", &found, 0, &["k IOPS", "hold µs", "calls"]);
        let section = Section {
            title: "Locks",
            explanation: "",
            rows,
            plot: None,
        };
        let text = section.plain();
        assert!(
            text.contains("4.00 / 8.00  0.50 (0.50–0.50)  1.00 / -  0 / 0"),
            "{text}"
        );
    }

    #[test]
    fn states_have_rows_of_their_own_and_say_what_was_dropped() {
        let at = |distance, iops| Tagged {
            distance,
            found: vec![("k IOPS", iops)],
        };
        let (near, far) = (Some(Distance::Near), Some(Distance::Far));
        let one = vec![at(near, 14.0), at(far, 3.0), at(near, 14.0), at(None, 9.0)];
        let other = vec![at(near, 7.0), at(far, 3.0), at(far, 3.0), at(near, 7.0)];
        let rows = Row::by_state("null", &[one, other], 5, &["k IOPS"]);
        let shown = |row: &Row| (row.pairs, row.dropped, row.repeated, row.numbers[0].both());
        let expected = [
            (1, 2, 5, "14.0 / 7.00".to_owned()),
            (1, 2, 5, "3.00 / 3.00".to_owned()),
        ];
        assert_eq!(rows.iter().map(shown).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_cannot_be_compared_at_all_has_a_row_that_says_so() {
        let moved = Tagged {
            distance: None,
            found: vec![("k IOPS", 1.0)],
        };
        let rows = Row::by_state("null", &[vec![moved.clone(); 3], vec![moved; 3]], 9, &[]);
        assert_eq!((rows.len(), rows[0].state, rows[0].dropped), (1, None, 3));
    }
}
