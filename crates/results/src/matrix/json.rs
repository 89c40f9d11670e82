//! The report of a study as one JSON document.

use serde_json::{Value, json};
use study_files::definition::Measure;
use study_files::matrix::Mean;
use study_files::matrix::geometric::Geometric;
use study_files::matrix::{Correlation, Matrix, Reproduction, Total, correlations};

use super::answer::judge_claim;
use super::{ExplainedPolicy, HostOf, Report, conclude, counted, differences, provenance};

/// Name and version of the document.
pub const SCHEMA: &str = "pagelab.study-report/1";

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
        "claim": judge_claim(report).describe(),
        "differences": differences(report),
        "hosts": report.hosts.iter().map(host).collect::<Vec<_>>(),
        "missing": report.missing,
        "lacking": report.lacking,
        "rows": report.matrix.rows,
        "totals": report.matrix.totals.iter().map(total).collect::<Vec<_>>(),
        "over_boots": report.over_boots.map(|matrix| of_others(matrix, "boots")),
        "over_variants": report.over_variants.iter().map(|matrix| of_others(matrix, "variants")).collect::<Vec<_>>(),
        "forms": report.forms.iter().map(super::form::document).collect::<Vec<_>>(),
        "counted": report.counted.as_ref().map(counted::document),
        "series": report.series,
        "explained": report.explained.iter().map(ExplainedPolicy::document).collect::<Vec<_>>(),
        "correlations": correlations(report.matrix).iter().map(correlation).collect::<Vec<_>>(),
        "published": report.published().map(set).collect::<Vec<_>>(),
        "version": report.version,
    })
}

fn host(host: &HostOf) -> Value {
    let machine = &host.machine;
    json!({
        "label": host.label,
        "arch": machine.arch,
        "cpu_model": machine.cpu_model,
        "cpus": machine.cpus,
        "memory_bytes": machine.memory_bytes,
        "hypervisor": machine.hypervisor,
        "kernel": machine.kernel,
        "base_page_bytes": machine.page_sizes.base.bytes(),
    })
}

/// A matrix whose columns are boots or variants instead of policies.
fn of_others(matrix: &Matrix, key: &str) -> Value {
    json!({
        key: matrix.policies,
        "baseline": matrix.baseline,
        "rows": matrix.rows,
        "totals": matrix.totals.iter().map(total).collect::<Vec<_>>(),
    })
}

fn mean(mean: Geometric) -> Value {
    let (low, high) = mean.interval.unzip();
    json!({ "ratio": mean.ratio, "low_ratio": low, "high_ratio": high, "workloads": mean.of })
}

fn over_workloads(mean: Mean) -> Value {
    let bounds = |(low, high): (f64, f64)| json!({ "low_ratio": low, "high_ratio": high });
    json!({
        "ratio": mean.ratio,
        "workloads": mean.of,
        "these": mean.these.map(bounds),
        "like_these": mean.like_these.map(bounds),
    })
}

fn total(total: &Total) -> Value {
    let trade = total
        .trade
        .as_ref()
        .map(|trade| json!({ "cost": mean(trade.cost), "memory": mean(trade.memory), "is_front": trade.is_front }));
    let wins = &total.wins;
    json!({
        "machine": total.machine,
        "provenance": provenance(total.provenance),
        "policy": total.policy,
        "conclusion": total.conclusion,
        "is_held": total.is_held,
        "metric": total.metric.as_ref().map(|(name, _)| name),
        "geometric_mean": total.mean.map(over_workloads),
        "gain_share": total.gain_share,
        "trade": trade,
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

fn correlation(one: &Correlation) -> Value {
    let (low, high) = one.interval.unzip();
    json!({
        "policy": one.policy, "host": one.host, "walks_of": one.machine, "workloads": one.of,
        "rank_correlation": one.rank, "low": low, "high": high,
    })
}

fn set(set: &Reproduction) -> Value {
    let (ratio, interval) = set.found.unzip();
    let (low, high) = interval.flatten().unzip();
    json!({
        "what": set.published.what,
        "workload": set.published.workload,
        "suite": set.published.suite.as_ref().map(|suite| &suite.name),
        "policy": set.published.policy,
        "measure": match set.published.measure {
            Measure::Change => "change",
            Measure::WinShare => "win_share",
        },
        "published_ratio": set.published.ratio,
        "source": set.published.source,
        "machine": set.machine,
        "provenance": provenance(set.provenance),
        "ratio": ratio,
        "low_ratio": low,
        "high_ratio": high,
        "says": set.describe(),
    })
}
