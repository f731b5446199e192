//! The first lines of the file: what a reader wants to know, before any table.

use super::{Outcome, Results, Section};

/// So many rows are named at most.
const NAMED: usize = 4;

/// Nothing where no servers were compared.
pub fn text(results: &Results) -> String {
    if results.sections.is_empty() {
        return String::new();
    }
    let mut text = match &results.setting.servers[..] {
        [(ours, _), (peer, _), ..] => format!("- *ours* is `{ours}`, and *peer* is `{peer}`.\n"),
        _ => String::new(),
    };
    text.push_str(
        "- A ratio above 1 is a row in which the first side is faster. Compare ratios, not IOPS: this is one machine.\n",
    );
    for section in &results.sections {
        let outcomes = &section.outcomes;
        let won = outcomes.iter().filter(|one| one.is_won()).count();
        let open: Vec<_> = outcomes.iter().flat_map(Outcome::not_won).collect();
        text.push_str(&line(section, won, &open));
    }
    text.push_str(
        "- Each section has two tables: speed and latency, then what a request costs in processor time, kicks, calls \
         and\n  sleeps. What the columns mean is at the end, [How to read this](#how-to-read-this).\n\n",
    );
    if let Some(plot) = results.beside() {
        text.push_str(&plot.markdown());
        text.push('\n');
    }
    text
}

/// In how many cells the first side makes more, and where not.
fn line(section: &Section, won: usize, open: &[String]) -> String {
    let ([one, other], all) = (section.sides, section.outcomes.len());
    let mut named = open.iter().take(NAMED).cloned().collect::<Vec<_>>();
    if open.len() > NAMED {
        named.push(format!("and {} more", open.len() - NAMED));
    }
    let mut text = format!(
        "- *{}*: {one} makes more requests than {other} in {won} of {all} cells.",
        section.title
    );
    if !named.is_empty() {
        text = format!("{text} Not in\n  {}.", named.join(",\n  "));
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_won_is_named_as_far_as_ten_lines_allow() {
        let section = Section {
            title: "Files",
            sides: ["ours", "peer"],
            outcomes: vec![],
        };
        assert_eq!(
            line(&section, 0, &[]),
            "- *Files*: ours makes more requests than peer in 0 of 0 cells.\n"
        );
        let open: Vec<_> = (0..8).map(|row| format!("row {row}")).collect();
        let text = line(&section, 0, &open);
        assert!(text.ends_with("row 3,\n  and 4 more.\n"), "{text}");
        assert!(text.contains("Not in\n  row 0,\n"), "{text}");
    }
}
