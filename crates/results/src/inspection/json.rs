//! Inspections as one JSON document, schema `pagelab.inspect/1` (docs/reference/formats/inspect.md).

use policy::cause::Cause;
use policy::inspect::{Explained, Inspection, Process, Region, Sight, Since, Summary, Supply, ThpMode};
use serde_json::{Map, Value, json};

use crate::json::census;

/// Name and version of the document.
pub const SCHEMA: &str = "pagelab.inspect/1";

/// The document of one process, with its regions.
pub fn one(inspection: &Inspection) -> Value {
    let mut process = head(&Summary::of(inspection));
    process.insert("regions".into(), inspection.regions.iter().map(|one| region(one, inspection.sight)).collect());
    framed(&inspection.supply, Some(inspection.sight), vec![Value::Object(process)])
}

/// The document of many processes, without their regions. `unseen` lists processes that could not be inspected: PID and reason.
pub fn many(summaries: &[Summary], supply: &Supply, unseen: &[(u32, String)]) -> Value {
    let processes = summaries.iter().map(|one| Value::Object(head(one))).collect();
    let mut document = framed(supply, None, processes);
    document["unseen"] = unseen.iter().map(|(pid, why)| json!({ "pid": pid, "why": why })).collect();
    document
}

/// One sample of a series, a line of `--json-lines`, schema `pagelab.inspect-look/1`.
pub fn look(one: &Summary, unix_s: f64, elapsed_s: f64) -> Value {
    let mut look = Map::new();
    look.insert("schema".into(), "pagelab.inspect-look/1".into());
    look.insert("at_unix_s".into(), unix_s.into());
    look.insert("elapsed_s".into(), elapsed_s.into());
    look.extend(head(one));
    let first = one.first_cause.as_ref().map(|(first, bytes)| json!({ "cause": cause(first), "bytes": bytes }));
    look.insert("first_cause".into(), first.into());
    Value::Object(look)
}

fn framed(supply: &Supply, sight: Option<Sight>, processes: Vec<Value>) -> Value {
    json!({
        "schema": SCHEMA,
        "sight": sight.map(|sight| json!({
            "by_page": sight.by_page,
            "folios": sight.folios,
            "flags": sight.flags,
            "is_live": sight.is_live,
            "text": sight.describe(),
        })),
        "supply": {
            "base_bytes": supply.base_bytes,
            "free_blocks_by_order": supply.free_blocks_by_order,
            "pools": supply.pools.iter().map(|pool| json!({
                "size_bytes": pool.size.bytes(),
                "pages": pool.pages,
                "free": pool.free,
                "surplus_left": pool.surplus_left,
            })).collect::<Vec<_>>(),
            "available_bytes": supply.available_bytes,
            "settings": supply.settings,
            "counters": supply.counters,
            "counted_since": match supply.counted_since {
                Since::Boot => "boot",
                Since::Command => "command",
            },
        },
        "processes": processes,
    })
}

fn head(one: &Summary) -> Map<String, Value> {
    let Process { pid, started_ticks, name, command, program, user_id, is_fork, thp, threads, .. } = &one.process;
    let thp = match thp {
        ThpMode::Enabled => "enabled",
        ThpMode::Disabled => "disabled",
        ThpMode::Unknown => "unknown",
    };
    let head = json!({
        "pid": pid,
        "started_ticks": started_ticks,
        "name": name,
        "command": command,
        "program": program,
        "user_id": user_id,
        "is_fork": is_fork,
        "thp": thp,
        "threads": threads,
        "swap_bytes": one.process.swap_bytes,
        "pinned_bytes": one.process.pinned_bytes,
        "lazy_free_bytes": one.process.lazy_free_bytes,
        "held_unmapped_bytes": one.process.held_unmapped_bytes,
        "contents": one.process.contents.map(|contents| json!({
            "read_bytes": contents.read_bytes,
            "zero_bytes": contents.zero_bytes,
            "unread_bytes": contents.unread_bytes,
        })),
        "memory_cgroup": one.process.memory_cgroup,
        "memory_limit": one.process.memory_limit.as_ref().map(|limit| json!({
            "group": limit.group,
            "limit_bytes": limit.limit_bytes,
            "charged_bytes": limit.charged_bytes,
            "reached": limit.reached,
        })),
        "resident_bytes": one.resident_bytes,
        "could_be_larger_bytes": one.could_be_larger_bytes,
        "bloat_bytes": one.bloat_bytes,
        "census": census(&one.census),
        "partial": one.partial,
    });
    match head {
        Value::Object(head) => head,
        _ => Map::new(),
    }
}

fn region(region: &Region, sight: Sight) -> Value {
    let cuts = region
        .cuts
        .iter()
        .map(|cut| json!({ "start": cut.start, "end": cut.end, "by": cut.by.label(), "text": cut.by.describe() }));
    json!({
        "start": region.start,
        "end": region.end,
        "kind": region.kind.label(),
        "text": region.kind.describe(),
        "recognised_by": region.recognised_by,
        "vmas": region.vmas,
        "shared": region.shared,
        "resident_bytes": region.resident_bytes(),
        "swap_bytes": region.swap_bytes,
        "shared_after_fork_bytes": region.shared_after_fork_bytes,
        "target_bytes": region.target.map(|size| size.bytes()),
        "aligned": region.aligned,
        "census": census(&region.census),
        "tlb_runs": region.tlb_runs.map(|runs| json!({
            "k16_bytes": runs.k16_bytes,
            "k32_bytes": runs.k32_bytes,
            "k64_bytes": runs.k64_bytes,
            "misplaced_bytes": runs.misplaced_bytes,
            "in_place_bytes": runs.in_place_bytes,
        })),
        "could_be_larger_bytes": region.win.bytes,
        "slots": region.win.slots,
        "bloat_bytes": region.win.absent_bytes,
        "causes": sight.flags.then(|| region.causes.iter().map(explained).collect::<Vec<_>>()),
        "cut_count": region.cut_count,
        "cuts": cuts.collect::<Vec<_>>(),
    })
}

fn explained(one: &Explained) -> Value {
    json!({
        "cause": cause(&one.cause),
        "or": one.or.iter().map(cause).collect::<Vec<_>>(),
        "bytes": one.bytes,
        "evidence": one.evidence,
    })
}

fn cause(cause: &Cause) -> Value {
    let mut value = serde_json::to_value(cause).unwrap_or_default();
    value["text"] = cause.describe().into();
    value["remedy"] = cause.remedy().into();
    value
}
