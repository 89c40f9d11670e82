//! The first screen of a comparison of kernels: one line per policy and kernel, the answer, the notes that change how these are to be
//! read, and the command that shows the rest.

use study::control::BARE;
use study::guest::Clock;
use study::metric::names;
use study_files::matrix::kernels::EMULATED;
use study_files::matrix::{Cell, Conclusion, Row};

use super::by_kernel::{counts_cleared_bytes, names_of};
use super::cells::word;
use super::{Report, answer, further, mail};
use crate::figure::{self, Change};
use crate::screen::table_of;
use crate::text::{fold, printable};

/// Maximum width of a sentence's line; longer lines are hard to read.
const MAX_SENTENCE: usize = 100;
/// Columns in addition to the primary metric: metric, heading, and a number. The columns with the highest number are
/// left out first.
const FURTHER: [(&str, &str, u8); 5] = [
    (names::KERNEL_INSTRUCTIONS, "in kernel", 6),
    (names::MINOR_FAULTS, "faults", 3),
    (names::LARGE_PAGE_BYTES, "in large", 2),
    (names::PEAK_RESIDENT_BYTES, "peak", 4),
    (names::PAGE_TABLE_SEEN_BYTES, "tables", 5),
];

/// The screen of a report. Its first matrix has a row per policy and a column per kernel; with a single kernel, a row per kernel and
/// a column per policy. `full` is the command that shows everything.
pub fn screen(report: &Report<'_>, width: usize, full: &str) -> String {
    let sentence = |text: &str| fold(&printable(text), width.min(MAX_SENTENCE), 2);
    let (table, left_out) = table(report, width);
    let mut text = sentence(&report.definition.question) + "\n\n" + &table + "\n";
    let rows = &report.matrix.rows;
    // The limits of figures that depend on the emulator's clock are long; on the screen one line replaces them.
    let of_clocks = [Clock::Instructions, Clock::Nothing].map(Clock::limits);
    let limits = further::limits(rows);
    let notes = limits.iter().map(|(_, note, _)| *note).filter(|note| !of_clocks.contains(&Some(note)));
    let notes = notes.map(|note| format!("note: {note}"));
    let is_emulated = rows.iter().any(|row| row.is_emulated);
    let cleared = if counts_cleared_bytes(report) {
        "; each byte that is cleared counts as an instruction, so zeroing weighs more than on a processor"
    } else {
        ""
    };
    let emulated = is_emulated.then(|| format!("note: no figure is a time, because the guests are emulated{cleared}"));
    let has_bare = rows.iter().any(|row| row.workload.ends_with(&format!(" under {BARE}")));
    let bare =
        has_bare.then(|| "note: bare is the program without the tracer, whose stops cost something too".to_owned());
    let summed = rows.iter().any(|row| row.cells.iter().any(|cell| cell.medians.contains_key(names::LARGE_PAGE_BYTES)));
    let summed = summed.then(|| "note: in large: all memory of the run that was in large pages, freed memory included; tables: of all processes together".to_owned());
    let notes = notes.chain(bare).chain(summed).chain(emulated);
    let sentences = std::iter::once(answer(report)).chain(pages(rows)).chain(notes);
    let columns = if left_out.is_empty() { String::new() } else { format!(" ({} too)", left_out.join(", ")) };
    let last = format!("all figures{columns}, and what limits them: {full}");
    sentences.chain([last]).for_each(|one| text.push_str(&format!("\n{}", sentence(&one))));
    text + "\n"
}

/// The table, and the titles of the columns for which there is no room.
fn table(report: &Report<'_>, width: usize) -> (String, Vec<String>) {
    let metric = report.matrix.rows.first().map_or(names::WALL_S, |row| &row.metric);
    let interval = format!("{} interval", figure::confidence(0.95));
    let title = figure::title(metric);
    let further = FURTHER.map(|(name, heading, dispensable)| (if name == metric { "" } else { heading }, dispensable));
    let [kernel, faults, large, memory, tables] = further;
    let headings = [
        ("policy", 0),
        ("kernel", 0),
        (title.as_str(), 1),
        ("change", 0),
        (interval.as_str(), 3),
        kernel,
        faults,
        large,
        memory,
        tables,
        ("outcome", 0),
    ];
    let mut lines: Vec<[String; 11]> = Vec::new();
    for row in &report.matrix.rows {
        // The baseline is shown first; in the report it may be any kernel or policy.
        let (old, new): (Vec<&Cell>, Vec<&Cell>) =
            row.cells.iter().partition(|cell| cell.conclusion == Conclusion::Baseline);
        lines.extend(old.into_iter().chain(new).map(|cell| line(names_of(report, row, cell), row, cell)));
    }
    table_of(headings, &lines, width)
}

fn line((policy, kernel): (&str, &str), row: &Row, cell: &Cell) -> [String; 11] {
    let value = |name: &str| {
        let value = cell.medians.get(name);
        value.map_or_else(String::new, |value| figure::short(*value, figure::metric(&[], name).unit))
    };
    let effect = cell.effects.get(&row.metric).filter(|_| cell.conclusion != Conclusion::Baseline);
    let change = effect.map(Change::of);
    let [kernel_part, faults, large, memory, tables] =
        FURTHER.map(|(name, ..)| if name == row.metric { String::new() } else { value(name) });
    [
        policy.to_owned(),
        kernel.strip_suffix(EMULATED).unwrap_or(kernel).to_owned(),
        value(&row.metric),
        change.map(|change| change.estimate()).unwrap_or_default(),
        change.and_then(|change| change.range()).unwrap_or_default(),
        kernel_part,
        faults,
        large,
        memory,
        tables,
        match &cell.conclusion {
            Conclusion::None { .. } => "no figure".to_owned(),
            conclusion => word(conclusion).to_owned(),
        },
    ]
}

/// Why a policy has no figure on a kernel, or did not get its pages there.
fn pages(rows: &[Row]) -> Vec<String> {
    let of_row = |row: &Row| {
        let cells = row.cells.iter().filter_map(|cell| Some((cell, mail::why_not(cell)?)));
        cells.map(|(cell, why)| format!("{} on {}: {why}", row.workload, cell.policy)).collect::<Vec<_>>()
    };
    rows.iter().flat_map(of_row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::sample::with_large_report;

    #[test]
    fn a_kernel_has_one_line_per_policy() {
        with_large_report(|report| {
            let over_boots = report.over_boots.unwrap();
            let shown = Report { matrix: over_boots, over_boots: None, ..report.clone() };
            for width in [80, 120] {
                let text = screen(&shown, width, "pagelab show 1 2 --full");
                let lines: Vec<&str> = text.lines().skip_while(|line| !line.is_empty()).skip(1).collect();
                let table: Vec<&&str> = lines[1..].iter().take_while(|line| !line.is_empty()).collect();
                assert_eq!(table.len(), 2 * over_boots.rows.len(), "{text}");
                assert!(table[0].contains("base-4k") && table[0].ends_with("baseline"), "{text}");
                assert!(table[1].contains("base-64k") && table[1].contains('%'), "{text}");
                assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
                assert!(
                    text.contains("note: the baseline drifted") && text.contains("pagelab show 1 2 --full"),
                    "{text}"
                );
            }
        });
    }

    #[test]
    fn with_one_kernel_its_policies_are_compared() {
        with_large_report(|report| {
            let shown = Report { over_boots: None, ..report.clone() };
            let text = screen(&shown, 160, "pagelab show 1 --full");
            let line = text.lines().find(|line| line.starts_with("thp ")).unwrap();
            assert!(line.contains("base-4k") && line.contains("better"), "{text}");
        });
    }
}
