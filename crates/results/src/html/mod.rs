//! The comparison as one HTML file, readable without network and without script.
//!
//! Everything from outside is escaped. In case escaping fails, a content security policy in the page forbids scripts
//! and requests.

mod axis;
pub mod boots;
pub mod capabilities;
mod coverage;
mod explained;
mod forest;
pub mod inspection;
mod machine;
pub mod matrix;
mod memory;
mod parts;
mod samples;
mod shares;
pub mod simulation;
mod svg;
mod tables;

use study::advice::Advice;
use study::comparison::Comparison;
use study::guest::Clock;
use study::metric::{Metric, Unit};

use crate::rows::{self, Row};
use crate::sentence;
use crate::text::{date_time, escape, printable};
use parts::{
    capitalised_first, captioned, command, ended, lead, marked, metric_name, page, remedy, section, title, typeset,
    unwrapped,
};

pub fn report(comparison: &Comparison) -> String {
    let rows = rows::rows(comparison);
    let sections = [
        section("Changes against the baseline", "changes", &changes(comparison, &rows)),
        section("Result", "result", &result(comparison, &rows)),
        section("How much of the memory is enough", "shares", &shares::section(comparison)),
        section("Variants", "variants", &variants(comparison)),
        section("Samples in the order of the runs", "samples", &samples(comparison)),
        section("What mapped the memory, and what it costs", "memory-use", &memory(comparison, &rows)),
        section("Advice", "advice", &advice(comparison)),
        section("Verdicts and their causes", "verdicts", &tables::verdicts(&rows)),
        section("All figures", "figures", &tables::figures(comparison, &rows)),
        section("Rejected trials", "rejected", &tables::rejected(comparison)),
        section("Machine and its settings", "machine", &machine::machine(comparison)),
        section("Invocation and design", "invocation", &machine::invocation(comparison)),
    ];
    let sentence = sentence::conclude(comparison);
    let (claim, _) = sentence::claim_and_rest(&sentence);
    page(
        &capitalised(claim.trim_end_matches('.'), comparison),
        &header(comparison),
        &sections.concat(),
        &footer(comparison),
    )
}

fn result(comparison: &Comparison, rows: &[Row<'_>]) -> String {
    [tables::result(comparison, rows), explained::explanation(comparison), warnings(comparison)].concat()
}

fn header(comparison: &Comparison) -> String {
    let number = if comparison.id > 0 { format!(" {}", comparison.id) } else { String::new() };
    let mut commands = command("measured command", &comparison.invocation.command);
    if let Some(client) = &comparison.invocation.client {
        commands.push_str(&command("client that drives it", client));
    }
    let sentence = sentence::conclude(comparison);
    let (claim, rest) = sentence::claim_and_rest(&sentence);
    format!(
        "<header>\n<p class=\"kicker\">pagelab · comparison{number} · {}</p>\n{}{}{commands}<p class=\"facts\">{}</p>\n</header>\n",
        escape(&date_time(comparison.started_unix_s)),
        title(&capitalised(claim.trim_end_matches('.'), comparison)),
        lead(&unwrapped(rest)),
        escape(&facts(comparison))
    )
}

/// Capitalises a sentence unless it begins with the name of a policy.
fn capitalised(sentence: &str, comparison: &Comparison) -> String {
    let named = comparison.design.arms.iter().any(|arm| sentence.starts_with(&printable(&arm.label)));
    let mut chars = sentence.chars();
    match chars.next() {
        Some(first) if !named => first.to_uppercase().chain(chars).collect(),
        _ => sentence.to_string(),
    }
}

/// The commands of the variants, and the changes against baselines other than that of the comparison.
fn variants(comparison: &Comparison) -> String {
    let builds = crate::variants::builds(comparison);
    if builds.is_empty() {
        return String::new();
    }
    let head =
        ["variant", "what runs", "SHA-256 of its program"].map(|title| format!("<th scope=\"col\">{title}</th>"));
    let row = |[name, command, hash]: &[String; 3]| {
        let [name, command, hash] = [name, command, hash].map(|text| escape(text));
        format!("<tr><th scope=\"row\">{name}</th><td><code>{command}</code></td><td><code>{hash}</code></td></tr>\n")
    };
    let lines = crate::variants::parts(comparison);
    let lines = lines.iter().flat_map(crate::variants::Part::lines);
    let item = |line: String| format!("<li>{}</li>\n", escape(&typeset(&line)));
    let items: String = lines.map(item).collect();
    let list = if items.is_empty() { items } else { format!("<ul>\n{items}</ul>\n") };
    tables::wide("What ran", &head.concat(), &builds.iter().map(row).collect::<String>()) + &list
}

fn facts(comparison: &Comparison) -> String {
    let machine = &comparison.machine;
    let blocks = comparison.analysis.as_ref().map_or(0, |analysis| analysis.blocks);
    let limits = Clock::of(machine).limits().map(|limits| format!(" · {limits}")).unwrap_or_default();
    let hypervisor = machine.hypervisor.as_ref().map(|name| format!(" under {name}")).unwrap_or_default();
    format!(
        "{} · {} CPUs · {} of memory · Linux {}{hypervisor} · {blocks} blocks, {} trials · {}{limits}",
        machine.cpu_model,
        machine.cpus,
        policy::size::format_bytes(machine.memory_bytes),
        machine.kernel.split(' ').next().unwrap_or_default(),
        comparison.trials.len(),
        ended(&comparison.ended)
    )
}

/// The settings that give the program the pages of the winning policy, and a list of all settings that were tried.
fn advice(comparison: &Comparison) -> String {
    let short = crate::advice::short(comparison);
    let Some(answer) = short.strip_prefix("advice: ") else { return String::new() };
    let answer = format!("<p>{}.</p>\n", escape(&capitalised_first(answer)));
    let Some(Advice::Tried(tried)) = &comparison.advice else { return answer };
    let rows =
        tried.attempts.iter().map(|attempt| format!("<li>{}</li>\n", escape(&crate::advice::row(tried, attempt))));
    let rows: String = rows.collect();
    if rows.is_empty() { answer } else { format!("{answer}<p>Tried, in this order:</p>\n<ol>\n{rows}</ol>\n") }
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

fn changes(comparison: &Comparison, rows: &[Row<'_>]) -> String {
    let figures: Vec<String> = rows::headline_metrics(comparison)
        .iter()
        .enumerate()
        .filter_map(|(at, metric)| {
            let picture = forest::figure(comparison, rows, metric, &format!("forest{at}"))?;
            Some(captioned(&picture, &caption_of(metric)))
        })
        .collect();
    if figures.is_empty() {
        return String::new();
    }
    format!(
        "<div class=\"figures\">\n{}</div>\n<p>Marks are Hodges–Lehmann estimates over the ratios within blocks, whiskers {} signed-rank intervals. \
         In the shaded band a change does not matter. An arrow marks an interval that ends outside the axis. * hollow and dashed: the policy was not shown to be in force, so the \
         change is that of asking for it; or the tracer's stops could have made the change.</p>\n",
        figures.concat(),
        crate::figure::confidence(comparison.design.confidence)
    )
}

/// The name of a metric as a caption. A metric that the program prints keeps its case: it may begin with a unit (`ns per access`).
fn caption_of(metric: &Metric) -> String {
    let name = metric_name(&metric.name);
    if metric.unit == Unit::Custom { name } else { capitalised_first(&name) }
}

fn samples(comparison: &Comparison) -> String {
    let figures: Vec<String> = rows::headline_metrics(comparison)
        .iter()
        .enumerate()
        .filter_map(|(at, metric)| {
            let picture = samples::figure(comparison, metric, &format!("samples{at}"))?;
            Some(captioned(&picture, &caption_of(metric)))
        })
        .collect();
    if figures.is_empty() {
        return String::new();
    }
    let legend = |(arm, of): (usize, &study::trial::Arm)| {
        let mark = svg::ArmStyle::of(arm, comparison.design.baseline).mark((8.0, 6.0), 4.5, "", "");
        format!("<li><svg viewBox=\"0 0 16 12\" aria-hidden=\"true\">{mark}</svg>{}</li>", escape(&of.label))
    };
    let sampled = |(arm, _): &(usize, &study::trial::Arm)| comparison.trials.iter().any(|one| one.trial.arm == *arm);
    let compared = comparison.design.compared().map(|arm| (arm, &comparison.design.arms[arm]));
    let arms = compared.filter(sampled);
    format!(
        "<p>Each mark is one run. Block 0 (hatched) is discarded. A crossed mark is a rejected trial, which was \
         repeated. The vertical axis does not begin at zero; a mark at its end can be beyond it.</p>\n<ul class=\"legend\">{}</ul>\n\
         <div class=\"figures\">\n{}</div>\n",
        arms.map(legend).collect::<String>(),
        figures.concat()
    )
}

fn memory(comparison: &Comparison, rows: &[Row<'_>]) -> String {
    let coverage = coverage::figure(rows).map(|picture| captioned(&picture, "Memory of a run by leaf and folio size"));
    let cost = memory::figure(rows, comparison.design.baseline).map(|picture| {
        captioned(
            &picture,
            "Medians of the peak resident set, and of page tables when they were inspected, which is a lower bound",
        )
    });
    match (coverage, cost) {
        (None, None) => String::new(),
        (coverage, cost) => format!(
            "<p>Read from the kernel when each process ended, outside the timed span. A leaf is the page-table entry \
             that maps the memory; a folio is the unit in which the kernel holds it.</p>\n<div class=\"figures\">\n{}{}</div>\n",
            coverage.unwrap_or_default(),
            cost.unwrap_or_default()
        ),
    }
}

fn footer(comparison: &Comparison) -> String {
    format!(
        "<footer><p>Made by pagelab {}. Raw samples are in the store; <code>pagelab compare --json</code> and \
         <code>--csv</code> export them.</p></footer>\n",
        escape(&comparison.invocation.version)
    )
}

#[cfg(test)]
mod tests;
