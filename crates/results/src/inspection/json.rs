//! Inspections as one JSON document, schema `pagelab.inspect/1` (docs/reference/formats/inspect.md).

use policy::cause::Cause;
use policy::held_files::FilesWithMemory;
use policy::hugetlb::{HugetlbLimit, Limited, RefusedRequest};
use policy::inspect::{
    BasePageSupport, ChangedSetting, Explained, Inspection, Jemalloc, Pool, Process, Region, SecondStage, Since,
    Summary, Supply, ThpMode, Totals, Visibility,
};
use policy::remedy::Remedy;
use policy::size::PageSize;
use serde_json::{Map, Value, json};

use crate::held_files;
use crate::json::census;

/// Name and version of the document.
pub const SCHEMA: &str = "pagelab.inspect/1";

/// The document of one process, with its regions.
pub fn one(inspection: &Inspection) -> Value {
    let mut document = framed(&inspection.supply, Some(inspection.sight), vec![process(inspection)]);
    document["refused_requests"] =
        inspection.refused_requests.as_ref().map(|requests| requests.iter().map(refused).collect::<Vec<_>>()).into();
    document
}

/// A process with its regions: a part of larger documents.
pub fn process(inspection: &Inspection) -> Value {
    let mut process = head(&Summary::of(inspection));
    process.insert("regions".into(), inspection.regions.iter().map(|one| region(one, inspection.sight)).collect());
    Value::Object(process)
}

fn refused(request: &RefusedRequest) -> Value {
    let cause = Cause::from(request);
    json!({
        "call": request.call,
        "size_bytes": request.size.bytes(),
        "errno": request.errno,
        "times": request.times,
        "pages": request.pages,
        "pool": request.pool.as_ref().map(pool),
        "limit": request.limit.as_ref().map(limit),
        "text": cause.describe(),
        "remedy": policy::remedy::of_cause(&cause),
    })
}

/// A hugetlb pool.
pub fn pool(pool: &Pool) -> Value {
    let nodes = pool
        .nodes
        .iter()
        .map(|node| json!({ "node": node.node, "pages": node.pages, "free": node.free, "surplus": node.surplus }));
    json!({
        "size_bytes": pool.size.bytes(),
        "pages": pool.pages,
        "used": pool.used(),
        "reserved": pool.reserved,
        "free": pool.free,
        "surplus": pool.surplus,
        "surplus_left": pool.surplus_left,
        "nodes": nodes.collect::<Vec<_>>(),
    })
}

fn limit(limit: &HugetlbLimit) -> Value {
    json!({
        "size_bytes": limit.size.bytes(),
        "file": limit.file,
        "limits": match limit.limited {
            Limited::Use => "use",
            Limited::Reservation => "reservation",
        },
        "limit_bytes": limit.limit_bytes,
        "used_bytes": limit.used_bytes,
    })
}

/// The document of many processes, without their regions. `unseen` lists processes that could not be inspected: PID and reason.
/// `files` lists the files on hugetlbfs and those on tmpfs, if all processes were inspected.
pub fn many(
    summaries: &[Summary],
    supply: &Supply,
    unseen: &[(u32, String)],
    files: Option<[&FilesWithMemory; 2]>,
) -> Value {
    let processes = summaries.iter().map(|one| Value::Object(head(one))).collect();
    let mut document = framed(supply, None, processes);
    let [hugetlb, tmpfs] = files.map_or([None, None], |files| files.map(Some));
    document["hugetlb_files"] = hugetlb.map(held_files::json).into();
    document["tmpfs_files"] = tmpfs.map(held_files::json).into();
    document["unseen"] = unseen.iter().map(|(pid, why)| json!({ "pid": pid, "why": why })).collect();
    document
}

/// One sample of a process in a series: a line of `--json-lines`, schema `pagelab.inspect-look/1`.
pub fn sample(one: &Summary, unix_s: f64, elapsed_s: f64) -> Value {
    let mut sample = Map::new();
    sample.insert("schema".into(), "pagelab.inspect-look/1".into());
    sample.insert("at_unix_s".into(), unix_s.into());
    sample.insert("elapsed_s".into(), elapsed_s.into());
    sample.extend(head(one));
    let first = one.first_cause.as_ref().map(|(first, bytes)| json!({ "cause": cause(first), "bytes": bytes }));
    sample.insert("first_cause".into(), first.into());
    Value::Object(sample)
}

/// One sample of a set of processes: a line of `--json-lines`, schema `pagelab.inspect-set-look/1`. `unseen` lists the processes that
/// could not be inspected: PID and reason.
pub fn set_sample(totals: &Totals, unseen: &[(u32, String)], unix_s: f64, elapsed_s: f64) -> Value {
    let causes = totals.causes.iter().filter(|(_, bytes)| **bytes > 0);
    let mut causes: Vec<(&Cause, &u64)> = causes.collect();
    causes.sort_by_key(|(_, bytes)| std::cmp::Reverse(**bytes));
    json!({
        "schema": "pagelab.inspect-set-look/1",
        "at_unix_s": unix_s,
        "elapsed_s": elapsed_s,
        "processes": totals.processes,
        "partly_inspected": totals.partial,
        "resident_bytes": totals.resident_bytes(),
        "private_bytes": totals.private_bytes,
        "shared_bytes": totals.mapped_again_bytes,
        "proportional_bytes": totals.proportional_bytes,
        "could_be_larger_bytes": totals.could_be_larger_bytes,
        "bloat_bytes": totals.bloat_bytes,
        "lazy_free_bytes": totals.lazy_free_bytes,
        "held_unmapped_bytes": totals.held_unmapped_bytes,
        "census": census(&totals.census),
        "causes": causes.iter().map(|(one, bytes)| json!({ "cause": cause(one), "bytes": bytes })).collect::<Vec<_>>(),
        "unseen": unseen.iter().map(|(pid, why)| json!({ "pid": pid, "why": why })).collect::<Vec<_>>(),
    })
}

fn framed(supply: &Supply, sight: Option<Visibility>, processes: Vec<Value>) -> Value {
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
            "pools": supply.pools.iter().map(pool).collect::<Vec<_>>(),
            "available_bytes": supply.available_bytes,
            "settings": supply.settings,
            "counters": supply.counters,
            "counted_since": match supply.counted_since {
                Since::Boot => "boot",
                Since::Command => "command",
            },
            "leaseholder": supply.leaseholder,
            "changed_settings": supply.changed_settings.iter().map(|ChangedSetting { path, now, own }| {
                json!({ "path": path, "now": now, "own": own })
            }).collect::<Vec<_>>(),
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
        "peak_bytes": one.process.peak_bytes,
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
        "base_pages": base_pages(&one.process.base_page_support),
        "jemalloc": one.process.jemalloc.as_ref().map(|all| all.iter().map(jemalloc).collect::<Vec<_>>()),
        "second_stage": one.process.second_stage.as_ref().map(second_stage),
        "hugetlb_limits": one.process.hugetlb_limits.iter().map(limit).collect::<Vec<_>>(),
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

fn base_pages(base_page_support: &BasePageSupport) -> Value {
    match base_page_support {
        BasePageSupport::Unknown => Value::Null,
        BasePageSupport::All => json!({ "refused_bytes": null, "aligned_to_bytes": null, "files": [], "text": null }),
        BasePageSupport::Refused(refused) => json!({
            "refused_bytes": refused.refused.bytes(),
            "aligned_to_bytes": refused.aligned_to.bytes(),
            "files": refused.files,
            "text": refused.describe(),
        }),
    }
}

fn jemalloc(one: &Jemalloc) -> Value {
    let built_for = one.built_for.map(PageSize::bytes);
    json!({ "file": one.file, "built_for_bytes": built_for, "text": one.describe() })
}

fn second_stage(stage: &SecondStage) -> Value {
    let (leaves, not_read) = match stage {
        SecondStage::Leaves(leaves, _) => {
            let leaves = leaves.iter().map(|(size, count)| json!({ "leaf_bytes": size.bytes(), "leaves": count }));
            (Some(leaves.collect::<Vec<_>>()), None)
        }
        SecondStage::NotRead(reason) => (None, Some(reason)),
    };
    json!({ "leaves": leaves, "not_read": not_read, "text": stage.describe() })
}

fn region(region: &Region, sight: Visibility) -> Value {
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
        "could_be_larger_bytes": region.benefit.bytes,
        "slots": region.benefit.slots,
        "bloat_bytes": region.benefit.absent_bytes,
        "causes": sight.flags.then(|| region.causes.iter().map(explained).collect::<Vec<_>>()),
        "cut_count": region.cut_count,
        "cuts": cuts.collect::<Vec<_>>(),
    })
}

fn explained(one: &Explained) -> Value {
    json!({
        "cause": cause(&one.cause),
        "also": one.also.iter().map(cause).collect::<Vec<_>>(),
        "or": one.or.iter().map(cause).collect::<Vec<_>>(),
        "bytes": one.bytes,
        "winnable": one.is_removable(),
        "evidence": one.evidence,
        "remedies": one.remedies.iter().map(remedy).collect::<Vec<_>>(),
    })
}

fn remedy(one: &Remedy) -> Value {
    json!({ "text": one.describe(), "only": one.only, "changes": one.changes })
}

pub(crate) fn cause(cause: &Cause) -> Value {
    let mut value = serde_json::to_value(cause).unwrap_or_default();
    value["text"] = cause.describe().into();
    value
}
