//! A row of the truth table ([`Row`]): the cells of a program under the policies, stored in a file, and printed.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::judge::{Cell, FIGURES, Figure};

/// A policy, and the cells of a program under it or why there are none.
pub type Column = (String, Result<Vec<(Figure, Cell)>, String>);

/// A program of the table, and its cells or why it has none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub program: String,
    /// The kind of program.
    pub kind: String,
    /// The kernel and the commit with which the program was measured. If either has changed, it is measured again.
    pub made_with: (String, String),
    /// For each policy, the cells or why there are none.
    pub policies: Vec<Column>,
    /// What could not be made equal on both sides, if anything.
    pub differs: Option<String>,
}

impl Row {
    /// The row of a program that could not be measured.
    pub fn without(program: &str, kind: &str, made_with: &(String, String), policies: &[&str], why: &str) -> Row {
        let policies = policies.iter().map(|policy| ((*policy).to_owned(), Err(why.to_owned())));
        Row {
            program: program.to_owned(),
            kind: kind.to_owned(),
            made_with: made_with.clone(),
            policies: policies.collect(),
            differs: None,
        }
    }

    /// The cells, each with its policy, and with whether both sides agree.
    pub fn cells(&self) -> impl Iterator<Item = (&str, Figure, bool)> {
        let cells = self.policies.iter().filter_map(|(policy, cells)| Some((policy, cells.as_ref().ok()?)));
        cells.flat_map(|(policy, cells)| {
            cells.iter().map(|(figure, cell)| (policy.as_str(), *figure, cell.agrees(*figure)))
        })
    }

    /// Why there are no cells under any policy.
    pub fn missing(&self) -> Option<&str> {
        let (_, first) = self.policies.first()?;
        let is_same = self.policies.iter().all(|(_, cells)| cells == first);
        first.as_ref().err().filter(|_| is_same).map(String::as_str)
    }

    /// The lines of the Markdown table.
    pub fn lines(&self) -> String {
        if let Some(why) = self.missing() {
            return format!("| {} ({}) |  | {why}{}|\n", self.program, self.kind, " | ".repeat(FIGURES.len() * 2 - 1));
        }
        let mut lines = String::new();
        for (number, (policy, cells)) in self.policies.iter().enumerate() {
            let name = if number == 0 { format!("{} ({})", self.program, self.kind) } else { String::new() };
            let cells = match cells {
                Ok(cells) => cells.iter().map(|(figure, cell)| shown(*figure, cell)).collect::<Vec<_>>().join(" | "),
                Err(why) => format!("{why}{}", " | ".repeat(FIGURES.len() * 2 - 1)),
            };
            lines += &format!("| {name} | `{policy}` | {cells} |\n");
        }
        lines
    }

    /// Stores the row.
    pub fn keep(&self, directory: &Path) -> Result<(), String> {
        let text = serde_json::to_string(self).map_err(|error| error.to_string())?;
        let written = fs::create_dir_all(directory).and_then(|()| fs::write(file(directory, &self.program), text));
        written.map_err(|error| format!("cannot store a row in {}: {error}", directory.display()))
    }

    /// The stored row of a program.
    pub fn kept(directory: &Path, program: &str) -> Option<Row> {
        serde_json::from_str(&fs::read_to_string(file(directory, program)).ok()?).ok()
    }
}

fn file(directory: &Path, program: &str) -> PathBuf {
    directory.join(format!("{program}.json"))
}

/// The head of the table.
pub fn head() -> String {
    let names =
        ["faults measured", "simulated", "bytes of the policy's size", "simulated", "bytes concerned", "simulated"];
    let names = [&names[..], &["tables", "simulated", "verdict", "simulated"]].concat();
    format!("| program | policy | {} |\n|{}\n", names.join(" | "), "---|".repeat(names.len() + 2))
}

/// A cell of the truth table as two cells in Markdown: measured and simulated. They are bold if they do not agree.
fn shown(figure: Figure, cell: &Cell) -> String {
    let (measured, simulated) = match cell {
        Cell::Number { measured, simulated } => (measured.to_string(), simulated.to_string()),
        Cell::Word { measured, simulated } => (measured.join(" or "), simulated.clone()),
    };
    if cell.agrees(figure) { format!("{measured} | {simulated}") } else { format!("**{measured}** | **{simulated}**") }
}

#[cfg(test)]
mod tests {
    use super::super::judge::Spread;
    use super::*;

    #[test]
    fn a_difference_is_bold_and_counted() {
        let measured = Spread { median: 100.0, least: 99.0, most: 101.0 };
        let cell = |all| Cell::Number { measured, simulated: Spread::of([all]) };
        let row = Row {
            policies: vec![
                ("base".into(), Ok(vec![(Figure::Faults, cell(104.0)), (Figure::TableBytes, cell(120.0))])),
                ("thp".into(), Err("unsupported: no THP".into())),
            ],
            ..Row::without("a", "C", &("Linux".into(), "1".into()), &[], "")
        };
        let lines = row.lines();
        assert!(
            lines.starts_with("| a (C) | `base` | 100 (99 to 101) | 104 | **100 (99 to 101)** | **120** |\n"),
            "{lines}"
        );
        assert!(lines.contains("|  | `thp` | unsupported: no THP |"), "{lines}");
        assert_eq!(row.cells().map(|(_, _, agrees)| agrees).collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn a_row_that_is_kept_comes_back() {
        let directory = std::env::temp_dir().join(format!("truth-rows-{}", std::process::id()));
        let row = Row::without("a", "C", &("Linux".into(), "1".into()), &["base"], "skipped: needs a");
        row.keep(&directory).unwrap();
        assert_eq!(Row::kept(&directory, "a"), Some(row.clone()));
        assert_eq!(row.missing(), Some("skipped: needs a"));
        assert_eq!(row.lines().lines().count(), 1);
        assert_eq!(Row::kept(&directory, "b"), None);
        fs::remove_dir_all(directory).unwrap();
    }
}
