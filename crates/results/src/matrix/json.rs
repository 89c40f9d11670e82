//! The report as one document.

use serde_json::{Value, json};
use study::matrix::{Set, Total};

use super::{Report, conclude, provenance};

/// The name and version of the document.
pub const SCHEMA: &str = "pagelab.study-report/1";

/// The document.
pub fn document(report: &Report<'_>) -> Value {
    let definition = report.definition;
    json!({
        "schema": SCHEMA,
        "study": definition.name,
        "question": definition.question,
        "size": definition.size.name(),
        "policies": report.matrix.policies,
        "baseline": report.matrix.baseline,
        "answer": conclude(report),
        "missing": report.missing,
        "rows": report.matrix.rows,
        "totals": report.matrix.totals.iter().map(total).collect::<Vec<_>>(),
        "published": report.matrix.published.iter().map(set).collect::<Vec<_>>(),
        "version": report.version,
    })
}

fn total(total: &Total) -> Value {
    let mean = total.mean.map(|mean| {
        let (low, high) = mean.interval.unzip();
        json!({ "ratio": mean.ratio, "low_ratio": low, "high_ratio": high, "workloads": mean.of })
    });
    let wins = &total.wins;
    json!({
        "machine": total.machine,
        "provenance": provenance(total.provenance),
        "policy": total.policy,
        "geometric_mean": mean,
        "worst": total.worst.as_ref().map(|(ratio, workload)| json!({ "ratio": ratio, "workload": workload })),
        "wins": {
            "races": wins.races,
            "won": wins.won,
            "tied": wins.tied,
            "led": wins.led,
            "led_by_chance": wins.led_by_chance,
            "chance_low": wins.chance_range.0,
            "chance_high": wins.chance_range.1,
        },
    })
}

fn set(set: &Set) -> Value {
    let (ratio, interval) = set.found.unzip();
    let (low, high) = interval.flatten().unzip();
    json!({
        "what": set.published.what,
        "workload": set.published.workload,
        "policy": set.published.policy,
        "published_ratio": set.published.ratio,
        "source": set.published.source,
        "machine": set.machine,
        "provenance": provenance(set.provenance),
        "ratio": ratio,
        "low_ratio": low,
        "high_ratio": high,
        "says": set.beside.describe(),
    })
}
