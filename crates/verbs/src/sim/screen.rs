//! The first screen of `sim`: one line per policy, the result in a sentence, and what was special about this trace.

use model::machine::Machine;
use model::simulation::Outcome;
use policy::size::format_bytes;
use policy::verdict::Holding;
use results::answer::Answer;
use results::fold;
use results::screen::table_of;
use results::simulation::{Per, rate_in_words, verdict_in_words};

use super::cost::{answers_of, cost};
use super::notes::Notes;
use super::report::{STOPPED, causes, over_layouts, subject};
use super::simulated::{Cell, Simulated};
use super::swept;
use crate::table::describe::{count, grouped};

/// A table for each machine, its result, and the notes of this trace.
pub fn text(simulated: &Simulated, used: &[Machine], width: usize) -> String {
    let ran: Vec<&Outcome> = simulated.cells.iter().filter_map(Cell::outcome).collect();
    let mut lines: Vec<String> = subject(simulated, &ran).into_iter().collect();
    let answers = answers_of(simulated, used);
    for outcomes in ran.chunk_by(|one, other| one.machine == other.machine) {
        let Some(first) = outcomes.first() else { continue };
        let answer = answers.iter().find(|answer| answer.machine == first.machine);
        lines.push(String::new());
        lines.push(fold(&caption(first, answer), width, 0));
        let rows: Vec<[String; 9]> = outcomes.iter().map(|outcome| row(outcome, answer)).collect();
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
    let in_part: Vec<&Outcome> =
        ran.iter().copied().filter(|outcome| outcome.verdict.holding != Holding::Held).collect();
    let shown_causes = causes(&in_part, 1);
    lines.extend(shown_causes.iter().map(|line| fold(line, width, 2)));
    let notes = Notes::of(simulated);
    lines.extend(notes.of_this_trace.iter().map(|note| fold(note, width, 2)));
    let hidden = notes.of_the_model.len() + causes(&ran, 2).len() - shown_causes.len();
    if !ran.is_empty() {
        lines.push(format!("{} and all figures: --full", count(hidden as u64, "note")));
    }
    lines.join("\n")
}

/// The columns, and the order in which a narrow terminal loses them.
const HEADINGS: [(&str, u8); 9] = [
    ("policy", 0),
    ("pages", 2),
    ("walks", 3),
    ("translation", 1),
    ("share", 0),
    ("faults", 4),
    ("kernel", 2),
    ("memory", 1),
    ("tables", 5),
];

/// The machine, and the units of the columns.
fn caption(outcome: &Outcome, answer: Option<&Answer>) -> String {
    let unit = Per::of(outcome.instructions, outcome.runs).unit();
    let has_share = answer.is_some_and(|answer| answer.time_cycles.is_some());
    let share = if has_share { "; share: translation's of the program's time" } else { "" };
    format!("{}, modelled; translation and kernel in cycles per 1000 {unit}{share}", outcome.machine)
}

fn row(outcome: &Outcome, answer: Option<&Answer>) -> [String; 9] {
    let mut row = [const { String::new() }; 9];
    row[0] = outcome.policy.to_string();
    if !outcome.is_whole() {
        row[1] = STOPPED.to_owned();
        return row;
    }
    let cost = cost(outcome);
    let rate = |count: u64| rate_in_words(cost.per.rate(count));
    [
        outcome.policy.to_string(),
        verdict_in_words(&cost.verdict),
        grouped(cost.walks),
        rate(cost.most_lost_cycles),
        answer.map_or(String::new(), |answer| answer.share_in_words(cost.most_lost_cycles)),
        grouped(cost.faults),
        cost.kernel.map_or("?".to_owned(), |kernel| rate(kernel.total())),
        format_bytes(cost.resident_peak_bytes),
        format_bytes(cost.table_peak_bytes),
    ]
}
