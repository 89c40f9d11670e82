//! [`Question`]: whether a policy took effect on a process, and why some memory is not mapped as asked.
//!
//! # How a cause is found
//! Every byte that the policy applies to, and that is not mapped as asked, gets one cause: the first in this list that applies. A
//! *slot* is a naturally aligned range of the target size inside one mapping.
//! 1. *State*: larger pages than asked for; a folio that is mapped in part; a complete folio whose leaf was split.
//! 2. *Shape*: the stack, private copies of file pages, a mapping smaller than the target, memory outside every slot of its
//!    mapping.
//! 3. *Permission*: PR_SET_THP_DISABLE, MADV_NOHUGEPAGE, sysfs, missing advice, as the kernel would check them now.
//! 4. *History*: a zero page in the slot, holes in the slot, base pages next to part of a larger folio in the slot. For any other
//!    slot full of base pages: an allocation that fell back, a larger page that was split, or a touch before the size was
//!    permitted.
//!
//! The kernel counts allocations that fell back, folios that lost part of their content, and split leaves for the whole system
//! only, one event for each slot. A counter therefore explains at most as many slots as it counts, full ones first. The remaining
//! slots were touched too early.
//!
//! In a process that forked or was forked, a folio may be split or mapped in part because of a CoW copy after the fork, or
//! because part of it was unmapped. The two cannot be distinguished.
//!
//! # Unknown memory is reported
//! Where folios are not visible, memory that may or may not be as asked is neither covered nor missing. The verdict is
//! [`Holding::Unknown`](crate::verdict::Holding::Unknown) where that memory could change the result, with
//! [`Cause::FoliosInvisible`]. Three facts decide about memory whose folios are not visible: the system has no anonymous folio of
//! the size, the slot has a hole or a zero page, or, where base pages are asked for, `Rules::only_base_pages` rules out all
//! others. Under `base` and `+no-huge`, PR_SET_THP_DISABLE is in force from the first instruction on, and the tracer answers
//! calls that would end it. If it is still in force (`THP_enabled: 0` in /proc/PID/status), that proves base pages: the kernel
//! then gives no anonymous folio of any other size (`vma_thp_disabled` in include/linux/huge_mm.h, which
//! `__thp_vma_allowable_orders` calls for faults, khugepaged, MADV_COLLAPSE and swap alike). If a larger anonymous page is seen
//! in any process of the tree, PR_SET_THP_DISABLE was undone, and it proves nothing.

mod coverage;
mod eligible;
mod evidence;
mod examination;
mod slots;

use std::collections::BTreeMap;

use crate::cause::Cause;
use crate::census::{Advice, Area, Backing, Census, Mapping};
use crate::intent::{Granularity, Modifier, PageSizes, Policy};
use crate::size::PageSize;

pub use coverage::{Aim, Coverage};
pub use eligible::{Eligibility, Rules, THP, thp_size_enabled};
pub use evidence::{DirectMap, Evidence, Fallbacks, MappedShare, SlotCounts};
pub use examination::{Examination, certain_cause};
pub use slots::{Shape, ShapeSum, shapes};

/// The question that the judge answers about examined memory.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// What the memory should be mapped with.
    pub aim: Aim,
    /// Whether the aim is reached by PR_SET_THP_DISABLE, set before the program's first instruction.
    pub by_thp_disable: bool,
    /// The page sizes of the kernel.
    pub page_sizes: &'a PageSizes,
    /// The settings that were in force, by path.
    pub settings: &'a BTreeMap<String, String>,
    /// Whether the process was forked, or has forked, since it executed its program.
    pub after_fork: bool,
}

/// The memory that a platform found in a process, or in an address range of one.
#[derive(Clone, Copy, Debug)]
pub struct FoundMemory<'a> {
    /// Bytes by mapping.
    pub census: &'a Census,
    /// The same memory with addresses; empty where only sums are known.
    pub areas: &'a [Area<'a>],
}

/// The reason why there is no answer: what could not be read, without the PID.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unread(pub String);

/// An answer, or the reason why there is none.
pub type Answer<T> = Result<T, Unread>;

/// Queries that the judge may make about a process in addition to the memory found. It makes them only where the answer matters,
/// because an answer can cost as much as the examination.
pub trait Process {
    /// Whether PR_SET_THP_DISABLE is in force.
    fn is_thp_disabled(&self) -> Answer<bool>;

    /// The advice on its mappings, sorted by their first addresses; for mappings that are not listed it is not known. The answer
    /// may explain `bytes` of memory.
    fn advice(&self, bytes: u64) -> Answer<Vec<(u64, Advice)>>;

    /// Whether anonymous folios of a size may exist on the system.
    fn may_have_folios(&self, size: PageSize) -> bool;

    /// Whether the pool of a size has no free page.
    fn is_pool_exhausted(&self, size: PageSize) -> Answer<bool>;
}

impl<'a> Question<'a> {
    /// Asks whether a policy took effect on a process that was not forked.
    pub fn of(policy: &Policy, page_sizes: &'a PageSizes, settings: &'a BTreeMap<String, String>) -> Question<'a> {
        let by_thp_disable = policy.granularity == Granularity::Base || policy.has(Modifier::NoHuge);
        Question { aim: Aim::of(policy, page_sizes), by_thp_disable, page_sizes, settings, after_fork: false }
    }

    /// Examines the memory that was found.
    pub fn answer(&self, seen: &FoundMemory, process: &impl Process) -> Examination {
        let mut examination = Examination::of(seen.census, self.aim, self.after_fork);
        if self.aim == Aim::Nothing {
            return examination;
        }
        let coverage = |mapping: &Mapping| match (self.aim, self.aim.coverage(mapping)) {
            (Aim::Mthp(size) | Aim::PteMapped(size), Coverage::Unseen) if !process.may_have_folios(size) => {
                Coverage::Missing
            }
            (_, coverage) => coverage,
        };
        let bytes = |wanted: Coverage| seen.census.bytes_where(|mapping| coverage(mapping) == wanted);
        examination.covered_bytes = bytes(Coverage::Covered);
        let is_larger = |mapping: &Mapping| coverage(mapping) == Coverage::Larger;
        examination.is_disable_undone = self.by_thp_disable
            && seen.census.bytes_where(|mapping| mapping.backing == Backing::Anonymous && is_larger(mapping)) > 0;
        for (wanted, cause) in [
            (Coverage::Larger, Cause::LargerThanAsked),
            (Coverage::Cut, Cause::FolioPartlyMapped),
            (Coverage::Split, Cause::LeafSplit),
        ] {
            let forked = self.after_fork && wanted != Coverage::Larger;
            examination.add(if forked { Cause::SplitAfterFork } else { cause }, bytes(wanted));
        }
        let (missing, unseen) = (bytes(Coverage::Missing), bytes(Coverage::Unseen));
        if missing + unseen > 0 {
            self.explain(seen, process, coverage, (missing, unseen), &mut examination);
        }
        examination
    }

    fn explain(
        &self,
        seen: &FoundMemory,
        process: &impl Process,
        coverage: impl Fn(&Mapping) -> Coverage,
        (missing, unseen): (u64, u64),
        examination: &mut Examination,
    ) {
        let mut unread = Vec::new();
        let disabled_for_process = known(process.is_thp_disabled(), &mut unread);
        let rules = Rules { settings: self.settings, disabled_for_process };
        if self.by_thp_disable && disabled_for_process == Some(true) {
            examination.covered_bytes += unseen;
            examination.proven_bytes += unseen;
            return;
        }
        let advice = match self.aim {
            Aim::Unavailable => Vec::new(),
            // If the advice could not be read, it is not known for any mapping.
            _ => known(process.advice(missing + unseen), &mut unread).unwrap_or_default(),
        };
        let advice_of = |area: &Area| {
            let at = advice.binary_search_by_key(&area.start, |(start, _)| *start);
            at.ok().map(|at| advice[at].1)
        };
        match self.aim {
            Aim::Base(_) => {
                let proven = self.proven_base_bytes(seen, &rules, &coverage, advice_of, unseen);
                examination.covered_bytes += proven;
                examination.unseen_bytes = unseen - proven;
            }
            Aim::Mthp(size) | Aim::Leaf(size) | Aim::PteMapped(size) | Aim::LeafFrom(size)
                if !seen.areas.is_empty() =>
            {
                for area in seen.areas {
                    let eligibility = rules.eligibility(size, advice_of(area));
                    let sums = slots::shapes(area, size, &coverage);
                    sums.iter().for_each(|sum| examination.add_transparent(sum, &eligibility));
                }
            }
            Aim::Mthp(size) | Aim::Leaf(size) | Aim::PteMapped(size) | Aim::LeafFrom(size) => {
                // Only sums: there are no addresses and therefore no shapes.
                examination.unseen_bytes = unseen;
                match rules.eligibility(size, None) {
                    Eligibility::Refused(cause) => examination.add(cause, missing),
                    _ => examination.add(Cause::Unexplained, missing),
                }
            }
            Aim::Hugetlb(size) => {
                let exhausted = known(process.is_pool_exhausted(size), &mut unread) == Some(true);
                for area in seen.areas {
                    let refused = advice_of(area) == Some(Advice::NoHuge);
                    let sums = slots::shapes(area, size, &coverage);
                    sums.iter().for_each(|sum| examination.add_hugetlb(sum, size, refused, exhausted));
                }
            }
            Aim::Nothing | Aim::Unavailable => examination.add(Cause::Unexplained, missing),
        }
        examination.add_unexplained();
        examination.add_unread(unread);
    }

    fn proven_base_bytes(
        &self,
        seen: &FoundMemory,
        rules: &Rules,
        coverage: &impl Fn(&Mapping) -> Coverage,
        advice_of: impl Fn(&Area) -> Option<Advice>,
        unseen: u64,
    ) -> u64 {
        if seen.areas.is_empty() {
            let proven = rules.only_base_pages(self.page_sizes, u64::MAX, None);
            return if proven { unseen } else { 0 };
        }
        let proven = |area: &&Area| rules.only_base_pages(self.page_sizes, area.length_bytes(), advice_of(area));
        let regions = seen.areas.iter().filter(proven).flat_map(|area| area.regions);
        regions.filter(|region| coverage(&region.mapping) == Coverage::Unseen).map(|region| region.length_bytes()).sum()
    }
}

/// The answer if there is one; otherwise records the reason.
fn known<T>(answer: Answer<T>, unread: &mut Vec<Unread>) -> Option<T> {
    answer.map_err(|reason| unread.push(reason)).ok()
}

#[cfg(test)]
mod tests;
