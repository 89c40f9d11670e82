//! The constant parameters of a simulation: the machine, the policy, and what follows from both.

use trace::PAGE_SHIFT;

use super::slot::NONE;
use crate::machine::{AccessKind, Machine, Needs, TlbShape};
use crate::policy::{ModelPolicy, Plan, Unsupported};
use crate::space::Leaf;

/// A machine under a policy.
pub(super) struct Setup {
    pub(super) machine: Machine,
    pub(super) policy: ModelPolicy,
    pub(super) plan: Plan,
    pub(super) seed: u64,
    /// The lane of stores, which is the lane of loads if stores and loads share TLBs.
    pub(super) store_lane: usize,
    /// Whether the stored size of a page depends on its neighbours.
    pub(super) sees_neighbours: bool,
    /// Whether there are more than two TLB levels.
    pub(super) has_further_levels: bool,
}

impl Setup {
    pub(super) fn new(machine: &Machine, policy: &ModelPolicy, seed: u64) -> Result<Setup, Unsupported> {
        let same = |tlb: &TlbShape| tlb.serves.contains(&AccessKind::Load) == tlb.serves.contains(&AccessKind::Store);
        let contiguity =
            |tlb: &TlbShape| tlb.coalescing.is_some_and(|coalescing| coalescing.needs == Needs::Contiguity);
        Ok(Setup {
            plan: Plan::new(policy, machine)?,
            store_lane: if machine.tlbs.iter().all(same) { 1 } else { 2 },
            sees_neighbours: machine.tlbs.iter().any(contiguity),
            has_further_levels: machine.tlbs.iter().any(|tlb| tlb.level > 2),
            machine: machine.clone(),
            policy: policy.clone(),
            seed,
        })
    }

    /// The number of TLB levels, at least two.
    pub(super) fn levels(&self) -> u8 {
        self.machine.tlbs.iter().map(|tlb| tlb.level).max().unwrap_or(2)
    }

    /// The error for a policy that the machine does not support.
    pub(super) fn unsupported(&self, reason: impl ToString) -> Unsupported {
        Unsupported { machine: self.machine.name.clone(), policy: self.policy.to_string(), reason: reason.to_string() }
    }

    /// The 4K pages whose stored size may have changed because `page` was mapped: the first, and their number.
    pub(super) fn neighbours(page: u64, leaf: Leaf) -> (u64, u64) {
        let pages = (16 * leaf.leaf_bytes) >> PAGE_SHIFT;
        (page & !(pages - 1), pages)
    }

    /// The TLB of a level that stores the page, with the largest stored size if there are several, and log2 of that size. [`NONE`]
    /// if none does.
    pub(super) fn tlb_for(&self, level: u8, serves: AccessKind, leaf: &Leaf, run_bytes: u64) -> (u8, u8) {
        let within_stage2 = |bytes: u64| match &self.machine.stage2 {
            // An entry covers no more than a page of either stage.
            Some(stage2) => bytes.min(stage2.page.bytes()),
            None => bytes,
        };
        let (leaf_bytes, group_bytes, run_bytes) =
            (within_stage2(leaf.leaf_bytes), within_stage2(leaf.group_bytes), within_stage2(run_bytes));
        let stored = |(index, tlb): (usize, &TlbShape)| {
            let serves = tlb.level == level && tlb.serves.contains(&serves);
            let bytes = if serves { tlb.stored_bytes(leaf_bytes, group_bytes, run_bytes) } else { None };
            bytes.map(|bytes| (bytes, index as u8))
        };
        let best = self.machine.tlbs.iter().enumerate().filter_map(stored).max_by_key(|(bytes, _)| *bytes);
        best.map_or((NONE, 0), |(bytes, index)| (index, bytes.trailing_zeros() as u8))
    }
}
