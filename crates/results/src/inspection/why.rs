//! The causes of a whole process for the terminal: large ones with all details, small ones combined in one line.

use std::collections::BTreeMap;

use policy::cause::Cause;
use policy::inspect::{Explained, Inspection, explained};
use policy::size::{PageSize, format_bytes};

use super::words::cause_lines;
use crate::text::{fold, printable};

/// Causes below 1/N of the resident memory are combined in one line.
const SMALL_PART: u64 = 100;
/// Names the options that list the causes of a combined line.
const LISTED: &str = "--regions and --json list them";

/// The causes of all regions. The first block is their sum: the memory that could be larger.
pub fn why(inspection: &Inspection, width: usize) -> String {
    let (absent, present): (Vec<_>, Vec<_>) =
        explained(&inspection.regions).into_iter().partition(Explained::is_absent);
    let (winnable, fixed) = present.into_iter().partition(Explained::is_removable);
    let why = format!("why not larger ({}a remedy acts at the next start, a collapse at once)", sizes(inspection));
    let blocks = [
        (why.as_str(), winnable),
        ("what no setting makes larger", fixed),
        ("what is not present, and cannot be", absent),
    ];
    let blocks = blocks.into_iter().filter(|(_, causes)| !causes.is_empty());
    blocks.map(|(title, causes)| block(title, causes, inspection, width)).collect::<Vec<_>>().join("\n\n")
}

/// The sizes that could be used instead: `most of it could have 2M pages, the rest 1M to 32K; `.
fn sizes(inspection: &Inspection) -> String {
    let mut sizes: BTreeMap<PageSize, u64> = BTreeMap::new();
    for region in inspection.regions.iter().filter(|region| region.benefit.bytes > 0) {
        region.target.into_iter().for_each(|size| *sizes.entry(size).or_default() += region.benefit.bytes);
    }
    let Some(most) = sizes.iter().max_by_key(|(_, bytes)| **bytes).map(|(size, _)| *size) else { return String::new() };
    let others: Vec<PageSize> = sizes.into_keys().filter(|size| *size != most).collect();
    match &others[..] {
        [] => format!("it could have {most} pages; "),
        [one] => format!("most of it could have {most} pages, the rest {one}; "),
        [smallest, .., largest] => format!("most of it could have {most} pages, the rest {largest} to {smallest}; "),
    }
}

fn block(title: &str, causes: Vec<Explained>, inspection: &Inspection, width: usize) -> String {
    let is_large = |one: &Explained| one.bytes >= inspection.resident_bytes() / SMALL_PART;
    let (large, small): (Vec<_>, Vec<_>) = causes.into_iter().partition(is_large);
    let largest_size = sizes_with_settings(inspection).max();
    let mthp_off = |one: &Explained| switched_off(&one.cause).filter(|size| Some(*size) < largest_size);
    let is_one_of_many = large.iter().filter(|one| mthp_off(one).is_some()).count() > 1;
    let (off, large): (Vec<_>, Vec<_>) = large.into_iter().partition(|one| is_one_of_many && mthp_off(one).is_some());
    let lines =
        large.iter().flat_map(cause_lines).chain(line_of_sizes(&off)).chain(line_of_small(&small, !large.is_empty()));
    let lines = lines.map(|line| fold(&format!("  {}", printable(&line)), width, 6));
    std::iter::once(fold(title, width, 2)).chain(lines).collect::<Vec<_>>().join("\n")
}

/// The sizes that have settings of their own. The largest is that of a PMD leaf, the others are mTHP sizes.
fn sizes_with_settings(inspection: &Inspection) -> impl Iterator<Item = PageSize> {
    inspection.supply.settings.keys().filter_map(|path| size_in(path))
}

/// The size in the path of a setting, `hugepages-64kB/enabled`.
fn size_in(path: &str) -> Option<PageSize> {
    let (_, name) = path.split_once("transparent_hugepage/hugepages-")?;
    PageSize::new(name.split_once("kB/")?.0.parse::<u64>().ok()?.checked_mul(1024)?).ok()
}

/// The size that is switched off, if that is the cause.
fn switched_off(cause: &Cause) -> Option<PageSize> {
    match cause {
        Cause::SizeDisabled { path } | Cause::SharedDisabled { path } => size_in(path),
        _ => None,
    }
}

/// One line for all mTHP sizes that are switched off.
fn line_of_sizes(causes: &[Explained]) -> Option<String> {
    let mut sizes: BTreeMap<PageSize, u64> = BTreeMap::new();
    for one in causes {
        *sizes.entry(switched_off(&one.cause)?).or_default() += one.bytes;
    }
    let bytes: u64 = sizes.values().sum();
    let sizes: Vec<String> = sizes.iter().map(|(size, bytes)| format!("{size} ({})", format_bytes(*bytes))).collect();
    (bytes > 0)
        .then(|| format!("{}: mTHP sizes that are switched off: {} ({LISTED})", format_bytes(bytes), sizes.join(", ")))
}

/// One line for all small causes.
fn line_of_small(causes: &[Explained], has_others: bool) -> Option<String> {
    let bytes: u64 = causes.iter().map(|one| one.bytes).sum();
    let further = if has_others { " further" } else { "" };
    let number = causes.len();
    let causes = if number == 1 { "cause" } else { "causes, each" };
    (number > 0).then(|| {
        format!("{}: {number}{further} {causes} below 1 % of the resident memory ({LISTED})", format_bytes(bytes))
    })
}

#[cfg(test)]
mod tests {
    use policy::census::{Backing, Census, Folio, Mapping};
    use policy::inspect::{Benefit, Kind, Process, Region, Supply, Visibility};

    use super::*;

    fn off(kib: u64) -> Cause {
        Cause::SizeDisabled { path: format!("/sys/kernel/mm/transparent_hugepage/hugepages-{kib}kB/enabled") }
    }

    fn because(cause: Cause, bytes: u64) -> Explained {
        Explained { cause, also: vec![], or: vec![], bytes, evidence: vec![], remedies: vec![] }
    }

    /// The text for a process of 100M with these causes.
    fn text_of(causes: Vec<(Cause, u64)>) -> String {
        let mut census = Census::default();
        let mapping = Mapping { backing: Backing::Anonymous, leaf: PageSize::K4, folio: Folio::Whole(PageSize::K4) };
        census.add(mapping, 100 << 20);
        let causes = causes.into_iter();
        let region = Region {
            start: 0,
            end: 1 << 40,
            kind: Kind::Anonymous,
            recognised_by: String::new(),
            accessible_bytes: 1 << 40,
            vmas: 1,
            shared: false,
            census,
            swap_bytes: None,
            shared_after_fork_bytes: None,
            target: None,
            aligned: true,
            tlb_runs: None,
            benefit: Benefit::default(),
            causes: causes.map(|(cause, bytes)| because(cause, bytes)).collect(),
            cuts: Vec::new(),
            cut_count: 0,
            windows: Vec::new(),
        };
        let settings = [16, 64, 2048].map(|kib| match off(kib) {
            Cause::SizeDisabled { path } => (path, "never".to_string()),
            _ => unreachable!(),
        });
        let supply = Supply { settings: settings.into(), ..Supply::default() };
        let sight = Visibility::default();
        why(
            &Inspection {
                process: Process::default(),
                regions: vec![region],
                runtimes: vec![],
                supply,
                refused_requests: None,
                sight,
                partial: vec![],
            },
            200,
        )
    }

    #[test]
    fn what_explains_little_shares_a_line() {
        let causes = vec![
            (Cause::Unexplained, 50 << 20),
            (Cause::DisabledForProcess, 300 << 10),
            (Cause::MergedByKsm, 40 << 10),
            (Cause::FilePages, 8192),
        ];
        let text = text_of(causes);
        let first = format!("50M: {}", Cause::Unexplained.describe());
        assert!(text.contains(&first), "{text}");
        let small = "340K: 2 further causes, each below 1 % of the resident memory (--regions and --json list them)";
        assert!(text.contains(small), "{text}");
        let fixed = "what no setting makes larger\n  8K: 1 cause below 1 % of the resident memory";
        assert!(text.contains(fixed), "{text}");
    }

    #[test]
    fn mthp_sizes_that_are_off_share_a_line() {
        let text = text_of(vec![(off(2048), 40 << 20), (off(64), 3 << 20), (off(16), 2 << 20), (off(32), 4096)]);
        assert!(text.contains("40M: the size is switched off in"), "{text}");
        assert!(text.contains("5M: mTHP sizes that are switched off: 16K (2M), 64K (3M) (--regions"), "{text}");
        assert!(text.contains("4K: 1 further cause below 1 %"), "{text}");
        let one = text_of(vec![(off(64), 3 << 20)]);
        assert!(one.contains("3M: the size is switched off in") && !one.contains("mTHP sizes"), "{one}");
    }
}
