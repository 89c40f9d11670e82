//! [`Remedy`]: what a user can do so that memory gets larger pages.
//!
//! Memory becomes large only where every condition holds at once: the size is enabled, the memory is advised where the setting
//! asks for that, nothing advises against it, it is aligned, touched in the right order, and so on. So a remedy is a list of
//! changes that together remove *all* known causes. [`remedies`] composes it from the fixes of each cause ([`fixes`]), for one
//! approach at a time: a switch of the program, settings of the system, the program's source, a collapse from outside.

mod change;
mod fixes;
mod knobs;
mod runtime;

pub use change::{Change, SourceChange, describe, pool_path};
pub use fixes::{DecidingFiles, Fixes, fixes};
pub use knobs::{How, KNOBS, Knob, KnobEffect, Reach};
pub use runtime::{Runtime, runtimes};

use crate::cause::Cause;
use crate::cut::CutBy;
use crate::inspect::{Allocator, Kind};
use crate::size::PageSize;

/// Changes that together remove all causes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Remedy {
    /// The changes, in the order in which to make them.
    pub changes: Vec<Change>,
    /// A condition that the remedy needs and that is not visible; `None` without one.
    pub only: Option<String>,
}

/// Memory for which remedies are composed.
pub struct Memory<'a> {
    /// The kind of its region.
    pub kind: &'a Kind,
    /// The size that the memory should have.
    pub size: PageSize,
    /// Whether that is the size of PMD leaves, which hugetlb pools have too.
    pub is_pmd: bool,
    /// Bytes of its region that the program may access.
    pub length_bytes: u64,
    /// The runtimes of its process.
    pub runtimes: &'a [Runtime],
    /// The files that decide about it.
    pub deciding: DecidingFiles,
    /// Pages of its size that are free in the hugetlb pool.
    pub free_pool_pages: u64,
}

/// An approach to a remedy.
#[derive(Clone, Copy)]
enum Approach<'a> {
    Knob(&'a Knob),
    Settings,
    Source,
    Collapse,
}

/// How to remove a cause, when nothing but the cause is known; `None` where there is no remedy.
pub fn of_cause(cause: &Cause) -> Option<String> {
    fixes(cause, &DecidingFiles::default()).describe()
}

/// As [`of_cause`], for a trial that already inspects all memory before it is freed.
pub fn of_cause_although_all_is_inspected(cause: &Cause) -> Option<String> {
    match cause {
        Cause::FreedBeforeExit | Cause::PeakUnseen | Cause::PeakUncertain => Some(fixes::SHORTER_PART.to_owned()),
        _ => of_cause(cause),
    }
}

/// The remedies for memory with these causes, all of which hold at once: least intrusive first.
pub fn remedies(memory: &Memory, causes: &[&Cause]) -> Vec<Remedy> {
    let knobs = KNOBS.iter().filter(|knob| memory.runtimes.contains(&knob.runtime)).map(Approach::Knob);
    let approaches = knobs.chain([Approach::Settings, Approach::Source, Approach::Collapse]);
    let mut found: Vec<Remedy> = Vec::new();
    for remedy in approaches.filter_map(|approach| compose(memory, causes, approach)) {
        if !remedy.changes.is_empty() && !found.iter().any(|other| other.changes == remedy.changes) {
            found.push(remedy);
        }
    }
    found.sort_by_key(Remedy::rank);
    found
}

impl Remedy {
    /// The remedy as one instruction, with its condition.
    pub fn describe(&self) -> String {
        let only = self.only.as_ref().map(|only| format!(" ({only})")).unwrap_or_default();
        format!("{}{only}", self.instruction())
    }

    /// Whether a process with this environment (`NAME=VALUE` each) was started with the remedy, which nothing else belongs to.
    pub fn is_in_environment(&self, environment: &[String]) -> bool {
        !self.changes.is_empty() && self.changes.iter().all(|change| change.is_in_environment(environment))
    }

    /// Bytes of the pages that the remedy adds to a hugetlb pool.
    pub fn pool_bytes(&self) -> Option<u64> {
        self.changes.iter().find_map(Change::pool_bytes)
    }

    /// The remedy as one instruction.
    pub fn instruction(&self) -> String {
        describe(&self.changes)
    }

    /// How much the remedy affects beyond the program; smaller is better.
    pub fn intrusiveness(&self) -> u32 {
        self.changes.iter().map(Change::intrusiveness).sum()
    }

    /// How much the remedy affects beyond the program, and how likely it reaches the memory; smaller is better.
    fn rank(&self) -> u32 {
        let changes = self.intrusiveness();
        let is_switch =
            self.changes.iter().any(|change| matches!(change, Change::Environment { .. } | Change::Arguments { .. }));
        match (&self.only, is_switch) {
            (None, _) => changes,
            (Some(_), false) => changes + 4,
            // A switch of an allocator does nothing for memory that a program maps by itself.
            (Some(_), true) => changes + 12,
        }
    }
}

/// The changes of one approach that remove all causes; `None` if a cause remains.
fn compose(memory: &Memory, causes: &[&Cause], approach: Approach) -> Option<Remedy> {
    let (mut changes, mut only) = match approach {
        Approach::Knob(knob) => (knob.changes(), memory.reach(knob)?.describe().map(str::to_owned)),
        _ => (Vec::new(), None),
    };
    if let Approach::Knob(Knob { effect: KnobEffect::Pool { extra_bytes }, .. }) = approach {
        // The pool replaces the memory, so no cause of transparent pages remains.
        let remains = |cause: &&Cause| {
            matches!(
                cause,
                Cause::ChargeFellBack
                    | Cause::MappingCut { .. }
                    | Cause::NoAlignedSlot
                    | Cause::Unread { .. }
                    | Cause::Unexplained
            )
        };
        let applies = memory.is_pmd && !causes.iter().any(remains);
        return applies.then(|| {
            let needed = (memory.length_bytes + extra_bytes).div_ceil(memory.size.bytes());
            let missing = needed.saturating_sub(memory.free_pool_pages);
            if missing > 0 {
                changes.insert(0, Change::Pool { page_bytes: memory.size.bytes(), pages: missing });
            }
            Remedy { changes, only }
        });
    }
    let latent = if approach.is_always() { memory.latent(causes) } else { Vec::new() };
    for cause in causes.iter().copied().chain(&latent) {
        for change in removed_by(memory, cause, approach)? {
            if !changes.contains(&change) {
                changes.push(change);
            }
        }
    }
    if !approach.is_needed(causes, &latent) {
        return None;
    }
    if approach.is_always() && memory.may_grow_by_pieces() && causes.contains(&&Cause::NotAdvised) {
        only = Some(format!("if it is mapped in pieces of {} or more", memory.size));
    }
    // Settings must be in force before the program starts, so they come first.
    changes.sort_by_key(|change| {
        !matches!(change, Change::Setting { .. } | Change::Trigger { .. } | Change::Mount { .. })
    });
    Some(Remedy { changes, only })
}

/// The changes with which an approach removes a cause; `None` if the approach does not remove it.
fn removed_by(memory: &Memory, cause: &Cause, approach: Approach) -> Option<Vec<Change>> {
    let fixes = fixes(cause, &memory.deciding);
    match approach {
        // The kernel gives stacks of threads MADV_NOHUGEPAGE by design, and a large page for each would cost more than it brings.
        _ if *cause == Cause::AdvisedAgainst && *memory.kind == Kind::ThreadStack => None,
        _ if *cause == Cause::FilePages && memory.length_bytes < memory.size.bytes() => None,
        // With larger steps, or without arenas, the end of the arena's writable part divides no slot.
        Approach::Knob(_) if is_edge_of_arena(memory, cause) => Some(Vec::new()),
        Approach::Knob(knob) => match knob.effect {
            KnobEffect::Advice => fixes.with_advice,
            KnobEffect::LargeSteps if *cause == Cause::GrewInSteps => Some(Vec::new()),
            KnobEffect::NoPrctl if *cause == Cause::DisabledForProcess => Some(Vec::new()),
            KnobEffect::LargeSteps | KnobEffect::NoPrctl => fixes.by_settings,
            KnobEffect::Pool { .. } => None,
        },
        Approach::Settings => fixes.by_settings,
        Approach::Source => fixes.by_source,
        Approach::Collapse => (fixes.by_collapse && memory.is_pmd).then(|| vec![Change::Collapse]),
    }
}

/// Whether the cause is the end of the writable part of a glibc arena.
fn is_edge_of_arena(memory: &Memory, cause: &Cause) -> bool {
    *memory.kind == Kind::Arena(Allocator::Glibc) && *cause == Cause::MappingCut { by: CutBy::Protection }
}

impl Approach<'_> {
    /// Whether the approach gives the size to all memory (`always`), rather than to advised memory.
    fn is_always(self) -> bool {
        let effect = match self {
            Approach::Knob(knob) => Some(knob.effect),
            _ => None,
        };
        matches!(self, Approach::Settings) || matches!(effect, Some(KnobEffect::LargeSteps | KnobEffect::NoPrctl))
    }

    /// Whether the switch that the approach sets removes one of the causes.
    fn is_needed(self, causes: &[&Cause], latent: &[Cause]) -> bool {
        let holds = |cause: Cause| causes.contains(&&cause) || latent.contains(&cause);
        match self {
            Approach::Knob(Knob { effect: KnobEffect::LargeSteps, .. }) => holds(Cause::GrewInSteps),
            Approach::Knob(Knob { effect: KnobEffect::NoPrctl, .. }) => holds(Cause::DisabledForProcess),
            _ => true,
        }
    }
}

impl Memory<'_> {
    /// Which part of the memory a switch reaches.
    fn reach(&self, knob: &Knob) -> Option<Reach> {
        // CPython's own allocator is between its objects and malloc.
        let is_hidden = *self.kind == Kind::Anonymous && self.runtimes.contains(&Runtime::CPython);
        if is_hidden && knob.runtime == Runtime::Glibc { None } else { knob.reach(self.kind) }
    }

    /// Causes that do not hold now, but would under `always`.
    fn latent(&self, causes: &[&Cause]) -> Vec<Cause> {
        if !causes.iter().any(|cause| matches!(cause, Cause::NotAdvised)) {
            return Vec::new();
        }
        // The heap grows by 128K, and CPython's arenas are mapped one by one; both are touched before the next step.
        let grows = matches!(self.kind, Kind::Heap | Kind::Arena(Allocator::Glibc))
            || *self.kind == Kind::Anonymous && self.runtimes.contains(&Runtime::CPython);
        // Redis calls PR_SET_THP_DISABLE if the setting is `always` when it starts.
        let disables = self.runtimes.contains(&Runtime::Redis);
        let grows = grows.then_some(Cause::GrewInSteps);
        grows.into_iter().chain(disables.then_some(Cause::DisabledForProcess)).collect()
    }

    /// Whether the memory may have been mapped in pieces that are too small for a slot, which the kernel merged.
    fn may_grow_by_pieces(&self) -> bool {
        matches!(self.kind, Kind::Anonymous | Kind::Named { .. })
    }
}

#[cfg(test)]
mod tests;
