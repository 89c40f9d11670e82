//! The book's page of causes: all reasons that outputs give for memory that is not mapped as requested, and what to do about
//! each.

use std::fmt::Write;
use std::iter::successors;

use policy::cause::Cause;
use policy::cut::CutBy;
use policy::hugetlb::{ENOMEM, RequestCall};
use policy::remedy::{self, KNOBS, Reach};
use policy::removal::Unwatched;
use policy::size::PageSize;

/// Settings files used as examples, one of each kind.
const SIZE_SETTING: &str = "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled";
const SHARED_SETTING: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

/// The page as Markdown, one row per cause.
pub fn page() -> String {
    let mut text =
        "# Causes\n\nWhy memory is not mapped as a policy asks, or not by larger pages: all causes that `compare`, \
                    `exec`, `inspect`, `top` and `sim` report. Sizes, files and numbers are examples. \
                    [Proof](../explain/proof.md#causes) says how `compare` finds a cause, and \
                    [How a cause is found](../explain/inspect.md) how `inspect` does.\n\n\
                    | cause | remedy | code |\n|---|---|---|\n"
            .to_owned();
    for cause in successors(Some(Cause::NoAlignedSlot), next).filter(|cause| *cause != Cause::OfAnotherVersion) {
        let cell = |text: &str| text.replace('|', "\\|").replace('*', "\\*").replace('<', "&lt;");
        let remedy = remedy::of_cause(&cause).unwrap_or_default();
        let _ = writeln!(text, "| {} | {} | `{}` |", cell(&cause.describe()), cell(&remedy), code(&cause));
    }
    text + &switches()
}

/// The table of switches that programs have, from which remedies are composed.
fn switches() -> String {
    let mut text =
        "\n## Switches of programs\n\n`inspect` composes remedies from these and from settings, and `advise` \
                    tries them. [How a cause is found](../explain/inspect.md#remedies) says which of them tests \
                    execute.\n\n| switch | memory | gives | documentation |\n|---|---|---|---|\n"
            .to_owned();
    for knob in KNOBS {
        let memory: Vec<String> = knob.reaches.iter().map(|(label, reach)| reached(label, *reach)).collect();
        let switch = remedy::describe(&knob.changes());
        let _ = writeln!(text, "| {switch} | {} | {} | {} |", memory.join("; "), knob.effect.describe(), knob.source);
    }
    text
}

/// Which memory a switch affects, with its condition.
fn reached(label: &str, reach: Reach) -> String {
    let memory = if label.is_empty() { "all".to_owned() } else { format!("`{label}`") };
    reach.describe().map_or(memory.clone(), |condition| format!("{memory}, {condition}"))
}

/// The name of a cause in documents.
fn code(cause: &Cause) -> String {
    let document = serde_json::to_value(cause).unwrap_or_default();
    document["code"].as_str().unwrap_or_default().to_owned()
}

/// The cause after this one on the page. The match is exhaustive, so the compiler requires an entry for each new cause.
fn next(cause: &Cause) -> Option<Cause> {
    Some(match cause {
        Cause::NoAlignedSlot => Cause::AdvisedAgainst,
        Cause::AdvisedAgainst => Cause::NotAdvised,
        Cause::NotAdvised => Cause::MappedInPieces { advised_bytes: 128 << 10 },
        Cause::MappedInPieces { .. } => Cause::SizeDisabled { path: SIZE_SETTING.into() },
        Cause::SizeDisabled { .. } => Cause::DisabledForProcess,
        Cause::DisabledForProcess => Cause::TouchedBeforeEligible,
        Cause::TouchedBeforeEligible => Cause::RefilledAfterDrop,
        Cause::RefilledAfterDrop => Cause::SplitMeanwhile,
        Cause::SplitMeanwhile => Cause::SplitAfterFork,
        Cause::SplitAfterFork => Cause::FilledWithBasePages,
        Cause::FilledWithBasePages => Cause::ReadFirst,
        Cause::ReadFirst => Cause::ZeroPageInSlot,
        Cause::ZeroPageInSlot => Cause::ZeroPiecesOfSplit,
        Cause::ZeroPiecesOfSplit => Cause::SlotPartlyPresent,
        Cause::SlotPartlyPresent => Cause::FolioPartlyMapped,
        Cause::FolioPartlyMapped => Cause::LeafSplit,
        Cause::LeafSplit => Cause::AllocationFellBack { counter: "thp_fault_fallback".into(), times: 12 },
        Cause::AllocationFellBack { .. } => Cause::ChargeFellBack,
        Cause::ChargeFellBack => Cause::PoolExhausted { size: PageSize::M2 },
        Cause::PoolExhausted { .. } => Cause::PoolLimited { size: PageSize::M2 },
        Cause::PoolLimited { .. } => refused_request(),
        Cause::PoolRequestRefused { .. } => Cause::MappingTooSmall,
        Cause::MappingTooSmall => Cause::Stack,
        Cause::Stack => Cause::PrivateFileCopy,
        Cause::PrivateFileCopy => Cause::Demoted,
        Cause::Demoted => Cause::NotGivenBack,
        Cause::NotGivenBack => Cause::LargerThanAsked,
        Cause::LargerThanAsked => Cause::FilteredByProgram,
        Cause::FilteredByProgram => Cause::AdviceRefused { errno: 12 },
        Cause::AdviceRefused { .. } => Cause::Debugger,
        Cause::Debugger => Cause::ProtectionWidened,
        Cause::ProtectionWidened => Cause::NoGuardSeen,
        Cause::NoGuardSeen => Cause::ForeignAbi,
        Cause::ForeignAbi => Cause::PrivilegeNotGained,
        Cause::PrivilegeNotGained => Cause::DirectMapOtherwise,
        Cause::DirectMapOtherwise => Cause::DirectMapUnseen { reason: "WHY".into() },
        Cause::DirectMapUnseen { .. } => Cause::FoliosInvisible,
        Cause::FoliosInvisible => Cause::ProvenByThpDisable,
        Cause::ProvenByThpDisable => Cause::NothingToSee,
        Cause::NothingToSee => Cause::FreedBeforeExit,
        Cause::FreedBeforeExit => Cause::PeakUnseen,
        Cause::PeakUnseen => Cause::PeakUnwatched { ways: vec![Unwatched::IoUring] },
        Cause::PeakUnwatched { .. } => Cause::PeakUncertain,
        Cause::PeakUncertain => Cause::ProcessUnseen { reason: "WHY".into() },
        Cause::ProcessUnseen { .. } => Cause::MappingCut { by: CutBy::Guard },
        Cause::MappingCut { by: CutBy::Guard } => Cause::MappingCut { by: CutBy::LightGuard },
        Cause::MappingCut { by: CutBy::LightGuard } => Cause::MappingCut { by: CutBy::Protection },
        Cause::MappingCut { by: CutBy::Protection } => Cause::MappingCut { by: CutBy::Flags },
        Cause::MappingCut { by: CutBy::Flags } => Cause::MappingCut { by: CutBy::Name },
        Cause::MappingCut { by: CutBy::Name } => Cause::MappingCut { by: CutBy::Unseen },
        Cause::MappingCut { by: CutBy::Unseen } => Cause::GrewInSteps,
        Cause::GrewInSteps => Cause::MovedOutOfPlace,
        Cause::MovedOutOfPlace => Cause::SharedDisabled { path: SHARED_SETTING.into() },
        Cause::SharedDisabled { .. } => Cause::SharedNotAdvised { path: SHARED_SETTING.into() },
        Cause::SharedNotAdvised { .. } => Cause::FilePages,
        Cause::FilePages => Cause::CodePages,
        Cause::CodePages => Cause::FileMisaligned,
        Cause::FileMisaligned => Cause::SharedMisaligned,
        Cause::SharedMisaligned => Cause::MountRefuses { huge: "never".into() },
        Cause::MountRefuses { .. } => Cause::FileEndsInSlot,
        Cause::FileEndsInSlot => Cause::SwappedOut,
        Cause::SwappedOut => Cause::SplitUnderused,
        Cause::SplitUnderused => Cause::NoTransparentPages,
        Cause::NoTransparentPages => Cause::DisabledExceptAdvised,
        Cause::DisabledExceptAdvised => Cause::MergedByKsm,
        Cause::MergedByKsm => Cause::ServedByUserfaultfd,
        Cause::ServedByUserfaultfd => Cause::Pinned,
        Cause::Pinned => Cause::BasePageRefused { base: PageSize::K16, aligned_to: PageSize::K4 },
        Cause::BasePageRefused { .. } => {
            Cause::JemallocRefusesBasePage { base: PageSize::K16, built_for: PageSize::K4 }
        }
        Cause::JemallocRefusesBasePage { .. } => Cause::Unread { reason: "WHY".into() },
        Cause::Unread { .. } => Cause::Unexplained,
        Cause::Unexplained => Cause::OfAnotherVersion,
        Cause::OfAnotherVersion => return None,
    })
}

fn refused_request() -> Cause {
    Cause::PoolRequestRefused {
        call: RequestCall::Mmap,
        size: PageSize::M2,
        errno: ENOMEM,
        times: 1,
        pages: 16,
        free: Some(0),
        is_limited: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_a_row() {
        let page = page();
        let rows: Vec<&str> = page.lines().filter(|line| line.ends_with("` |")).collect();
        assert!(rows.len() > 50, "{page}");
        assert!(rows[0].starts_with(
            "| no aligned slot of that size inside the mapping | in the source: allocate multiples of the size"
        ));
        assert!(rows.last().unwrap().contains("| the cause is not known |  | `unexplained` |"), "{page}");
        assert!(
            page.contains("| one allocation, cut by a guard page | in the source: put guard pages outside"),
            "{page}"
        );
    }
}
