//! Simulations as one HTML file, readable without network and without script.

mod bars;
mod curves;
mod heat;
mod knees;
mod parts;
mod tables;

pub use knees::knees;

use super::parts::{capitalised_first, page, section, title, typeset};
use crate::sentence::claim_and_rest;
use crate::simulation::{Cell, Document, Trace};
use crate::text::{command_line, escape, printable};
use parts::{machines, modelled, unit};

/// Renders the page.
pub fn report(document: &Document) -> String {
    let mut sections = String::new();
    for (at, trace) in document.traces.iter().enumerate() {
        sections.push_str(&of_trace(trace, at));
    }
    sections.push_str(&section(
        "Machines: every number and its source",
        "machines",
        &tables::machines(&document.machines),
    ));
    sections.push_str(&section("Invocation", "invocation", &invocation(document)));
    let header = format!(
        "<header>\n<p class=\"kicker\">pagelab · simulation · every figure on this page is modelled, none is measured</p>\n\
         {}<pre class=\"command\" aria-label=\"command line\"><code>{}</code></pre>\n</header>\n",
        title(&answer(document)),
        escape(&command_line(&document.invocation))
    );
    let footer = format!(
        "<footer><p>Made by pagelab {}. <code>pagelab sim --json</code> exports every number. The page Model of \
         the book describes what is modelled, and how well it agrees with measurements.</p></footer>\n",
        escape(&document.version)
    );
    page(&document.title, &header, &sections, &footer)
}

/// The first claim about the first trace, with the number of further machines. If there is no claim, the title of the document.
fn answer(document: &Document) -> String {
    let first = document.traces.first().and_then(|trace| Some((trace, trace.answers.first()?)));
    let Some((trace, answer)) = first else { return document.title.clone() };
    let sentence = answer.sentence.split(". ").next().unwrap_or_default();
    let claim = claim_and_rest(sentence).0.trim_end_matches('.');
    let is_named = document.machines.iter().any(|machine| claim.starts_with(&machine.name));
    let claim = match document.traces.len() {
        1 if is_named => claim.to_owned(),
        1 => capitalised_first(claim),
        _ => format!("{}: {claim}", printable(&trace.file)),
    };
    match trace.answers.len() {
        1 => claim,
        2 => format!("{claim}; 1 more machine below"),
        n => format!("{claim}; {} more machines below", n - 1),
    }
}

fn of_trace(trace: &Trace, at: usize) -> String {
    let parts = [
        (format!("{}: what page sizes cost", printable(&trace.file)), "result", result(trace, at)),
        ("Misses against entries, memory against page size".to_string(), "curves", curves_of(trace, at)),
        ("What maps the memory at the end".to_string(), "census", census(trace, at)),
        ("Layouts of addresses".to_string(), "layouts", tables::spreads(trace)),
        ("Verdicts and their causes".to_string(), "verdicts", tables::verdicts(trace)),
        ("All figures".to_string(), "figures", tables::figures(trace)),
        ("Geometries".to_string(), "geometry", geometry(trace, at)),
    ];
    parts.iter().map(|(title, id, body)| section(title, &format!("{id}{at}"), body)).collect()
}

fn result(trace: &Trace, at: usize) -> String {
    let mut html = String::new();
    if !trace.command.is_empty() {
        html.push_str(&format!("<pre><code>{}</code></pre>\n", escape(&command_line(&trace.command))));
    }
    html.push_str(&trace.answers.iter().map(|answer| paragraph(&answer.sentence)).collect::<String>());
    let bars: Vec<String> = machines(trace)
        .iter()
        .enumerate()
        .filter_map(|(place, cells)| {
            let picture = bars::lost_cycles(cells, &format!("lost{at}-{place}"))?;
            Some(modelled(&picture, &format!("{}: cycles lost per 1000 {}", cells[0].machine, unit(cells))))
        })
        .collect();
    if !bars.is_empty() {
        html.push_str(&format!(
            "<p>Solid: cycles if all walkers are always busy. To the end of the thin line: if one walk is done at a time. \
             Nothing is known about what an out-of-order core hides.</p>\n<div class=\"figures\">\n{}</div>\n",
            bars.concat()
        ));
    }
    html.push_str(&tables::facts(&trace.facts));
    let bounds_of = |cells: &[Cell]| trace.answers.iter().find(|answer| answer.machine == cells[0].machine);
    html.push_str(&machines(trace).iter().map(|cells| tables::result(cells, bounds_of(cells))).collect::<String>());
    html.push_str(&machines(trace).iter().map(|cells| tables::kernel(cells)).collect::<String>());
    let items: String = trace.notes.iter().map(|note| format!("<li>{}</li>\n", escape(note))).collect();
    if !items.is_empty() {
        html.push_str(&format!("<h3>Notes</h3>\n<ul class=\"warnings\">\n{items}</ul>\n"));
    }
    html
}

fn paragraph(answer: &str) -> String {
    let (claim, rest) = claim_and_rest(answer);
    format!("<p><strong>{}</strong>{}</p>\n", escape(&typeset(claim)), escape(&typeset(rest)))
}

const PEAKS: &str = "; marks are the peaks of resident memory under policies, at the sizes that they request";

fn curves_of(trace: &Trace, at: usize) -> String {
    let misses = trace.sweep.as_ref().and_then(|sweep| {
        let picture = curves::misses(sweep, &format!("misses{at}"))?;
        let caption = format!("misses per 1000 {} against entries, by page size", sweep.per.unit());
        Some(modelled(&picture, &caption) + &curves::legend(&sweep.page_sizes()))
    });
    let memory = curves::memory(trace, &format!("memory{at}"))
        .map(|picture| modelled(&picture, "Memory against page size") + &curves::memory_legend(trace));
    let figures: Vec<String> =
        misses.into_iter().chain(memory).map(|figure| format!("<div>{figure}</div>\n")).collect();
    if figures.is_empty() {
        return String::new();
    }
    format!(
        "<p>Left: LRU TLBs of one level, shared by fetches and data of all threads, as if all memory had pages of one size. \
         Those of up to 8 entries are fully associative, larger ones have 8 ways. Right: the line is all pages of a size that \
         the trace ever touches{}.</p>\n<div class=\"figures\">\n{}</div>\n",
        if trace.cells.is_empty() { "" } else { PEAKS },
        figures.concat()
    )
}

fn census(trace: &Trace, at: usize) -> String {
    let figures: Vec<String> = machines(trace)
        .iter()
        .enumerate()
        .filter_map(|(place, cells)| {
            let picture = bars::census(cells, &format!("census{at}-{place}"))?;
            Some(format!("<div>{}{}</div>\n", modelled(&picture, &cells[0].machine), bars::census_legend(cells)))
        })
        .collect();
    if figures.is_empty() {
        return String::new();
    }
    format!(
        "<p>By walking the page tables of the model, files included.</p>\n<div class=\"figures\">\n{}</div>\n",
        figures.concat()
    )
}

fn geometry(trace: &Trace, at: usize) -> String {
    let Some(sweep) = &trace.sweep else { return String::new() };
    let maps: String = sweep
        .page_sizes()
        .iter()
        .enumerate()
        .map(|(place, size)| {
            let picture = heat::map(sweep, *size, &format!("heat{at}-{place}"));
            modelled(&picture, &format!("Pages of {}", policy::size::format_bytes(*size)))
        })
        .collect();
    format!(
        "<p>Misses per 1000 {} of LRU TLBs, by their numbers of sets and ways. The stronger the colour, the more misses: by their \
         logarithm, on one scale for all page sizes. Hover over a cell to see its number.</p>\n{}<div class=\"figures\">\n{maps}</div>\n{}",
        sweep.per.unit(),
        heat::legend(sweep),
        tables::geometries(sweep)
    )
}

fn invocation(document: &Document) -> String {
    let mut facts = vec![("command line".to_string(), command_line(&document.invocation))];
    facts.extend(document.settings.iter().cloned());
    facts.push(("version".to_string(), document.version.clone()));
    facts.push(("provenance".to_string(), "modelled".to_string()));
    tables::facts(&facts)
}

#[cfg(test)]
mod tests;
