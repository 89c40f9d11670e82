//! Reports the phases of `kvm-dirty-log`: a table and sentences for people, keys for programs.

use crate::guest::{ARCHITECTURE, EagerSplit, GUEST, Parameters};
use policy::census::{Census, Mapping};
use policy::size::{PageSize, format_bytes};
use results::fold;
use results::grid::plain;
use serde_json::{Map, Value, json};
use workloads::memory::base_page;

use super::model::{Model, Unmodelled};
use super::phases::{Phase, Phases};
use super::{Arguments, Mode, Populate};
use crate::table_split::experiment::Measured;
use crate::table_split::report::{NOT_OPTIMISED, case_document, median};
use crate::table_split::variant_name;
use verbs::lab::Report;
use verbs::lab::terminal_width;

/// The report of a run.
pub fn report(
    arguments: &Arguments,
    host: &Parameters,
    eager: &EagerSplit,
    phases: &Phases,
    model: Option<&Model>,
) -> Report {
    let width = terminal_width();
    let write = phases.list.iter().find(|phase| phase.figure == Some("first_write"));
    let write = write.map_or("the first write", |phase| phase.name.as_str());
    let mut sentences = setting(arguments, phases).to_vec();
    sentences.extend(arguments.guest_leaves.map(|leaf| guest_leaves(leaf, host.shadow_paging())));
    sentences.extend([kvm_description(host), eager_sentence(arguments.mode, eager, write), where_split(phases)]);
    sentences.extend(variation_note(phases));
    sentences.extend(arguments.write_percent.map(random_writes));
    sentences.extend(arguments.pause.map(|pause_s| format!("paused: {pause_s} s before each phase")));
    let folded = sentences.iter().map(|sentence| fold(sentence, width, 2));
    let mut parts = vec![folded.collect::<Vec<_>>().join("\n"), table(&phases.list, phases.pages, width)];
    parts.extend(model.map(|model| model_text(model, width)));
    let mut keys = document(host, eager, phases);
    keys.extend(model.map(|model| ("model".to_string(), model_document(model))));
    figures(base_report(arguments, phases), phases).details(parts.join("\n\n"), keys)
}

fn base_report(arguments: &Arguments, phases: &Phases) -> Report {
    let or_default = |number: Option<u64>| number.map_or(Value::from("default"), Value::from);
    Report::new("kvm-dirty-log", phases.checksum)
        .argument("bytes", arguments.bytes)
        .argument("page_bytes", base_page().bytes())
        .argument("slots", arguments.slots)
        .argument("vcpus", arguments.vcpus)
        .argument("backing", arguments.backing.name())
        .argument("mode", arguments.mode.name())
        .argument("populate", arguments.populate.name())
        .argument("guest_leaf_bytes", or_default(arguments.guest_leaves.map(PageSize::bytes)))
        .argument("chunk_pages", or_default(arguments.chunk))
        .argument("write_percent", or_default(arguments.write_percent.map(u64::from)))
        .argument("rounds", arguments.rounds)
        .argument("cycles", arguments.cycles)
        .argument("pause_s", arguments.pause.unwrap_or(0.0))
        .argument("memory_region", arguments.memory_region)
        .argument("split_chunk_bytes", or_default(arguments.split_chunk))
        .argument("seed", arguments.seed)
}

fn figures(report: Report, phases: &Phases) -> Report {
    let timed = |report: Report, phase: &Phase| match phase.figure {
        Some(figure) => report.figure(format!("{figure}_s"), phase.wall_s()),
        None => report,
    };
    let report = phases.list.iter().fold(report, timed);
    let dirty = phases.list.iter().filter_map(|phase| phase.dirty_pages).max();
    report.figure("dirty_pages", dirty.unwrap_or(0) as f64)
}

fn setting(arguments: &Arguments, phases: &Phases) -> [String; 3] {
    let mapped = match &phases.host {
        Ok(census) => mapped(census),
        Err(error) => format!("unknown leaves ({error})"),
    };
    let populated = match arguments.populate {
        Populate::Guest => {
            format!("{GUEST} on {}, which writes each of {} pages", counted(arguments.vcpus, "vCPU"), phases.pages)
        }
        Populate::PreFault => "KVM_PRE_FAULT_MEMORY, after each page was written by the host".to_string(),
    };
    [
        format!(
            "memory: {} in {}, backing {}; the host maps it with {mapped}",
            format_bytes(arguments.bytes),
            counted(arguments.slots, "slot"),
            arguments.backing.name()
        ),
        format!("populated by {populated}"),
        format!("logging: {}", logging(arguments)),
    ]
}

/// Describes the guest's own leaves and their effect on KVM's; `shadows` is whether KVM uses shadow paging.
fn guest_leaves(leaf: PageSize, shadows: Option<bool>) -> String {
    let consequence = match (ARCHITECTURE, shadows) {
        ("x86_64", Some(true)) => "KVM shadows them, so that none of its own leaves is larger",
        ("x86_64", None) => "if KVM shadows them, none of its own leaves is larger; whether it does is not known here",
        _ => "KVM's own do not depend on them",
    };
    format!("guest: its page tables map the memory with leaves of at most {leaf}; {consequence}")
}

fn random_writes(percent: u8) -> String {
    format!(
        "random writes: while a page is logged, the guest writes it with a probability of {percent} %, and reads it otherwise; the log must contain every written page, and others only if KVM maps them anew"
    )
}

fn logging(arguments: &Arguments) -> String {
    match arguments.mode {
        Mode::Enable => "pages are write-protected when logging is enabled, and again by KVM_GET_DIRTY_LOG".to_string(),
        Mode::Clear => format!(
            "manual protect, initially set: pages are write-protected by KVM_CLEAR_DIRTY_LOG, {} at a time",
            arguments.chunk.map_or("a slot".to_string(), |pages| format!("{pages} pages"))
        ),
    }
}

fn counted(count: u32, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Formats `1G in 2M leaves`. If the folios are larger than the leaves, also their size.
fn mapped(census: &Census) -> String {
    let row = |(mapping, bytes): (&Mapping, u64)| {
        let (leaf, effective) = (format_bytes(mapping.leaf.bytes()), format_bytes(mapping.effective().bytes()));
        let folio = if mapping.effective() > mapping.leaf { format!(" of {effective} folios") } else { String::new() };
        format!("{} in {leaf} leaves{folio}", format_bytes(bytes))
    };
    census.rows().map(row).collect::<Vec<_>>().join(", ")
}

fn kvm_description(host: &Parameters) -> String {
    let flag = |value: Option<bool>| match value {
        Some(true) => "Y",
        Some(false) => "N",
        None => "not offered",
    };
    let modules = if host.modules.is_empty() { "built in".to_string() } else { host.modules.join(" ") };
    match ARCHITECTURE {
        "x86_64" => format!(
            "KVM: {modules}, tdp_mmu {}, eager_page_split {}; leaves are KVM's count for the whole virtual machine, \
             including the guest's loop and what KVM maps around it",
            flag(host.tdp_mmu),
            flag(host.eager_page_split)
        ),
        _ => format!("KVM: {ARCHITECTURE}, which counts no leaves of stage 2 in its statistics"),
    }
}

/// Says whether the host splits eagerly, and what the figures mean then. `write` is the name of the phase of the first
/// write.
fn eager_sentence(mode: Mode, eager: &EagerSplit, write: &str) -> String {
    let splitting = mode.name();
    match eager {
        EagerSplit::Shown => format!("eager splitting: on; what it costs is in `{splitting}`"),
        EagerSplit::NotShown { because } => format!(
            "eager splitting: this host cannot show it, because {because}. So `{splitting}` is the cost of write \
             protection without any split, and a large leaf is removed when the guest first writes into it: that cost is \
             in `{write}`, with that of a fault for each page"
        ),
        EagerSplit::Unknown { because } => format!(
            "eager splitting: unknown, because {because}. What a split costs is in `{splitting}` or in `{write}`: \
             see where the number of large leaves falls"
        ),
    }
}

fn where_split(phases: &Phases) -> String {
    let large = |phase: &Phase| phase.leaves.is_some_and(|leaves| leaves.pages_2m + leaves.pages_1g > 0);
    match phases.split_in() {
        Some(phase) => format!("seen: leaves above 4K became fewer in `{}`", phase.name),
        None if phases.list.iter().all(|phase| phase.leaves.is_none()) => {
            "seen: nothing, this KVM counts no leaves".into()
        }
        None if phases.list.iter().any(large) => "seen: leaves above 4K never became fewer".into(),
        None => "seen: there was no leaf above 4K, so there was nothing to split".into(),
    }
}

/// A note on phases whose leaves differed between cycles.
fn variation_note(phases: &Phases) -> Option<String> {
    let names: Vec<_> =
        phases.list.iter().filter(|phase| phase.leaves_varied).map(|phase| format!("`{}`", phase.name)).collect();
    let has_varied = !names.is_empty();
    has_varied.then(|| {
        format!("later cycles had a different number of leaves above 4K after {}: medians mix them", names.join(", "))
    })
}

fn table(list: &[Phase], pages: u64, width: usize) -> String {
    let count = |number: Option<u64>| number.map_or("-".to_string(), |number| number.to_string());
    let rows = list.iter().map(|phase| {
        let leaves = phase.leaves;
        [
            phase.name.clone(),
            format!("{:.3}", phase.wall_s() * 1e3),
            format!("{:.3}", phase.least_s() * 1e3),
            format!("{:.1}", phase.wall_s() * 1e9 / pages as f64),
            count(phase.dirty_pages),
            count(leaves.map(|leaves| leaves.pages_4k)),
            count(leaves.map(|leaves| leaves.pages_2m)),
            count(leaves.map(|leaves| leaves.pages_1g)),
        ]
    });
    if list.iter().any(|phase| phase.walls_s.len() > 1) {
        let header =
            ["phase", "median ms", "least ms", "ns a page", "dirty pages", "4K leaves", "2M leaves", "1G leaves"];
        return plain(header, rows, width);
    }
    let rows =
        rows.map(|[name, time, _, page, dirty, small, large, huge]| [name, time, page, dirty, small, large, huge]);
    plain(["phase", "ms", "ns a page", "dirty pages", "4K leaves", "2M leaves", "1G leaves"], rows, width)
}

fn document(host: &Parameters, eager: &EagerSplit, phases: &Phases) -> Map<String, Value> {
    let phase = |phase: &Phase| {
        let leaves = phase.leaves.map(
            |leaves| json!({ "pages_4k": leaves.pages_4k, "pages_2m": leaves.pages_2m, "pages_1g": leaves.pages_1g }),
        );
        json!({
            "name": phase.name,
            "wall_s": phase.wall_s(),
            "walls_s": phase.walls_s,
            "dirty_pages": phase.dirty_pages,
            "written_pages": (!phase.written_pages.is_empty()).then_some(&phase.written_pages),
            "leaves": leaves,
            "leaves_varied": phase.leaves_varied,
        })
    };
    let mapped = phases.host.as_ref().ok().map(|census| {
        let row = |(mapping, bytes): (&Mapping, u64)| {
            json!({
                "backing": mapping.backing,
                "leaf_bytes": mapping.leaf.bytes(),
                "effective_bytes": mapping.effective().bytes(),
                "bytes": bytes,
            })
        };
        census.rows().map(row).collect::<Vec<_>>()
    });
    let host = json!({
        "architecture": ARCHITECTURE,
        "guest": GUEST,
        "modules": host.modules,
        "tdp_mmu": host.tdp_mmu,
        "eager_page_split": host.eager_page_split,
        "nested_page_tables": host.nested_page_tables,
        "eager_splitting": eager.name(),
        "because": eager.because(),
    });
    Map::from_iter([
        ("kvm".to_string(), host),
        ("host_mapping".to_string(), json!(mapped)),
        ("phases".to_string(), phases.list.iter().map(phase).collect()),
        ("split_in".to_string(), json!(phases.split_in().map(|phase| &phase.name))),
    ])
}

fn model_text(model: &Model, width: usize) -> String {
    let title = "Modelled, not measured with KVM: arm64's eager split of the same memory (`pagelab table split`). \
                 Visits are exact; the time is that of the model's own tables on this machine, with the walk that \
                 write-protects.";
    let measured = model.rows.iter().filter_map(|row| row.as_ref().ok());
    let rows = measured.flat_map(|measured| {
        measured.arms.iter().map(move |arm| {
            [
                measured.case.title(),
                variant_name(arm.variant).to_string(),
                arm.counters.visits().to_string(),
                arm.counters.tables.to_string(),
                arm.counters.walks.to_string(),
                format!("{:.3}", median(&arm.both_s()) * 1e3),
            ]
        })
    });
    let table = plain(["case", "variant", "visits", "tables", "walks", "modelled ms"], rows, width);
    let mut lines = vec![fold(title, width, 0), table];
    lines.extend(NOT_OPTIMISED.map(str::to_string));
    lines.extend(model.rows.iter().filter_map(|row| row.as_ref().err()).map(|error| format!("not modelled: {error}")));
    lines.join("\n")
}

fn model_document(model: &Model) -> Value {
    let row = |row: &Result<Measured, Unmodelled>| match row {
        Ok(measured) => case_document(measured),
        Err(error) => json!({ "not_modelled": error.to_string() }),
    };
    json!({ "provenance": "modelled", "cases": model.rows.iter().map(row).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use crate::guest::Leaves;

    use super::super::phases::UnknownMappings;
    use super::*;

    #[test]
    fn explains_the_figures_by_what_the_host_shows() {
        let because = || "of that".to_string();
        let sentence = |eager| eager_sentence(Mode::Clear, &eager, "write 1");
        assert_eq!(sentence(EagerSplit::Shown), "eager splitting: on; what it costs is in `clear`");
        let not = sentence(EagerSplit::NotShown { because: because() });
        assert!(not.contains("cannot show it, because of that. So `clear` is") && not.contains("`write 1`"), "{not}");
        let unknown = sentence(EagerSplit::Unknown { because: because() });
        assert!(
            unknown.contains("unknown, because of that") && unknown.contains("`clear` or in `write 1`"),
            "{unknown}"
        );
    }

    #[test]
    fn the_guests_leaves_limit_kvms_under_shadow_paging() {
        let sentence = |shadows| guest_leaves(PageSize::K4, shadows);
        assert!(sentence(Some(false)).ends_with("leaves of at most 4K; KVM's own do not depend on them"));
        let bounded = sentence(Some(true)).contains("none of its own leaves is larger");
        assert_eq!(bounded, ARCHITECTURE == "x86_64");
        assert_eq!(sentence(None).contains("is not known here"), ARCHITECTURE == "x86_64");
    }

    #[test]
    fn uncounted_figures_are_absent_and_not_zero() {
        let phase = |leaves| Phase {
            name: "enable".into(),
            figure: None,
            walls_s: vec![0.002],
            dirty_pages: None,
            written_pages: Vec::new(),
            leaves,
            leaves_varied: false,
        };
        let large = Leaves { pages_4k: 7, pages_2m: 3, pages_1g: 0 };
        let text = table(&[phase(Some(large)), phase(None)], 1000, 100);
        let rows: Vec<Vec<&str>> = text.lines().skip(2).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["enable", "2.000", "2000.0", "-", "7", "3", "0"]);
        assert_eq!(rows[1], ["enable", "2.000", "2000.0", "-", "-", "-", "-"]);
        let thrice = Phase { walls_s: vec![0.003, 0.001, 0.008], ..phase(None) };
        let text = table(&[thrice, phase(None)], 1000, 100);
        let rows: Vec<Vec<&str>> = text.lines().skip(2).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0][..4], ["enable", "3.000", "1.000", "3000.0"]);
        assert_eq!(rows[1][..4], ["enable", "2.000", "2.000", "2000.0"]);
        let phases = |list| Phases { list, pages: 1000, host: Err(UnknownMappings::NotYet), checksum: 0 };
        assert!(where_split(&phases(vec![phase(None)])).contains("counts no leaves"));
        assert_eq!(variation_note(&phases(vec![phase(None)])), None);
        let other = Phase { leaves_varied: true, ..phase(None) };
        assert!(variation_note(&phases(vec![phase(None), other])).unwrap().contains("above 4K after `enable`:"));
        assert!(where_split(&phases(vec![phase(Some(large)), phase(Some(large))])).contains("never became fewer"));
        assert!(where_split(&phases(vec![phase(Some(Leaves::default()))])).contains("nothing to split"));
    }
}
