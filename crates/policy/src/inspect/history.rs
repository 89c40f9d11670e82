//! [`History`]: what may have happened to memory that the kernel could map larger but does not. It gives candidate causes,
//! and the facts that rule some of them out.
//!
//! A cause is reported alone only where the facts leave no other. Where several remain, the report states a fact about the
//! present and lists the candidates. The counters cover the whole system: they can rule a cause out and bound how much memory it
//! explains, but do not show where it acted.

use super::cause_evidence::counted;
use super::context::Context;
use super::supply::{Fallbacks, Since};
use crate::cause::Cause;
use crate::judge::THP;
use crate::kind::Kind;
use crate::size::{PageSize, format_bytes};

/// Facts about the past of a mapping's memory.
pub struct History<'a> {
    /// The kind of the region.
    pub kind: &'a Kind,
    /// Anonymous bytes of the mapping that other processes also map.
    pub shared_bytes: u64,
    /// The largest size that the mapping could have.
    pub target: PageSize,
    /// The anonymous base pages of the region; `None` where folios are not visible, or some are larger than base pages.
    pub base_pages: Option<AnonymousPages>,
    /// Facts about the process and the kernel.
    pub context: &'a Context<'a>,
}

/// The anonymous base pages of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnonymousPages {
    /// Their total size.
    pub bytes: u64,
    /// Bytes in the frames that they would have as parts of a large page (`TlbRuns::in_place_bytes`).
    pub in_place_bytes: u64,
}

/// A part of the memory in full slots: its cause, the causes that cannot be distinguished from it, and its size in bytes.
pub type Share = (Cause, Vec<Cause>, u64);

/// A cause that may explain full slots.
struct Candidate {
    cause: Cause,
    /// Upper bound of the bytes that it explains.
    max_bytes: u64,
    /// Whether a fact supports this candidate and no other.
    has_evidence: bool,
}

/// The counter of PMD leaves that were split.
const LEAVES_SPLIT: &str = "thp_split_pmd";
/// The counter of huge zero pages that were allocated. A process that maps an existing huge zero page is not counted.
const ZERO_PAGES: &str = "thp_zero_page_alloc";
/// The counter of faults that got a page of PMD size.
const FAULTS: &str = "thp_fault_alloc";
/// The counter of pages that were split because most of them were zero. Kernels that have it (Linux 6.12) map the zero page in
/// place of zero-filled base pages whenever they split an anonymous page.
const UNDERUSED_SPLIT: &str = "thp_underused_split_page";
/// The counters of pages of PMD size that were split, and that were swapped out.
const PAGES_SPLIT: [&str; 2] = ["thp_split_page", "thp_swpout"];
/// The counter of mTHP folios that khugepaged did not make because of holes (Linux 7.2, where it makes such folios).
const TOO_MANY_HOLES: &str = "collapse_exceed_none_pte";

impl AnonymousPages {
    /// Fewer bytes in place prove nothing: one page in 512 is in place by chance.
    const MIN_BYTES: u64 = 16 << 10;

    /// Whether nearly all of these pages come from large pages that were split.
    fn are_of_split_pages(self) -> bool {
        self.in_place_bytes >= AnonymousPages::MIN_BYTES && self.in_place_bytes >= self.bytes - self.bytes / 8
    }
}

impl History<'_> {
    /// Whether another process still shares part of the memory, which shows that there was a fork.
    fn has_forked(&self) -> bool {
        self.shared_bytes > 0
    }

    /// Whether there may have been a fork.
    fn may_have_forked(&self) -> bool {
        self.has_forked() || !self.context.process.shows_no_fork
    }

    fn size_counter(&self, name: &str) -> String {
        format!("hugepages-{}kB/{name}", self.target.bytes() >> 10)
    }

    fn is_pmd(&self) -> bool {
        self.context.pmd == Some(self.target)
    }

    /// Upper bound of the full slots that events of these counters explain, in bytes: one slot for each event. `u64::MAX` where
    /// the kernel has none of the counters.
    fn max_explained_bytes(&self, counters: &[&str]) -> u64 {
        let known: Vec<u64> = counters.iter().filter_map(|name| self.context.supply.counter(name)).collect();
        let events = known.iter().fold(0, |sum: u64, times| sum.saturating_add(*times));
        if known.is_empty() { u64::MAX } else { events.saturating_mul(self.target.bytes()) }
    }

    /// Upper bound of the full slots whose leaf a call or a write split, in bytes. The kernel counts only PMD leaves.
    fn max_split_leaf_bytes(&self) -> u64 {
        if self.is_pmd() { self.max_explained_bytes(&[LEAVES_SPLIT]) } else { u64::MAX }
    }

    /// Upper bound of the full slots whose folio was split into base pages, in bytes.
    fn max_split_folio_bytes(&self) -> u64 {
        let (split, swapped) = (self.size_counter("split"), self.size_counter("swpout"));
        let is_counted = self.context.supply.counter(&split).is_some();
        self.max_explained_bytes(&if is_counted { [split.as_str(), &swapped] } else { PAGES_SPLIT })
    }

    /// Upper bound of the base pages that the process's own faults brought in, in bytes. `u64::MAX` for a fork: it has pages of
    /// its parent.
    fn max_faulted_bytes(&self) -> u64 {
        let faults = self.context.process.faults.filter(|_| !self.context.process.is_fork);
        let base = self.base_pages.and(faults).map(|faults| faults.saturating_mul(self.context.base.bytes()));
        base.unwrap_or(u64::MAX)
    }

    /// Causes for a folio that is mapped in part.
    pub fn causes_of_part(&self) -> (Cause, Vec<Cause>) {
        self.with_fork(Cause::FolioPartlyMapped)
    }

    /// Causes for a folio that is complete but whose leaf was split.
    pub fn causes_of_split(&self) -> (Cause, Vec<Cause>) {
        self.with_fork(Cause::LeafSplit)
    }

    /// A cause, with the fork: as the cause itself where memory of the region is still shared, else as a possible one.
    fn with_fork(&self, cause: Cause) -> (Cause, Vec<Cause>) {
        if self.has_forked() { (Cause::SplitAfterFork, vec![cause]) } else { (cause, self.fork_cause()) }
    }

    fn fork_cause(&self) -> Vec<Cause> {
        self.may_have_forked().then_some(Cause::SplitAfterFork).into_iter().collect()
    }

    /// Causes for base pages next to part of a larger folio in the same slot.
    pub fn causes_of_refilled(&self) -> (Cause, Vec<Cause>) {
        if self.has_forked() {
            (Cause::SplitAfterFork, vec![Cause::FolioPartlyMapped, Cause::RefilledAfterDrop])
        } else if self.may_have_forked() {
            (Cause::FolioPartlyMapped, vec![Cause::RefilledAfterDrop, Cause::SplitAfterFork])
        } else {
            (Cause::RefilledAfterDrop, Vec::new())
        }
    }

    /// Causes for slots with holes. The holes in all such slots of the mapping are `absent_bytes`, of which `swap_bytes` are
    /// swapped out. A file that ends inside a slot leaves a hole too.
    pub fn causes_of_holes(&self, absent_bytes: u64, swap_bytes: u64, is_within_size: bool) -> (Cause, Vec<Cause>) {
        let fork = self.fork_cause().into_iter().filter(|_| self.has_forked());
        let file = is_within_size.then_some(Cause::FileEndsInSlot);
        let fell_back = self.own_refusals().into_iter().map(|candidate| candidate.cause);
        let others: Vec<Cause> = file.into_iter().chain(fork).chain(self.underused_cause()).chain(fell_back).collect();
        let (first, second) = match swap_bytes {
            0 => (Cause::SlotPartlyPresent, None),
            bytes if bytes >= absent_bytes => (Cause::SwappedOut, Some(Cause::SlotPartlyPresent)),
            _ => (Cause::SlotPartlyPresent, Some(Cause::SwappedOut)),
        };
        (first, second.into_iter().chain(others).collect())
    }

    /// Evidence for the causes of slots with holes. `bytes` is the present memory of these slots.
    pub fn evidence_of_holes(&self, bytes: u64, swap_bytes: u64) -> Vec<String> {
        let swapped = (swap_bytes > 0).then(|| format!("Swap: {} kB in smaps", swap_bytes >> 10));
        let signs = swapped.into_iter().chain(self.evidence_of_khugepaged()).chain(self.evidence_of_limits());
        signs.chain(self.evidence_of_refusals(bytes)).collect()
    }

    /// What khugepaged does about holes. It does nothing below PMD size on kernels where it does not make mTHP folios
    /// (`collapse_max_ptes_none`, mm/khugepaged.c).
    fn evidence_of_khugepaged(&self) -> Vec<String> {
        let supply = self.context.supply;
        let (counter, setting) = (self.size_counter(TOO_MANY_HOLES), counted(supply, "khugepaged/max_ptes_none"));
        let is_counted = supply.counter(&counter).is_some();
        match (self.context.pmd == Some(self.target), is_counted) {
            (true, false) => vec![setting],
            (true, true) => vec![setting, counted(supply, &counter)],
            (false, true) => vec![
                format!("{setting}; in a folio of {} all pages but one may be holes, or none", self.target),
                counted(supply, &counter),
            ],
            (false, false) => {
                vec![format!("no {counter}: khugepaged of this kernel makes no folios of {}", self.target)]
            }
        }
    }

    fn underused_cause(&self) -> Option<Cause> {
        let split = self.context.supply.counter(UNDERUSED_SPLIT).is_some_and(|times| times > 0);
        split.then_some(Cause::SplitUnderused)
    }

    /// Causes for a slot with zero pages: what may have mapped them, apart from a read before the first write.
    pub fn causes_of_zeroes(&self) -> (Cause, Vec<Cause>) {
        let maps_zeroes = self.context.supply.counter(UNDERUSED_SPLIT).is_some();
        let split = (maps_zeroes && self.max_split_folio_bytes() > 0).then_some(Cause::ZeroPiecesOfSplit);
        (Cause::ZeroPageInSlot, split.into_iter().chain(self.underused_cause()).collect())
    }

    /// Evidence for the causes of a slot with zero pages.
    pub fn evidence_of_zeroes(&self) -> Vec<String> {
        let names = [UNDERUSED_SPLIT.to_string(), self.size_counter("split")];
        let known = names.into_iter().filter(|name| self.context.supply.counter(name).is_some());
        known.map(|name| counted(self.context.supply, &name)).chain(self.evidence_of_frames()).collect()
    }

    /// Causes for `bytes` in slots that are full of base pages.
    pub fn causes_of_full(&self, bytes: u64) -> Vec<Share> {
        let mut candidates = self.candidates(bytes);
        candidates.iter_mut().for_each(|candidate| candidate.max_bytes = candidate.max_bytes.min(bytes));
        // If a fact supports one candidate for all bytes, the bounds of the others do not divide them.
        if candidates.first().is_some_and(|first| first.has_evidence && first.max_bytes == bytes) {
            candidates.retain(|candidate| candidate.max_bytes == bytes);
        }
        let mut bounds: Vec<u64> = candidates.iter().map(|candidate| candidate.max_bytes).chain([bytes]).collect();
        bounds.sort_unstable();
        bounds.dedup();
        let mut from = 0;
        let mut shares: Vec<Share> = Vec::new();
        for bound in bounds.into_iter().filter(|bound| *bound > 0) {
            let (cause, or) = choose_cause(candidates.iter().filter(|candidate| candidate.max_bytes >= bound));
            match shares.last_mut() {
                // Bounds ascend, so the candidates of this share are among those of the share before.
                Some((before, _, bytes)) if *before == cause => *bytes += bound - from,
                _ => shares.push((cause, or, bound - from)),
            }
            from = bound;
        }
        shares
    }

    /// The causes that may explain full slots of `bytes` in total, most likely first.
    fn candidates(&self, bytes: u64) -> Vec<Candidate> {
        let faults = self.max_faulted_bytes();
        let without_evidence = |cause: Cause, max_bytes: u64| Candidate { cause, max_bytes, has_evidence: false };
        let grows = matches!(self.kind, Kind::Heap | Kind::Arena(_) | Kind::GoHeap | Kind::JvmHeap);
        let sees_leaves = if self.context.sees_folios { 0 } else { self.max_split_leaf_bytes() };
        let fork = if self.may_have_forked() { self.max_split_leaf_bytes() } else { 0 };
        let is_pinned = self.context.process.pinned_bytes.is_some_and(|bytes| bytes > 0);
        let of_split = self.base_pages.is_some_and(AnonymousPages::are_of_split_pages);
        let candidates = [
            without_evidence(Cause::GrewInSteps, if grows { faults } else { 0 }),
            without_evidence(Cause::TouchedBeforeEligible, faults),
            Candidate {
                cause: Cause::ReadFirst,
                max_bytes: self.max_read_first_bytes().min(faults),
                has_evidence: self.is_read_first(bytes),
            },
            without_evidence(Cause::RefilledAfterDrop, self.max_split_leaf_bytes().min(faults)),
            Candidate {
                cause: Cause::SplitMeanwhile,
                max_bytes: self.max_split_folio_bytes().max(sees_leaves),
                has_evidence: of_split,
            },
            without_evidence(Cause::SplitAfterFork, fork),
            without_evidence(Cause::Pinned, if is_pinned { u64::MAX } else { 0 }),
        ];
        let all = candidates.into_iter().chain(self.own_refusals()).filter(|candidate| candidate.max_bytes > 0);
        let (supported, others): (Vec<_>, Vec<_>) = all.partition(|candidate| candidate.has_evidence);
        supported.into_iter().chain(others).collect()
    }

    /// Upper bound of the full slots that were read before they were written, in bytes. Below PMD size a single, uncounted zero
    /// page prevents the folio. At PMD size the split leaf of the huge zero page is counted.
    fn max_read_first_bytes(&self) -> u64 {
        let supply = self.context.supply;
        let is_off = supply.settings.get(&format!("{THP}/use_zero_page")).is_some_and(|value| value == "0");
        // A huge zero page that exists already is not counted when another process maps it.
        let has_none = supply.counter(ZERO_PAGES) == Some(0) && supply.counted_since == Since::Boot;
        if !self.is_pmd() {
            u64::MAX
        } else if is_off || has_none {
            0
        } else {
            self.max_split_leaf_bytes()
        }
    }

    /// Whether the counters since the command's start prove that these bytes were read before they were written: a huge zero
    /// page was allocated, enough leaves were split to explain the bytes, and no fault got a large page that could have been
    /// split instead.
    fn is_read_first(&self, bytes: u64) -> bool {
        let supply = self.context.supply;
        self.is_pmd()
            && supply.counted_since == Since::Command
            && supply.counter(ZERO_PAGES).is_some_and(|times| times > 0)
            && supply.counter(FAULTS) == Some(0)
            && supply.counter(LEAVES_SPLIT).is_some()
            && self.max_split_leaf_bytes() >= bytes
    }

    /// Failed allocations and failed charges, unless counters rule them out. A candidate has evidence if another attempt
    /// would fail now.
    fn refusals(&self) -> Vec<Candidate> {
        let Fallbacks { counter, no_block, over_limit } = self.context.supply.fallbacks(self.target);
        let limit = self.context.process.memory_limit.as_ref();
        let over_limit = if limit.is_none_or(|limit| limit.reached > 0) { over_limit } else { 0 };
        let bytes = |times: u64| times.saturating_mul(self.target.bytes());
        let refused = [
            Candidate {
                cause: Cause::ChargeFellBack,
                max_bytes: bytes(over_limit),
                has_evidence: limit.is_some_and(|limit| limit.left_bytes() < self.target.bytes()),
            },
            Candidate {
                cause: Cause::AllocationFellBack { counter, times: no_block },
                max_bytes: bytes(no_block),
                has_evidence: self.is_fragmented(),
            },
        ];
        refused.into_iter().filter(|candidate| candidate.max_bytes > 0).collect()
    }

    /// As `refusals`, bounded by the process's own faults: the counters cover all processes.
    fn own_refusals(&self) -> Vec<Candidate> {
        let faults = self.max_faulted_bytes();
        let own = self.refusals().into_iter().map(|one| Candidate { max_bytes: one.max_bytes.min(faults), ..one });
        own.filter(|candidate| candidate.max_bytes > 0).collect()
    }

    /// Evidence about refusals that explain only a part of `bytes`.
    fn evidence_of_refusals(&self, bytes: u64) -> Vec<String> {
        let partial = self.own_refusals().into_iter().filter(|one| one.max_bytes < bytes);
        partial.map(|one| format!("at most {} of it: {}", format_bytes(one.max_bytes), one.cause.describe())).collect()
    }

    /// Whether no free block of the size is known to exist.
    fn is_fragmented(&self) -> bool {
        !self.context.supply.free_blocks_by_order.is_empty() && self.free_blocks() == 0
    }

    /// Evidence about the memory control group's limit.
    fn evidence_of_limits(&self) -> Option<String> {
        let limit = self.context.process.memory_limit.as_ref().filter(|limit| limit.reached > 0)?;
        let supply = self.context.supply;
        let charges = counted(supply, &format!("{}_charge", supply.fallbacks(self.target).counter));
        Some(format!("{}; {charges}", limit.describe()))
    }

    /// Evidence that leaves or folios were split.
    pub fn evidence_of_split(&self) -> Vec<String> {
        let shared = self.has_forked().then(|| {
            format!("{} of it is shared with another process (Shared_* in smaps)", format_bytes(self.shared_bytes))
        });
        shared.into_iter().chain([counted(self.context.supply, LEAVES_SPLIT)]).collect()
    }

    /// Evidence for the candidate causes of `bytes` in full slots.
    pub fn evidence_of_full(&self, bytes: u64) -> Vec<String> {
        let supply = self.context.supply;
        let shared = self
            .has_forked()
            .then(|| format!("{} of it is shared with another process", format_bytes(self.shared_bytes)));
        let pinned = self.context.process.pinned_bytes.filter(|bytes| *bytes > 0);
        let pinned = pinned.map(|bytes| format!("VmPin: {} kB in /proc/PID/status", bytes >> 10));
        let orders = self.context.supply.free_blocks_by_order.len();
        let free = (orders > 0).then(|| format!("free blocks of {} or more: {}", self.target, self.free_blocks()));
        let read_first = self.is_read_first(bytes).then(|| counted(supply, ZERO_PAGES));
        let counters = [counted(supply, &supply.fallbacks(self.target).counter), counted(supply, LEAVES_SPLIT)];
        let signs = self.evidence_of_frames().into_iter().chain(self.evidence_of_faults(bytes)).chain(read_first);
        signs
            .chain(shared)
            .chain(self.evidence_of_limits())
            .chain(pinned)
            .chain(self.evidence_of_refusals(bytes))
            .chain(counters)
            .chain(free)
            .collect()
    }

    /// What the frames of base pages show.
    fn evidence_of_frames(&self) -> Option<String> {
        let base_pages = self.base_pages.filter(|base_pages| base_pages.are_of_split_pages())?;
        let (in_place, all) = (format_bytes(base_pages.in_place_bytes), format_bytes(base_pages.bytes));
        Some(format!("{in_place} of {all} are in the frames that they had as parts of large pages (pagemap)"))
    }

    /// The process's faults, if they are too few to explain the pages.
    fn evidence_of_faults(&self, bytes: u64) -> Option<String> {
        let faults = self.context.process.faults.filter(|_| self.max_faulted_bytes() < bytes)?;
        let made = format_bytes(self.max_faulted_bytes());
        Some(format!("its {faults} faults (/proc/PID/stat) can have made {made} of base pages"))
    }

    fn free_blocks(&self) -> u64 {
        let base = self.context.base;
        self.context.supply.free_blocks_from(self.target.order(base))
    }
}

/// The cause to report, and its alternatives. The cause is the only candidate, or the first one if a fact supports it;
/// otherwise it is the fact that is common to all candidates: the slots are full of base pages.
fn choose_cause<'a>(candidates: impl Iterator<Item = &'a Candidate>) -> (Cause, Vec<Cause>) {
    let candidates: Vec<&Candidate> = candidates.collect();
    let causes = |candidates: &[&Candidate]| candidates.iter().map(|candidate| candidate.cause.clone()).collect();
    match candidates.as_slice() {
        [] => (Cause::Unexplained, Vec::new()),
        [first, others @ ..] if others.is_empty() || first.has_evidence => (first.cause.clone(), causes(others)),
        all => (Cause::FilledWithBasePages, causes(all)),
    }
}

#[cfg(test)]
mod tests;
