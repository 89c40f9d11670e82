//! What may have happened to memory that the kernel could map larger but does not: candidate causes, and facts that rule some of
//! them out.
//!
//! A cause is named alone only where facts leave no other. Where several are left, the first one named is a fact about the present
//! state, and the candidates follow: counters of the whole system can rule a cause out, and they bound what it can explain, but
//! they do not show where it happened.

use super::cause_evidence::counted;
use super::context::Context;
use super::kind::Kind;
use super::supply::Since;
use crate::cause::Cause;
use crate::judge::THP;
use crate::size::{PageSize, format_bytes};

/// Facts about the past of a mapping's memory.
pub struct History<'a> {
    /// The kind of the region.
    pub kind: &'a Kind,
    /// Anonymous bytes of the mapping that other processes also map.
    pub shared_bytes: u64,
    /// The largest size that the mapping could have.
    pub target: PageSize,
    /// The anonymous base pages of the region; `None` where some of its small folios are larger, or not visible.
    pub base_pages: Option<BasePages>,
    /// Facts about the process and the kernel.
    pub context: &'a Context<'a>,
}

/// The anonymous base pages of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BasePages {
    /// All of them, in bytes.
    pub bytes: u64,
    /// Those at the frames that they would have as parts of a large page (`TlbRuns::in_place_bytes`).
    pub in_place_bytes: u64,
}

/// A part of the memory in full slots: its cause, the causes that cannot be distinguished from it, and its size in bytes.
pub type Share = (Cause, Vec<Cause>, u64);

/// A cause that may explain full slots.
struct Candidate {
    cause: Cause,
    /// The most bytes that it can explain.
    at_most: u64,
    /// Whether a fact speaks for it that the other candidates do not share.
    has_sign: bool,
}

/// The counter of PMD leaves that were split.
const LEAVES_SPLIT: &str = "thp_split_pmd";
/// The counter of huge zero pages that were allocated; a process may also get one that exists already.
const ZERO_PAGES: &str = "thp_zero_page_alloc";
/// The counter of faults that got a page of PMD size.
const FAULTS: &str = "thp_fault_alloc";
/// The counter of pages that were split because most of them were zero. Kernels that have it (Linux 6.12) map the zero page for
/// the zero-filled pieces of every anonymous page that they split.
const UNDERUSED_SPLIT: &str = "thp_underused_split_page";
/// The counters of pages of PMD size that were split, and of those that went to swap.
const PAGES_SPLIT: [&str; 2] = ["thp_split_page", "thp_swpout"];
/// The counter of folios that khugepaged did not make because of holes; only kernels whose khugepaged makes mTHP folios have it
/// (Linux 7.2).
const TOO_MANY_HOLES: &str = "collapse_exceed_none_pte";

impl BasePages {
    /// The fewest pages whose frames are taken for a sign: one in 512 is in place by chance.
    const MIN_BYTES: u64 = 16 << 10;

    /// Whether nearly all of them are pieces of large pages that were split.
    fn are_of_split(self) -> bool {
        self.in_place_bytes >= BasePages::MIN_BYTES && self.in_place_bytes >= self.bytes - self.bytes / 8
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

    fn own(&self, name: &str) -> String {
        format!("hugepages-{}kB/{name}", self.target.bytes() >> 10)
    }

    fn is_pmd(&self) -> bool {
        self.context.pmd == Some(self.target)
    }

    /// The bytes of full slots that events of these counters can explain: one slot for each event, and any number where the
    /// kernel has none of the counters.
    fn explicable(&self, counters: &[&str]) -> u64 {
        let known: Vec<u64> = counters.iter().filter_map(|name| self.context.supply.counter(name)).collect();
        let events = known.iter().fold(0, |sum: u64, times| sum.saturating_add(*times));
        if known.is_empty() { u64::MAX } else { events.saturating_mul(self.target.bytes()) }
    }

    /// The bytes of full slots that lost their leaf to a call or a write. Only leaves of PMD size are counted.
    fn of_split_leaves(&self) -> u64 {
        if self.is_pmd() { self.explicable(&[LEAVES_SPLIT]) } else { u64::MAX }
    }

    /// The bytes of full slots whose folio was split into base pages.
    fn of_split_folios(&self) -> u64 {
        let (own, old) = (self.explicable(&[&self.own("split"), &self.own("swpout")]), self.explicable(&PAGES_SPLIT));
        if self.context.supply.counter(&self.own("split")).is_some() { own } else { old }
    }

    /// The bytes of base pages that the process's own faults can have made. A fork has pages that its parent made.
    fn of_own_faults(&self) -> u64 {
        let faults = self.context.process.faults.filter(|_| !self.context.process.is_fork);
        let base = self.base_pages.and(faults).map(|faults| faults.saturating_mul(self.context.base.bytes()));
        base.unwrap_or(u64::MAX)
    }

    /// The name of the fallback counter for this size: the size's own, or that of PMD size before Linux 6.10.
    fn fallback(&self) -> String {
        let own = self.own("anon_fault_fallback");
        match self.context.supply.counter(&own) {
            Some(_) => own,
            None => "thp_fault_fallback".into(),
        }
    }

    /// Causes for a folio that is mapped in part.
    pub fn of_part(&self) -> (Cause, Vec<Cause>) {
        (Cause::FolioPartlyMapped, self.fork())
    }

    /// Causes for a folio that is complete but whose leaf was split.
    pub fn of_split(&self) -> (Cause, Vec<Cause>) {
        (Cause::LeafSplit, self.fork())
    }

    fn fork(&self) -> Vec<Cause> {
        self.may_have_forked().then_some(Cause::SplitAfterFork).into_iter().collect()
    }

    /// Causes for base pages next to part of a larger folio in the same slot.
    pub fn of_refilled(&self) -> (Cause, Vec<Cause>) {
        if self.may_have_forked() {
            (Cause::FolioPartlyMapped, vec![Cause::RefilledAfterDrop, Cause::SplitAfterFork])
        } else {
            (Cause::RefilledAfterDrop, Vec::new())
        }
    }

    /// Causes for a slot with holes: `absent_bytes` in all such slots of the mapping, of which `swap_bytes` are swapped out. The
    /// end of a file leaves holes too.
    pub fn of_holes(&self, absent_bytes: u64, swap_bytes: u64, is_within_size: bool) -> (Cause, Vec<Cause>) {
        let fork = self.fork().into_iter().filter(|_| self.has_forked());
        let file = is_within_size.then_some(Cause::FileEndsInSlot);
        let fell_back = self.refusals().into_iter().map(|candidate| candidate.cause);
        let others: Vec<Cause> = file.into_iter().chain(fork).chain(self.underused()).chain(fell_back).collect();
        let (first, second) = match swap_bytes {
            0 => (Cause::SlotPartlyPresent, None),
            bytes if bytes >= absent_bytes => (Cause::SwappedOut, Some(Cause::SlotPartlyPresent)),
            _ => (Cause::SlotPartlyPresent, Some(Cause::SwappedOut)),
        };
        (first, second.into_iter().chain(others).collect())
    }

    /// Evidence for the causes of a slot with holes.
    pub fn evidence_of_holes(&self, swap_bytes: u64) -> Vec<String> {
        let swapped = (swap_bytes > 0).then(|| format!("Swap: {} kB in smaps", swap_bytes >> 10));
        swapped.into_iter().chain(self.evidence_of_khugepaged()).chain(self.evidence_of_limits()).collect()
    }

    /// What khugepaged does about holes. It does nothing below PMD size on kernels where it does not make mTHP folios
    /// (`collapse_max_ptes_none`, mm/khugepaged.c).
    fn evidence_of_khugepaged(&self) -> Vec<String> {
        let supply = self.context.supply;
        let (counter, setting) = (self.own(TOO_MANY_HOLES), counted(supply, "khugepaged/max_ptes_none"));
        let is_counted = supply.counter(&counter).is_some();
        match (self.context.pmd == Some(self.target), is_counted) {
            (true, false) => vec![setting],
            (true, true) => vec![setting, counted(supply, &counter)],
            (false, true) => vec![
                format!("{setting}; for folios of {} all but one, or none", self.target),
                counted(supply, &counter),
            ],
            (false, false) => {
                vec![format!("no {counter}: khugepaged of this kernel makes no folios of {}", self.target)]
            }
        }
    }

    fn underused(&self) -> Option<Cause> {
        let split = self.context.supply.counter(UNDERUSED_SPLIT).is_some_and(|times| times > 0);
        split.then_some(Cause::SplitUnderused)
    }

    /// Causes for a slot with zero pages: what may have mapped them, apart from a read before the first write.
    pub fn of_zeroes(&self) -> (Cause, Vec<Cause>) {
        let maps_zeroes = self.context.supply.counter(UNDERUSED_SPLIT).is_some();
        let split = (maps_zeroes && self.of_split_folios() > 0).then_some(Cause::ZeroPiecesOfSplit);
        (Cause::ZeroPageInSlot, split.into_iter().chain(self.underused()).collect())
    }

    /// Evidence for the causes of a slot with zero pages.
    pub fn evidence_of_zeroes(&self) -> Vec<String> {
        let names = [UNDERUSED_SPLIT.to_string(), self.own("split")];
        let known = names.into_iter().filter(|name| self.context.supply.counter(name).is_some());
        known.map(|name| counted(self.context.supply, &name)).chain(self.evidence_of_frames()).collect()
    }

    /// Causes for `bytes` in slots that are full of base pages.
    pub fn of_full(&self, bytes: u64) -> Vec<Share> {
        let mut candidates = self.candidates(bytes);
        candidates.iter_mut().for_each(|candidate| candidate.at_most = candidate.at_most.min(bytes));
        // What a fact shows for all of it is not divided by the bounds of others.
        if candidates.first().is_some_and(|first| first.has_sign && first.at_most == bytes) {
            candidates.retain(|candidate| candidate.at_most == bytes);
        }
        let mut bounds: Vec<u64> = candidates.iter().map(|candidate| candidate.at_most).chain([bytes]).collect();
        bounds.sort_unstable();
        bounds.dedup();
        let mut from = 0;
        let mut shares: Vec<Share> = Vec::new();
        for bound in bounds.into_iter().filter(|bound| *bound > 0) {
            let (cause, or) = named(candidates.iter().filter(|candidate| candidate.at_most >= bound));
            match shares.last_mut() {
                // The candidates of a share that continues another one are among those of the latter.
                Some((before, _, bytes)) if *before == cause => *bytes += bound - from,
                _ => shares.push((cause, or, bound - from)),
            }
            from = bound;
        }
        shares
    }

    /// The causes that may explain full slots of `bytes` in total, most likely first.
    fn candidates(&self, bytes: u64) -> Vec<Candidate> {
        let faults = self.of_own_faults();
        let unsigned = |cause: Cause, at_most: u64| Candidate { cause, at_most, has_sign: false };
        let grows = matches!(self.kind, Kind::Heap | Kind::Arena(_) | Kind::GoHeap | Kind::JvmHeap);
        let sees_leaves = if self.context.sees_folios { 0 } else { self.of_split_leaves() };
        let fork = if self.may_have_forked() { self.of_split_leaves() } else { 0 };
        let is_pinned = self.context.process.pinned_bytes.is_some_and(|bytes| bytes > 0);
        let of_split = self.base_pages.is_some_and(BasePages::are_of_split);
        let candidates = [
            unsigned(Cause::GrewInSteps, if grows { faults } else { 0 }),
            unsigned(Cause::TouchedBeforeEligible, faults),
            Candidate {
                cause: Cause::ReadFirst,
                at_most: self.of_zero_leaves().min(faults),
                has_sign: self.is_read_first(bytes),
            },
            unsigned(Cause::RefilledAfterDrop, self.of_split_leaves().min(faults)),
            Candidate {
                cause: Cause::SplitMeanwhile,
                at_most: self.of_split_folios().max(sees_leaves),
                has_sign: of_split,
            },
            unsigned(Cause::SplitAfterFork, fork),
            unsigned(Cause::Pinned, if is_pinned { u64::MAX } else { 0 }),
        ];
        let refusals = self.refusals().into_iter().map(|one| Candidate { at_most: one.at_most.min(faults), ..one });
        let all = candidates.into_iter().chain(refusals).filter(|candidate| candidate.at_most > 0);
        let (signed, others): (Vec<_>, Vec<_>) = all.partition(|candidate| candidate.has_sign);
        signed.into_iter().chain(others).collect()
    }

    /// The bytes of full slots that can have been read first. Folios below PMD size are defeated by single zero pages, which
    /// nothing counts; the leaf of a huge zero page is split like others.
    fn of_zero_leaves(&self) -> u64 {
        let supply = self.context.supply;
        let is_off = supply.settings.get(&format!("{THP}/use_zero_page")).is_some_and(|value| value == "0");
        // One that exists already is not counted when another process gets it.
        let has_none = supply.counter(ZERO_PAGES) == Some(0) && supply.counted_since == Since::Boot;
        match self.is_pmd() {
            false => u64::MAX,
            true if is_off || has_none => 0,
            true => self.of_split_leaves(),
        }
    }

    /// Whether the counters of a command's time show it: a huge zero page was made, as many leaves were split as explain these
    /// bytes, and no fault got a large page that could have been split instead.
    fn is_read_first(&self, bytes: u64) -> bool {
        let supply = self.context.supply;
        self.is_pmd()
            && supply.counted_since == Since::Command
            && supply.counter(ZERO_PAGES).is_some_and(|times| times > 0)
            && supply.counter(FAULTS) == Some(0)
            && supply.counter(LEAVES_SPLIT).is_some()
            && self.of_split_leaves() >= bytes
    }

    /// The causes that the kernel had no free block or that a limit forbade it, unless counters rule them out. A sign is that it
    /// would also fail now.
    fn refusals(&self) -> Vec<Candidate> {
        let counter = self.fallback();
        let (times, charges) =
            [counter.clone(), format!("{counter}_charge")].map(|name| self.context.supply.counter(&name)).into();
        let no_block = times.unwrap_or(0).saturating_sub(charges.unwrap_or(0));
        let limit = self.context.process.memory_limit.as_ref();
        let charges = charges.filter(|_| limit.is_none_or(|limit| limit.reached > 0)).unwrap_or(0);
        let bytes = |times: u64| times.saturating_mul(self.target.bytes());
        let refused = [
            Candidate {
                cause: Cause::ChargeFellBack,
                at_most: bytes(charges),
                has_sign: limit.is_some_and(|limit| limit.left_bytes() < self.target.bytes()),
            },
            Candidate {
                cause: Cause::AllocationFellBack { counter, times: no_block },
                at_most: bytes(no_block),
                has_sign: self.is_fragmented(),
            },
        ];
        refused.into_iter().filter(|candidate| candidate.at_most > 0).collect()
    }

    /// Whether no free block of the size is known to exist.
    fn is_fragmented(&self) -> bool {
        !self.context.supply.free_blocks_by_order.is_empty() && self.free_blocks() == 0
    }

    /// Evidence about the memory control group's limit.
    fn evidence_of_limits(&self) -> Option<String> {
        let limit = self.context.process.memory_limit.as_ref().filter(|limit| limit.reached > 0)?;
        let charges = counted(self.context.supply, &format!("{}_charge", self.fallback()));
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
        let order = self.context.supply.free_blocks_by_order.len();
        let free = (order > 0).then(|| format!("free blocks of {} or more: {}", self.target, self.free_blocks()));
        let refused = self.refusals().into_iter().filter(|one| one.at_most < bytes);
        let refused =
            refused.map(|one| format!("at most {} of it: {}", format_bytes(one.at_most), one.cause.describe()));
        let read_first = self.is_read_first(bytes).then(|| counted(supply, ZERO_PAGES));
        let counters = [counted(supply, &self.fallback()), counted(supply, LEAVES_SPLIT)];
        let signs = self.evidence_of_frames().into_iter().chain(self.evidence_of_faults(bytes)).chain(read_first);
        signs
            .chain(shared)
            .chain(self.evidence_of_limits())
            .chain(pinned)
            .chain(refused)
            .chain(counters)
            .chain(free)
            .collect()
    }

    /// What the frames of base pages show.
    fn evidence_of_frames(&self) -> Option<String> {
        let base_pages = self.base_pages.filter(|base_pages| base_pages.are_of_split())?;
        let (in_place, all) = (format_bytes(base_pages.in_place_bytes), format_bytes(base_pages.bytes));
        Some(format!("{in_place} of {all} are in the frames that they had as parts of large pages (pagemap)"))
    }

    /// The faults of the process, where they are too few for the pages.
    fn evidence_of_faults(&self, bytes: u64) -> Option<String> {
        let faults = self.context.process.faults.filter(|_| self.of_own_faults() < bytes)?;
        let made = format_bytes(self.of_own_faults());
        Some(format!("its {faults} faults (/proc/PID/stat) can have made {made} of base pages"))
    }

    fn free_blocks(&self) -> u64 {
        let base = self.context.base;
        self.context.supply.free_blocks_from(self.target.order(base))
    }
}

/// The cause to name and its alternatives: the only candidate, the first that a fact speaks for, or the fact that all share.
fn named<'a>(candidates: impl Iterator<Item = &'a Candidate>) -> (Cause, Vec<Cause>) {
    let candidates: Vec<&Candidate> = candidates.collect();
    let causes = |candidates: &[&Candidate]| candidates.iter().map(|candidate| candidate.cause.clone()).collect();
    match candidates.as_slice() {
        [] => (Cause::Unexplained, Vec::new()),
        [first, others @ ..] if others.is_empty() || first.has_sign => (first.cause.clone(), causes(others)),
        all => (Cause::FilledWithBasePages, causes(all)),
    }
}

#[cfg(test)]
mod tests;
