//! What may have happened to memory that the kernel could map larger but does not: candidate causes, and facts that rule some of
//! them out.

use super::cause_evidence::counted;
use super::context::Context;
use super::kind::Kind;
use crate::cause::Cause;
use crate::size::{PageSize, format_bytes};

/// Facts about the past of a mapping's memory.
pub struct History<'a> {
    /// The kind of the region.
    pub kind: &'a Kind,
    /// Anonymous bytes of the mapping that other processes also map.
    pub shared_bytes: u64,
    /// The largest size that the mapping could have.
    pub target: PageSize,
    /// Facts about the process and the kernel.
    pub context: &'a Context<'a>,
}

/// The counter of PMD leaves that were split.
const LEAVES_SPLIT: &str = "thp_split_pmd";
/// The counter of pages that were split because most of them were zero (Linux 6.12).
const UNDERUSED_SPLIT: &str = "thp_underused_split_page";
/// The counter of folios that khugepaged did not make because of holes; only kernels whose khugepaged makes mTHP folios have it
/// (Linux 7.2).
const TOO_MANY_HOLES: &str = "collapse_exceed_none_pte";

impl History<'_> {
    /// Whether another process still shares part of the memory, which shows that there was a fork.
    fn has_forked(&self) -> bool {
        self.shared_bytes > 0
    }

    /// Whether the counter may have moved since boot.
    fn may_have(&self, name: &str) -> bool {
        self.context.supply.counter(name) != Some(0)
    }

    fn own(&self, name: &str) -> String {
        format!("hugepages-{}kB/{name}", self.target.bytes() >> 10)
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
        if self.has_forked() {
            (Cause::SplitAfterFork, vec![Cause::FolioPartlyMapped])
        } else {
            (Cause::FolioPartlyMapped, Vec::new())
        }
    }

    /// Causes for a folio that is complete but whose leaf was split.
    pub fn of_split(&self) -> (Cause, Vec<Cause>) {
        if self.has_forked() || self.context.process.is_fork {
            (Cause::SplitAfterFork, vec![Cause::LeafSplit])
        } else {
            (Cause::LeafSplit, Vec::new())
        }
    }

    /// Causes for base pages next to part of a larger folio in the same slot.
    pub fn of_refilled(&self) -> (Cause, Vec<Cause>) {
        match self.has_forked() {
            true => (Cause::SplitAfterFork, vec![Cause::RefilledAfterDrop]),
            false if self.context.process.is_fork => (Cause::RefilledAfterDrop, vec![Cause::SplitAfterFork]),
            false => (Cause::RefilledAfterDrop, Vec::new()),
        }
    }

    /// Causes for a slot with holes. Swapped-out pages leave holes too, and so does the end of a file.
    pub fn of_holes(&self, is_swapped: bool, is_within_size: bool) -> (Cause, Vec<Cause>) {
        let fork = self.has_forked().then_some(Cause::SplitAfterFork);
        let file = is_within_size.then_some(Cause::FileEndsInSlot);
        let others: Vec<Cause> = file.into_iter().chain(fork).chain(self.of_zeroes()).chain(self.fell_back()).collect();
        if is_swapped {
            (Cause::SwappedOut, std::iter::once(Cause::SlotPartlyPresent).chain(others).collect())
        } else {
            (Cause::SlotPartlyPresent, others)
        }
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

    /// Further causes for a slot with zero pages, apart from a read before the first write: the kernel maps zero pages when it
    /// splits a mostly zero page.
    pub fn of_zeroes(&self) -> Vec<Cause> {
        let split = self.context.supply.counter(UNDERUSED_SPLIT).is_some_and(|times| times > 0);
        split.then_some(Cause::SplitUnderused).into_iter().collect()
    }

    /// Evidence for the causes of a slot with zero pages.
    pub fn evidence_of_zeroes(&self) -> Vec<String> {
        let counter = self.context.supply.counter(UNDERUSED_SPLIT);
        counter.map(|_| counted(self.context.supply, UNDERUSED_SPLIT)).into_iter().collect()
    }

    /// Causes for a slot that is full of base pages, most likely first.
    pub fn of_full(&self) -> Vec<Cause> {
        let supply = self.context.supply;
        let grows = matches!(self.kind, Kind::Heap | Kind::Arena(_) | Kind::GoHeap | Kind::JvmHeap);
        let cut = self.may_have(&self.own("split_deferred")) || self.may_have(&self.own("split"));
        let leaf_split = !self.context.sees_folios && supply.counter(LEAVES_SPLIT) != Some(0);
        let fork = self.has_forked() || self.context.process.is_fork;
        let candidates = [
            self.has_forked().then_some(Cause::SplitAfterFork),
            grows.then_some(Cause::GrewInSteps),
            Some(Cause::TouchedBeforeEligible),
            cut.then_some(Cause::RefilledAfterDrop),
            (fork && !self.has_forked()).then_some(Cause::SplitAfterFork),
            leaf_split.then_some(Cause::SplitMeanwhile),
        ];
        let pinned = self.context.process.pinned_bytes.is_some_and(|bytes| bytes > 0).then_some(Cause::Pinned);
        let (likely, possible): (Vec<_>, Vec<_>) = self.refusals().into_iter().partition(|(_, is_now)| *is_now);
        let cause = |(cause, _): (Cause, bool)| cause;
        let history = candidates.into_iter().flatten().chain(possible.into_iter().map(cause)).chain(pinned);
        likely.into_iter().map(cause).chain(history).collect()
    }

    /// The cause that the kernel had no free block, unless its counters rule that out.
    fn fell_back(&self) -> Vec<Cause> {
        self.refusals().into_iter().map(|(cause, _)| cause).collect()
    }

    /// The causes of [`History::fell_back`], and whether an allocation would also fail now.
    fn refusals(&self) -> Vec<(Cause, bool)> {
        let counter = self.fallback();
        let times = self.context.supply.counter(&counter);
        let charges = self.context.supply.counter(&format!("{counter}_charge"));
        let is_full = times.zip(charges).is_some_and(|(times, charges)| times > charges);
        let fell_back = (is_full || times.is_some_and(|times| times > 0) && charges.is_none())
            .then(|| (Cause::AllocationFellBack { counter, times: times.unwrap_or_default() }, self.is_fragmented()));
        let limit = self.context.process.memory_limit.as_ref();
        let charged = charges.is_some_and(|charges| charges > 0) && limit.is_none_or(|limit| limit.reached > 0);
        let is_at_limit = limit.is_some_and(|limit| limit.left_bytes() < self.target.bytes());
        let charged = charged.then_some((Cause::ChargeFellBack, is_at_limit));
        charged.into_iter().chain(fell_back).collect()
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

    /// Evidence for the candidate causes of a full slot.
    pub fn evidence_of_full(&self) -> Vec<String> {
        let supply = self.context.supply;
        let shared = self
            .has_forked()
            .then(|| format!("{} of it is shared with another process", format_bytes(self.shared_bytes)));
        let pinned = self.context.process.pinned_bytes.filter(|bytes| *bytes > 0);
        let pinned = pinned.map(|bytes| format!("VmPin: {} kB in /proc/PID/status", bytes >> 10));
        let order = self.context.supply.free_blocks_by_order.len();
        let free = (order > 0).then(|| format!("free blocks of {} or more: {}", self.target, self.free_blocks()));
        let counters = [counted(supply, &self.fallback()), counted(supply, &self.own("split_deferred"))];
        let limits = self.evidence_of_limits();
        shared.into_iter().chain(limits).chain(pinned).chain(counters).chain(free).collect()
    }

    fn free_blocks(&self) -> u64 {
        let base = self.context.base;
        self.context.supply.free_blocks_from(self.target.order(base))
    }
}

#[cfg(test)]
mod tests {
    use super::super::process::Process;
    use super::super::supply::Supply;
    use super::*;

    /// Evidence about holes in slots of a size, from a kernel with these counters.
    fn told(target_kib: u64, counters: &[&str]) -> Vec<String> {
        let settings = [("/sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none".into(), "511".into())].into();
        let counters = counters.iter().map(|name| ((*name).to_owned(), 3)).collect();
        let (process, supply) = (Process::default(), Supply { settings, counters, ..Supply::default() });
        let size = |kib: u64| PageSize::new(kib << 10).unwrap();
        let context =
            Context { process: &process, supply: &supply, base: size(4), pmd: Some(size(2048)), sees_folios: true, runtimes: &[] };
        History { kind: &Kind::Heap, shared_bytes: 0, target: size(target_kib), context: &context }.evidence_of_holes(0)
    }

    #[test]
    fn khugepaged_is_said_to_mend_holes_only_at_sizes_that_it_makes() {
        let setting = "/sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_none: 511";
        let counter = |kib: u64| format!("hugepages-{kib}kB/collapse_exceed_none_pte");
        assert_eq!(told(2048, &[]), [setting]);
        let none = format!("no {}: khugepaged of this kernel makes no folios of 64K", counter(64));
        assert_eq!(told(64, &[&counter(2048)]), [none]);
        let seen = told(64, &[&counter(64)]);
        assert_eq!(seen[0], format!("{setting}; for folios of 64K all but one, or none"));
        assert_eq!(seen[1], format!("{}: 3 since the boot (whole system)", counter(64)));
        assert_eq!(told(2048, &[&counter(2048)]).len(), 2);
    }
}
