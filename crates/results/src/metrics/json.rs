//! One sample of the system ([`Look`]) as one JSON document, schema `pagelab.metrics/1`
//! (docs/reference/formats/metrics.md).

use policy::inspect::Totals;
use serde_json::{Value, json};

use super::openmetrics::causes;
use super::system::SizeFaults;
use super::{Group, GroupName, Look, System, Uninspected};
use crate::inspection::json::pool;
use crate::json::census;

/// Name and version of the document.
pub const SCHEMA: &str = "pagelab.metrics/1";

/// The document of a sample taken at this time.
pub fn look(look: &Look, unix_s: f64) -> Value {
    json!({
        "schema": SCHEMA,
        "at_unix_s": unix_s,
        "cost_s": look.cost_s,
        "all_groups": look.all_groups,
        "groups": look.groups.iter().map(group).collect::<Vec<_>>(),
        "without_group": uninspected(look.without_group),
        "system": system(&look.system),
    })
}

fn group(group: &Group) -> Value {
    let (totals, charges) = (&group.totals, &group.charges);
    let by_cause = causes(totals).into_iter().map(|(cause, bytes)| json!({ "cause": cause, "bytes": bytes }));
    let hugetlb = charges.hugetlb.iter().map(|pool| {
        json!({
            "size_bytes": pool.size.bytes(),
            "used_bytes": pool.used_bytes,
            "limit_bytes": pool.limit_bytes,
        })
    });
    json!({
        "cgroup": group.name.label(),
        "is_other": group.name == GroupName::Other,
        "processes": totals.processes,
        "partly_inspected": totals.partial,
        "uninspected": uninspected(group.uninspected),
        "resident_bytes": group.memory().map(Totals::resident_bytes),
        "private_bytes": totals.private_bytes,
        "shared_bytes": totals.mapped_again_bytes,
        "proportional_bytes": totals.proportional_bytes,
        "census": census(&totals.census),
        "could_be_larger_bytes": group.memory().map(|totals| totals.could_be_larger_bytes),
        "bloat_bytes": group.memory().map(|totals| totals.bloat_bytes),
        "causes": by_cause.collect::<Vec<_>>(),
        "lazy_free_bytes": totals.lazy_free_bytes,
        "held_unmapped_bytes": totals.held_unmapped_bytes,
        "charged_bytes": charges.charged_bytes,
        "limit_bytes": charges.limit_bytes,
        "charged_anonymous_bytes": charges.anonymous_bytes,
        "charged_anonymous_large_bytes": charges.anonymous_large_bytes,
        "charged_file_bytes": charges.file_bytes,
        "hugetlb": hugetlb.collect::<Vec<_>>(),
    })
}

fn uninspected(uninspected: Uninspected) -> Value {
    json!({ "ended": uninspected.ended, "forbidden": uninspected.forbidden, "failed": uninspected.failed })
}

fn system(system: &System) -> Value {
    let faults = |faults: SizeFaults| {
        json!({
            "size_bytes": faults.size.bytes(),
            "memory": faults.memory,
            "given": faults.given,
            "fell_back": faults.fell_back,
        })
    };
    let nodes = system.free_blocks_by_node.iter();
    let nodes = nodes.map(|(node, blocks)| json!({ "node": node, "free_blocks_by_order": blocks }));
    let folios = system.anonymous_folios.iter();
    let folios = folios.map(|(size, folios)| json!({ "size_bytes": size.bytes(), "folios": folios }));
    json!({
        "base_bytes": system.base.bytes(),
        "pmd_bytes": system.pmd.map(|pmd| pmd.bytes()),
        "nodes": nodes.collect::<Vec<_>>(),
        "faults": system.faults().into_iter().map(faults).collect::<Vec<_>>(),
        "anonymous_folios": folios.collect::<Vec<_>>(),
        "counters": system.counters,
        "pools": system.pools.iter().map(pool).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn a_document_has_groups_and_the_system_and_null_for_what_is_not_known() {
        let document = look(&sample::look(), 5.0);
        let first = &document["groups"][0];
        assert_eq!((&first["cgroup"], &first["resident_bytes"]), (&"/a\"b\\\n".into(), &(12 << 20).into()));
        assert_eq!(
            (&first["held_unmapped_bytes"], &first["causes"][0]["cause"]),
            (&Value::Null, &"not_advised".into())
        );
        assert_eq!(document["groups"][1]["charged_bytes"], Value::Null);
        let unseen = &document["groups"][2];
        assert_eq!((&unseen["resident_bytes"], &unseen["uninspected"]["forbidden"]), (&Value::Null, &1.into()));
        assert_eq!(document["system"]["faults"][0]["fell_back"], 10);
        assert_eq!(document["without_group"]["ended"], 3);
        assert!(first["census"].as_array().unwrap().iter().all(|row| row["backing"] != "zero"));
    }
}
