//! [`Evidence`]: everything that a trial showed, and the verdict that follows from it.

use std::collections::{BTreeMap, BTreeSet};

use super::examination::{Examination, Slots};
use crate::cause::{Cause, CauseShare};
use crate::census::{Backing, Folio};
use crate::removal::Unwatched;
use crate::size::PageSize;
use crate::verdict::{AnsweredCall, Holding, Peak, Verdict};

/// A smaller difference between the bounds of a peak is not reported.
const WORTH_A_NOTE_BYTES: u64 = 64 << 20;

/// The counter of PMD leaves that were split into base pages (/proc/vmstat).
const LEAVES_SPLIT: &str = "thp_split_pmd";
/// The counter of huge zero pages that were allocated.
const ZERO_PAGES: &str = "thp_zero_page_alloc";
/// The counters of pages of PMD size that were mapped by a leaf.
const LEAVES_MADE: [&str; 2] = ["thp_fault_alloc", "thp_collapse_alloc"];

/// Everything that a trial showed about the memory that its policy applies to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evidence {
    /// The merged results of all examinations.
    pub examination: Examination,
    /// How much of the peak was examined; `None` where a platform needs no examinations during the run.
    pub peak: Option<Peak>,
    /// Whether all memory was examined before it was given back.
    pub is_all_seen: bool,
    /// How memory may have been freed without a call that stops. Used only if all memory was to be examined.
    pub unwatched: BTreeSet<Unwatched>,
    /// Bytes that were given back without being examined.
    pub unseen_unmapped_bytes: u64,
    /// How often slots did not get a larger page, or lost one.
    pub slots: SlotCounts,
    /// Under windows: the share of the memory that was to have large pages. `None`: all of it was to have them.
    pub large_share: Option<f64>,
    /// The smallest mapping that is advised when it is made: memory without advice was mapped in smaller pieces. `None` where the
    /// policy gives no advice.
    pub advised_bytes: Option<u64>,
    /// Causes known from handling calls, with bytes where they are known.
    pub noted: BTreeMap<Cause, u64>,
    /// Calls that were answered in place of the kernel, with their number.
    pub answered: BTreeMap<String, u64>,
    /// Whether guard pages were to be left accessible.
    pub is_without_guards: bool,
    /// The kernel's direct map, where the policy is about it.
    pub direct_map: Option<DirectMap>,
}

/// How often slots of the requested size did not get a larger page, or lost one; each slot counts once. The kernel counts
/// these events for the whole system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotCounts {
    /// Allocations that fell back to a smaller size.
    pub fallbacks: Option<Fallbacks>,
    /// Folios that lost part of their content while another part stayed mapped.
    pub cut_folios: u64,
    /// Folios that were split into smaller ones.
    pub split_folios: u64,
    /// PMD leaves that were split.
    pub split_leaves: u64,
    /// Split leaves that must have mapped a huge zero page: the excess of split leaves over large pages made, if a huge zero page
    /// was allocated.
    pub split_zero_leaves: u64,
    /// Upper bound of the bytes that faults brought in, if each brought in a folio of the largest enabled size below the
    /// requested one; `None` where that is not known.
    pub faulted_bytes: Option<u64>,
    /// For sizes below PMD size: bytes of base pages that had a second fault. No counter shows zero pages of these sizes.
    pub refaulted_bytes: u64,
}

/// Allocations that fell back to a smaller size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fallbacks {
    /// The kernel counter.
    pub counter: String,
    /// How much the counter moved.
    pub times: u64,
    /// How many of them were failed charges to the control group.
    pub charges: u64,
}

/// The kernel's direct map around a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DirectMap {
    /// It was read before and after.
    Seen {
        /// Before the trial.
        before: MappedShare,
        /// After it.
        after: MappedShare,
    },
    /// It could not be read.
    Unseen {
        /// The reason, as text.
        reason: String,
    },
}

/// How much of the direct map is as asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MappedShare {
    /// Bytes of the whole direct map.
    pub total_bytes: u64,
    /// Bytes that leaves of the requested size are certain to map.
    pub covered_bytes: u64,
}

impl SlotCounts {
    /// The counts for a size, from how far the kernel's counters moved (/proc/vmstat and, with paths relative to it, those in
    /// /sys/kernel/mm/transparent_hugepage). A size has counters of its own since Linux 6.10; before that /proc/vmstat counts PMD
    /// size only. The kernel also counts a failed charge to the control group as a fallback.
    pub fn of_kernel(moved: &BTreeMap<String, u64>, size: Option<PageSize>) -> SlotCounts {
        let by = |name: &str| moved.get(name).copied().unwrap_or(0);
        let split_leaves = by(LEAVES_SPLIT);
        let Some(size) = size else { return SlotCounts { split_leaves, ..SlotCounts::default() } };
        let made: u64 = LEAVES_MADE.iter().map(|name| by(name)).sum();
        let (cut_folios, split_folios) = cut_and_split(moved, size);
        SlotCounts {
            fallbacks: fallbacks(moved, size),
            cut_folios,
            split_folios,
            split_leaves,
            split_zero_leaves: if by(ZERO_PAGES) > 0 { split_leaves.saturating_sub(made) } else { 0 },
            faulted_bytes: None,
            refaulted_bytes: 0,
        }
    }
}

/// Folios that the kernel queued as mapped in part (`split_deferred`), as after MADV_DONTNEED, and those that it split (`split`),
/// as for MADV_FREE, MADV_COLD and MADV_PAGEOUT of a part.
fn cut_and_split(moved: &BTreeMap<String, u64>, size: PageSize) -> (u64, u64) {
    let by = |name: &str| moved.get(name).copied().unwrap_or(0);
    let own = |name: &str| by(&format!("hugepages-{}kB/{name}", size.bytes() >> 10));
    if moved.keys().any(|name| name.starts_with("hugepages-")) {
        (own("split_deferred"), own("split"))
    } else {
        (by("thp_deferred_split_page"), by("thp_split_page"))
    }
}

fn fallbacks(moved: &BTreeMap<String, u64>, size: PageSize) -> Option<Fallbacks> {
    let own = format!("hugepages-{}kB/anon_fault_fallback", size.bytes() >> 10);
    let counter = [own, "thp_fault_fallback".to_string()].into_iter().find(|name| moved.contains_key(name))?;
    let by = |name: &str| moved.get(name).copied().unwrap_or(0);
    let (times, charges) = (by(&counter), by(&format!("{counter}_charge")));
    Some(Fallbacks { counter, times, charges: charges.min(times) })
}

impl Evidence {
    /// Evidence that consists only of an examination.
    pub fn of(examination: Examination) -> Evidence {
        Evidence { examination, ..Evidence::default() }
    }

    /// Builds the verdict.
    pub fn verdict(mut self) -> Verdict {
        self.note_known_causes();
        let answered = std::mem::take(&mut self.answered);
        let verdict = match self.direct_map.take() {
            Some(direct_map) => direct_map.verdict(self.examination),
            None => self.verdict_on_memory(),
        };
        let answered = answered.into_iter().map(|(call, times)| AnsweredCall { call, times });
        Verdict { answered: answered.collect(), ..verdict }
    }

    fn note_known_causes(&mut self) {
        // If all memory was to be examined, `ProcessUnseen` reports what was not.
        if !self.is_all_seen && self.unseen_unmapped_bytes > self.examination.concerned_bytes {
            self.examination.note(Cause::FreedBeforeExit, self.unseen_unmapped_bytes);
        }
        self.compare_with_peak();
        for (cause, bytes) in std::mem::take(&mut self.noted) {
            self.examination.note(cause, bytes);
        }
        let is_of_guard = |call: &String| call.to_ascii_lowercase().contains("guard");
        if self.is_without_guards && !self.answered.keys().any(is_of_guard) {
            self.examination.note(Cause::NoGuardSeen, 0);
        }
    }

    /// If less than half of the peak was examined, the verdict is unknown. If the bounds of the peak leave that open, a note
    /// reports it.
    fn compare_with_peak(&mut self) {
        let Some(peak) = self.peak.filter(|_| self.examination.asks_for_size) else { return };
        if peak.is_unseen() {
            self.examination.notes.remove(&Cause::FreedBeforeExit);
            let cause = if self.is_all_seen {
                Cause::PeakUnwatched { ways: self.unwatched.iter().copied().collect() }
            } else {
                Cause::PeakUnseen
            };
            self.examination.add(cause, peak.least_bytes - peak.seen_bytes);
        } else if !peak.is_seen() && !self.is_all_seen && peak.most_bytes - peak.least_bytes >= WORTH_A_NOTE_BYTES {
            self.examination.note(Cause::PeakUncertain, 0);
        }
    }

    fn verdict_on_memory(mut self) -> Verdict {
        let mut holding = Holding::NotAsked;
        if self.examination.asks_for_size {
            self.examination.check_proof();
            self.examination.attribute_slots(&self.slots);
            self.examination.attribute_unadvised(self.advised_bytes);
            if let Some(share) = self.large_share {
                self.examination.attribute_share(share);
            }
            holding = self.examination.holding(self.peak);
        }
        self.examination.attribute_unexplained();
        let Examination { concerned_bytes, covered_bytes, .. } = self.examination;
        let causes = self.examination.shares();
        Verdict { holding, concerned_bytes, covered_bytes, peak: self.peak, causes, answered: Vec::new() }
    }
}

impl DirectMap {
    /// The verdict on the direct map. A map that was split during the trial was not as asked. The program's memory is not judged,
    /// but the causes noted for it are reported.
    fn verdict(self, mut program: Examination) -> Verdict {
        program.attribute_unexplained();
        let noted = program.shares();
        let (holding, concerned_bytes, covered_bytes, first) = match self {
            DirectMap::Seen { before, after } => {
                let (concerned, covered) = (before.total_bytes, before.covered_bytes.min(after.covered_bytes));
                let otherwise = CauseShare { cause: Cause::DirectMapOtherwise, bytes: Some(concerned - covered) };
                (Verdict::holding_of(concerned, covered), concerned, covered, otherwise)
            }
            DirectMap::Unseen { reason } => {
                (Holding::Unknown, 0, 0, CauseShare { cause: Cause::DirectMapUnseen { reason }, bytes: None })
            }
        };
        let causes = std::iter::once(first).chain(noted).filter(|share| share.bytes != Some(0)).collect();
        Verdict { holding, concerned_bytes, covered_bytes, peak: None, causes, answered: Vec::new() }
    }
}

impl Examination {
    /// If larger pages are visible although PR_SET_THP_DISABLE should prevent them, memory whose folios are not visible
    /// counts as unknown.
    fn check_proof(&mut self) {
        match (self.is_disable_undone, self.proven_bytes) {
            (_, 0) => {}
            (true, bytes) => {
                self.covered_bytes -= bytes;
                self.unseen_bytes += bytes;
            }
            (false, _) => self.note(Cause::ProvenByThpDisable, 0),
        }
    }

    /// Attributes the permitted slots to failed allocations, split larger pages, and other causes. The counters cover the whole
    /// system: each explains at most as many slots as it counts. Slots whose leaves were split for a reason that no counter shows
    /// are only reported as full of base pages.
    fn attribute_slots(&mut self, counts: &SlotCounts) {
        let not_by_faults = self.full.take_bytes_above(counts.faulted_bytes.unwrap_or(u64::MAX));
        if let Some(Fallbacks { counter, times, charges }) = counts.fallbacks.clone() {
            let charged = self.take_slots(charges);
            self.add(Cause::ChargeFellBack, charged);
            let times = times - charges;
            let fell_back = self.take_slots(times);
            self.add(Cause::AllocationFellBack { counter, times }, fell_back);
        }
        let read_first = self.full.take(counts.split_zero_leaves);
        self.add(Cause::ReadFirst, read_first);
        let refilled = self.full.take(counts.cut_folios);
        self.add(Cause::RefilledAfterDrop, refilled);
        self.full.add(not_by_faults);
        let split = self.full.take(counts.split_folios);
        self.add(Cause::SplitMeanwhile, split);
        let after_fork = self.full_after_fork.count.min(counts.split_leaves);
        let split_after_fork = self.full_after_fork.take(after_fork);
        self.add(Cause::SplitAfterFork, split_after_fork);
        let counted = counts.cut_folios + counts.split_folios + counts.split_zero_leaves + after_fork;
        let other_leaves = counts.split_leaves.saturating_sub(counted);
        let split = self.full.take(other_leaves);
        let sees_all =
            self.census.bytes_where(|mapping| mapping.folio == Folio::Unknown && mapping.backing == Backing::Anonymous)
                == 0;
        self.add(if sees_all { Cause::FilledWithBasePages } else { Cause::SplitMeanwhile }, split);
        let not_by_faults = self.full.take_bytes_above(counts.faulted_bytes.unwrap_or(u64::MAX));
        self.add(Cause::Unexplained, not_by_faults.bytes);
        // Fewer second faults may have other reasons, such as pages of files.
        if counts.refaulted_bytes >= self.full.bytes / 2 {
            let touched_once = self.full.take_bytes_above(counts.refaulted_bytes);
            let read_first = std::mem::replace(&mut self.full, touched_once);
            self.add(Cause::ReadFirst, read_first.bytes);
        }
        self.full.add(std::mem::take(&mut self.full_after_fork));
        let (full, partial): (Slots, Slots) = (std::mem::take(&mut self.full), std::mem::take(&mut self.partial));
        self.add(Cause::TouchedBeforeEligible, full.bytes);
        self.add(Cause::SlotPartlyPresent, partial.bytes);
    }

    /// Memory without advice was mapped in pieces too small to be advised, unless advice was refused somewhere or the calls of a
    /// program were not traced.
    fn attribute_unadvised(&mut self, advised_bytes: Option<u64>) {
        let is_refusal =
            |cause: &Cause| matches!(cause, Cause::FilteredByProgram | Cause::AdviceRefused { .. } | Cause::ForeignAbi);
        if let Some(advised_bytes) = advised_bytes
            && !self.notes.keys().any(is_refusal)
        {
            let bytes = self.causes.remove(&Cause::NotAdvised).unwrap_or(0);
            self.add(Cause::MappedInPieces { advised_bytes }, bytes);
        }
    }

    /// Under a policy that asks for a share of large pages: counts all memory as covered, except the bytes by which the large
    /// part differs from that share. Keeps only causes of missing large pages.
    fn attribute_share(&mut self, share: f64) {
        let asked_bytes = (self.concerned_bytes as f64 * share) as u64;
        let missing = asked_bytes.saturating_sub(self.covered_bytes);
        let surplus = self.covered_bytes.saturating_sub(asked_bytes);
        self.covered_bytes = self.concerned_bytes - missing - surplus;
        self.causes.remove(&Cause::AdvisedAgainst);
        let explained: u64 = self.causes.values().sum();
        for bytes in self.causes.values_mut() {
            *bytes = (u128::from(*bytes) * u128::from(missing.min(explained)) / u128::from(explained.max(1))) as u64;
        }
        self.add(Cause::Unexplained, missing.saturating_sub(explained));
        self.add(Cause::LargerThanAsked, surplus);
        self.causes.retain(|_, bytes| *bytes > 0);
    }

    /// Removes up to `count` slots, full ones first, and returns their bytes.
    fn take_slots(&mut self, count: u64) -> u64 {
        let left = count.saturating_sub(self.full.count);
        let last = left.saturating_sub(self.full_after_fork.count);
        self.full.take(count) + self.full_after_fork.take(left) + self.partial.take(last)
    }

    /// Attributes unexplained memory to the causes that were noted.
    fn attribute_unexplained(&mut self) {
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

    fn holding(&self, peak: Option<Peak>) -> Holding {
        if peak.is_some_and(|peak| peak.is_unseen()) {
            return Holding::Unknown;
        }
        let unseen = self.unseen_bytes + self.unseen_in_processes;
        let least = Verdict::holding_of(self.concerned_bytes, self.covered_bytes);
        let most = Verdict::holding_of(self.concerned_bytes, self.covered_bytes + unseen);
        if least == most && !self.has_unsized_process { least } else { Holding::Unknown }
    }

    /// The causes, largest first; causes without bytes last.
    fn shares(self) -> Vec<CauseShare> {
        let mut causes = self.causes;
        causes.retain(|cause, bytes| *bytes > 0 || !matches!(cause, Cause::Unexplained | Cause::PoolExhausted { .. }));
        if self.asks_for_size && self.concerned_bytes == 0 {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// 100M of memory, of which `large_mib` are in large pages and a share of `share` was asked for.
    fn with_share(large_mib: u64, share: f64) -> (u64, BTreeMap<Cause, u64>) {
        let mut examination = Examination::default();
        (examination.concerned_bytes, examination.covered_bytes) = (100 << 20, large_mib << 20);
        examination.causes = [(Cause::AdvisedAgainst, 50 << 20), (Cause::NoAlignedSlot, 4 << 20)].into();
        examination.attribute_share(share);
        let causes = examination.causes.into_iter().map(|(cause, bytes)| (cause, bytes >> 20));
        (examination.covered_bytes >> 20, causes.collect())
    }

    #[test]
    fn under_a_share_memory_is_covered_that_is_as_it_asks() {
        assert_eq!(with_share(50, 0.5), (100, BTreeMap::new()));
        assert_eq!(with_share(48, 0.5), (98, [(Cause::NoAlignedSlot, 2)].into()));
        assert_eq!(with_share(40, 0.5), (90, [(Cause::NoAlignedSlot, 4), (Cause::Unexplained, 6)].into()));
        assert_eq!(with_share(70, 0.5), (80, [(Cause::LargerThanAsked, 20)].into()));
        assert_eq!(with_share(0, 0.0), (100, BTreeMap::new()));
    }
}
