//! The table of guests and checks ([`Row`]). The last result of each guest is stored with its date in `docs/evidence/guests.json`,
//! and shown in `docs/evidence/guests.md`.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::check::{CHECKS, Outcome};

/// The stored file, and the page made from it.
const FILES: [&str; 2] = ["docs/evidence/guests.json", "docs/evidence/guests.md"];

/// The results of one guest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub guest: String,
    /// The package of its kernel, with its version.
    pub kernel: String,
    pub emulator: String,
    /// The commit that was checked.
    pub commit: String,
    /// The date in ISO 8601 format.
    pub date: String,
    /// The result of each check.
    pub outcomes: Vec<(String, Outcome)>,
}

/// Replaces the guest's previous row, and writes the page with the rows in the order of the guests.
pub fn keep(root: &Path, row: Row, order: &[String]) -> Result<(), String> {
    let [kept, shown] = FILES.map(|name| root.join(name));
    let mut rows: Vec<Row> = match fs::read_to_string(&kept) {
        Ok(text) => serde_json::from_str(&text).map_err(|error| format!("{}: {error}", kept.display()))?,
        Err(_) => Vec::new(),
    };
    rows.retain(|one| one.guest != row.guest);
    rows.push(row);
    rows.sort_by_key(|row| order.iter().position(|name| *name == row.guest));
    let text = serde_json::to_string_pretty(&rows).map_err(|error| error.to_string())? + "\n";
    // The message of a failure may contain a path in the user's home directory, which is replaced.
    let home = std::env::var("HOME").ok().filter(|home| home.len() > 1);
    let write = |path: &Path, text: &str| {
        let text = home.as_deref().map_or_else(|| text.to_owned(), |home| text.replace(home, "~"));
        fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
    };
    write(&kept, &text)?;
    write(&shown, &markdown(&rows))
}

fn markdown(rows: &[Row]) -> String {
    let mut text =
        "# Kernels and architectures\n\nWhat holds on which kernel, as `cargo xtask guests` saw it last; the command writes this file. \
                    The kernels are Debian's, or built from its source with a small configuration (`linux-source`). They run in QEMU's \
                    emulation of a processor.\n\n"
            .to_owned();
    let names: Vec<&str> = CHECKS.iter().map(|check| check.name).collect();
    let _ = writeln!(text, "| guest | kernel | {} | seen |", names.join(" | "));
    let _ = writeln!(text, "|---|---|{}---|", "---|".repeat(names.len()));
    for row in rows {
        let of =
            |name: &str| row.outcomes.iter().find(|(check, _)| check == name).map_or("not run", |(_, seen)| word(seen));
        let cells: Vec<&str> = names.iter().map(|name| of(name)).collect();
        let kernel = row.kernel.replace('_', " ");
        let _ = writeln!(text, "| {} | {kernel} | {} | {} |", row.guest, cells.join(" | "), row.date);
    }
    let _ = writeln!(text, "\n| check | what it finds out |\n|---|---|");
    for check in &CHECKS {
        let _ = writeln!(text, "| {} | {} |", check.name, check.title);
    }
    for row in rows {
        let _ = writeln!(text, "\n## {}\n\n{}, {}, commit {}\n", row.guest, row.date, row.emulator, row.commit);
        for (check, outcome) in &row.outcomes {
            let _ = writeln!(text, "* {check} {}", outcome.to_string().replace(['|', '\n'], " "));
        }
    }
    text
}

/// An outcome as one word.
fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Held { needs, .. } if needs.is_empty() => "held",
        Outcome::Held { .. } => "held in part",
        Outcome::Failed(_) => "**failed**",
        Outcome::Skipped(_) => "skipped",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::tests::Scratch;

    fn row(guest: &str, outcome: Outcome) -> Row {
        Row {
            guest: guest.into(),
            kernel: "linux_1_arm64".into(),
            emulator: "QEMU 7".into(),
            commit: "abc".into(),
            date: "2026-01-02".into(),
            outcomes: vec![("policies".into(), outcome)],
        }
    }

    #[test]
    fn the_last_result_of_a_guest_takes_the_place_of_the_one_before() {
        let scratch = Scratch::new("table");
        fs::create_dir_all(scratch.0.join("docs/evidence")).unwrap();
        let order = ["a".to_owned(), "b".to_owned()];
        let held = Outcome::Held { seen: "5 | x".into(), needs: vec![] };
        for row in [row("b", Outcome::Failed("w".into())), row("a", held.clone()), row("b", held)] {
            keep(&scratch.0, row, &order).unwrap();
        }
        let shown = fs::read_to_string(scratch.0.join("docs/evidence/guests.md")).unwrap();
        assert!(
            shown.contains("| a | linux 1 arm64 | held | not run |") && shown.contains("* policies held: 5   x\n"),
            "{shown}"
        );
        assert!(shown.find("\n| a |") < shown.find("\n| b |") && !shown.contains("**failed**"), "{shown}");
        fs::write(scratch.0.join("docs/evidence/guests.json"), "no").unwrap();
        assert!(keep(&scratch.0, row("a", Outcome::Skipped("x".into())), &order).unwrap_err().contains("guests.json"));
    }
}
