//! Tables of a comparison's page.

use policy::Admission;
use study::comparison::Comparison;
use study::metric::{Metric, names};
use study::stats::Outcome;

use super::parts::{marked, metric_name, remedy, typeset};
use crate::csv;
use crate::figure::{self, Change};
use crate::rows::{self, Row};
use crate::text::{escape, times};

/// The result, one row per policy. The primary metric is the first column, because a telephone shows only the first
/// columns without scrolling.
pub(super) fn result(comparison: &Comparison, rows: &[Row<'_>]) -> String {
    let headline = rows::headline_metrics(comparison);
    let heading = |title: &str| format!("<th scope=\"col\">{title}</th>");
    let heading_of_figures = |title: &str| format!("<th scope=\"col\" class=\"n\">{title}</th>");
    let has_cost = rows.iter().any(|row| row.cost(&comparison.design.primary).is_some());
    let mut metrics = headline.iter().map(|metric| heading_of_figures(&escape(&metric_name(&metric.name))));
    let mut head = heading("policy") + &metrics.next().unwrap_or_default() + &heading("outcome") + &heading("pages");
    head.extend(metrics);
    let others = has_cost.then_some("tracer's cost").into_iter().chain(["minor faults", "page tables", "peak memory"]);
    head.extend(others.map(heading_of_figures));
    let body: String = rows.iter().map(|row| result_row(row, &headline, has_cost)).collect();
    let caption = format!(
        "The median of {}; for the others, that median times the change; below, the changes with {} intervals",
        rows::baseline_label(comparison),
        figure::confidence(comparison.design.confidence)
    );
    wide(&caption, &head, &body) + if has_cost { COST } else { "" }
}

/// Explains the column of the tracer's cost.
const COST: &str = "<p class=\"note\">The tracer's cost is the change of the first figure caused by the tracer's stops. For the baseline it is measured \
    against runs without a tracer; for the others against the baseline, by runs that stop at the same calls and do nothing there. \
    A change that this could explain is not claimed. An arm with an empty cell stops as often as the baseline.</p>\n";

fn result_row(row: &Row<'_>, headline: &[Metric], has_cost: bool) -> String {
    if let Some(unsupported) = row.unsupported() {
        let text = format!("{}. {}", escape(&unsupported.reason), marked(&remedy(&unsupported.remedy)));
        return format!(
            "<tr>{}<td></td><td>{}</td><td colspan=\"{}\" class=\"note\"><div class=\"prose\">{text}</div></td></tr>\n",
            name(row),
            outcome(row),
            3 + headline.len() + usize::from(has_cost)
        );
    }
    let mut figures = headline.iter().map(|metric| {
        let typical = row.typical(&metric.name).map(|value| figure::short(value, metric.unit)).unwrap_or_default();
        format!("<td class=\"n\">{}{}</td>", escape(&typical), change(row, &metric.name))
    });
    let first = figures.next().unwrap_or_default();
    let mut cells = format!("{}{first}<td>{}</td><td>{}</td>", name(row), outcome(row), escape(&verdict(row)));
    cells.extend(figures);
    if has_cost {
        let cost = headline.first().and_then(|primary| row.cost(&primary.name)).map(estimate).unwrap_or_default();
        cells.push_str(&format!("<td class=\"n\">{cost}</td>"));
    }
    for name in [names::MINOR_FAULTS, names::PAGE_TABLE_SEEN_BYTES, names::PEAK_RESIDENT_BYTES] {
        let unit = figure::metric(&[], name).unit;
        let value = row.typical(name).map(|value| figure::long(value, unit)).unwrap_or_default();
        cells.push_str(&format!("<td class=\"n\">{}</td>", escape(&value)));
    }
    let class = if row.outcome() == "best" { " class=\"best\"" } else { "" };
    format!("<tr{class}>{cells}</tr>\n")
}

/// The heading of an arm's row. A label of moderate length is not broken at its hyphens.
fn name(row: &Row<'_>) -> String {
    let class = if row.label().chars().count() <= 24 { " class=\"name\"" } else { "" };
    format!("<th scope=\"row\"{class}>{}</th>", escape(&row.arm.label))
}

fn verdict(row: &Row<'_>) -> String {
    let verdict = typeset(&row.verdict(" "));
    if verdict == "-" { "nothing asked".to_string() } else { verdict }
}

/// The outcome as a tag; its class shows whether it is an improvement.
fn outcome(row: &Row<'_>) -> String {
    let class = match row.analysis.map(|analysis| &analysis.outcome) {
        _ if row.unsupported().is_some() => "void",
        _ if row.too_slow.is_some() => "bad",
        Some(Outcome::Better { .. }) => "good",
        Some(Outcome::Worse | Outcome::WrongAnswer { .. } | Outcome::TooSlow { .. }) => "bad",
        Some(Outcome::Undecided { .. }) => "open",
        Some(Outcome::WithinTracerCost | Outcome::NotMeasured | Outcome::Unsupported | Outcome::Control) | None => {
            "void"
        }
        Some(Outcome::Baseline | Outcome::Equivalent) => "plain",
    };
    let needed = row.what_would_settle_it().map(|what| format!("<br><small>{what}</small>")).unwrap_or_default();
    format!("<span class=\"tag {class}\">{}</span>{needed}", escape(&row.outcome()))
}

fn change(row: &Row<'_>, metric: &str) -> String {
    row.effect(metric).map(Change::of).map(estimate).unwrap_or_default()
}

fn estimate(change: Change) -> String {
    let range = change.range().map(|range| format!("<small>{}</small>", escape(&typeset(&range)))).unwrap_or_default();
    format!("<b class=\"change\">{}</b>{range}", escape(&typeset(&change.estimate())))
}

/// One row per arm: the verdict, how the policy was applied, and why it did not hold.
pub(super) fn verdicts(rows: &[Row<'_>]) -> String {
    let head = ["policy", "pages", "of the peak looked at", "how it was applied", "what is not as asked, and why"]
        .map(|title| format!("<th scope=\"col\">{title}</th>"))
        .concat();
    let body: String = rows.iter().map(verdict_row).collect();
    wide(
        "The share is that of the memory concerned that is mapped as asked, in at least nine of ten runs; bytes are of \
         a run, on average",
        &head,
        &body,
    )
}

fn verdict_row(row: &Row<'_>) -> String {
    let (verdict, how) = match row.admission {
        Some(Admission::Admitted { mechanism }) => (verdict(row), escape(mechanism)),
        Some(Admission::Unsupported(_)) => ("unsupported".to_string(), String::new()),
        None => (String::new(), String::new()),
    };
    let peak = escape(&row.peak_seen().unwrap_or_default());
    let (name, verdict, reasons) = (name(row), escape(&verdict), reasons(row));
    format!("<tr>{name}<td>{verdict}</td><td>{peak}</td><td>{how}</td><td>{reasons}</td></tr>\n")
}

fn reasons(row: &Row<'_>) -> String {
    let mut items: Vec<String> = Vec::new();
    if let Some(unsupported) = row.unsupported() {
        items.push(reason(&unsupported.reason, None, Some(&unsupported.remedy)));
    }
    if let Some(Outcome::WrongAnswer { message }) = row.analysis.map(|analysis| &analysis.outcome) {
        items.push(reason(&format!("wrong answer: {message}"), None, None));
    }
    if let Some(message) = &row.too_slow {
        items.push(reason(message, None, None));
    }
    for share in row.causes() {
        items.push(reason(&share.cause.describe(), share.bytes, row.remedy(&share.cause).as_deref()));
    }
    for answered in row.answered() {
        let what = format!("answered by the tracer, not the kernel: {}", answered.call);
        items.push(reason(&format!("{what} ({} a run)", times(answered.times)), None, None));
    }
    items.extend(row.scarcity().and_then(|scarcity| scarcity.describe()).map(|what| reason(&what, None, None)));
    items.extend(row.collapses().and_then(|collapses| collapses.describe()).map(|what| reason(&what, None, None)));
    if items.is_empty() { String::new() } else { format!("<ul>{}</ul>", items.concat()) }
}

pub(super) fn reason(what: &str, bytes: Option<u64>, how: Option<&str>) -> String {
    let bytes = bytes.map(|bytes| format!(" <b>{}</b>", policy::size::format_bytes(bytes))).unwrap_or_default();
    let how = how.map(|how| format!("<small>{}</small>", marked(&remedy(how)))).unwrap_or_default();
    format!("<li>{}{bytes}{how}</li>", escape(what))
}

/// Every observed metric, one row each, with its provenance; one column per policy.
pub(super) fn figures(comparison: &Comparison, rows: &[Row<'_>]) -> String {
    let metrics = rows::observed_metrics(comparison);
    let measured: Vec<&Row<'_>> = rows.iter().filter(|row| !row.counted.is_empty()).collect();
    if measured.is_empty() || metrics.is_empty() {
        return String::new();
    }
    let mut head = String::from("<th scope=\"col\">metric</th><th scope=\"col\">provenance</th>");
    for row in &measured {
        head.push_str(&format!("<th scope=\"col\" class=\"n\">{}</th>", escape(&row.arm.label)));
    }
    let body: String = metrics.iter().map(|metric| figure_row(metric, &measured)).collect();
    wide(
        "Medians of the baseline, and for the others that times the change; a figure that a run lacks is absent, not zero",
        &head,
        &body,
    )
}

fn figure_row(metric: &Metric, rows: &[&Row<'_>]) -> String {
    let mut words: Vec<&str> = rows.iter().flat_map(|row| row.provenances(&metric.name)).map(csv::provenance).collect();
    words.sort_unstable();
    words.dedup();
    let title = metric_name(&metric.name);
    let code = if title == metric.name { String::new() } else { format!("<small>{}</small>", escape(&metric.name)) };
    let cell = |row: &&Row<'_>| {
        let value = row.typical(&metric.name).map(|value| figure::long(value, metric.unit));
        format!("<td class=\"n\">{}{}</td>", escape(&value.unwrap_or_default()), percent(row, &metric.name))
    };
    let cells: String = rows.iter().map(cell).collect();
    format!("<tr><th scope=\"row\">{}{code}</th><td>{}</td>{cells}</tr>\n", escape(&title), words.join(", "))
}

fn percent(row: &Row<'_>, metric: &str) -> String {
    let Some(change) = row.effect(metric).map(Change::of) else { return String::new() };
    let estimate = change.estimate();
    // Counts that never vary need no interval.
    let range = change.range().filter(|range| *range != format!("{0} to {0}", estimate.trim_end_matches(" %")));
    let range = range.map(|range| format!(" ({range})")).unwrap_or_default();
    format!("<small>{}</small>", escape(&typeset(&format!("{estimate}{range}"))))
}

/// Trials that do not count because a setting changed during them.
pub(super) fn rejected(comparison: &Comparison) -> String {
    let mut body = String::new();
    for record in &comparison.trials {
        let label = comparison.design.arms.get(record.trial.arm).map_or("", |arm| arm.label.as_str());
        for change in &record.rejected {
            let value = |value: &Option<String>| value.as_deref().map_or("absent".to_string(), escape);
            body.push_str(&format!(
                "<tr><th scope=\"row\">{}</th><td class=\"n\">{}</td><td><code>{}</code></td><td>{}</td><td>{}</td></tr>\n",
                escape(label),
                record.trial.block,
                escape(&change.path),
                value(&change.before),
                value(&change.after)
            ));
        }
    }
    if body.is_empty() {
        return String::new();
    }
    let head = "<th scope=\"col\">policy</th><th scope=\"col\" class=\"n\">block</th><th scope=\"col\">setting</th>\
                <th scope=\"col\">before</th><th scope=\"col\">after</th>";
    wide("A setting changed while they ran; each was repeated", head, &body)
}

/// A table that scrolls by itself if the page is too narrow for it.
pub(super) fn wide(caption: &str, head: &str, body: &str) -> String {
    format!(
        "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"{0}\"><table>\n<caption><span>{0}</span></caption>\n\
         <thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table></div>\n",
        escape(&typeset(caption))
    )
}
