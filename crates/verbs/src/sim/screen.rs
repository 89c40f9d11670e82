//! The default output of `sim`: a table with a row per policy, the result in a sentence, and notes on this trace.

use model::machine::Machine;
use model::simulation::Outcome;
use policy::size::format_bytes;
use policy::verdict::Holding;
use results::answer::Answer;
use results::fold;
use results::screen::table_of;
use results::simulation as shown;
use results::simulation::{Missing, Per, rate_in_words, verdict_in_words};

use super::cost::{answers_of, typical_cells};
use super::notes::{Notes, has_one_of_many_layouts};
use super::report::{STOPPED, causes, over_layouts, subject};
use super::simulated::{Cell, Layouts, Simulated};
use super::swept;
use crate::table::describe::{count, grouped};

/// A table for each machine, then the result for each machine, and the notes on this trace.
pub fn text(simulated: &Simulated, used: &[Machine], width: usize) -> String {
    let ran: Vec<&Outcome> = simulated.cells.iter().filter_map(Cell::outcome).collect();
    let mut lines: Vec<String> = subject(simulated, &ran).into_iter().collect();
    let (answers, cells) = (answers_of(simulated, used), typical_cells(simulated));
    for outcomes in ran.chunk_by(|one, other| one.machine == other.machine) {
        let Some(first) = outcomes.first() else { continue };
        let answer = answers.iter().find(|answer| answer.machine == first.machine);
        lines.push(String::new());
        lines.push(fold(&caption(first, answer, simulated.layouts.as_ref()), width, 0));
        let own = cells.iter().filter(|cell| cell.machine == first.machine);
        let rows: Vec<[String; 10]> = own.filter_map(|cell| row(cell, answer)).collect();
        lines.push(table_of(HEADINGS, &rows, width).0);
        lines.extend(simulated.layouts.as_ref().and_then(|layouts| over_layouts(&first.machine, layouts, width)));
    }
    if let Some(swept) = &simulated.swept {
        lines.push(format!("\n{}", swept::curves_text(&swept.sweep, width)));
    }
    if !lines.is_empty() {
        lines.push(String::new());
    }
    lines.extend(answers.iter().map(|answer| fold(&answer.sentence, width, 2)));
    let shown_causes = causes(&ran, |outcome| outcome.verdict.holding != Holding::Held);
    lines.extend(shown_causes.iter().map(|line| fold(line, width, 2)));
    let notes = Notes::of(simulated);
    lines.extend(notes.of_this_trace.iter().map(|note| fold(note, width, 2)));
    let hidden = notes.of_the_model.len() + causes(&ran, |_| true).len() - shown_causes.len();
    if !ran.is_empty() {
        lines.push(fold(&more_options(simulated, &ran, hidden as u64), width, 2));
    }
    lines.join("\n")
}

/// The options that show more.
fn more_options(simulated: &Simulated, ran: &[&Outcome], hidden_notes: u64) -> String {
    let is_partly_large = |outcome: &&Outcome| {
        outcome.is_whole() && outcome.page_bytes > outcome.base_bytes && outcome.verdict.holding == Holding::Partly
    };
    let can_differ = simulated.layouts.is_none() && has_one_of_many_layouts(simulated);
    let layouts = if can_differ && ran.iter().any(is_partly_large) {
        "; --layouts 10 shows how far other address layouts differ"
    } else {
        ""
    };
    format!("{} and more figures: --full; every count: --json{layouts}", count(hidden_notes, "note"))
}

/// Column headings, each with a number. On a narrow terminal, the columns with the highest numbers are left out first;
/// those with 0 always stay.
const HEADINGS: [(&str, u8); 10] = [
    ("policy", 0),
    ("pages", 2),
    ("walks", 4),
    ("translation", 3),
    ("share", 0),
    ("faults", 5),
    ("kernel", 3),
    ("time", 0),
    ("memory", 1),
    ("tables", 6),
];

/// The caption of a table: the machine, and the units of the columns.
fn caption(outcome: &Outcome, answer: Option<&Answer>, layouts: Option<&Layouts>) -> String {
    let unit = Per::of(outcome.instructions, outcome.runs).unit();
    let medians =
        layouts.map_or(String::new(), |layouts| format!(", medians over {} layouts of addresses", layouts.count));
    let has_share = answer.is_some_and(|answer| answer.time_cycles.is_some());
    let share = if has_share {
        "; share: the part of the program's time that translation takes at most; time: the change of that time at most, with the \
         kernel's work at faults"
    } else {
        ""
    };
    format!(
        "{}, modelled{medians}; walks and faults are counts; translation and kernel are cycles per 1000 {unit}{share}",
        outcome.machine
    )
}

/// The figures of a policy; `None` for a policy that the machine does not support.
fn row(cell: &shown::Cell, answer: Option<&Answer>) -> Option<[String; 10]> {
    let mut row = [const { String::new() }; 10];
    row[0].clone_from(&cell.policy);
    let cost = match &cell.outcome {
        Ok(cost) => cost,
        Err(Missing::Stopped(_)) => {
            row[1] = STOPPED.to_owned();
            return Some(row);
        }
        Err(Missing::Refused(_)) => return None,
    };
    let rate = |count: u64| rate_in_words(cost.per.rate(count));
    let [_, pages, walks, translation, share, faults, kernel, time, memory, tables] = &mut row;
    *pages = verdict_in_words(cost);
    *walks = grouped(cost.walks);
    *translation = rate(cost.max_lost_cycles);
    *share = answer.map_or(String::new(), |answer| answer.share_in_words(cost.max_lost_cycles));
    *faults = grouped(cost.faults);
    *kernel = cost.kernel.map_or("?".to_owned(), |kernel| rate(kernel.total()));
    *time = answer.map_or(String::new(), |answer| answer.change_in_words(&cell.policy));
    *memory = format_bytes(cost.resident_peak_bytes);
    *tables = format_bytes(cost.table_peak_bytes);
    Some(row)
}
