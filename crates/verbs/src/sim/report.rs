//! Formats the outcomes of a simulation with all figures: as tables for the terminal, and as JSON.

use model::machine::Machine;
use model::replay::Unrecorded;
use model::simulation::Outcome;
use policy::cause::CauseShare;
use policy::size::format_bytes;
use policy::verdict::AnsweredCall;
use results::answer::Answer;
use results::fold;
use results::grid::plain;
use results::simulation::{FigureSpread, Per, RELINKED, Spread, mapped_in_words, rate_in_words, verdict_in_words};
use serde_json::{Value, json};

use super::cost::{answers_of, cost};
use super::notes::Notes;
use super::simulated::{Cell, Layouts, Simulated};
use super::{run_time, swept};
use crate::table::describe::count;

/// The tables of a trace, grouped by machine, and its result.
pub fn text(simulated: &Simulated, used: &[Machine], width: usize) -> String {
    let mut lines = Vec::new();
    let ran: Vec<&Outcome> = simulated.cells.iter().filter_map(Cell::outcome).collect();
    lines.extend(subject(simulated, &ran));
    for outcomes in ran.chunk_by(|one, other| one.machine == other.machine) {
        let name = outcomes.first().map_or("", |outcome| &outcome.machine);
        let per = outcomes.first().map_or("runs", |outcome| Per::of(outcome.instructions, outcome.runs).unit());
        let captioned = |caption: String, table: String| format!("\n{}\n{table}", fold(&caption, width, 0));
        lines.push(captioned(
            format!(
                "{name}, modelled: TLB misses, walks, entries that they read, and cycles lost to them (one walk at a time), all per \
                 1000 {per}"
            ),
            translation(outcomes, width),
        ));
        lines.push(captioned(
            "page faults; memory and page tables at their peaks (unmapped: held but not mapped); what maps memory at the end"
                .to_owned(),
            memory(outcomes, width),
        ));
        let in_kernel = kernel(outcomes, width);
        lines.extend(
            in_kernel.map(|table| {
                captioned(format!("cycles per 1000 {per}: of translation, of the kernel at faults"), table)
            }),
        );
        lines.extend(simulated.layouts.as_ref().and_then(|layouts| over_layouts(name, layouts, width)));
    }
    lines.extend(simulated.cells.iter().filter_map(refused).map(|line| fold(&line, width, 2)));
    let reasons = causes(&ran, |_| true).into_iter().chain(answered(&ran));
    lines.extend(reasons.map(|line| fold(&line, width, 2)));
    lines.extend(Notes::of(simulated).all().iter().map(|note| fold(note, width, 2)));
    if let Some(swept) = &simulated.swept {
        lines.push(format!("\n{}", swept::curves_text(&swept.sweep, width)));
    }
    lines.push(String::new());
    lines.extend(answers_of(simulated, used).iter().map(|answer| fold(&answer.sentence, width, 2)));
    lines.join("\n")
}

/// `sort.trace: 193769038 instructions, 302272469 accesses, 1 thread`
pub fn subject(simulated: &Simulated, ran: &[&Outcome]) -> Option<String> {
    // If any outcome reached the end of the trace, it describes the whole trace.
    let first = ran.iter().find(|outcome| outcome.is_whole()).or(ran.first())?;
    let instructions = first.instructions.map_or("unknown".to_owned(), |count| count.to_string());
    let threads = count(first.threads as u64, "thread");
    Some(format!("{}: {instructions} instructions, {} accesses, {threads}", simulated.file, first.accesses))
}

/// Why a machine does not support a policy.
fn refused(cell: &Cell) -> Option<String> {
    match cell {
        Cell::Ran(_) => None,
        Cell::Refused(unsupported) => Some(unsupported.to_string()),
    }
}

/// How many causes of a policy are shown.
const SHOWN_CAUSES: usize = 2;

/// Why policies did not hold, with the largest causes of each of these outcomes. A cause that keeps the program from starting concerns
/// all policies with the same base pages, and gets one line.
pub fn causes(ran: &[&Outcome], is_shown: impl Fn(&Outcome) -> bool) -> Vec<String> {
    let of_outcome = |outcome: &Outcome| {
        if !is_shown(outcome) {
            return Vec::new();
        }
        let (named, hidden) = outcome.verdict.causes.split_at(SHOWN_CAUSES.min(outcome.verdict.causes.len()));
        let mut lines: Vec<Line> = named.iter().map(|share| cause(outcome, share)).collect();
        if let Some(last) = lines.last_mut() {
            last.text.push_str(&other_causes(hidden));
        }
        lines
    };
    by_machine(ran, of_outcome)
}

fn cause(outcome: &Outcome, share: &CauseShare) -> Line {
    let bytes = share.bytes.map(|bytes| format!("{}, ", format_bytes(bytes))).unwrap_or_default();
    let remedy = policy::remedy::of_cause(&share.cause).map(|remedy| format!("; {remedy}")).unwrap_or_default();
    let prevents_start = share.cause.prevents_start();
    let relinked = if prevents_start { format!("; {RELINKED}") } else { String::new() };
    Line {
        policy: (!prevents_start).then(|| outcome.policy.to_string()),
        text: format!("{bytes}{}{remedy}{relinked}", share.cause.describe()),
    }
}

/// `; and 2.1M with other causes: --json`; empty if nothing is left out.
fn other_causes(hidden: &[CauseShare]) -> String {
    match hidden.iter().filter_map(|share| share.bytes).sum::<u64>() {
        _ if hidden.is_empty() => String::new(),
        0 => "; and other causes: --json".to_owned(),
        bytes => format!("; and {} with other causes: --json", format_bytes(bytes)),
    }
}

/// Which calls the model answered itself, as the tracer does.
fn answered(ran: &[&Outcome]) -> Vec<String> {
    by_machine(ran, |outcome| {
        let answered = |one: &AnsweredCall| Line {
            policy: Some(outcome.policy.to_string()),
            text: format!("answered as the tracer does, not by the kernel: {} ({})", one.call, one.times),
        };
        outcome.verdict.answered.iter().map(answered).collect()
    })
}

/// A line about outcomes.
#[derive(PartialEq)]
struct Line {
    /// The policy that the line is about; `None` if it is about every policy with the same base pages.
    policy: Option<String>,
    text: String,
}

impl Line {
    /// `thp: TEXT`. If the line is not about all machines: `thp on cascade-lake, zen-3: TEXT` or `on cascade-lake, zen-3: TEXT`.
    fn of(self, machines: Option<&[&str]>) -> String {
        let on = machines.map(|machines| format!("on {}", machines.join(", ")));
        let subject: Vec<String> = self.policy.into_iter().chain(on).collect();
        if subject.is_empty() { self.text } else { format!("{}: {}", subject.join(" "), self.text) }
    }
}

/// Lines about outcomes. A line that is equal for several policies or machines is printed once.
fn by_machine(ran: &[&Outcome], lines_of: impl Fn(&Outcome) -> Vec<Line>) -> Vec<String> {
    let mut lines: Vec<(Line, Vec<&str>)> = Vec::new();
    for outcome in ran.iter().filter(|outcome| outcome.is_whole()) {
        for line in lines_of(outcome) {
            match lines.iter_mut().find(|(known, _)| *known == line) {
                Some((_, machines)) if machines.last() == Some(&outcome.machine.as_str()) => {}
                Some((_, machines)) => machines.push(&outcome.machine),
                None => lines.push((line, vec![&outcome.machine])),
            }
        }
    }
    let all = ran.chunk_by(|one, other| one.machine == other.machine).count();
    let text = |(line, machines): (Line, Vec<&str>)| line.of((machines.len() < all).then_some(&machines[..]));
    lines.into_iter().map(text).collect()
}

/// The text in place of a result for a simulation that did not reach the end of the trace.
pub const STOPPED: &str = "stopped early";

fn translation(outcomes: &[&Outcome], width: usize) -> String {
    let row = |outcome: &&Outcome| {
        if !outcome.is_whole() {
            let mut row = [const { String::new() }; 7];
            (row[0], row[1]) = (outcome.policy.to_string(), STOPPED.to_owned());
            return row;
        }
        let cost = cost(outcome);
        let rate = |count: u64| rate_in_words(cost.per.rate(count));
        [
            outcome.policy.to_string(),
            verdict_in_words(&cost),
            rate(cost.first_level_misses),
            rate(cost.second_level_misses),
            rate(cost.walks),
            rate(cost.walk_references),
            rate(cost.max_lost_cycles),
        ]
    };
    let header = ["policy", "pages", "L1 misses", "L2 misses", "walks", "reads", "cycles"];
    plain(header, outcomes.iter().map(row), width)
}

fn memory(outcomes: &[&Outcome], width: usize) -> String {
    let row = |outcome: &&Outcome| {
        if !outcome.is_whole() {
            let mut row = [const { String::new() }; 7];
            (row[0], row[6]) = (outcome.policy.to_string(), STOPPED.to_owned());
            return row;
        }
        let cost = cost(outcome);
        [
            outcome.policy.to_string(),
            cost.faults.to_string(),
            format_bytes(cost.resident_peak_bytes),
            format_bytes(cost.touched_peak_bytes),
            format_bytes(cost.held_unmapped_peak_bytes),
            format_bytes(cost.table_peak_bytes),
            mapped(&cost.mapped),
        ]
    };
    let header = ["policy", "faults", "resident", "touched", "unmapped", "tables", "mapped as"];
    plain(header, outcomes.iter().map(row), width)
}

/// Cycles spent in translation and in the kernel, if the machine file gives kernel costs.
fn kernel(outcomes: &[&Outcome], width: usize) -> Option<String> {
    outcomes.iter().find(|outcome| outcome.kernel_cycles.is_some())?;
    let row = |outcome: &&Outcome| {
        let mut row = [const { String::new() }; 6];
        row[0] = outcome.policy.to_string();
        let cost = cost(outcome);
        let Some(kernel) = cost.kernel.filter(|_| outcome.is_whole()) else {
            row[5] = STOPPED.to_owned();
            return row;
        };
        let all = kernel.total().saturating_add(cost.max_lost_cycles);
        let counts = [cost.max_lost_cycles, kernel.fault, kernel.zeroing, kernel.copying, all];
        for (cell, count) in row[1..].iter_mut().zip(counts) {
            *cell = rate_in_words(cost.per.rate(count));
        }
        row
    };
    let header = ["policy", "translation", "faults", "zeroing", "copying", "together"];
    Some(plain(header, outcomes.iter().map(row), width))
}

/// The spread of a machine's figures over layouts.
pub fn over_layouts(machine: &str, layouts: &Layouts, width: usize) -> Option<String> {
    let of_machine = layouts.spreads.iter().filter(|spread| spread.machine == *machine);
    let rows: Vec<[String; 6]> = of_machine.flat_map(Spread::shown).collect();
    let caption =
        format!("counts and bytes over {} randomised layouts of addresses, seed {}", layouts.count, layouts.seed);
    (!rows.is_empty()).then(|| format!("\n{caption}\n{}", plain(Spread::HEADER, rows, width)))
}

/// The leaves that map the memory at the end: shares by size.
fn mapped(mapped: &[results::simulation::Mapped]) -> String {
    let all: u64 = mapped.iter().map(|mapped| mapped.bytes).sum();
    let share = |bytes: u64| 100.0 * bytes as f64 / all.max(1) as f64;
    let shown = mapped.iter().map(|mapped| format!("{} {:.0} %", mapped_in_words(mapped), share(mapped.bytes)));
    let shown: Vec<String> = shown.collect();
    if shown.is_empty() { "nothing".to_owned() } else { shown.join(", ") }
}

/// One trace of the JSON document.
pub fn document(simulated: &Simulated, used: &[Machine]) -> Value {
    let cells: Vec<Value> = simulated
        .cells
        .iter()
        .map(|cell| match cell {
            Cell::Ran(outcome) => ran_document(outcome, simulated.replayed.is_complete()),
            Cell::Refused(unsupported) => json!({
                "machine": unsupported.machine,
                "policy": unsupported.policy,
                "unsupported": unsupported.reason,
            }),
        })
        .collect();
    let curves = simulated.swept.as_ref().map(|swept| swept::curves_document(&swept.sweep));
    json!({
        "file": simulated.file,
        "recorder": simulated.header.recorder,
        "emulator": simulated.header.emulator,
        "command": simulated.header.command,
        "arch": simulated.header.architecture,
        "memory_inferred": simulated.replayed.inferred,
        "cut_off": simulated.is_cut_off(),
        "cut_off_children": simulated.replayed.cut_off_children,
        "programs_executed": simulated.replayed.executed,
        "unrecorded_programs": simulated.replayed.unrecorded.iter().map(unrecorded).collect::<Vec<_>>(),
        "damage": simulated.damage(),
        "events_out_of_order": simulated.replayed.out_of_order,
        "notes": Notes::of(simulated).all(),
        "run_time": run_time::document(&simulated.time),
        "answers": answers_of(simulated, used).iter().map(answer_document).collect::<Vec<_>>(),
        "curves": curves,
        "layouts": simulated.layouts.as_ref().map(layouts),
        "simulations": cells,
    })
}

/// The spread over layouts as JSON.
fn layouts(layouts: &Layouts) -> Value {
    let spread = |spread: &Spread| {
        let figure = |of: &FigureSpread| {
            let FigureSpread { name, fixed, least, median, most } = of;
            json!({ "figure": name, "without_randomisation": fixed, "least": least, "median": median, "most": most })
        };
        json!({
            "machine": spread.machine,
            "policy": spread.policy,
            "layouts": spread.layouts,
            "figures": spread.figures.iter().map(figure).collect::<Vec<_>>(),
        })
    };
    json!({
        "layouts": layouts.count,
        "seed": layouts.seed,
        "spreads": layouts.spreads.iter().map(spread).collect::<Vec<_>>(),
    })
}

/// A program that was executed and has no trace, and how often it was executed.
fn unrecorded((Unrecorded { program, why }, times): (&Unrecorded, &u64)) -> Value {
    json!({ "program": program, "why": why, "times": times })
}

/// The result of a machine as JSON.
fn answer_document(answer: &Answer) -> Value {
    json!({
        "machine": answer.machine,
        "sentence": answer.sentence,
        "best": answer.best,
        "reference": answer.reference,
        "lost_cycles_ratio": answer.lost_ratio,
        "resident_peak_ratio": answer.resident_ratio,
        "best_with_kernel": answer.best_with_kernel,
        "translation_ratio": answer.shares.map(|shares| shares.translation),
        "best_translation_ratio": answer.shares.map(|shares| shares.best_translation),
        "kernel_ratio": answer.shares.and_then(|shares| shares.kernel),
        "page_size_matters": answer.shares.filter(|_| answer.reference.is_some()).map(|shares| shares.page_size_matters),
        "provenance": "modelled",
    })
}

fn ran_document(outcome: &Outcome, trace_is_complete: bool) -> Value {
    let mut document = json!(outcome);
    document["min_lost_cycles"] = json!(outcome.min_lost_cycles());
    document["max_lost_cycles"] = json!(outcome.max_lost_cycles());
    document["provenance"] = json!("modelled");
    document["complete"] = json!(outcome.is_whole() && trace_is_complete);
    if !outcome.is_whole() {
        // The counts so far stay in the document, but they are not a result.
        for answer in ["verdict", "left_out", "per_instruction", "per_run"] {
            document[answer] = Value::Null;
        }
        return document;
    }
    document["verdict"] = results::json::verdict(&outcome.verdict);
    document["per_instruction"] = json!(outcome.instructions.map(|count| rates(outcome, count)));
    document["per_run"] = rates(outcome, outcome.runs);
    document
}

/// Average costs per instruction or per run.
fn rates(outcome: &Outcome, of: u64) -> Value {
    let rate = |count: u64| count as f64 / of.max(1) as f64;
    json!({
        "accesses": rate(outcome.accesses),
        "first_level_misses": rate(outcome.first_level.total()),
        "second_level_misses": rate(outcome.second_level.total()),
        "walks": rate(outcome.walks),
        "walk_references": rate(outcome.walk_references),
        "walk_cycles": rate(outcome.walk_cycles),
        "min_lost_cycles": rate(outcome.min_lost_cycles()),
        "max_lost_cycles": rate(outcome.max_lost_cycles()),
        "faults": rate(outcome.faults),
        "kernel_cycles": outcome.kernel_cycles.map(|cycles| rate(cycles.total())),
    })
}

#[cfg(test)]
mod tests {
    use policy::cause::Cause;

    use super::*;

    #[test]
    fn causes_that_are_left_out_are_summed() {
        let share = |bytes| CauseShare { cause: Cause::NoAlignedSlot, bytes };
        let hidden = [share(Some(2 << 20)), share(None), share(Some(128 << 10))];
        assert_eq!(
            other_causes(&hidden),
            format!("; and {} with other causes: --json", format_bytes((2 << 20) + (128 << 10)))
        );
        assert_eq!(other_causes(&hidden[1..2]), "; and other causes: --json");
        assert_eq!(other_causes(&[]), "");
    }

    #[test]
    fn a_line_names_its_policy_and_its_machines() {
        let line = |policy: Option<&str>| Line { policy: policy.map(str::to_owned), text: "text".to_owned() };
        let some = Some(&["zen-3", "zen-4"][..]);
        assert_eq!([line(Some("thp")).of(None), line(None).of(None)], ["thp: text", "text"]);
        assert_eq!(
            [line(Some("thp")).of(some), line(None).of(some)],
            ["thp on zen-3, zen-4: text", "on zen-3, zen-4: text"]
        );
    }
}
