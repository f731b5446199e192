//! A table for the eye, and the same one for Markdown.

use std::fmt::Write;

/// Rows of texts below headings.
#[derive(Clone, Debug)]
pub struct Table {
    headings: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub fn new(headings: &[&str]) -> Self {
        Self {
            headings: headings.iter().map(|&text| text.to_owned()).collect(),
            rows: vec![],
        }
    }

    /// Adds a row.
    ///
    /// # Panics
    /// When it is not as long as the headings.
    pub fn add(&mut self, row: impl Into<Vec<String>>) {
        let row = row.into();
        assert_eq!(row.len(), self.headings.len(), "{row:?}");
        self.rows.push(row);
    }

    /// The same table without the columns that say nothing (`-`, or not even that) in any row.
    pub fn without_empty_columns(self) -> Self {
        let says_something = |column: &usize| {
            self.rows
                .iter()
                .any(|row| !matches!(&row[*column][..], "" | "-"))
        };
        let kept: Vec<usize> = (0..self.headings.len()).filter(says_something).collect();
        let keep = |row: Vec<String>| kept.iter().map(|&column| row[column].clone()).collect();
        Self {
            rows: self.rows.iter().cloned().map(keep).collect(),
            headings: keep(self.headings),
        }
    }

    /// Columns as wide as they must be.
    pub fn plain(&self) -> String {
        let all = || std::iter::once(&self.headings).chain(&self.rows);
        let width = |column: usize| all().map(|row| row[column].chars().count()).max();
        let widths = (0..self.headings.len()).map(|column| width(column).unwrap_or(0));
        let widths: Vec<usize> = widths.collect();
        let mut text = String::new();
        for row in all() {
            for (cell, width) in row.iter().zip(&widths) {
                write!(text, "{cell:<width$}  ").expect("a string takes everything");
            }
            text.truncate(text.trim_end().len());
            text.push('\n');
        }
        text
    }

    /// As Markdown has it.
    pub fn markdown(&self) -> String {
        let rule = vec!["---".to_owned(); self.headings.len()];
        let mut text = String::new();
        for row in [&self.headings, &rule].into_iter().chain(&self.rows) {
            writeln!(text, "| {} |", row.join(" | ")).expect("a string takes everything");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_without_anything_to_say_is_left_out() {
        let mut table = Table::new(&["disk", "verdict", "SPDK"]);
        table.add(["null".into(), String::new(), "-".into()]);
        table.add(["tmpfs".into(), String::new(), "485".into()]);
        let text = table.without_empty_columns().plain();
        assert_eq!(text, "disk   SPDK\nnull   -\ntmpfs  485\n");
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(&["disk", "k IOPS"]);
        table.add(["null".into(), "3".into()]);
        table.add(["memory".into(), "1 µ".into()]);
        assert_eq!(table.plain(), "disk    k IOPS\nnull    3\nmemory  1 µ\n");
        assert_eq!(
            table.markdown(),
            "| disk | k IOPS |\n| --- | --- |\n| null | 3 |\n| memory | 1 µ |\n"
        );
    }
}
