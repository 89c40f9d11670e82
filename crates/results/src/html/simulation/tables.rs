//! Tables of a simulation's page.

use crate::figure;
use crate::html::tables::{reason, wide};
use crate::simulation::{
    Cell, Cost, Machine, MachineAnswer, MachineFigure, Provenance, RELINKED, Spread, Sweep, Trace, rate_in_words,
    verdict_in_words,
};
use crate::text::escape;
use policy::size::format_bytes;
use policy::verdict::Holding;
use study::metric::Unit;

use super::parts::{costs, machines as by_machine, unit};

/// A list of names and values.
pub(super) fn facts(facts: &[(String, String)]) -> String {
    if facts.is_empty() {
        return String::new();
    }
    let fact = |(name, value): &(String, String)| format!("<dt>{}</dt><dd>{}</dd>\n", escape(name), escape(value));
    format!("<dl>\n{}</dl>\n", facts.iter().map(fact).collect::<String>())
}

/// Columns of the table of a machine's figures.
const KEYS: [&str; 4] = ["key", "value", "provenance", "source or reason"];

/// The headings of a table. Headings in `words` are of columns with text, all others of columns with figures.
fn heads(names: &[&str], words: &[&str]) -> String {
    let head = |name: &&str| {
        let class = if words.contains(name) { "" } else { " class=\"n\"" };
        format!("<th scope=\"col\"{class}>{}</th>", escape(name))
    };
    names.iter().map(head).collect()
}

fn number(text: &str) -> String {
    format!("<td class=\"n\">{}</td>", escape(text))
}

/// The cost of each policy on a machine.
pub(super) fn result(cells: &[Cell], answer: Option<&MachineAnswer>) -> String {
    let head = heads(
        &[
            "policy",
            "cycles lost",
            "share of time",
            "time",
            "pages",
            "L1 misses",
            "L2 misses",
            "walks",
            "entries read",
            "faults",
            "peak memory",
            "touched",
            "held, not mapped",
            "page tables",
        ],
        &["policy", "pages"],
    );
    let body: String = cells.iter().map(|cell| result_row(cell, answer)).collect();
    let caption = format!(
        "{}, modelled. Misses, walks, entries that walks read and cycles (one walk at a time) per 1000 {}; share of time: what \
         translation takes at most; time: its change at most, with the kernel's work at faults; memory at its peaks",
        cells[0].machine,
        unit(cells)
    );
    wide(&caption, &head, &body)
}

fn result_row(cell: &Cell, answer: Option<&MachineAnswer>) -> String {
    let name = format!("<th scope=\"row\" class=\"name\">{}</th>", escape(&cell.policy));
    let cost = match &cell.outcome {
        Ok(cost) => cost,
        Err(missing) => {
            let what =
                format!("<td></td><td></td><td></td><td><span class=\"tag void\">{}</span></td>", missing.label());
            let why = format!("<div class=\"prose\">{}</div>", escape(missing.why()));
            return format!("<tr>{name}{what}<td colspan=\"9\" class=\"note\">{why}</td></tr>\n");
        }
    };
    let bounds = answer.and_then(|answer| answer.bounds.iter().find(|[policy, ..]| *policy == cell.policy));
    let bounds = bounds.map_or_else(|| ["", ""], |[_, share, time]| [share.as_str(), time.as_str()]);
    let rate = |count: u64| number(&rate_in_words(cost.per.rate(count)));
    let bytes = |bytes: u64| number(&format_bytes(bytes));
    let rates = [cost.first_level_misses, cost.second_level_misses, cost.walks, cost.walk_references];
    let memory =
        [cost.resident_peak_bytes, cost.touched_peak_bytes, cost.held_unmapped_peak_bytes, cost.table_peak_bytes];
    format!(
        "<tr>{name}{}{}{}{}{}{}</tr>\n",
        rate(cost.max_lost_cycles),
        bounds.map(number).concat(),
        verdict(cost),
        rates.map(rate).concat(),
        number(&figure::long(cost.faults as f64, Unit::Count)),
        memory.map(bytes).concat()
    )
}

/// Cycles of translation and of the kernel under each policy of a machine. Only for machines whose file gives the
/// kernel's costs.
pub(super) fn kernel(cells: &[Cell]) -> String {
    let row = |(cell, cost): (&Cell, &Cost)| {
        let kernel = cost.kernel?;
        let all = kernel.total().saturating_add(cost.max_lost_cycles);
        let counts = [cost.max_lost_cycles, kernel.fault, kernel.zeroing, kernel.copying, all];
        let rates = counts.map(|count| number(&rate_in_words(cost.per.rate(count)))).concat();
        Some(format!("<tr><th scope=\"row\" class=\"name\">{}</th>{rates}</tr>\n", escape(&cell.policy)))
    };
    let body: String = costs(cells).filter_map(row).collect();
    if body.is_empty() {
        return String::new();
    }
    let caption = format!(
        "{}: cycles of translation and of the kernel per 1000 {}, modelled; Machines lists what a fault, zeroing and copying \
         cost, with the sources",
        cells[0].machine,
        unit(cells)
    );
    wide(&caption, &heads(&["policy", "translation", "faults", "zeroing", "copying", "together"], &["policy"]), &body)
}

fn verdict(cost: &Cost) -> String {
    let class = match cost.verdict.holding {
        Holding::Held => "good",
        Holding::Partly => "open",
        Holding::NotHeld => "bad",
        Holding::Unknown | Holding::NotAsked => "void",
    };
    format!("<td><span class=\"tag {class}\">{}</span></td>", escape(&verdict_in_words(cost)))
}

/// How figures vary over address space layouts.
pub(super) fn spreads(trace: &Trace) -> String {
    let of_cell = |spread: &Spread| -> String {
        let row = |[policy, figure, values @ ..]: [String; 6]| {
            let machine = if policy.is_empty() { "" } else { &spread.machine };
            format!(
                "<tr><th scope=\"row\" class=\"name\">{}</th><td class=\"name\">{}</td><td class=\"name\">{}</td>{}</tr>\n",
                escape(&policy),
                escape(machine),
                escape(&figure),
                values.iter().map(|value| number(value)).collect::<String>()
            )
        };
        spread.shown().into_iter().map(row).collect()
    };
    let body: String = trace.spreads.iter().map(of_cell).collect();
    let Some(layouts) = trace.spreads.iter().map(|spread| spread.layouts).min() else { return String::new() };
    let head = heads(
        &["policy", "machine", "figure", "not randomised", "least", "median", "most"],
        &["policy", "machine", "figure"],
    );
    wide(&format!("Over {layouts} layouts that Linux makes by randomisation, modelled; counts and bytes"), &head, &body)
}

/// Verdicts with their causes.
pub(super) fn verdicts(trace: &Trace) -> String {
    let row = |(cell, cost): (&Cell, &Cost)| {
        let causes: String = cost
            .verdict
            .causes
            .iter()
            .map(|share| {
                let relinked = if share.cause.prevents_start() { format!("; {RELINKED}") } else { String::new() };
                let what = share.cause.describe() + &relinked;
                reason(&what, share.bytes, policy::remedy::of_cause(&share.cause).as_deref())
            })
            .collect();
        let causes = if causes.is_empty() { String::new() } else { format!("<ul>{causes}</ul>") };
        format!(
            "<tr><th scope=\"row\" class=\"name\">{}</th><td class=\"name\">{}</td>{}{}{}<td>{causes}</td></tr>\n",
            escape(&cell.policy),
            escape(&cell.machine),
            verdict(cost),
            number(&format_bytes(cost.verdict.covered_bytes)),
            number(&format_bytes(cost.verdict.concerned_bytes)),
        )
    };
    let body: String = costs(&trace.cells).map(row).collect();
    if body.is_empty() {
        return String::new();
    }
    let head = "<th scope=\"col\">policy</th><th scope=\"col\">machine</th><th scope=\"col\">verdict</th>\
                <th scope=\"col\" class=\"n\">as asked</th><th scope=\"col\" class=\"n\">of</th><th scope=\"col\">causes</th>";
    wide(
        "Private anonymous memory and pages of pools, inspected before it is given back and at the end; held from 90 %, partly from 10 %",
        head,
        &body,
    )
}

/// Every count of every machine and policy, with its rate.
pub(super) fn figures(trace: &Trace) -> String {
    by_machine(trace).iter().map(|cells| all_of_machine(cells)).collect()
}

fn all_of_machine(cells: &[Cell]) -> String {
    let costs: Vec<(&Cell, &Cost)> = costs(cells).collect();
    let Some((first, cost)) = costs.first() else { return String::new() };
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in costs.iter().flat_map(|(_, cost)| &cost.figures) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let mut head = String::from("<th scope=\"col\">figure</th><th scope=\"col\">provenance</th>");
    for (cell, _) in &costs {
        head.push_str(&format!("<th scope=\"col\" class=\"n\">{}</th>", escape(&cell.policy)));
    }
    let row = |name: &&str| {
        let cells: String = costs.iter().map(|(_, cost)| figure_cell(cost, name)).collect();
        format!("<tr><th scope=\"row\"><code>{}</code></th><td>modelled</td>{cells}</tr>\n", escape(name))
    };
    let body: String = names.iter().map(row).collect();
    let caption = format!("{}: whole run; in small print per 1000 {}", first.machine, cost.per.unit());
    format!(
        "<details><summary>{}: {} figures</summary>\n{}</details>\n",
        escape(&first.machine),
        names.len(),
        wide(&caption, &head, &body)
    )
}

fn figure_cell(cost: &Cost, name: &str) -> String {
    let Some((_, count)) = cost.figures.iter().find(|(other, _)| other == name) else {
        return "<td class=\"n\"></td>".to_string();
    };
    if name.ends_with("_bytes") {
        return number(&format_bytes(*count));
    }
    format!(
        "<td class=\"n\">{}<small>{}</small></td>",
        escape(&figure::long(*count as f64, Unit::Count)),
        escape(&rate_in_words(cost.per.rate(*count)))
    )
}

/// Misses of every geometry as numbers.
pub(super) fn geometries(sweep: &Sweep) -> String {
    sweep.page_sizes().iter().map(|size| of_size(sweep, *size)).collect()
}

fn of_size(sweep: &Sweep, page_bytes: u64) -> String {
    let mut ways: Vec<u32> = sweep.of_size(page_bytes).map(|geometry| geometry.ways).collect();
    ways.sort_unstable();
    ways.dedup();
    let mut head = String::from("<th scope=\"col\" class=\"n\">sets</th>");
    for count in &ways {
        head.push_str(&format!(
            "<th scope=\"col\" class=\"n\">{count} {}</th>",
            if *count == 1 { "way" } else { "ways" }
        ));
    }
    let mut rows = std::collections::BTreeMap::<u32, String>::new();
    for geometry in sweep.of_size(page_bytes) {
        let cell = number(&rate_in_words(sweep.per.rate(geometry.misses)));
        rows.entry(geometry.sets).or_default().push_str(&cell);
    }
    let body: String = rows
        .iter()
        .map(|(sets, cells)| format!("<tr><th scope=\"row\" class=\"n\">{sets}</th>{cells}</tr>\n"))
        .collect();
    let size = format_bytes(page_bytes);
    let caption = format!("Pages of {size}: misses per 1000 {}, modelled", sweep.per.unit());
    format!("<details><summary>Numbers for pages of {size}</summary>\n{}</details>\n", wide(&caption, &head, &body))
}

/// Every number of every machine.
pub(super) fn machines(machines: &[Machine]) -> String {
    machines.iter().map(machine).collect()
}

fn machine(machine: &Machine) -> String {
    let assumed = machine.figures.iter().filter(|figure| matches!(figure.provenance, Provenance::Assumed(_))).count();
    let row = |figure: &MachineFigure| {
        let (class, word, why) = match &figure.provenance {
            Provenance::Source(source) => ("good", "sourced", source),
            Provenance::Assumed(why) => ("open", "assumed", why),
        };
        format!(
            "<tr><th scope=\"row\"><code>{}</code></th><td>{}</td><td><span class=\"tag {class}\">{word}</span></td><td>{}</td></tr>\n",
            escape(&figure.key),
            escape(&figure.value),
            escape(why)
        )
    };
    let body: String = machine.figures.iter().map(row).collect();
    format!(
        "<details><summary>{} ({}): {} numbers sourced, {assumed} assumed</summary>\n{}</details>\n",
        escape(&machine.name),
        escape(&machine.processor),
        machine.figures.len() - assumed,
        wide(&machine.processor, &heads(&KEYS, &KEYS), &body)
    )
}
