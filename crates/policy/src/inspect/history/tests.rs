//! Which causes are named, for made-up counters, faults and frames.

use super::super::process::Process;
use super::super::supply::Supply;
use super::*;

/// Evidence about holes in slots of a size, from a kernel with these counters.
fn evidence_of_holes(target_kib: u64, counters: &[&str]) -> Vec<String> {
    let settings = [("/sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none".into(), "511".into())].into();
    let counters = counters.iter().map(|name| ((*name).to_owned(), 3)).collect();
    let (process, supply) = (Process::default(), Supply { settings, counters, ..Supply::default() });
    let size = |kib: u64| PageSize::new(kib << 10).unwrap();
    let context = Context {
        process: &process,
        supply: &supply,
        base: size(4),
        pmd: Some(size(2048)),
        sees_folios: true,
        runtimes: &[],
        kernel: None,
    };
    let (kind, target) = (&Kind::Heap, size(target_kib));
    History { kind, shared_bytes: 0, target, base_pages: None, context: &context }.evidence_of_holes(0, 0)
}

const M2: u64 = 2 << 20;

/// The past of a region of `bytes` that is full of base pages.
struct Full<'a> {
    since: Since,
    counters: &'a [(&'a str, u64)],
    shows_no_fork: bool,
    faults: Option<u64>,
    in_place_bytes: u64,
    bytes: u64,
}

const QUIET: Full<'_> =
    Full { since: Since::Command, counters: &[], shows_no_fork: true, faults: None, in_place_bytes: 0, bytes: 4 * M2 };

/// A kernel whose PMD leaves have the target size.
fn context<'a>(process: &'a Process, supply: &'a Supply, target: PageSize) -> Context<'a> {
    Context { process, supply, base: PageSize::K4, pmd: Some(target), sees_folios: true, runtimes: &[], kernel: None }
}

/// The causes of memory with this past. Counters that are not given have not moved.
fn causes(full: &Full<'_>) -> Vec<Share> {
    let names = [
        "thp_split_pmd",
        "thp_zero_page_alloc",
        "thp_fault_alloc",
        "thp_underused_split_page",
        "hugepages-2048kB/split",
        "hugepages-2048kB/swpout",
        "hugepages-2048kB/anon_fault_fallback",
    ];
    let still = names.iter().map(|name| (*name, 0));
    let counters = still.chain(full.counters.iter().copied()).map(|(name, times)| (name.to_owned(), times)).collect();
    let process = Process { shows_no_fork: full.shows_no_fork, faults: full.faults, ..Process::default() };
    let supply = Supply { counters, counted_since: full.since, ..Supply::default() };
    let target = PageSize::new(M2).unwrap();
    let context = context(&process, &supply, target);
    let base_pages = Some(AnonymousPages { bytes: full.bytes, in_place_bytes: full.in_place_bytes });
    let kind = &Kind::Anonymous;
    History { kind, shared_bytes: 0, target, base_pages, context: &context }.causes_of_full(full.bytes)
}

#[test]
fn a_cause_is_named_alone_where_the_counters_leave_no_other() {
    assert_eq!(causes(&QUIET), [(Cause::TouchedBeforeEligible, vec![], 4 * M2)]);
    // Since the boot everything has happened somewhere: the fact comes first, and the candidates follow.
    let boot = Full { since: Since::Boot, counters: &[("thp_split_pmd", 99), ("thp_zero_page_alloc", 1)], ..QUIET };
    let or = vec![Cause::TouchedBeforeEligible, Cause::ReadFirst, Cause::RefilledAfterDrop];
    assert_eq!(causes(&boot), [(Cause::FilledWithBasePages, or, 4 * M2)]);
    let fork = Full { shows_no_fork: false, counters: &[("thp_split_pmd", 99)], ..QUIET };
    assert!(causes(&fork)[0].1.contains(&Cause::SplitAfterFork));
}

/// The counters of Linux 6.12 while zero_read_first runs there: the write splits the leaf of the huge zero page.
#[test]
fn memory_read_first_on_6_12_is_named_by_its_counters() {
    let read_first = Full { counters: &[("thp_zero_page_alloc", 1), ("thp_split_pmd", 4)], ..QUIET };
    let (cause, or, bytes) = causes(&read_first).remove(0);
    assert_eq!((cause, bytes), (Cause::ReadFirst, 4 * M2));
    assert!(or.contains(&Cause::TouchedBeforeEligible), "{or:?}");
    for counters in [
        // Large pages were made, so their leaves may be those that were split.
        &[("thp_zero_page_alloc", 1), ("thp_split_pmd", 4), ("thp_fault_alloc", 4)][..],
        &[("thp_zero_page_alloc", 1), ("thp_split_pmd", 3)],
    ] {
        assert_eq!(
            causes(&Full { counters, ..QUIET }).last().unwrap().0,
            match counters.len() {
                3 => Cause::FilledWithBasePages,
                _ => Cause::TouchedBeforeEligible,
            }
        );
    }
}

#[test]
fn a_counter_explains_no_more_slots_than_it_counts() {
    let fell_back = Full { counters: &[("hugepages-2048kB/anon_fault_fallback", 1)], ..QUIET };
    let cause = Cause::AllocationFellBack { counter: "hugepages-2048kB/anon_fault_fallback".into(), times: 1 };
    let or = vec![Cause::TouchedBeforeEligible, cause];
    let expected = [(Cause::FilledWithBasePages, or, M2), (Cause::TouchedBeforeEligible, vec![], 3 * M2)];
    assert_eq!(causes(&fell_back), expected);
}

#[test]
fn frames_and_faults_show_that_a_large_page_was_split() {
    let counters: &[_] = &[("hugepages-2048kB/split", 4), ("thp_split_pmd", 4)];
    let split = Full { counters, in_place_bytes: 4 * M2, ..QUIET };
    assert_eq!(causes(&split)[0].0, Cause::SplitMeanwhile);
    let few_faults = Full { counters, faults: Some(128), ..QUIET };
    let found = causes(&few_faults);
    assert_eq!(found[1], (Cause::SplitMeanwhile, vec![], 4 * M2 - (512 << 10)), "{found:?}");
    assert_eq!((&found[0].0, found[0].2), (&Cause::FilledWithBasePages, 512 << 10));
}

#[test]
fn offers_khugepaged_for_holes_only_at_sizes_that_it_makes() {
    let setting = "/sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none: 511";
    let counter = |kib: u64| format!("hugepages-{kib}kB/collapse_exceed_none_pte");
    assert_eq!(evidence_of_holes(2048, &[]), [setting]);
    let none = format!("no {}: khugepaged of this kernel makes no folios of 64K", counter(64));
    assert_eq!(evidence_of_holes(64, &[&counter(2048)]), [none]);
    let seen = evidence_of_holes(64, &[&counter(64)]);
    assert_eq!(seen[0], format!("{setting}; in a folio of 64K all pages but one may be holes, or none"));
    assert_eq!(seen[1], format!("{}: 3 since the boot (whole system)", counter(64)));
    assert_eq!(evidence_of_holes(2048, &[&counter(2048)]).len(), 2);
}

/// The causes and the evidence of slots with 4M of memory and 4M of holes, if two faults of the whole system found no free block
/// and the process had this number of faults.
fn holes_after_two_fallbacks(faults: u64) -> (Vec<Cause>, String) {
    let counters = [("hugepages-2048kB/anon_fault_fallback".to_owned(), 2)].into();
    let process = Process { shows_no_fork: true, faults: Some(faults), ..Process::default() };
    let supply = Supply { counters, ..Supply::default() };
    let target = PageSize::new(M2).unwrap();
    let context = context(&process, &supply, target);
    let base_pages = Some(AnonymousPages { bytes: 2 * M2, in_place_bytes: 0 });
    let history = History { kind: &Kind::Anonymous, shared_bytes: 0, target, base_pages, context: &context };
    (history.causes_of_holes(2 * M2, 0, false).1, history.evidence_of_holes(2 * M2, 0).join("; "))
}

#[test]
fn fallbacks_of_other_processes_explain_no_holes() {
    let fell_back = Cause::AllocationFellBack { counter: "hugepages-2048kB/anon_fault_fallback".into(), times: 2 };
    let (or, evidence) = holes_after_two_fallbacks(5000);
    assert!(or.contains(&fell_back) && !evidence.contains("at most"), "{or:?}: {evidence}");
    let (or, evidence) = holes_after_two_fallbacks(256);
    assert!(or.contains(&fell_back) && evidence.contains("at most 1M of it"), "{or:?}: {evidence}");
    let (or, evidence) = holes_after_two_fallbacks(0);
    assert!(!or.contains(&fell_back) && !evidence.contains("at most"), "{or:?}: {evidence}");
}
