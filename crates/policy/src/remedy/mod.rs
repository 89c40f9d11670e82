//! What a user can do so that memory gets larger pages.
//!
//! Memory becomes large only where every condition holds at once: the size is enabled, the memory is advised where the setting asks
//! for that, nothing advises against it, it is aligned, touched in the right order, and so on. So a remedy is a list of changes
//! that together remove *all* causes that are known, and [`remedies`] composes it from what removes each of them ([`fixes`]) by
//! one approach at a time: a switch of the program, settings of the system, the program's source, a collapse from outside.

mod change;
mod fixes;
mod knobs;
mod runtime;

pub use change::{Change, SourceChange, describe, pool_path};
pub use fixes::{Deciding, Fixes, fixes};
pub use knobs::{Gives, How, KNOBS, Knob, Reach};
pub use runtime::{Runtime, runtimes};

use crate::cause::Cause;
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
    /// The size that it should have.
    pub size: PageSize,
    /// Whether that is the size of PMD leaves, which hugetlb pools have too.
    pub is_pmd: bool,
    /// Length of its region in bytes.
    pub length_bytes: u64,
    /// The runtimes of its process.
    pub runtimes: &'a [Runtime],
    /// The files that decide about it.
    pub deciding: Deciding,
}

/// An approach to a remedy.
#[derive(Clone, Copy)]
enum Approach<'a> {
    Knob(&'a Knob),
    Settings,
    Source,
    Collapse,
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
    /// The remedy as one instruction.
    pub fn describe(&self) -> String {
        let only = self.only.as_ref().map(|only| format!(" ({only})")).unwrap_or_default();
        format!("{}{only}", describe(&self.changes))
    }

    /// Certain remedies come before uncertain ones, and those that affect less before those that affect more.
    fn rank(&self) -> (bool, u32) {
        (self.only.is_some(), self.changes.iter().map(Change::intrusiveness).sum())
    }
}

/// The changes of one approach that remove all causes; `None` where one of them remains.
fn compose(memory: &Memory, causes: &[&Cause], approach: Approach) -> Option<Remedy> {
    let (mut changes, only) = match approach {
        Approach::Knob(knob) => (knob.changes(), knob.reach(memory.kind)?.describe().map(str::to_owned)),
        _ => (Vec::new(), None),
    };
    if let Approach::Knob(Knob { gives: Gives::Pool, .. }) = approach {
        // The pool replaces the memory, so no cause of transparent pages remains.
        let is_removed = |cause: &&Cause| !matches!(cause, Cause::ChargeFellBack | Cause::MappingCut { .. });
        let applies = memory.is_pmd && causes.iter().all(is_removed);
        return applies.then(|| {
            changes.insert(0, change::pool(memory.size, memory.length_bytes));
            Remedy { changes, only }
        });
    }
    for cause in causes {
        for change in removed_by(memory, cause, approach)? {
            if !changes.contains(&change) {
                changes.push(change);
            }
        }
    }
    if is_unreached(memory, causes, approach) {
        return None;
    }
    // A setting is in force before the program starts.
    changes.sort_by_key(|change| !matches!(change, Change::Setting { .. } | Change::Mount { .. }));
    Some(Remedy { changes, only })
}

/// What removes a cause by an approach.
fn removed_by(memory: &Memory, cause: &Cause, approach: Approach) -> Option<Vec<Change>> {
    let fixes = fixes(cause, &memory.deciding);
    match approach {
        // The kernel gives stacks of threads MADV_NOHUGEPAGE by design, and a large page for each would cost more than it brings.
        _ if *cause == Cause::AdvisedAgainst && *memory.kind == Kind::ThreadStack => None,
        _ if *cause == Cause::FilePages && memory.length_bytes < memory.size.bytes() => None,
        Approach::Knob(knob) => match knob.gives {
            Gives::Advice => fixes.with_advice,
            Gives::LargeSteps if *cause == Cause::GrewInSteps => Some(Vec::new()),
            Gives::NoPrctl if *cause == Cause::DisabledForProcess => Some(Vec::new()),
            Gives::LargeSteps | Gives::NoPrctl => fixes.by_settings,
            Gives::Pool => None,
        },
        Approach::Settings => fixes.by_settings,
        Approach::Source => fixes.by_source,
        Approach::Collapse => (fixes.by_collapse && memory.is_pmd).then(|| vec![Change::Collapse]),
    }
}

/// Whether the approach leaves a condition open that is not among the causes because only its history could show it: heaps that
/// grow in small steps stay small under `always`, and a switch that a knob turns matters only where it is needed.
fn is_unreached(memory: &Memory, causes: &[&Cause], approach: Approach) -> bool {
    let grows = matches!(memory.kind, Kind::Heap | Kind::Arena(Allocator::Glibc));
    match approach {
        Approach::Settings => grows && causes.iter().any(|cause| matches!(cause, Cause::NotAdvised)),
        Approach::Knob(knob) => match knob.gives {
            Gives::LargeSteps => !grows,
            Gives::NoPrctl => !causes.contains(&&Cause::DisabledForProcess),
            _ => false,
        },
        Approach::Source | Approach::Collapse => false,
    }
}

#[cfg(test)]
mod tests;
