//! Counts the events that cost time in KVM's eager page splitting of arm64 stage 2, on pagelab's own tables.

use crate::split::{Backing, Build, Counters, Error, Mode, Options, ProtectAndSplit, Slot, Variant};
use crate::split::{build_slot, chunk_sizes, log_slot};
use paging::Format;
use paging::InputAddress;
use paging::format::arm64::Granule;
use paging::format::arm64_stage2::Arm64Stage2;
use study_files::counted::{Case, Counted, Counts, Figure, KernelChange};

/// The name of this count in study files.
pub const NAME: &str = "stage2-split";

/// All events that cost time. The study gives the cost of each.
pub const EVENTS: [&str; 16] = [
    "ioctl",
    "word",
    "protect_walk",
    "protect_visit",
    "protect_change",
    "split_walk",
    "split_visit",
    "split_block",
    "tlb_invalidation",
    "built_entry",
    "table",
    "zeroed_line",
    "top_up",
    "cold_line",
    "dirty_line",
    "barrier",
];

/// The guest-physical start of memory on QEMU's machine `virt`.
const FIRST: InputAddress = InputAddress(1 << 30);
/// The size of a cache line in bytes, and in table entries.
const LINE_BYTES: u64 = 64;
const LINE_ENTRIES: u64 = 8;

const GRANULES: [(&str, Granule); 3] = [("4K", Granule::K4), ("16K", Granule::K16), ("64K", Granule::K64)];
const BACKINGS: [(&str, Backing); 3] = [("pages", Backing::Pages), ("thp", Backing::Blocks), ("1g", Backing::Gigabyte)];
const VARIANTS: [(&str, Variant); 4] = [
    ("vanilla", Variant::Vanilla),
    ("skip-return", Variant::SkipByReturn),
    ("skip-level3", Variant::SkipPages),
    ("skip-children", Variant::SkipPagesAndChildren),
];
/// The two modes: dirty logging is enabled, or the log is cleared.
const MODES: [(&str, Mode); 2] = [("enable", Mode::Enable), ("clear", Mode::Clear)];
/// A further phase: `enable` without the walk that write-protects.
const SPLIT_ALONE: &str = "split";
/// All phases, in the order of tables.
const PHASES: [&str; 3] = ["enable", "clear", SPLIT_ALONE];

/// Every phase and backing, in the order of tables.
pub fn order() -> impl Iterator<Item = (&'static str, &'static str)> {
    PHASES.into_iter().flat_map(|phase| BACKINGS.into_iter().map(move |(backing, _)| (phase, backing)))
}

/// An error message if the study names an event, phase, backing or variant that cannot be counted here.
pub fn unknown(counted: &Counted) -> Option<String> {
    let events: Vec<String> = counted.costs.events.iter().map(|cost| cost.event.clone()).collect();
    let without = EVENTS.iter().find(|event| events.iter().all(|known| known != *event));
    let of_figures = |key, part: fn(&Figure) -> &String, known: &[&str]| {
        let names: Vec<String> = counted.published.iter().map(|figure| part(figure).clone()).collect();
        unknown_name(key, &names, known)
    };
    let of_kernels = |key, part: fn(&KernelChange) -> &String, known: &[&str]| {
        let changes = counted.kernels.iter().flat_map(|kernels| &kernels.changes);
        unknown_name(key, &changes.map(|one| part(one).clone()).collect::<Vec<_>>(), known)
    };
    unknown_name("counted.what", std::slice::from_ref(&counted.what), &[NAME])
        .or_else(|| unknown_name("counted.granules", &counted.granules, &GRANULES.map(|(name, _)| name)))
        .or_else(|| unknown_name("counted.variants", &counted.variants, &VARIANTS.map(|(name, _)| name)))
        .or_else(|| unknown_name("counted.cost.event", &events, &EVENTS))
        .or_else(|| without.map(|event| format!("counted.cost: expected a cost of the event {event:?}, found none")))
        .or_else(|| of_figures("published.counted.phase", |figure| &figure.phase, &PHASES))
        .or_else(|| of_figures("published.counted.backing", |figure| &figure.backing, &BACKINGS.map(|(name, _)| name)))
        .or_else(|| of_kernels("counted.kernels.changes.phase", |one| &one.phase, &PHASES))
        .or_else(|| of_kernels("counted.kernels.changes.backing", |one| &one.backing, &BACKINGS.map(|(name, _)| name)))
}

fn unknown_name(key: &str, names: &[String], known: &[&str]) -> Option<String> {
    let name = names.iter().find(|name| !known.contains(&name.as_str()))?;
    Some(format!("{key}: there is no {name:?}; there are {}", known.join(", ")))
}

/// Counts every case of a granule, phase by phase.
///
/// # Errors
/// The memory exceeds what tables of this format can map, or is not a whole number of blocks.
pub fn cases(counted: &Counted, granule: &str) -> Result<Vec<Case>, Error> {
    let known = GRANULES.iter().find(|(name, _)| *name == granule);
    let Some((_, size)) = known else { return Ok(Vec::new()) };
    let mut cases = Vec::new();
    for (phase, mode) in MODES {
        for (backing, kind) in BACKINGS {
            for variant in &counted.variants {
                let Some((_, walk)) = VARIANTS.iter().find(|(name, _)| name == variant) else { continue };
                let format = Arm64Stage2::new(*size, 40);
                let logged = logged(format, counted.bytes, kind, mode, *walk)?;
                let of = |phase: &str, visits, counts| Case {
                    phase: phase.to_owned(),
                    backing: backing.to_owned(),
                    granule: granule.to_owned(),
                    variant: variant.clone(),
                    visits,
                    counts,
                };
                let ProtectAndSplit { protect, split } = logged;
                let page_bytes = format.geometry().page_bytes();
                let both = counts(&protect, &split, mode, kind, page_bytes);
                cases.push(of(phase, protect.visits() + split.visits(), both));
                if mode == Mode::Enable {
                    let alone = counts(&Counters::default(), &split, mode, kind, page_bytes);
                    cases.push(of(SPLIT_ALONE, split.visits(), alone));
                }
            }
        }
    }
    Ok(cases)
}

fn logged(
    format: Arm64Stage2,
    bytes: u64,
    backing: Backing,
    mode: Mode,
    variant: Variant,
) -> Result<ProtectAndSplit, Error> {
    let slot = Slot { ipa: FIRST, bytes };
    let mut tables = build_slot(format, slot, backing)?;
    let chunk_bytes = chunk_sizes(format.granule()).last().copied().unwrap_or_default();
    // Both ways of building tables give the same counts; this one is faster.
    log_slot(&mut tables, slot, Options { variant, build: Build::Fill, chunk_bytes, mode })
}

/// Combines the events of the write-protecting walk and of the splitting walk.
fn counts(protect: &Counters, split: &Counters, mode: Mode, backing: Backing, page_bytes: u64) -> Counts {
    // With chunks of 64 pages, table entries that one walk has read are still cached when the other walk reads them, and so
    // are newly built tables.
    let cold = match (mode, backing) {
        (Mode::Enable, Backing::Pages) => protect.cache_lines + split.cache_lines,
        (Mode::Clear, Backing::Pages) | (Mode::Enable, _) => protect.cache_lines,
        (Mode::Clear, _) => 0,
    };
    let words = if mode == Mode::Clear { protect.walks } else { 0 };
    let all = [
        1,
        words,
        protect.walks,
        protect.entries_read,
        protect.entries_protected,
        split.walks,
        split.entries_read,
        split.tlb_invalidations,
        split.tlb_invalidations,
        split.entries_built,
        split.tables,
        split.tables * page_bytes / LINE_BYTES,
        split.top_ups,
        cold,
        (protect.entries_protected + split.entries_built).div_ceil(LINE_ENTRIES),
        split.walks,
    ];
    EVENTS.iter().map(|event| (*event).to_owned()).zip(all).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(backing: Backing, mode: Mode, variant: Variant) -> Counts {
        let format = Arm64Stage2::new(Granule::K4, 40);
        let ProtectAndSplit { protect, split } = logged(format, 1 << 30, backing, mode, variant).unwrap();
        counts(&protect, &split, mode, backing, 4096)
    }

    #[test]
    fn events_are_those_of_the_walks() {
        let of = |backing, mode, event: &str| all(backing, mode, Variant::Vanilla)[event];
        assert_eq!(all(Backing::Blocks, Mode::Enable, Variant::Vanilla).len(), EVENTS.len());
        assert_eq!(of(Backing::Blocks, Mode::Enable, "built_entry"), 262_144);
        assert_eq!(of(Backing::Blocks, Mode::Enable, "split_visit"), 262_657);
        assert_eq!(of(Backing::Blocks, Mode::Enable, "zeroed_line"), 512 * 64);
        assert_eq!(of(Backing::Blocks, Mode::Enable, "tlb_invalidation"), 512);
        assert_eq!(of(Backing::Pages, Mode::Enable, "protect_change"), 262_144);
        assert_eq!((of(Backing::Pages, Mode::Enable, "word"), of(Backing::Pages, Mode::Clear, "word")), (0, 4096));
    }

    #[test]
    fn variants_differ_only_in_the_work_that_a_split_omits() {
        let (vanilla, skipping) = (
            all(Backing::Gigabyte, Mode::Enable, Variant::Vanilla),
            all(Backing::Gigabyte, Mode::Enable, Variant::SkipPages),
        );
        let differs: Vec<&str> = EVENTS.into_iter().filter(|event| vanilla[*event] != skipping[*event]).collect();
        assert_eq!(differs, ["split_visit"]);
    }
}
