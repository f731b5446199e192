//! Tables for people.

use std::fmt::Write;

/// On which side of a column its cells are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// `rows` below their `heads`, two spaces apart.
pub fn table<const N: usize>(heads: [(&str, Align); N], rows: &[[String; N]]) -> String {
    let widths: [usize; N] = std::array::from_fn(|at| {
        let cells = rows.iter().map(|row| row[at].chars().count());
        cells.max().unwrap_or(0).max(heads[at].0.len())
    });
    let mut text = String::new();
    let heading = heads.map(|(name, _)| name.to_owned());
    for row in std::iter::once(&heading).chain(rows) {
        let mut line = String::new();
        for ((cell, width), (_, align)) in row.iter().zip(widths).zip(heads) {
            let written = match align {
                Align::Left => write!(line, "{cell:<width$}  "),
                Align::Right => write!(line, "{cell:>width$}  "),
            };
            written.expect("a string takes all");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [
            ["a", "1"].map(str::to_owned),
            ["longer", "1000"].map(str::to_owned),
        ];
        let text = table([("DISK", Align::Left), ("N", Align::Right)], &rows);
        assert_eq!(text, "DISK       N\na          1\nlonger  1000\n");
    }
}
