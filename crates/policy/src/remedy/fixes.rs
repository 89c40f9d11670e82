//! [`Fixes`]: what removes one cause, with one row for each cause.

use super::change::{Change, SourceChange, describe};
use crate::cause::Cause;
use crate::hugetlb::ENOMEM;
use crate::judge::THP;

/// What removes one cause, by approach. `None` where the approach does not remove it, an empty list where the approach needs
/// nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fixes {
    /// A switch of the program that advises its memory from the start: the changes needed in addition.
    pub with_advice: Option<Vec<Change>>,
    /// Settings of the system alone.
    pub by_settings: Option<Vec<Change>>,
    /// A change of the program, with the settings that it needs.
    pub by_source: Option<Vec<Change>>,
    /// MADV_COLLAPSE from outside, in the running process.
    pub by_collapse: bool,
}

/// The files that decide about the memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecidingFiles {
    /// The setting of the size for private memory.
    pub size: String,
    /// The file of shared memory, where its mount decides.
    pub mounted_file: Option<String>,
    /// Whether the file is of a file system that has no folios of PMD size on this kernel ([`crate::file_folios`]).
    pub lacks_file_folios: bool,
}

impl Default for DecidingFiles {
    fn default() -> DecidingFiles {
        DecidingFiles { size: format!("{THP}/enabled"), mounted_file: None, lacks_file_folios: false }
    }
}

/// What removes a cause.
pub fn fixes(cause: &Cause, deciding: &DecidingFiles) -> Fixes {
    let source = |change: SourceChange| Some(vec![Change::Source { change }]);
    let program = |change: SourceChange| Fixes { by_source: source(change), ..Fixes::default() };
    let collapsible = |change: SourceChange| Fixes { by_collapse: true, ..program(change) };
    let all_everywhere = |changes: Vec<Change>| {
        let changes = Some(changes);
        Fixes { with_advice: changes.clone(), by_settings: changes.clone(), by_source: changes, by_collapse: false }
    };
    let everywhere = |change: Change| all_everywhere(vec![change]);
    let shared = |path: &str, word: &str| match &deciding.mounted_file {
        Some(file) => Change::Mount { file: file.clone(), huge: word.into() },
        None => Change::setting(path, word),
    };
    match cause {
        Cause::NoAlignedSlot | Cause::MappingTooSmall => program(SourceChange::Align),
        Cause::AdvisedAgainst => program(SourceChange::NoAdviceAgainst),
        Cause::NotAdvised => Fixes {
            with_advice: Some(Vec::new()),
            by_settings: Some(vec![Change::setting(&deciding.size, "always")]),
            by_source: source(SourceChange::Advise),
            by_collapse: true,
        },
        Cause::MappedInPieces { .. } => Fixes {
            by_settings: Some(vec![Change::setting(&deciding.size, "always")]),
            ..program(SourceChange::MapAtOnce)
        },
        Cause::SizeDisabled { path } => Fixes {
            with_advice: Some(vec![Change::setting(path, "madvise")]),
            by_settings: Some(vec![Change::setting(path, "always")]),
            by_source: Some(vec![Change::setting(path, "madvise")]),
            by_collapse: true,
        },
        Cause::DisabledForProcess => program(SourceChange::NoPrctl),
        Cause::DisabledExceptAdvised => Fixes { with_advice: Some(Vec::new()), ..program(SourceChange::Advise) },
        // Under a policy that advises all memory, the mapping was too small.
        Cause::TouchedBeforeEligible => Fixes {
            with_advice: Some(Vec::new()),
            by_source: Some(
                [SourceChange::Advise, SourceChange::GrowBySlots].map(|change| Change::Source { change }).into(),
            ),
            by_collapse: true,
            ..Fixes::default()
        },
        Cause::GrewInSteps => Fixes { with_advice: Some(Vec::new()), ..collapsible(SourceChange::GrowBySlots) },
        Cause::SlotPartlyPresent => Fixes { with_advice: Some(Vec::new()), ..collapsible(SourceChange::FillSlots) },
        // This cause is a fact about the present; the candidates for its origin have the remedies.
        Cause::FilledWithBasePages => Fixes { with_advice: Some(Vec::new()), by_collapse: true, ..Fixes::default() },
        Cause::ZeroPageInSlot | Cause::ReadFirst => collapsible(SourceChange::WriteFirst),
        Cause::FolioPartlyMapped | Cause::LeafSplit | Cause::SplitMeanwhile | Cause::ZeroPiecesOfSplit => {
            collapsible(SourceChange::WholeSlots)
        }
        Cause::RefilledAfterDrop => collapsible(SourceChange::DropSlots),
        Cause::SplitAfterFork => collapsible(SourceChange::NoFork),
        Cause::AllocationFellBack { .. } => Fixes { by_collapse: true, ..all_everywhere(Change::free_blocks()) },
        Cause::ChargeFellBack => everywhere(Change::other("raise memory.max of the control group")),
        Cause::PoolExhausted { size } => {
            everywhere(Change::other(&format!("as root: add pages of {size} to {}", super::pool_path(size.bytes()))))
        }
        Cause::PoolLimited { .. } | Cause::PoolRequestRefused { is_limited: true, .. } => {
            everywhere(Change::other("raise the limit of the control group; pagelab doctor names its file"))
        }
        Cause::PoolRequestRefused { errno: ENOMEM, size, free: Some(_), .. } => everywhere(Change::other(&format!(
            "before the program starts, as root: raise {} by the missing pages",
            super::pool_path(size.bytes())
        ))),
        Cause::MappingCut { by } => program(SourceChange::CutBetweenSlots { by: *by }),
        Cause::MovedOutOfPlace => program(SourceChange::MoveAligned),
        Cause::SharedDisabled { path } => Fixes {
            by_settings: Some(vec![shared(path, "always")]),
            by_source: Some(vec![shared(path, "advise")]),
            ..Fixes::default()
        },
        Cause::SharedNotAdvised { path } => Fixes {
            by_settings: Some(vec![shared(path, "always")]),
            by_source: source(SourceChange::Advise),
            ..Fixes::default()
        },
        Cause::MountRefuses { .. } => Fixes {
            by_settings: Some(vec![shared("", "always")]),
            by_source: Some(vec![shared("", "advise")]),
            ..Fixes::default()
        },
        Cause::FileEndsInSlot => Fixes {
            by_settings: Some(vec![shared(&format!("{THP}/shmem_enabled"), "always")]),
            ..program(SourceChange::FileLength)
        },
        Cause::SharedMisaligned => program(SourceChange::MapCongruent),
        // The page cache has folios of the size only where readahead was advised to make them.
        Cause::FileMisaligned => {
            let changes = [SourceChange::MapCongruent, SourceChange::AdviseUncached];
            Fixes { by_source: Some(changes.map(|change| Change::Source { change }).into()), ..Fixes::default() }
        }
        Cause::FilePages if deciding.lacks_file_folios => Fixes::default(),
        Cause::FilePages | Cause::CodePages => program(SourceChange::AdviseUncached),
        Cause::SwappedOut => {
            Fixes { by_collapse: true, ..everywhere(Change::other("add memory, or swap less (vm.swappiness)")) }
        }
        Cause::SplitUnderused => {
            Fixes { by_collapse: true, ..everywhere(Change::setting(format!("{THP}/shrink_underused"), "0")) }
        }
        Cause::NoTransparentPages => {
            everywhere(Change::other("use a kernel with CONFIG_TRANSPARENT_HUGEPAGE, or a hugetlb pool"))
        }
        Cause::MergedByKsm => Fixes {
            by_settings: Some(vec![Change::setting("/sys/kernel/mm/ksm/run", "2")]),
            ..program(SourceChange::NotMergeable)
        },
        Cause::ServedByUserfaultfd => program(SourceChange::UnregisterAndCollapse),
        Cause::Pinned => program(SourceChange::PinLate),
        _ => of_a_trial(cause),
    }
}

/// What helps where memory is given back before it is inspected.
pub(super) const SHORTER_PART: &str = "measure a part of the program's life that gives back less";

/// Causes that only a trial or a simulation reports: what to change about the trial.
fn of_a_trial(cause: &Cause) -> Fixes {
    let text = match cause {
        Cause::NotGivenBack => "free memory, and raise vm.max_map_count",
        Cause::DirectMapOtherwise => "pagelab direct-map status says why, and which boot would give them",
        Cause::FoliosInvisible => "run as root to see them",
        Cause::FilteredByProgram => "run the program without its sandbox",
        Cause::PrivilegeNotGained => "run pagelab as root, with --user root",
        Cause::Debugger => "run it without the debugger",
        Cause::FreedBeforeExit | Cause::PeakUnseen | Cause::PeakUncertain => {
            return another_trial(&format!(
                "add --prove-all, which inspects all memory before it is given back, whatever time that takes; or {SHORTER_PART}"
            ));
        }
        Cause::BasePageRefused { .. } => {
            "link it with -Wl,-z,max-page-size=65536, and take libraries that are linked so"
        }
        Cause::JemallocRefusesBasePage { .. } => {
            "build jemalloc for the largest base page (configure --with-lg-page=16)"
        }
        Cause::NothingToSee => "measure a longer part of the program's life",
        _ => return Fixes::default(),
    };
    another_trial(text)
}

fn another_trial(text: &str) -> Fixes {
    Fixes { by_settings: Some(vec![Change::other(text)]), ..Fixes::default() }
}

impl Fixes {
    /// What to do in words, when nothing but the cause is known; `None` where there is no remedy.
    pub fn describe(&self) -> Option<String> {
        let approaches = [&self.by_source, &self.by_settings].into_iter().flatten();
        let mut ways: Vec<String> =
            approaches.filter(|changes| !changes.is_empty()).map(|changes| describe(changes)).collect();
        ways.dedup();
        if ways.is_empty() && self.by_collapse {
            ways.push(Change::Collapse.describe());
        }
        (!ways.is_empty()).then(|| ways.join("; or, "))
    }
}
