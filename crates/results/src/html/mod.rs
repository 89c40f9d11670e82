//! The comparison as one HTML file, readable without network and without script.
//!
//! Everything from outside is escaped, and a content security policy in the page itself forbids scripts
//! and requests, should that ever fail.

pub mod boots;
mod coverage;
mod forest;
mod machine;
mod memory;
mod samples;
pub mod simulation;
mod svg;
mod tables;

use study::comparison::{Comparison, Ended};

use crate::rows::{self, Row};
use crate::sentence::{self, Adopting};
use crate::text::{command_line, date_time, escape, printable};

const STYLE: &str = include_str!("style.css");

/// The page.
pub fn report(comparison: &Comparison) -> String {
    let rows = rows::rows(comparison);
    let sections = [
        section("Result", "result", &(tables::result(comparison, &rows) + &warnings(comparison))),
        section("Changes against the baseline", "changes", &changes(comparison, &rows)),
        section("Samples in the order of the runs", "samples", &samples(comparison)),
        section("What mapped the memory, and what it costs", "memory-use", &memory(comparison, &rows)),
        section("To adopt the best policy", "adoption", &adoption(comparison)),
        section("Verdicts and their causes", "verdicts", &tables::verdicts(&rows)),
        section("All figures", "figures", &tables::figures(comparison, &rows)),
        section("Rejected trials", "rejected", &tables::rejected(comparison)),
        section("Machine and its settings", "machine", &machine::machine(comparison)),
        section("Invocation and design", "invocation", &machine::invocation(comparison)),
    ];
    let title = command_line(&comparison.invocation.command);
    page(&title, &header(comparison), &sections.concat(), &footer(comparison))
}

/// A whole page of its parts.
fn page(title: &str, header: &str, sections: &str, footer: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>pagelab: {}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{PATTERNS}{header}<main>\n{sections}</main>\n{footer}</body>\n</html>\n",
        escape(title)
    )
}

/// Patterns that the figures share.
const PATTERNS: &str = "<svg class=\"patterns\" width=\"0\" height=\"0\" aria-hidden=\"true\"><defs>\
    <pattern id=\"hatching\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
    <line class=\"hatching\" x1=\"0\" y1=\"0\" x2=\"0\" y2=\"6\"/></pattern>\
    <pattern id=\"dots\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">\
    <circle cx=\"3\" cy=\"3\" r=\"1.5\"/></pattern>\
    <pattern id=\"lines\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">\
    <path d=\"M2 0V6\"/><path class=\"edge\" d=\"M3 0V6\"/></pattern>\
    <pattern id=\"hatches\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
    <path d=\"M2 0V6\"/><path class=\"edge\" d=\"M3 0V6\"/></pattern>\
    <pattern id=\"crosses\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">\
    <path d=\"M2 0V6M0 2H6\"/><path class=\"edge\" d=\"M3 0V6M0 3H6\"/></pattern></defs></svg>\n";

/// A section with its heading; nothing where there is nothing to say.
fn section(title: &str, id: &str, body: &str) -> String {
    if body.is_empty() {
        return String::new();
    }
    format!("<section aria-labelledby=\"{id}\">\n<h2 id=\"{id}\">{}</h2>\n{body}</section>\n", escape(title))
}

fn header(comparison: &Comparison) -> String {
    let number = if comparison.id > 0 { format!(" {}", comparison.id) } else { String::new() };
    let mut commands = command("measured command", &comparison.invocation.command);
    if let Some(client) = &comparison.invocation.client {
        commands.push_str(&command("client that drives it", client));
    }
    format!(
        "<header>\n<p class=\"kicker\">pagelab · comparison{number} · {}</p>\n<h1>{}</h1>\n{commands}<p class=\"facts\">{}</p>\n</header>\n",
        escape(&date_time(comparison.started_unix_s)),
        escape(&capitalised(&typeset(&sentence::conclude(comparison)), comparison)),
        escape(&facts(comparison))
    )
}

/// A sentence that begins with a word and not with the name of a policy begins with a capital.
fn capitalised(sentence: &str, comparison: &Comparison) -> String {
    let named = comparison.design.arms.iter().any(|arm| sentence.starts_with(&printable(&arm.label)));
    let mut chars = sentence.chars();
    match chars.next() {
        Some(first) if !named => first.to_uppercase().chain(chars).collect(),
        _ => sentence.to_string(),
    }
}

fn command(what: &str, words: &[String]) -> String {
    format!("<pre class=\"command\" aria-label=\"{what}\"><code>{}</code></pre>\n", escape(&command_line(words)))
}

fn facts(comparison: &Comparison) -> String {
    let machine = &comparison.machine;
    let blocks = comparison.analysis.as_ref().map_or(0, |analysis| analysis.blocks);
    let hypervisor = machine.hypervisor.as_ref().map(|name| format!(" under {name}")).unwrap_or_default();
    format!(
        "{} · {} CPUs · {} of memory · Linux {}{hypervisor} · {blocks} blocks, {} trials · {}",
        machine.cpu_model,
        machine.cpus,
        study::size::format_bytes(machine.memory_bytes),
        machine.kernel.split(' ').next().unwrap_or_default(),
        comparison.trials.len(),
        ended(&comparison.ended)
    )
}

/// Why the comparison ended, in words.
fn ended(ended: &Ended) -> String {
    match ended {
        Ended::NotEnded => "not ended: still running, or killed".to_string(),
        Ended::Precise => "ended when every arm was measured as precisely as asked".to_string(),
        Ended::Blocks => "ended at the greatest number of blocks".to_string(),
        Ended::Time => "ended when the time was up".to_string(),
        Ended::Interrupted => "interrupted".to_string(),
        Ended::TooSlow { message } => format!("ended because {message}"),
        Ended::Failed { message } => format!("failed: {message}"),
        Ended::NothingAdmitted => "ended because there was nothing to compare".to_string(),
    }
}

/// How to have each of the best policies permanently: of the first the least intrusive way open, everything else folded.
fn adoption(comparison: &Comparison) -> String {
    let mut html = String::new();
    for arm in sentence::best(comparison) {
        let Adopting { obstacle, recommended, others } = Adopting::of(comparison, arm);
        if obstacle.is_none() && recommended.is_none() {
            continue;
        }
        let label = escape(&comparison.design.arms.get(arm).map_or_else(String::new, |arm| printable(&arm.label)));
        let obstacle = obstacle.map(|why| format!("<p>{}.</p>\n", escape(&capitalised_first(&printable(&why)))));
        let first = obstacle.or(recommended.map(way)).unwrap_or_default();
        let others = match others {
            [] => String::new(),
            others => format!(
                "<details class=\"adopt\">\n<summary>{label}: other ways</summary>\n{}</details>\n",
                others.iter().map(way).collect::<String>()
            ),
        };
        let open = if html.is_empty() { " open" } else { "" };
        html.push_str(&format!(
            "<details class=\"adopt\"{open}>\n<summary>{label}</summary>\n{first}{others}</details>\n"
        ));
    }
    html
}

fn way(adoption: &study::comparison::Adoption) -> String {
    // Line by line: an end of a line within a text would be made visible.
    let lines: Vec<String> = adoption.commands.iter().flat_map(|command| command.lines()).map(escape).collect();
    let scope = capitalised_first(&printable(&adoption.scope));
    format!("<p>{}:</p>\n<pre><code>{}</code></pre>\n", escape(&scope), lines.join("\n"))
}

fn warnings(comparison: &Comparison) -> String {
    let item = |(warning, what_to_do): (&study::stats::Warning, Option<String>)| {
        let sentence = capitalised(&typeset(&warning.describe(&comparison.design.arms)), comparison);
        let what_to_do = what_to_do.map(|text| format!(" {}", marked(&remedy(&text)))).unwrap_or_default();
        format!("<li><strong>{}.</strong>{what_to_do}</li>\n", escape(&sentence))
    };
    let items: String = rows::warnings(comparison).into_iter().map(item).collect();
    if items.is_empty() {
        return String::new();
    }
    format!("<h3>Warnings</h3>\n<ul class=\"warnings\">\n{items}</ul>\n")
}

/// A remedy as a sentence.
fn remedy(remedy: &str) -> String {
    format!("{}.", capitalised_first(remedy))
}

fn capitalised_first(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    first + chars.as_str()
}

fn changes(comparison: &Comparison, rows: &[Row<'_>]) -> String {
    let figures: Vec<String> = rows::headline_metrics(comparison)
        .iter()
        .enumerate()
        .filter_map(|(at, metric)| {
            let picture = forest::figure(comparison, rows, metric, &format!("forest{at}"))?;
            Some(captioned(&picture, &crate::figure::title(&metric.name)))
        })
        .collect();
    if figures.is_empty() {
        return String::new();
    }
    format!(
        "<p>Marks are Hodges–Lehmann estimates over the ratios within blocks, whiskers {} signed-rank intervals. \
         In the shaded band a change does not matter. * hollow and dashed: the policy was not shown to be in force, or \
         the tracer's stops could have made the change, so the figure says nothing about it.</p>\n<div class=\"figures\">\n{}</div>\n",
        crate::figure::confidence(comparison.design.confidence),
        figures.concat()
    )
}

fn samples(comparison: &Comparison) -> String {
    let figures: Vec<String> = rows::headline_metrics(comparison)
        .iter()
        .enumerate()
        .filter_map(|(at, metric)| {
            let picture = samples::figure(comparison, metric, &format!("samples{at}"))?;
            Some(captioned(&picture, &crate::figure::title(&metric.name)))
        })
        .collect();
    if figures.is_empty() {
        return String::new();
    }
    let legend = |(arm, of): (usize, &study::trial::Arm)| {
        let mark = svg::Look::of(arm, comparison.design.baseline).mark((8.0, 6.0), 4.5, "", "");
        format!("<li><svg viewBox=\"0 0 16 12\" aria-hidden=\"true\">{mark}</svg>{}</li>", escape(&of.label))
    };
    let sampled = |(arm, _): &(usize, &study::trial::Arm)| comparison.trials.iter().any(|one| one.trial.arm == *arm);
    let compared = comparison.design.compared().map(|arm| (arm, &comparison.design.arms[arm]));
    let arms = compared.filter(sampled);
    format!(
        "<p>Each mark is one run. Block 0 (hatched) is discarded; a crossed mark is a rejected trial, which was \
         repeated. The vertical axis does not begin at zero.</p>\n<ul class=\"legend\">{}</ul>\n\
         <div class=\"figures\">\n{}</div>\n",
        arms.map(legend).collect::<String>(),
        figures.concat()
    )
}

fn memory(comparison: &Comparison, rows: &[Row<'_>]) -> String {
    let coverage = coverage::figure(rows).map(|picture| captioned(&picture, "memory by leaf and folio size, a run"));
    let cost = memory::figure(rows, comparison.design.baseline)
        .map(|picture| captioned(&picture, "medians of the peak resident set, and of page tables when they were looked at: there were at least so many"));
    match (coverage, cost) {
        (None, None) => String::new(),
        (coverage, cost) => format!(
            "<p>Read from the kernel when each process ended, outside the timed span. A leaf is the page-table entry \
             that maps the memory; a folio is what stands behind it.</p>\n<div class=\"figures\">\n{}{}</div>\n",
            coverage.unwrap_or_default(),
            cost.unwrap_or_default()
        ),
    }
}

fn captioned(picture: &str, caption: &str) -> String {
    format!("<figure>\n<figcaption>{}</figcaption>\n{picture}</figure>\n", escape(&typeset(caption)))
}

fn footer(comparison: &Comparison) -> String {
    format!(
        "<footer><p>Made by pagelab {}. Raw samples are in the store; <code>pagelab compare --json</code> and \
         <code>--csv</code> export them.</p></footer>\n",
        escape(&comparison.invocation.version)
    )
}

/// Names and what stands for each.
fn list(facts: &[(&str, String)]) -> String {
    let fact = |(name, value): &(&str, String)| format!("<dt>{}</dt><dd>{}</dd>\n", escape(name), escape(value));
    format!("<dl>\n{}</dl>\n", facts.iter().map(fact).collect::<String>())
}

/// Escaped text in which what stands between backticks is code.
fn marked(text: &str) -> String {
    let parts: Vec<String> = text.split('`').map(escape).collect();
    if parts.len().is_multiple_of(2) {
        return parts.join("`"); // One backtick has no partner.
    }
    let part = |(at, part): (usize, &String)| {
        if at % 2 == 1 { format!("<code>{part}</code>") } else { part.clone() }
    };
    parts.iter().enumerate().map(part).collect()
}

/// Figures with a minus sign of their own width, and units that stay with their numbers.
fn typeset(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut set = String::with_capacity(text.len());
    for (at, c) in chars.iter().enumerate() {
        let before = at.checked_sub(1).map(|at| chars[at]);
        let after = chars.get(at + 1).copied();
        let digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
        match c {
            '-' if digit(after) && before.is_none_or(|c| " (".contains(c)) => set.push('−'),
            ' ' if digit(before) && after == Some('%') => set.push('\u{a0}'),
            c => set.push(*c),
        }
    }
    set
}

#[cfg(test)]
mod tests;
