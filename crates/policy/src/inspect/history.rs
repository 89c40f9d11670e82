//! What may have happened to memory that the kernel may map larger and does not: candidates, and what rules some of them out.

use super::cause_evidence::counted;
use super::ground::Ground;
use super::kind::Kind;
use crate::cause::Cause;
use crate::size::{PageSize, format_bytes};

/// What tells about the past of a mapping's memory.
pub struct History<'a> {
    /// What the region is.
    pub kind: &'a Kind,
    /// Anonymous bytes of the mapping that other processes map too.
    pub shared_bytes: u64,
    /// The size that it could have.
    pub target: PageSize,
    /// What else is known.
    pub ground: &'a Ground<'a>,
}

/// The counter of PMD leaves that were split.
const LEAVES_SPLIT: &str = "thp_split_pmd";

impl History<'_> {
    /// Whether another process still has a part of the memory: there was a fork.
    fn has_forked(&self) -> bool {
        self.shared_bytes > 0
    }

    /// Whether the counter may have moved since the boot.
    fn may_have(&self, name: &str) -> bool {
        self.ground.supply.counter(name) != Some(0)
    }

    fn own(&self, name: &str) -> String {
        format!("hugepages-{}kB/{name}", self.target.bytes() >> 10)
    }

    /// The counter of fallbacks at this size: its own, or that of PMD size before Linux 6.10.
    fn fallback(&self) -> String {
        let own = self.own("anon_fault_fallback");
        match self.ground.supply.counter(&own) {
            Some(_) => own,
            None => "thp_fault_fallback".into(),
        }
    }

    /// Of a folio that is there, and is mapped in part.
    pub fn of_part(&self) -> (Cause, Vec<Cause>) {
        match self.has_forked() {
            true => (Cause::SplitAfterFork, vec![Cause::FolioPartlyMapped]),
            false => (Cause::FolioPartlyMapped, Vec::new()),
        }
    }

    /// Of a folio that is there whole, and whose leaf was split.
    pub fn of_split(&self) -> (Cause, Vec<Cause>) {
        match self.has_forked() || self.ground.process.is_fork {
            true => (Cause::SplitAfterFork, vec![Cause::LeafSplit]),
            false => (Cause::LeafSplit, Vec::new()),
        }
    }

    /// Of base pages beside a part of a larger folio, in one slot.
    pub fn of_refilled(&self) -> (Cause, Vec<Cause>) {
        match self.has_forked() {
            true => (Cause::SplitAfterFork, vec![Cause::RefilledAfterDrop]),
            false if self.ground.process.is_fork => (Cause::RefilledAfterDrop, vec![Cause::SplitAfterFork]),
            false => (Cause::RefilledAfterDrop, Vec::new()),
        }
    }

    /// Of a slot with holes, beside that it has them.
    pub fn of_holes(&self) -> Vec<Cause> {
        let fork = self.has_forked().then_some(Cause::SplitAfterFork);
        fork.into_iter().chain(self.fell_back()).collect()
    }

    /// Of a slot that is full of base pages, the likeliest first.
    pub fn of_full(&self) -> Vec<Cause> {
        let supply = self.ground.supply;
        let grows = matches!(self.kind, Kind::Heap | Kind::Arena(_) | Kind::GoHeap | Kind::JvmHeap);
        let cut = self.may_have(&self.own("split_deferred")) || self.may_have(&self.own("split"));
        let leaf_split = !self.ground.sees_folios && supply.counter(LEAVES_SPLIT) != Some(0);
        let fork = self.has_forked() || self.ground.process.is_fork;
        let candidates = [
            self.has_forked().then_some(Cause::SplitAfterFork),
            grows.then_some(Cause::GrewInSteps),
            Some(Cause::TouchedBeforeEligible),
            cut.then_some(Cause::RefilledAfterDrop),
            (fork && !self.has_forked()).then_some(Cause::SplitAfterFork),
            leaf_split.then_some(Cause::SplitMeanwhile),
        ];
        let pinned = (self.ground.process.pinned_bytes > 0).then_some(Cause::Pinned);
        candidates.into_iter().flatten().chain(self.fell_back()).chain(pinned).collect()
    }

    /// That the kernel had no block to give, where its counters do not rule that out.
    fn fell_back(&self) -> Vec<Cause> {
        let counter = self.fallback();
        let charge = format!("{counter}_charge");
        let times = self.ground.supply.counter(&counter);
        let charges = self.ground.supply.counter(&charge);
        let is_full = times.zip(charges).is_some_and(|(times, charges)| times > charges);
        let fell_back = (is_full || times.is_some_and(|times| times > 0) && charges.is_none())
            .then(|| Cause::AllocationFellBack { counter, times: times.unwrap_or_default() });
        let charged = charges.is_some_and(|charges| charges > 0) && self.limit_was_reached();
        fell_back.into_iter().chain(charged.then_some(Cause::ChargeFellBack)).collect()
    }

    /// Whether the memory control group says that its limit was reached; where nothing can be read of it, it may have been.
    fn limit_was_reached(&self) -> bool {
        let limits = &self.ground.process.memory_limits;
        limits.is_empty() || limits.iter().any(|(name, value)| name != "limit" && value != "0")
    }

    /// What shows that leaves or folios were split.
    pub fn evidence_of_split(&self) -> Vec<String> {
        let shared = self.has_forked().then(|| {
            format!("{} of it are shared with another process (Shared_* in smaps)", format_bytes(self.shared_bytes))
        });
        shared.into_iter().chain([counted(self.ground.supply, LEAVES_SPLIT)]).collect()
    }

    /// What the candidates of a full slot rest on.
    pub fn evidence_of_full(&self) -> Vec<String> {
        let supply = self.ground.supply;
        let shared = self
            .has_forked()
            .then(|| format!("{} of it are shared with another process", format_bytes(self.shared_bytes)));
        let pinned = self.ground.process.pinned_bytes;
        let pinned = (pinned > 0).then(|| format!("VmPin: {} kB in /proc/PID/status", pinned >> 10));
        let order = self.ground.supply.free_blocks_by_order.len();
        let free = (order > 0).then(|| format!("free blocks of {} or more: {}", self.target, self.free_blocks()));
        let counters = [counted(supply, &self.fallback()), counted(supply, &self.own("split_deferred"))];
        shared.into_iter().chain(pinned).chain(counters).chain(free).collect()
    }

    fn free_blocks(&self) -> u64 {
        let base = self.ground.base;
        self.ground.supply.free_blocks_from(self.target.order(base))
    }
}
