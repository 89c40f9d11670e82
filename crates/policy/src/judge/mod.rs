//! Whether a policy took effect on a process, and for the memory on which it did not, why.
//!
//! # How a cause is found
//! Every byte that the policy concerns and does not cover gets one cause: the first of this list that
//! applies.
//! 1. *What is there instead*: larger pages than asked for; a folio that is mapped in part; a folio that
//!    is whole, but whose leaf was split.
//! 2. *Shape*: the stack, private copies of file pages, a mapping smaller than the target, memory
//!    outside every aligned slot of its mapping.
//! 3. *Permission*: PR_SET_THP_DISABLE, MADV_NOHUGEPAGE, sysfs, missing advice, as the kernel would ask
//!    for them now.
//! 4. *History*: a zero page in the slot, holes in the slot, base pages beside a part of a larger folio in the slot, and for
//!    a slot that is permitted and full of base pages: an allocation that fell back, a larger page that was split, or touched
//!    before it was permitted.
//!
//! The kernel counts allocations that fell back, folios that lost a part of their content, and leaves that were split, for the whole
//! system only, one for each slot. So they explain at most as many slots as they count, full ones first, and the rest was touched
//! too early.
//!
//! What is mapped in part, or was split, in a process that forked or was forked may be so because of a write after that, or because
//! memory was cut; which of the two cannot be seen.
//!
//! # What is not known is said
//! Where folios cannot be seen, memory that may be as asked or not is neither covered nor missing. The
//! verdict is [`Holding::Unknown`] where that memory could change the word, with
//! [`Cause::FoliosInvisible`]. Memory can be ruled in or out without seeing folios: by the counters of
//! the system's anonymous folios (a size of which there is none), by shape (a hole or a zero page in the
//! slot), and where base pages are asked for by the rules of `Rules::only_base_pages`. Under `base` and `+no-huge` themselves
//! PR_SET_THP_DISABLE is in force from the first instruction on and the tracer answers what would end it; that
//! it still is (`THP_enabled: 0` in /proc/PID/status) proves base pages, for the kernel then gives no
//! anonymous folio of any other size (`vma_thp_disabled` in include/linux/huge_mm.h, which
//! `__thp_vma_allowable_orders` asks for faults, khugepaged, MADV_COLLAPSE and swap alike). Where a larger
//! anonymous page is seen anywhere in the tree all the same, somebody has undone it, and it proves nothing.

mod eligible;
mod slots;

use std::collections::BTreeMap;
use std::fs;

use study::cause::{Cause, CauseShare};
use study::census::{Backing, Census, Folio, Mapping};
use study::machine::State;
use study::policy::{Geometry, Granularity, Modifier, Policy};
use study::size::PageSize;
use study::verdict::{Holding, Peak, Verdict};

use crate::census::{Area, CensusError, Observer, ProcessCensus, SmapsEntry};
use crate::host;

use eligible::{Eligibility, Rules};
use slots::{Piece, Shape, Standing};

/// Uncovered memory from which on the flags of mappings are read: smaps walks every page of a process.
const WORTH_SMAPS_BYTES: u64 = 1 << 20;

/// How far apart the bounds of a peak must be for that to be said.
const WORTH_A_NOTE_BYTES: u64 = 64 << 20;

/// The counter of PMD leaves that were split into base pages (/proc/vmstat).
const LEAVES_SPLIT: &str = "thp_split_pmd";

/// What the census of a process, or of many, says about a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Examination {
    /// Everything that was present.
    pub census: Census,
    /// Anonymous and hugetlb bytes.
    pub concerned_bytes: u64,
    /// Those of them that are mapped as asked.
    pub covered_bytes: u64,
    /// Those of them of which it cannot be seen.
    pub unseen_bytes: u64,
    /// Why the others are not mapped as asked, in bytes. Slots that were permitted and are fully or
    /// partly present are not among them: see [`Examination::into_verdict`].
    pub causes: BTreeMap<Cause, u64>,
    /// What else was noted, with bytes where they are known.
    notes: BTreeMap<Cause, u64>,
    /// Permitted slots that are present from end to end.
    full: Slots,
    /// The same, of processes that forked or were forked.
    full_after_fork: Slots,
    /// Permitted slots of which a part is present.
    partial: Slots,
    /// The size asked for, where it is a transparent one; the size of a slot.
    target: Option<PageSize>,
    /// How allocation counters moved.
    counters: BTreeMap<String, u64>,
    /// Whether the policy asks for anything.
    asked: bool,
    /// Those covered bytes that are taken to be so because PR_SET_THP_DISABLE was in force.
    proven_bytes: u64,
    /// Whether larger anonymous pages were seen although it was to be in force: then it proves nothing.
    undone: bool,
    /// The smallest mapping that was advised as it was made, where that is known.
    advised_bytes: Option<u64>,
    /// Concerned bytes of processes that could not be looked at.
    unseen_in_processes: u64,
    /// Whether there is a process of which not even the size is known.
    unsized_process: bool,
    /// Whether what is added now is of a process that forked or was forked.
    after_fork: bool,
    /// How much of the peak was looked at.
    peak: Option<Peak>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Slots {
    count: u64,
    bytes: u64,
}

/// What a policy asks for, as far as a census can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aim {
    Nothing,
    Base(PageSize),
    Mthp(PageSize),
    Pmd(PageSize),
    Hugetlb(PageSize),
    /// A size that this kernel does not have.
    Unavailable,
}

/// Examines a process: its census, and what it says about the policy. `counters_delta` says how the
/// system's counters moved since the trial began (`thp_fault_fallback`,
/// `hugepages-64kB/anon_fault_fallback`, ...; [`crate::host::Counters::delta`]); it may be empty here and
/// be given to [`Examination::count_fallbacks`] once at the end.
///
/// At a ptrace exit stop give the id of the stopped thread. A small process that is mapped as asked costs
/// one census and nothing else.
///
/// # Errors
/// Those of [`Observer::process`]. What cannot be read beyond the census makes a cause unknown and is no
/// error.
pub fn examine(
    observer: &Observer,
    pid: u32,
    policy: &Policy,
    geometry: &Geometry,
    state: &State,
    counters_delta: &BTreeMap<String, u64>,
) -> Result<Examination, CensusError> {
    let seen = observer.process(pid)?;
    let question = Question { policy, geometry, state, smaps: Some(observer), after_fork: false };
    let mut examination = question.answer(&seen);
    examination.count_fallbacks(counters_delta);
    Ok(examination)
}

/// What is asked about a census that is there.
pub struct Question<'a> {
    /// What the memory was to be mapped with.
    pub policy: &'a Policy,
    /// The sizes of the kernel.
    pub geometry: &'a Geometry,
    /// The settings that were in force.
    pub state: &'a State,
    /// Who may read smaps, which costs a walk over the whole process: without it, what only the flags of mappings could explain
    /// is unexplained.
    pub smaps: Option<&'a Observer>,
    /// Whether the process was forked, or has forked, since it loaded its program.
    pub after_fork: bool,
}

impl Aim {
    fn of(policy: &Policy, geometry: &Geometry) -> Aim {
        if policy.has(Modifier::NoHuge) {
            return Aim::Base(geometry.base);
        }
        match (policy.granularity, policy.target(geometry)) {
            (Granularity::Default | Granularity::DirectMap(_), _) => Aim::Nothing,
            (_, None) => Aim::Unavailable,
            (Granularity::Base, Some(size)) => Aim::Base(size),
            (Granularity::Mthp(_), Some(size)) => Aim::Mthp(size),
            (Granularity::Thp, Some(size)) => Aim::Pmd(size),
            (Granularity::Hugetlb(_), Some(size)) => Aim::Hugetlb(size),
        }
    }

    /// How memory that is mapped in this way stands to the aim.
    fn standing(self, mapping: &Mapping) -> Standing {
        if !mapping.is_concerned() {
            return Standing::Unconcerned;
        }
        match self {
            Aim::Nothing => Standing::Unconcerned,
            Aim::Unavailable => Standing::Missing,
            Aim::Base(base) => standing_of_base(mapping, base),
            Aim::Mthp(size) => standing_of_mthp(mapping, size),
            Aim::Pmd(size) => standing_of_pmd(mapping, size),
            Aim::Hugetlb(size) if mapping.backing == Backing::Hugetlb && mapping.leaf == size => Standing::Covered,
            Aim::Hugetlb(size) if mapping.leaf > size => Standing::Larger,
            Aim::Hugetlb(_) => Standing::Missing,
        }
    }
}

fn standing_of_base(mapping: &Mapping, base: PageSize) -> Standing {
    match mapping.folio {
        _ if mapping.leaf > base => Standing::Larger,
        Folio::Whole(size) | Folio::Part(size) if size > base => Standing::Larger,
        Folio::Whole(_) | Folio::Part(_) => Standing::Covered,
        Folio::Unknown => Standing::Unseen,
    }
}

fn standing_of_mthp(mapping: &Mapping, target: PageSize) -> Standing {
    match mapping.folio {
        _ if mapping.leaf > target => Standing::Larger,
        _ if mapping.backing == Backing::Hugetlb => Standing::Missing,
        Folio::Whole(size) if size == target => Standing::Covered,
        Folio::Whole(size) if size > target => Standing::Larger,
        Folio::Part(size) if size >= target => Standing::Cut,
        Folio::Whole(_) | Folio::Part(_) => Standing::Missing,
        Folio::Unknown => Standing::Unseen,
    }
}

fn standing_of_pmd(mapping: &Mapping, target: PageSize) -> Standing {
    match mapping.folio {
        _ if mapping.leaf == target => Standing::Covered,
        _ if mapping.leaf > target => Standing::Larger,
        Folio::Whole(size) if size >= target => Standing::Split,
        Folio::Part(size) if size >= target => Standing::Cut,
        Folio::Whole(_) | Folio::Part(_) | Folio::Unknown => Standing::Missing,
    }
}

impl Question<'_> {
    /// What the census says about the policy.
    pub fn answer(&self, seen: &ProcessCensus) -> Examination {
        let aim = Aim::of(self.policy, self.geometry);
        let mut examination = Examination {
            census: seen.census.clone(),
            concerned_bytes: seen.census.concerned_bytes(),
            asked: aim != Aim::Nothing,
            after_fork: self.after_fork,
            ..Examination::default()
        };
        if aim == Aim::Nothing {
            return examination;
        }
        let standing = |mapping: &Mapping| match (aim, aim.standing(mapping)) {
            (Aim::Mthp(size), Standing::Unseen)
                if seen.folios_of_system.as_ref().is_some_and(|all| !all.exist(size)) =>
            {
                Standing::Missing
            }
            (_, standing) => standing,
        };
        let bytes = |wanted: Standing| seen.census.bytes_where(|mapping| standing(mapping) == wanted);
        examination.covered_bytes = bytes(Standing::Covered);
        examination.undone = self.disabled_from_the_start()
            && seen.census.bytes_where(|m| m.backing == Backing::Anonymous && standing(m) == Standing::Larger) > 0;
        for (wanted, cause) in [
            (Standing::Larger, Cause::LargerThanAsked),
            (Standing::Cut, Cause::FolioPartlyMapped),
            (Standing::Split, Cause::LeafSplit),
        ] {
            let forked = self.after_fork && wanted != Standing::Larger;
            examination.add(if forked { Cause::SplitAfterFork } else { cause }, bytes(wanted));
        }
        let (missing, unseen) = (bytes(Standing::Missing), bytes(Standing::Unseen));
        if missing + unseen > 0 {
            self.explain(seen, aim, standing, missing, unseen, &mut examination);
        }
        examination
    }

    /// Whether the policy is had by PR_SET_THP_DISABLE, before the program's first instruction.
    fn disabled_from_the_start(&self) -> bool {
        self.policy.granularity == Granularity::Base || self.policy.has(Modifier::NoHuge)
    }

    fn explain(
        &self,
        seen: &ProcessCensus,
        aim: Aim,
        standing: impl Fn(&Mapping) -> Standing,
        missing: u64,
        unseen: u64,
        examination: &mut Examination,
    ) {
        let rules = Rules { state: self.state, disabled_for_process: thp_disabled(seen.pid) };
        if self.disabled_from_the_start() && rules.disabled_for_process {
            examination.covered_bytes += unseen;
            examination.proven_bytes += unseen;
            return;
        }
        let worth = missing + unseen >= WORTH_SMAPS_BYTES && !matches!(aim, Aim::Hugetlb(_) | Aim::Unavailable);
        let flags = self.smaps.filter(|_| worth).and_then(|observer| observer.smaps(seen.pid).ok()).unwrap_or_default();
        let flags_of = |area: &Area| {
            let at = flags.binary_search_by_key(&area.vma.start, |entry| entry.vma.start);
            at.ok().map(|at| &flags[at])
        };
        match aim {
            Aim::Base(_) => {
                let proven = self.proven_base_bytes(seen, &rules, &standing, flags_of, unseen);
                examination.covered_bytes += proven;
                examination.unseen_bytes = unseen - proven;
            }
            Aim::Mthp(size) | Aim::Pmd(size) if !seen.areas.is_empty() => {
                examination.target = Some(size);
                for area in &seen.areas {
                    let eligibility = rules.eligibility(size, flags_of(area));
                    let pieces = slots::shapes(area, size, &standing);
                    pieces.iter().for_each(|piece| examination.add_transparent(piece, &eligibility));
                }
            }
            Aim::Mthp(size) | Aim::Pmd(size) => {
                // Sums only: no places, and so no shapes.
                examination.unseen_bytes = unseen;
                match rules.eligibility(size, None) {
                    Eligibility::Refused(cause) => examination.add(cause, missing),
                    _ => examination.add(Cause::Unexplained, missing),
                }
            }
            Aim::Hugetlb(size) => {
                let exhausted = pool_is_exhausted(size);
                let pieces = seen.areas.iter().flat_map(|area| slots::shapes(area, size, &standing));
                pieces.for_each(|piece| examination.add_hugetlb(&piece, size, exhausted));
            }
            Aim::Nothing | Aim::Unavailable => examination.add(Cause::Unexplained, missing),
        }
        examination.add_what_is_left();
    }

    fn proven_base_bytes<'f>(
        &self,
        seen: &ProcessCensus,
        rules: &Rules,
        standing: &impl Fn(&Mapping) -> Standing,
        flags_of: impl Fn(&Area) -> Option<&'f SmapsEntry>,
        unseen: u64,
    ) -> u64 {
        if seen.areas.is_empty() {
            let proven = rules.only_base_pages(self.geometry, u64::MAX, None);
            return if proven { unseen } else { 0 };
        }
        let proven = |area: &&Area| rules.only_base_pages(self.geometry, area.vma.length_bytes(), flags_of(area));
        let regions = seen.areas.iter().filter(proven).flat_map(|area| &area.regions);
        regions.filter(|region| standing(&region.mapping) == Standing::Unseen).map(|region| region.length_bytes()).sum()
    }
}

impl Examination {
    /// Nothing seen yet. A policy that asks for something is not taken to be in force for want of a look.
    pub fn begun(policy: &Policy, geometry: &Geometry) -> Examination {
        Examination { asked: Aim::of(policy, geometry) != Aim::Nothing, ..Examination::default() }
    }

    /// Counts a process that could not be looked at, and why; `memory_bytes` is its anonymous and hugetlb memory,
    /// where that is known.
    pub fn miss_process(&mut self, reason: String, memory_bytes: Option<u64>) {
        let bytes = memory_bytes.unwrap_or(0);
        self.unsized_process |= memory_bytes.is_none();
        self.concerned_bytes += bytes;
        self.unseen_in_processes += bytes;
        *self.causes.entry(Cause::ProcessUnseen { reason }).or_default() += bytes;
    }

    /// Adds what was found in another process, or in another range.
    pub fn merge(&mut self, other: Examination) {
        self.census.merge(&other.census);
        self.concerned_bytes += other.concerned_bytes;
        self.covered_bytes += other.covered_bytes;
        self.unseen_bytes += other.unseen_bytes;
        other.causes.into_iter().for_each(|(cause, bytes)| self.add(cause, bytes));
        other.notes.into_iter().for_each(|(cause, bytes)| self.note(cause, bytes));
        self.full.add(other.full);
        self.full_after_fork.add(other.full_after_fork);
        self.partial.add(other.partial);
        self.target = self.target.or(other.target);
        self.count_fallbacks(&other.counters);
        self.advised_bytes = self.advised_bytes.or(other.advised_bytes);
        self.asked |= other.asked;
        self.proven_bytes += other.proven_bytes;
        self.undone |= other.undone;
        self.unseen_in_processes += other.unseen_in_processes;
        self.unsized_process |= other.unsized_process;
    }

    /// Says how the system's counters moved since the trial began; of two statements about one counter
    /// the later, larger one counts.
    pub fn count_fallbacks(&mut self, counters_delta: &BTreeMap<String, u64>) {
        for (name, times) in counters_delta {
            let known = self.counters.entry(name.clone()).or_default();
            *known = (*known).max(*times);
        }
    }

    /// Notes a cause that is known from elsewhere, as from tracing: it takes the place of what would be
    /// unexplained, or blamed on the pool, for up to `bytes`.
    pub fn note(&mut self, cause: Cause, bytes: u64) {
        *self.notes.entry(cause).or_default() += bytes;
    }

    /// Says from which length on mappings were advised as they were made: what carries no advice was mapped in smaller
    /// pieces.
    pub fn mappings_are_advised_from(&mut self, bytes: u64) {
        self.advised_bytes = Some(bytes);
    }

    /// Says how much of the peak was looked at, and whether everything was that was given back since. Less than half proves
    /// nothing; where the bounds of the peak leave that open it is said.
    pub fn set_against(&mut self, peak: Peak, all_was_seen: bool) {
        self.peak = Some(peak);
        if !self.asked {
            return;
        }
        if peak.is_unseen() {
            self.notes.remove(&Cause::FreedBeforeExit);
            self.add(Cause::PeakUnseen, peak.least_bytes - peak.seen_bytes);
        } else if !peak.is_seen() && !all_was_seen && peak.most_bytes - peak.least_bytes >= WORTH_A_NOTE_BYTES {
            self.note(Cause::PeakUncertain, 0);
        }
    }

    /// The verdict over everything that was merged.
    pub fn into_verdict(mut self) -> Verdict {
        let mut verdict = Verdict {
            holding: Holding::NotAsked,
            concerned_bytes: self.concerned_bytes,
            covered_bytes: self.covered_bytes,
            peak: self.peak,
            causes: Vec::new(),
            answered: Vec::new(),
        };
        if self.asked {
            self.settle_proof();
            verdict.covered_bytes = self.covered_bytes;
            self.settle_slots();
            self.settle_pieces();
            verdict.holding = self.holding();
        }
        self.settle_notes();
        verdict.causes = self.shares();
        verdict
    }

    fn add(&mut self, cause: Cause, bytes: u64) {
        if bytes > 0 {
            *self.causes.entry(cause).or_default() += bytes;
        }
    }

    /// A piece under a policy that asks for transparent folios.
    fn add_transparent(&mut self, piece: &Piece, eligibility: &Eligibility) {
        if let Some(cause) = certain_cause(piece.shape) {
            self.add(cause, piece.missing_bytes + piece.unseen_bytes);
            return;
        }
        match eligibility {
            // Sysfs is compared around every trial; a prctl or advice may have come late.
            Eligibility::Refused(cause @ Cause::SizeDisabled { .. }) => {
                self.add(cause.clone(), piece.missing_bytes + piece.unseen_bytes);
            }
            Eligibility::Refused(cause) => {
                self.add(cause.clone(), piece.missing_bytes);
                self.unseen_bytes += piece.unseen_bytes;
            }
            Eligibility::Eligible | Eligibility::Unknown => self.add_permitted(piece, eligibility),
        }
    }

    fn add_permitted(&mut self, piece: &Piece, eligibility: &Eligibility) {
        let (missing, both) = (piece.missing_bytes, piece.missing_bytes + piece.unseen_bytes);
        match piece.shape {
            Shape::ZeroInSlot => self.add(Cause::ZeroPageInSlot, both),
            Shape::Refilled if self.after_fork => self.add(Cause::SplitAfterFork, both),
            Shape::Refilled => self.add(Cause::RefilledAfterDrop, both),
            Shape::Holes => self.partial.add(Slots { count: piece.slots, bytes: both }),
            _ if *eligibility == Eligibility::Unknown => {
                self.add(Cause::Unexplained, missing);
                self.unseen_bytes += piece.unseen_bytes;
            }
            _ => {
                let count = if missing > 0 { piece.slots } else { 0 };
                let full = if self.after_fork { &mut self.full_after_fork } else { &mut self.full };
                full.add(Slots { count, bytes: missing });
                self.unseen_bytes += piece.unseen_bytes;
            }
        }
    }

    /// A piece under a policy that asks for hugetlb pages.
    fn add_hugetlb(&mut self, piece: &Piece, size: PageSize, exhausted: bool) {
        let cause = match certain_cause(piece.shape) {
            Some(cause) => cause,
            None if exhausted => Cause::PoolExhausted { size },
            None => Cause::Unexplained,
        };
        self.add(cause, piece.missing_bytes);
    }

    /// What no place accounts for: a census of sums has no places.
    fn add_what_is_left(&mut self) {
        let slots = self.full.bytes + self.full_after_fork.bytes + self.partial.bytes;
        let known = self.covered_bytes + self.unseen_bytes + slots;
        let explained: u64 = self.causes.values().sum();
        self.add(Cause::Unexplained, self.concerned_bytes.saturating_sub(known + explained));
    }

    /// Where larger pages are seen after all, what cannot be seen is unknown.
    fn settle_proof(&mut self) {
        match (self.undone, self.proven_bytes) {
            (_, 0) => {}
            (true, bytes) => {
                self.covered_bytes -= bytes;
                self.unseen_bytes += bytes;
            }
            (false, _) => self.note(Cause::ProvenByThpDisable, 0),
        }
    }

    /// Divides the permitted slots between allocations that fell back, larger pages that were split, and other causes. The kernel
    /// counts a failed charge to the control group as a fallback too.
    fn settle_slots(&mut self) {
        if let Some((counter, all, charges)) = self.target.and_then(|size| self.fallbacks(size)) {
            let charged = self.take_slots(charges);
            self.add(Cause::ChargeFellBack, charged);
            let times = all - charges;
            let fell_back = self.take_slots(times);
            self.add(Cause::AllocationFellBack { counter, times }, fell_back);
        }
        let dropped = self.target.map_or(0, |size| self.dropped_in_part(size));
        let refilled = self.full.take(dropped);
        self.add(Cause::RefilledAfterDrop, refilled);
        let splits = self.counters.get(LEAVES_SPLIT).copied().unwrap_or(0);
        let after_fork = self.full_after_fork.take(splits);
        self.add(Cause::SplitAfterFork, after_fork);
        if self.census.bytes_where(|mapping| mapping.folio == Folio::Unknown && mapping.backing == Backing::Anonymous)
            > 0
        {
            let split = self.full.take(splits.saturating_sub(dropped));
            self.add(Cause::SplitMeanwhile, split);
        }
        self.full.add(std::mem::take(&mut self.full_after_fork));
        let (full, partial) = (std::mem::take(&mut self.full), std::mem::take(&mut self.partial));
        self.add(Cause::TouchedBeforeEligible, full.bytes);
        self.add(Cause::SlotPartlyPresent, partial.bytes);
    }

    /// Memory without advice was mapped in pieces that are too small for it, unless advice was refused somewhere, or
    /// a program's calls were not seen.
    fn settle_pieces(&mut self) {
        let is_refusal =
            |cause: &Cause| matches!(cause, Cause::FilteredByProgram | Cause::AdviceRefused { .. } | Cause::ForeignAbi);
        if let Some(advised_bytes) = self.advised_bytes
            && !self.notes.keys().any(is_refusal)
        {
            let bytes = self.causes.remove(&Cause::NotAdvised).unwrap_or(0);
            self.add(Cause::MappedInPieces { advised_bytes }, bytes);
        }
    }

    /// Takes up to `count` slots away, full ones first; returns their bytes.
    fn take_slots(&mut self, count: u64) -> u64 {
        let left = count.saturating_sub(self.full.count);
        let last = left.saturating_sub(self.full_after_fork.count);
        self.full.take(count) + self.full_after_fork.take(left) + self.partial.take(last)
    }

    /// How many folios of a size lost a part of their content: those that the kernel noted to be mapped in part (`split_deferred`),
    /// as after MADV_DONTNEED, and those that it split at once (`split`), as for MADV_FREE. The size's own counters exist since
    /// Linux 6.10; before that /proc/vmstat counts for PMD size.
    fn dropped_in_part(&self, size: PageSize) -> u64 {
        let moved = |name: &str| self.counters.get(name).copied().unwrap_or(0);
        let own = |name: &str| moved(&format!("hugepages-{}kB/{name}", size.bytes() >> 10));
        match self.counters.keys().any(|name| name.starts_with("hugepages-")) {
            true => own("split_deferred") + own("split"),
            false => moved("thp_deferred_split_page") + moved("thp_split_page"),
        }
    }

    /// The counter of fallbacks for a size, by how much it moved, and how much of that were charges to the
    /// control group; `None` where it did not move. The size's own counters exist since Linux 6.10; before
    /// that /proc/vmstat counts for PMD size.
    fn fallbacks(&self, size: PageSize) -> Option<(String, u64, u64)> {
        let own = format!("hugepages-{}kB/anon_fault_fallback", size.bytes() >> 10);
        let name = [own, "thp_fault_fallback".to_string()].into_iter().find(|name| self.counters.contains_key(name))?;
        let moved = |name: &str| self.counters.get(name).copied().unwrap_or(0);
        let (all, charges) = (moved(&name), moved(&format!("{name}_charge")));
        Some((name, all, charges.min(all)))
    }

    /// Lets what was noted take the place of what is unexplained.
    fn settle_notes(&mut self) {
        for (cause, bytes) in std::mem::take(&mut self.notes) {
            let mut taken = 0;
            for (other, left) in self.causes.iter_mut() {
                if matches!(other, Cause::Unexplained | Cause::PoolExhausted { .. }) && *other != cause {
                    let part = (*left).min(bytes - taken);
                    *left -= part;
                    taken += part;
                }
            }
            *self.causes.entry(cause).or_default() += taken;
        }
    }

    fn holding(&self) -> Holding {
        if self.peak.is_some_and(|peak| peak.is_unseen()) {
            return Holding::Unknown;
        }
        let unseen = self.unseen_bytes + self.unseen_in_processes;
        let least = Verdict::holding_of(self.concerned_bytes, self.covered_bytes);
        let most = Verdict::holding_of(self.concerned_bytes, self.covered_bytes + unseen);
        if least == most && !self.unsized_process { least } else { Holding::Unknown }
    }

    /// The causes, largest first; those without bytes last.
    fn shares(self) -> Vec<CauseShare> {
        let mut causes = self.causes;
        causes.retain(|cause, bytes| *bytes > 0 || !matches!(cause, Cause::Unexplained | Cause::PoolExhausted { .. }));
        if self.asked && self.concerned_bytes == 0 {
            causes.entry(Cause::NothingToSee).or_default();
        }
        if self.unseen_bytes > 0 {
            causes.insert(Cause::FoliosInvisible, self.unseen_bytes);
        }
        let share = |(cause, bytes)| CauseShare { cause, bytes: (bytes > 0).then_some(bytes) };
        let mut shares: Vec<CauseShare> = causes.into_iter().map(share).collect();
        shares.sort_by_key(|share| std::cmp::Reverse(share.bytes));
        shares
    }
}

impl Slots {
    fn add(&mut self, other: Slots) {
        self.count += other.count;
        self.bytes += other.bytes;
    }

    /// Takes up to `count` slots away and returns their bytes, at the average of these slots.
    fn take(&mut self, count: u64) -> u64 {
        let count = count.min(self.count);
        if count == 0 {
            return 0;
        }
        let bytes = (u128::from(self.bytes) * u128::from(count) / u128::from(self.count)) as u64;
        *self = Slots { count: self.count - count, bytes: self.bytes - bytes };
        bytes
    }
}

/// The cause that follows from the shape alone, whatever is permitted.
fn certain_cause(shape: Shape) -> Option<Cause> {
    match shape {
        Shape::Stack => Some(Cause::Stack),
        Shape::FileCopy => Some(Cause::PrivateFileCopy),
        Shape::TooSmall => Some(Cause::MappingTooSmall),
        Shape::NoSlot => Some(Cause::NoAlignedSlot),
        Shape::ZeroInSlot | Shape::Holes | Shape::Refilled | Shape::Full => None,
    }
}

/// Whether PR_SET_THP_DISABLE is in force: `THP_enabled: 0` in /proc/PID/status (Linux 5.0). The mode
/// that excepts advised memory (Linux 6.18) does not show there.
fn thp_disabled(pid: u32) -> bool {
    let status = host::content(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| line.strip_prefix("THP_enabled:").is_some_and(|value| value.trim() == "0"))
}

/// Whether the pool has no page to give at this moment: none free beyond those reserved, and no surplus
/// allowed (Documentation/admin-guide/mm/hugetlbpage.rst).
fn pool_is_exhausted(size: PageSize) -> bool {
    let number =
        |file: &str| -> Option<u64> { fs::read_to_string(host::hugetlb_file(size, file)).ok()?.trim().parse().ok() };
    let counts = || {
        let free = number("free_hugepages")?.saturating_sub(number("resv_hugepages")?);
        let surplus = number("nr_overcommit_hugepages")?.saturating_sub(number("surplus_hugepages")?);
        Some(free + surplus)
    };
    counts() == Some(0)
}

#[cfg(test)]
mod tests;
