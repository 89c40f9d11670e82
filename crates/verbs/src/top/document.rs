//! Converts a frame to JSON.

use policy::size::PageSize;
use serde_json::{Value, json};

use super::browse::Browse;
use super::view::{InspectionState, Row, System, View};

/// The document: the system, and the filtered and sorted processes.
pub fn document(view: &View, browse: &Browse) -> Value {
    json!({
        "schema": "pagelab.top/1",
        "system": system(&view.system),
        "processes": browse.visible_rows(view).into_iter().map(process).collect::<Vec<_>>(),
    })
}

fn system(system: &System) -> Value {
    let base = system.page_sizes.base.bytes();
    let free = system.free_blocks_by_order.iter().enumerate();
    let sizes = system.sizes.iter().map(|rates| {
        json!({
            "size_bytes": rates.size.bytes(),
            "given_per_s": rates.given_per_s,
            "fell_back_per_s": rates.fell_back_per_s,
            "folios": rates.folios,
        })
    });
    let pools = system.pools.iter();
    json!({
        "over_s": system.over_s,
        "base_page_bytes": base,
        "pmd_leaf_bytes": system.page_sizes.pmd.map(|pmd| pmd.bytes()),
        "memory_bytes": system.memory_bytes,
        "available_bytes": system.available_bytes,
        "free_blocks": free.map(|(order, blocks)| json!({ "block_bytes": base << order, "blocks": blocks })).collect::<Vec<_>>(),
        "faults_per_s": system.faults_per_s,
        "major_faults_per_s": system.major_faults_per_s,
        "sizes": sizes.collect::<Vec<_>>(),
        "khugepaged": {
            "collapsed_per_s": system.khugepaged.collapsed_per_s,
            "no_block_per_s": system.khugepaged.no_block_per_s,
            "exceeded_per_s": system.khugepaged.exceeded_per_s,
            "full_scans": system.khugepaged.full_scans,
        },
        "compaction": {
            "stalls_per_s": system.compaction.stalls_per_s,
            "succeeded_per_s": system.compaction.succeeded_per_s,
            "failed_per_s": system.compaction.failed_per_s,
            "woken_per_s": system.compaction.woken_per_s,
            "moved_pages_per_s": system.compaction.moved_pages_per_s,
        },
        "folio_splits_per_s": system.folio_splits_per_s,
        "leaf_splits_per_s": system.leaf_splits_per_s,
        "pools": pools
            .map(|(size, pool)| json!({ "size_bytes": size.bytes(), "pages": pool.pages, "free_pages": pool.free }))
            .collect::<Vec<_>>(),
    })
}

fn process(row: &Row) -> Value {
    let mut process = json!({
        "pid": row.pid,
        "name": row.name,
        "resident_bytes": row.resident_bytes,
        "faults_per_s": row.faults_per_s,
        "sizes": Value::Null,
        "folios_seen": Value::Null,
        "could_be_larger_bytes": Value::Null,
        "cause": Value::Null,
        "unseen": Value::Null,
    });
    match &row.inspection {
        InspectionState::Pending => process["unseen"] = json!("not looked at yet"),
        InspectionState::Failed(why) => process["unseen"] = json!(why),
        InspectionState::Done(seen) => {
            let row = |((leaf, folio), bytes): ((PageSize, Option<PageSize>), u64)| {
                json!({
                    "leaf_bytes": leaf.bytes(),
                    "larger_folio_bytes": folio.map(|folio| folio.bytes()),
                    "bytes": bytes,
                })
            };
            process["sizes"] = seen.sizes.rows().into_iter().map(row).collect();
            process["folios_seen"] = json!(seen.sizes.folios_are_known());
            process["could_be_larger_bytes"] = json!(seen.larger_bytes);
            process["cause"] = json!(seen.cause);
        }
    }
    process
}
