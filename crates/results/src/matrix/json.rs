//! The report as one document.

use serde_json::{Value, json};
use study::definition::Measure;
use study::matrix::geometric::Geometric;
use study::matrix::{Claim, Matrix, Set, Total};

use super::{HostOf, Report, conclude, differences, provenance};

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
        "claim": Claim::of(report.published()).describe(),
        "differences": differences(report),
        "hosts": report.hosts.iter().map(host).collect::<Vec<_>>(),
        "missing": report.missing,
        "rows": report.matrix.rows,
        "totals": report.matrix.totals.iter().map(total).collect::<Vec<_>>(),
        "over_boots": report.over_boots.map(of_boots),
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

/// Boots in the place of policies.
fn of_boots(matrix: &Matrix) -> Value {
    json!({
        "boots": matrix.policies,
        "baseline": matrix.baseline,
        "rows": matrix.rows,
        "totals": matrix.totals.iter().map(total).collect::<Vec<_>>(),
    })
}

fn mean(mean: Geometric) -> Value {
    let (low, high) = mean.interval.unzip();
    json!({ "ratio": mean.ratio, "low_ratio": low, "high_ratio": high, "workloads": mean.of })
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
        "geometric_mean": total.mean.map(mean),
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

fn set(set: &Set) -> Value {
    let (ratio, interval) = set.found.unzip();
    let (low, high) = interval.flatten().unzip();
    json!({
        "what": set.published.what,
        "workload": set.published.workload,
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
