//! Verdicts on made-up memory, without a kernel. The file is above 400 lines because it is one list of situations, all of
//! which use the made-up process [`Made`].

use super::slots::{Shape, ShapeSum};
use super::*;
use crate::census::{Folio, Region, VmaKind};
use crate::verdict::{Holding, Peak, Verdict};

const K4: PageSize = PageSize::K4;
const K64: PageSize = PageSize::K64;
const M2: PageSize = PageSize::M2;
const MIB: u64 = 1 << 20;

fn page_sizes() -> PageSizes {
    PageSizes { base: K4, pmd: Some(M2), mthp: vec![K64], hugetlb: vec![M2] }
}

type Settings = BTreeMap<String, String>;

fn settings(common: &str, k64: &str) -> Settings {
    let settings = [(format!("{THP}/enabled"), common), (thp_size_enabled(K64), k64)];
    settings.map(|(path, word)| (path, word.to_string())).into()
}

fn anonymous(leaf: PageSize, folio: Folio) -> Mapping {
    Mapping { backing: Backing::Anonymous, leaf, folio }
}

/// A process with one mapping at address 0 that holds runs of memory without holes.
#[derive(Clone, Default)]
struct Made {
    length_bytes: u64,
    census: Census,
    regions: Vec<Region>,
    is_thp_disabled: bool,
    /// If set, every query about the process except for its pages fails with this reason.
    unreadable: Option<&'static str>,
    has_places: bool,
    advice: Option<Advice>,
}

impl Process for Made {
    fn is_thp_disabled(&self) -> Answer<bool> {
        self.answer(self.is_thp_disabled)
    }

    fn advice(&self, _: u64) -> Answer<Vec<(u64, Advice)>> {
        self.answer(self.advice.map(|advice| (0, advice)).into_iter().collect())
    }

    fn may_have_folios(&self, _: PageSize) -> bool {
        true
    }

    fn is_pool_exhausted(&self, _: PageSize) -> Answer<bool> {
        self.answer(false)
    }
}

impl Made {
    fn answer<T>(&self, answer: T) -> Answer<T> {
        self.unreadable.map_or(Ok(answer), |reason| Err(Unread(reason.to_string())))
    }
}

fn process(length_bytes: u64, runs: &[(Mapping, u64)]) -> Made {
    let mut made = Made { length_bytes, has_places: true, ..Made::default() };
    let mut at = 0;
    for (mapping, bytes) in runs {
        made.regions.push(Region { start: at, end: at + bytes, mapping: *mapping });
        made.census.add(*mapping, *bytes);
        at += bytes;
    }
    made
}

fn asked(policy: &str, settings: &Settings, after_fork: bool, seen: &Made) -> Examination {
    let (policy, page_sizes) = (policy.parse().unwrap(), page_sizes());
    let area = Area { start: 0, end: seen.length_bytes, kind: VmaKind::Anonymous, regions: &seen.regions };
    let areas = if seen.has_places { vec![area] } else { vec![] };
    let question = Question { after_fork, ..Question::of(&policy, &page_sizes, settings) };
    question.answer(&FoundMemory { census: &seen.census, areas: &areas }, seen)
}

fn examined(policy: &str, settings: &Settings, seen: &Made) -> Examination {
    asked(policy, settings, false, seen)
}

fn verdict(policy: &str, settings: &Settings, seen: &Made) -> Verdict {
    let verdict = Evidence::of(examined(policy, settings, seen)).verdict();
    let explained: u64 = verdict.causes.iter().filter_map(|share| share.bytes).sum();
    if verdict.holding != Holding::NotAsked {
        assert_eq!(verdict.covered_bytes + explained, verdict.concerned_bytes, "every byte has its place");
    }
    verdict
}

fn counted(counters: &[(&str, u64)]) -> SlotCounts {
    let moved = counters.iter().map(|(name, times)| (name.to_string(), *times)).collect();
    SlotCounts::of_kernel(&moved, Some(M2))
}

fn causes(verdict: &Verdict) -> Vec<(Cause, u64)> {
    verdict.causes.iter().map(|share| (share.cause.clone(), share.bytes.unwrap_or(0))).collect()
}

#[test]
fn each_policy_has_its_own_idea_of_covered() {
    let whole = |leaf, size| anonymous(leaf, Folio::Whole(size));
    let pool = Mapping { backing: Backing::Hugetlb, leaf: M2, folio: Folio::Whole(M2) };
    let settings = settings("always", "always");
    for (policy, mapping, holding, cause) in [
        ("base", whole(K4, K4), Holding::Held, None),
        ("base", whole(K4, K64), Holding::NotHeld, Some(Cause::LargerThanAsked)),
        ("base", whole(M2, M2), Holding::NotHeld, Some(Cause::LargerThanAsked)),
        ("base", pool, Holding::NotHeld, Some(Cause::LargerThanAsked)),
        ("thp+no-huge", whole(K4, K4), Holding::Held, None),
        ("mthp-64k", whole(K4, K64), Holding::Held, None),
        ("mthp-64k", whole(K4, M2), Holding::NotHeld, Some(Cause::LargerThanAsked)),
        ("mthp-64k", whole(M2, M2), Holding::NotHeld, Some(Cause::LargerThanAsked)),
        ("mthp-64k", anonymous(K4, Folio::Part(K64)), Holding::NotHeld, Some(Cause::FolioPartlyMapped)),
        ("thp", whole(M2, M2), Holding::Held, None),
        ("thp", pool, Holding::Held, None),
        ("thp", whole(K4, M2), Holding::NotHeld, Some(Cause::LeafSplit)),
        ("thp", anonymous(K4, Folio::Part(M2)), Holding::NotHeld, Some(Cause::FolioPartlyMapped)),
        ("hugetlb-2m", pool, Holding::Held, None),
    ] {
        let verdict = verdict(policy, &settings, &process(8 * MIB, &[(mapping, 8 * MIB)]));
        assert_eq!(verdict.holding, holding, "{policy} {mapping:?}");
        assert_eq!(verdict.causes.first().map(|share| share.cause.clone()), cause, "{policy} {mapping:?}");
    }
}

/// An examination without memory proves nothing, whether there was no process or one that could not be examined.
#[test]
fn a_process_that_could_not_be_looked_at_is_no_proof() {
    let empty = |policy: &str| Examination::empty(Aim::of(&policy.parse().unwrap(), &page_sizes()));
    let word = |examination: Examination| Evidence::of(examination).verdict().holding;
    for policy in ["base", "thp", "mthp-64k", "hugetlb-2m", "default+no-huge"] {
        assert_eq!(word(empty(policy)), Holding::Unknown, "{policy}");
        let mut missed = empty(policy);
        missed.miss_process("program: forbidden".into(), Some(MIB));
        assert_eq!(word(missed), Holding::Unknown, "{policy}");
    }
    assert_eq!(word(empty("default")), Holding::NotAsked);

    let huge = anonymous(M2, Folio::Whole(M2));
    let judged = |missed_bytes: Option<u64>| {
        let mut examination = empty("thp");
        examination.merge(examined("thp", &settings("always", "never"), &process(64 * MIB, &[(huge, 64 * MIB)])));
        examination.miss_process("program: forbidden".into(), missed_bytes);
        Evidence::of(examination).verdict()
    };
    assert_eq!(judged(Some(MIB)).holding, Holding::Held, "too little to change the word");
    assert_eq!(judged(Some(64 * MIB)).holding, Holding::Unknown);
    assert_eq!(judged(None).holding, Holding::Unknown);
    assert_eq!(causes(&judged(Some(MIB))), [(Cause::ProcessUnseen { reason: "program: forbidden".into() }, MIB)]);
}

#[test]
fn files_and_zero_pages_are_not_concerned() {
    let other = |backing| Mapping { backing, leaf: K4, folio: Folio::Whole(K4) };
    let seen =
        process(4 * MIB, &[(other(Backing::File), MIB), (other(Backing::Shmem), MIB), (other(Backing::Zero), MIB)]);
    let verdict = verdict("thp", &settings("always", "never"), &seen);
    assert_eq!((verdict.holding, verdict.concerned_bytes), (Holding::Unknown, 0));
    assert_eq!(causes(&verdict), [(Cause::NothingToSee, 0)]);
}

#[test]
fn default_asks_for_nothing() {
    let verdict = verdict("default", &Settings::new(), &process(MIB, &[(anonymous(K4, Folio::Unknown), MIB)]));
    assert_eq!((verdict.holding, verdict.concerned_bytes, verdict.causes), (Holding::NotAsked, MIB, vec![]));
}

#[test]
fn shape_comes_before_permission_and_permission_before_history() {
    let small = anonymous(K4, Folio::Whole(K4));
    let zero = Mapping { backing: Backing::Zero, ..small };
    let never = Cause::SizeDisabled { path: format!("{THP}/enabled") };
    let (on, off) = (settings("always", "never"), settings("never", "never"));
    for (settings, length, runs, expected) in [
        (&off, MIB, vec![(small, MIB)], vec![(Cause::MappingTooSmall, MIB)]),
        (&off, 3 * MIB, vec![(small, 3 * MIB)], vec![(never.clone(), 2 * MIB), (Cause::NoAlignedSlot, MIB)]),
        (&on, 2 * MIB, vec![(small, MIB)], vec![(Cause::SlotPartlyPresent, MIB)]),
        (&on, 2 * MIB, vec![(zero, MIB), (small, MIB)], vec![(Cause::ZeroPageInSlot, MIB)]),
        (&off, 2 * MIB, vec![(zero, MIB), (small, MIB)], vec![(never.clone(), MIB)]),
        // The flags of the mapping were not read, so it may have MADV_NOHUGEPAGE.
        (&on, 2 * MIB, vec![(small, 2 * MIB)], vec![(Cause::Unexplained, 2 * MIB)]),
    ] {
        let verdict = verdict("thp", settings, &process(length, &runs));
        assert_eq!(causes(&verdict), expected);
        assert_eq!(verdict.holding, Holding::NotHeld);
    }
}

#[test]
fn unseen_memory_makes_the_verdict_unknown_only_if_it_could_change_it() {
    let hidden = anonymous(K4, Folio::Unknown);
    let huge = anonymous(M2, Folio::Whole(M2));
    let on = settings("always", "always");
    let unknown = verdict("mthp-64k", &on, &process(4 * MIB, &[(hidden, 4 * MIB)]));
    assert_eq!((unknown.holding, causes(&unknown)), (Holding::Unknown, vec![(Cause::FoliosInvisible, 4 * MIB)]));
    // PMD leaves map nearly all of it, so the rest cannot change the result.
    let lost = verdict("base", &on, &process(64 * MIB, &[(huge, 62 * MIB), (hidden, 2 * MIB)]));
    assert_eq!(lost.holding, Holding::NotHeld);
    // A hole in the slot rules out a complete folio, whether or not folios are visible.
    let holes = verdict("mthp-64k", &on, &process(4 * MIB, &[(hidden, 32 << 10)]));
    assert_eq!((holes.holding, causes(&holes)), (Holding::NotHeld, vec![(Cause::SlotPartlyPresent, 32 << 10)]));
    // Under `thp`, memory mapped by base-page PTEs is missing, whichever folio is behind them.
    assert_eq!(verdict("thp", &on, &process(4 * MIB, &[(hidden, 4 * MIB)])).holding, Holding::NotHeld);
}

#[test]
fn base_pages_without_root_are_held_where_sysfs_rules_out_everything_else() {
    let seen = process(4 * MIB, &[(anonymous(K4, Folio::Unknown), 4 * MIB)]);
    assert_eq!(verdict("base", &settings("never", "never"), &seen).holding, Holding::Held);
    assert_eq!(verdict("base", &settings("never", "inherit"), &seen).holding, Holding::Held);
    let open = verdict("base", &settings("always", "never"), &seen);
    assert_eq!((open.holding, causes(&open)), (Holding::Unknown, vec![(Cause::FoliosInvisible, 4 * MIB)]));
    assert_eq!(verdict("base", &Settings::new(), &seen).holding, Holding::Unknown);
}

#[test]
fn base_pages_without_root_are_held_where_thp_was_disabled_all_along() {
    let hidden = anonymous(K4, Folio::Unknown);
    let on = settings("always", "always");
    let mut seen = process(4 * MIB, &[(hidden, 4 * MIB)]);
    let unknown = verdict("base", &on, &seen);
    assert_eq!((unknown.holding, causes(&unknown)), (Holding::Unknown, vec![(Cause::FoliosInvisible, 4 * MIB)]));
    seen.is_thp_disabled = true;
    let held = verdict("base", &on, &seen);
    assert_eq!((held.holding, causes(&held)), (Holding::Held, vec![(Cause::ProvenByThpDisable, 0)]));
    let without_places = Made { has_places: false, ..seen.clone() };
    assert_eq!(verdict("base", &on, &without_places).holding, Holding::Held);
    // +no-huge works in the same way and has the same proof.
    assert_eq!(verdict("thp+no-huge", &on, &seen).holding, Holding::Held);
    // A larger page that is seen counts as larger, and then the rest need not be base pages either.
    seen = Made {
        is_thp_disabled: true,
        ..process(4 * MIB, &[(hidden, 2 * MIB), (anonymous(M2, Folio::Whole(M2)), 2 * MIB)])
    };
    let undone = verdict("base", &on, &seen);
    assert_eq!((undone.holding, undone.covered_bytes), (Holding::Unknown, 0));
    assert_eq!(causes(&undone), [(Cause::LargerThanAsked, 2 * MIB), (Cause::FoliosInvisible, 2 * MIB)]);
    // The program itself asked for the hugetlb pages.
    seen = Made {
        is_thp_disabled: true,
        ..process(
            4 * MIB,
            &[(hidden, 2 * MIB), (Mapping { backing: Backing::Hugetlb, ..anonymous(M2, Folio::Whole(M2)) }, 2 * MIB)],
        )
    };
    assert_eq!(verdict("base", &on, &seen).covered_bytes, 2 * MIB);
}

#[test]
fn unreadable_facts_are_causes_and_never_a_no() {
    let reason = "status: Too many open files";
    let (unreadable, cause) = (Some(reason), Cause::Unread { reason: reason.into() });
    let small = anonymous(K4, Folio::Whole(K4));
    for policy in ["thp", "hugetlb-2m"] {
        let seen = Made { unreadable, ..process(4 * MIB, &[(small, 4 * MIB)]) };
        let verdict = verdict(policy, &settings("always", "always"), &seen);
        assert_eq!(causes(&verdict), [(cause.clone(), 4 * MIB)], "{policy}");
    }
    // A status that was not read does not prove base pages.
    let hidden = anonymous(K4, Folio::Unknown);
    let seen = Made { unreadable, is_thp_disabled: true, ..process(4 * MIB, &[(hidden, 4 * MIB)]) };
    let verdict = verdict("base", &settings("always", "always"), &seen);
    assert_eq!(verdict.holding, Holding::Unknown);
    assert_eq!(causes(&verdict), [(Cause::FoliosInvisible, 4 * MIB), (cause, 0)]);
}

#[test]
fn fallbacks_explain_as_many_slots_as_they_count() {
    let piece =
        |shape, slots, bytes| ShapeSum { shape, missing_bytes: bytes, unseen_bytes: 0, slots, present_bytes: 0 };
    let settled = |counters: &[(&str, u64)]| {
        let mut one = Examination::empty(Aim::Leaf(M2));
        one.concerned_bytes = 20 * MIB;
        one.add_transparent(&piece(Shape::Full, 4, 8 * MIB), &Eligibility::Eligible);
        one.add_transparent(&piece(Shape::Holes, 6, 6 * MIB), &Eligibility::Eligible);
        let mut other = Examination::default();
        other.add_transparent(&piece(Shape::Full, 3, 6 * MIB), &Eligibility::Eligible);
        one.merge(other);
        causes(&Evidence { slots: counted(counters), ..Evidence::of(one) }.verdict())
    };
    let fell_back = |counter: &str, times| Cause::AllocationFellBack { counter: counter.into(), times };
    assert_eq!(settled(&[]), [(Cause::TouchedBeforeEligible, 14 * MIB), (Cause::SlotPartlyPresent, 6 * MIB)]);
    assert_eq!(
        settled(&[("thp_fault_fallback", 5)]),
        [
            (fell_back("thp_fault_fallback", 5), 10 * MIB),
            (Cause::SlotPartlyPresent, 6 * MIB),
            (Cause::TouchedBeforeEligible, 4 * MIB)
        ]
    );
    let own = "hugepages-2048kB/anon_fault_fallback";
    assert_eq!(
        settled(&[(own, 10), ("hugepages-2048kB/anon_fault_fallback_charge", 2), ("thp_fault_fallback", 99)]),
        [(fell_back(own, 8), 13 * MIB), (Cause::ChargeFellBack, 4 * MIB), (Cause::SlotPartlyPresent, 3 * MIB)]
    );
}

/// Memory that is read first and then written on Linux 6.12: the leaf of the huge zero page is split, and no large page is made.
#[test]
fn memory_that_was_read_first_is_not_called_touched_early() {
    let seen = Made { advice: Some(Advice::Huge), ..process(8 * MIB, &[(anonymous(K4, Folio::Whole(K4)), 8 * MIB)]) };
    let settled = |counters: &[(&str, u64)]| {
        let one = examined("thp", &settings("always", "never"), &seen);
        causes(&Evidence { slots: counted(counters), ..Evidence::of(one) }.verdict())
    };
    assert_eq!(settled(&[("thp_zero_page_alloc", 1), ("thp_split_pmd", 4)]), [(Cause::ReadFirst, 8 * MIB)]);
    let of_two = [(Cause::FilledWithBasePages, 6 * MIB), (Cause::ReadFirst, 2 * MIB)];
    let counters = [("thp_zero_page_alloc", 1), ("thp_split_pmd", 4), ("thp_fault_alloc", 3)];
    assert_eq!(settled(&counters), of_two, "three of the leaves may have been those of large pages");
    assert_eq!(settled(&[("thp_split_pmd", 4)]), [(Cause::FilledWithBasePages, 8 * MIB)]);
    assert_eq!(settled(&[]), [(Cause::TouchedBeforeEligible, 8 * MIB)]);
}

/// Below PMD size no counter shows the zero page, but each page that was read first has a second fault.
#[test]
fn memory_that_was_read_first_is_recognised_by_its_second_faults() {
    let seen = Made { advice: Some(Advice::Huge), ..process(8 * MIB, &[(anonymous(K4, Folio::Whole(K4)), 8 * MIB)]) };
    let settled = |refaulted_bytes| {
        let one = examined("mthp-64k", &settings("always", "always"), &seen);
        causes(&Evidence { slots: SlotCounts { refaulted_bytes, ..counted(&[]) }, ..Evidence::of(one) }.verdict())
    };
    let (read, early) = (Cause::ReadFirst, Cause::TouchedBeforeEligible);
    assert_eq!(settled(9 * MIB), [(read.clone(), 8 * MIB)]);
    assert_eq!(settled(6 * MIB), [(read, 6 * MIB), (early.clone(), 2 * MIB)]);
    assert_eq!(settled(3 * MIB), [(early, 8 * MIB)]);
}

/// Other processes raise the counters too, so a fallback explains no more memory than the trial's own faults can have brought
/// in.
#[test]
fn a_fallback_explains_no_more_than_the_faults_of_the_trial_can_have_made() {
    let seen = Made { advice: Some(Advice::Huge), ..process(16 * MIB, &[(anonymous(K4, Folio::Whole(K4)), 16 * MIB)]) };
    let settled = |faulted_bytes: Option<u64>, counters: &[(&str, u64)]| {
        let one = examined("thp", &settings("always", "never"), &seen);
        let slots = SlotCounts { faulted_bytes, ..counted(counters) };
        causes(&Evidence { slots, ..Evidence::of(one) }.verdict())
    };
    let others = [("thp_fault_fallback", 5)];
    let fell_back = Cause::AllocationFellBack { counter: "thp_fault_fallback".into(), times: 5 };
    let early = (Cause::TouchedBeforeEligible, 6 * MIB);
    assert_eq!(settled(None, &others), [(fell_back.clone(), 10 * MIB), early.clone()]);
    assert_eq!(settled(Some(16 * MIB), &others), [(fell_back, 10 * MIB), early]);
    assert_eq!(settled(Some(MIB), &others), [(Cause::Unexplained, 16 * MIB)]);
    let split = [("thp_fault_fallback", 5), ("hugepages-2048kB/split", 8), ("thp_split_pmd", 8)];
    assert_eq!(settled(Some(MIB), &split), [(Cause::SplitMeanwhile, 16 * MIB)]);
}

/// A slot that held a larger page is recognised by the part that is left or by the kernel's counters; the remaining slots were
/// touched early.
#[test]
fn slots_that_were_split_and_filled_again_are_not_called_touched_early() {
    let (part, small) = (anonymous(K4, Folio::Part(M2)), anonymous(K4, Folio::Whole(K4)));
    let seen = Made { advice: Some(Advice::Huge), ..process(8 * MIB, &[(part, MIB), (small, 7 * MIB)]) };
    let split = |after_fork: bool, counters: &[(&str, u64)]| {
        let examination = asked("thp", &settings("always", "never"), after_fork, &seen);
        causes(&Evidence { slots: counted(counters), ..Evidence::of(examination) }.verdict())
    };
    let (early, refilled) = (Cause::TouchedBeforeEligible, Cause::RefilledAfterDrop);
    let cut = (Cause::FolioPartlyMapped, MIB);
    assert_eq!(split(false, &[]), [(early.clone(), 6 * MIB), (refilled.clone(), MIB), cut.clone()]);
    // One more leaf was split, but it is unknown whether that leaf mapped the last slot.
    let filled = (Cause::FilledWithBasePages, 2 * MIB);
    let counters = [("hugepages-2048kB/split_deferred", 1), ("hugepages-2048kB/split", 1), ("thp_split_pmd", 9)];
    let expected = [(refilled.clone(), 3 * MIB), (Cause::SplitMeanwhile, 2 * MIB), filled.clone(), cut.clone()];
    assert_eq!(split(false, &counters), expected);
    let counters = [("thp_deferred_split_page", 2), ("thp_split_pmd", 9)];
    assert_eq!(split(false, &counters), [(refilled.clone(), 5 * MIB), filled, cut.clone()]);
    let counters = [("thp_deferred_split_page", 2), ("thp_split_pmd", 2)];
    assert_eq!(split(false, &counters), [(refilled.clone(), 5 * MIB), (early.clone(), 2 * MIB), cut.clone()]);
    // MADV_COLD of a part splits the folio; nothing is dropped.
    let counters = [("hugepages-2048kB/split", 3), ("thp_split_pmd", 3)];
    let expected = [(Cause::SplitMeanwhile, 6 * MIB), (refilled.clone(), MIB), cut.clone()];
    assert_eq!(split(false, &counters), expected);
    let forked = |bytes| (Cause::SplitAfterFork, bytes);
    assert_eq!(split(true, &[("thp_split_pmd", 9)]), [forked(8 * MIB)]);
    assert_eq!(split(true, &[("thp_split_pmd", 1)]), [(early, 4 * MIB), forked(4 * MIB)]);
}

/// Where folios are not visible, only split leaves are counted.
#[test]
fn reports_splits_without_folios() {
    let hidden = process(8 * MIB, &[(anonymous(K4, Folio::Unknown), 8 * MIB)]);
    let examination = |counters: &[(&str, u64)]| {
        let one = examined("thp", &settings("always", "never"), &Made { advice: Some(Advice::Huge), ..hidden.clone() });
        causes(&Evidence { slots: counted(counters), ..Evidence::of(one) }.verdict())
    };
    let expected = [(Cause::SplitMeanwhile, 6 * MIB), (Cause::TouchedBeforeEligible, 2 * MIB)];
    assert_eq!(examination(&[("thp_split_pmd", 3)]), expected);
}

/// At least half of the peak must have been examined.
#[test]
fn a_peak_that_was_not_looked_at_proves_nothing() {
    let huge = anonymous(M2, Folio::Whole(M2));
    let against = |seen_bytes, least_bytes, most_bytes, all_was_seen| {
        let mut examination = examined("thp", &settings("always", "never"), &process(64 * MIB, &[(huge, 64 * MIB)]));
        examination.note(Cause::FreedBeforeExit, 0);
        let [seen_bytes, least_bytes, most_bytes] = [seen_bytes, least_bytes, most_bytes].map(|size: u64| size * MIB);
        let peak = Some(Peak { seen_bytes, least_bytes, most_bytes });
        let verdict = Evidence { peak, is_all_seen: all_was_seen, ..Evidence::of(examination) }.verdict();
        (verdict.holding, causes(&verdict))
    };
    let freed = (Cause::FreedBeforeExit, 0);
    assert_eq!(against(64, 128, 140, false), (Holding::Held, vec![freed.clone()]));
    assert_eq!(against(64, 129, 140, false), (Holding::Unknown, vec![(Cause::PeakUnseen, 65 * MIB)]));
    let uncertain = (Cause::PeakUncertain, 0);
    assert_eq!(against(64, 80, 144, false), (Holding::Held, vec![freed.clone(), uncertain]));
    assert_eq!(against(64, 80, 143, false), (Holding::Held, vec![freed.clone()]), "too little to say");
    assert_eq!(against(64, 80, 144, true), (Holding::Held, vec![freed]));
}

#[test]
fn causes_known_to_the_tracer_replace_unexplained() {
    let small = anonymous(K4, Folio::Whole(K4));
    let examination = examined("thp", &settings("always", "never"), &process(8 * MIB, &[(small, 8 * MIB)]));
    let noted = [(Cause::Demoted, 2 * MIB), (Cause::ForeignAbi, 0)].into();
    let verdict = Evidence { noted, ..Evidence::of(examination) }.verdict();
    let expected = [(Cause::Unexplained, 6 * MIB), (Cause::Demoted, 2 * MIB), (Cause::ForeignAbi, 0)];
    assert_eq!(causes(&verdict), expected);
    assert_eq!(verdict.causes[2].bytes, None);
}

#[test]
fn a_census_of_sums_has_causes_without_places() {
    let mut seen = process(8 * MIB, &[(anonymous(K4, Folio::Unknown), 8 * MIB)]);
    seen.has_places = false;
    let never = Cause::SizeDisabled { path: format!("{THP}/enabled") };
    assert_eq!(causes(&verdict("thp", &settings("never", "never"), &seen)), [(never, 8 * MIB)]);
    assert_eq!(causes(&verdict("thp", &settings("always", "never"), &seen)), [(Cause::Unexplained, 8 * MIB)]);
    assert_eq!(causes(&verdict("hugetlb-2m", &settings("always", "never"), &seen)), [(Cause::Unexplained, 8 * MIB)]);
}

#[test]
fn memory_without_advice_was_mapped_in_small_pieces_unless_advice_was_refused() {
    let because = |notes: &[Cause]| {
        let mut examination = Examination::empty(Aim::Leaf(M2));
        examination.concerned_bytes = 8 * MIB;
        examination.add(Cause::NotAdvised, 8 * MIB);
        let noted = notes.iter().map(|cause| (cause.clone(), 0)).collect();
        let advised_bytes = Some(128 << 10);
        causes(&Evidence { noted, advised_bytes, ..Evidence::of(examination) }.verdict()).remove(0)
    };
    let pieces = Cause::MappedInPieces { advised_bytes: 128 << 10 };
    assert_eq!(pieces.describe(), "mapped in pieces of less than 128K, which are not advised one by one");
    assert_eq!(because(&[]), (pieces.clone(), 8 * MIB));
    assert_eq!(because(&[Cause::Debugger]), (pieces, 8 * MIB));
    for refused in [Cause::FilteredByProgram, Cause::ForeignAbi, Cause::AdviceRefused { errno: 22 }] {
        assert_eq!(because(&[refused]), (Cause::NotAdvised, 8 * MIB));
    }
}
