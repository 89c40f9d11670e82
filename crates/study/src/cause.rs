//! Why memory is not mapped as a policy asks, and what to do about it.
//!
//! The list follows the kernel: `thp_vma_allowable_orders` and `alloc_anon_folio` (mm/memory.c,
//! mm/huge_memory.c), `hugepage_vma_check` and `hpage_collapse_scan_pmd` (mm/khugepaged.c).

use serde::{Deserialize, Serialize};

use crate::size::PageSize;

/// A reason that the kernel, the program or the tracer gave.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "code")]
pub enum Cause {
    /// No naturally aligned slot of the target size lies inside the mapping.
    NoAlignedSlot,
    /// The mapping carries MADV_NOHUGEPAGE (`nh`): the program's own, or MAP_STACK.
    AdvisedAgainst,
    /// The kernel gives the size only to advised memory, and the mapping is not advised (no `hg`).
    NotAdvised,
    /// The size is switched off in sysfs.
    SizeDisabled {
        /// The file that says so.
        path: String,
    },
    /// PR_SET_THP_DISABLE is in force for the process.
    DisabledForProcess,
    /// The slot is eligible but holds base pages: it was touched while the mapping was still too
    /// small, or before it was advised.
    TouchedBeforeEligible,
    /// The slot was read before it was written: the shared zero page stands in it.
    ZeroPageInSlot,
    /// The slot has holes: part of it was never touched, or was given back (MADV_DONTNEED, MADV_FREE).
    SlotPartlyPresent,
    /// A folio of a larger size is mapped only in part: munmap, mprotect, mremap or a write after fork.
    FolioPartlyMapped,
    /// A folio of the target size is there, but base-page entries map it: its PMD leaf was split by
    /// mprotect, madvise or mremap of a part, a write after fork, or migration.
    LeafSplit,
    /// The kernel fell back to a smaller size: no free block was large enough.
    AllocationFellBack {
        /// The counter that moved and by how much, for the whole system.
        counter: String,
        /// By how much it moved during the trial.
        times: u64,
    },
    /// The control group's limit did not let a large folio be charged.
    ChargeFellBack,
    /// The hugetlb pool was empty.
    PoolExhausted {
        /// The page size of the pool.
        size: PageSize,
    },
    /// The mapping is smaller than a page of the target size.
    MappingTooSmall,
    /// The mapping is a stack; the policy leaves stacks alone, as MAP_STACK does in the kernel.
    Stack,
    /// The memory is a private copy of file pages, which have no large folios.
    PrivateFileCopy,
    /// The program asked for something that only smaller pages can give (a guard page or another
    /// protection inside a large page), and the range was given back to smaller pages.
    Demoted,
    /// Larger pages than the policy asks for.
    LargerThanAsked,
    /// The program runs under a seccomp filter of its own that does not let the advice through.
    FilteredByProgram,
    /// The kernel refused the advice.
    AdviceRefused {
        /// Its error number.
        errno: i32,
    },
    /// The program traces processes itself (a debugger, strace), which fails under pagelab's tracer.
    Debugger,
    /// The tracer has put jumps into the text of the program, so that a call of mmap that it made often needs no
    /// stop.
    JumpInText {
        /// At how many places, in all processes.
        places: u64,
    },
    /// Guard pages or other protections inside large pages could not be enforced.
    ProtectionWidened,
    /// A policy without guard pages, and a program that makes none inside a larger mapping.
    NoGuardSeen,
    /// A 32-bit program: its calls are not traced.
    ForeignAbi,
    /// A setuid or setgid program was executed without its privilege, because a measured command gains none
    /// unless it is root's.
    PrivilegeNotGained,
    /// The kernel's direct map has leaves of other sizes there.
    DirectMapOtherwise,
    /// The leaves of the kernel's direct map could not be seen.
    DirectMapUnseen {
        /// Why.
        reason: String,
    },
    /// Folio sizes could not be seen.
    FoliosInvisible,
    /// The policy held although folio sizes could not be seen: PR_SET_THP_DISABLE was in force from the
    /// first instruction to the last, so that the kernel gave base pages only.
    ProvenByThpDisable,
    /// The processes left no memory to look at: the census is empty.
    NothingToSee,
    /// The memory had been given back before the process ended, and was not seen.
    FreedBeforeExit,
    /// A process of the tree could not be looked at.
    ProcessUnseen {
        /// Why.
        reason: String,
    },
    /// Nothing that can be seen explains it.
    Unexplained,
}

/// A cause and the memory that it explains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CauseShare {
    /// The cause.
    pub cause: Cause,
    /// Bytes that it explains; absent where the cause concerns the whole process or system.
    pub bytes: Option<u64>,
}

impl Cause {
    /// One short clause, for a table.
    pub fn describe(&self) -> String {
        match self {
            Cause::NoAlignedSlot => "no aligned slot of that size inside the mapping".into(),
            Cause::AdvisedAgainst => "advised against (MADV_NOHUGEPAGE or MAP_STACK)".into(),
            Cause::NotAdvised => "not advised, and the kernel gives the size to advised memory only".into(),
            Cause::SizeDisabled { path } => format!("the size is switched off in {path}"),
            Cause::DisabledForProcess => "the process disabled THP for itself (PR_SET_THP_DISABLE)".into(),
            Cause::TouchedBeforeEligible => "touched while the mapping was too small or not yet advised".into(),
            Cause::ZeroPageInSlot => "read before it was written: the zero page is mapped".into(),
            Cause::SlotPartlyPresent => "part of the slot was never touched or was given back".into(),
            Cause::LeafSplit => "the folio is large enough, but its leaf was split to base pages".into(),
            Cause::FolioPartlyMapped => "a larger folio is mapped only in part".into(),
            Cause::AllocationFellBack { counter, times } => {
                format!("the kernel found no free block of that size ({counter} +{times}, whole system)")
            }
            Cause::ChargeFellBack => "the control group's memory limit did not admit a large folio".into(),
            Cause::PoolExhausted { size } => format!("the hugetlb pool of {size} pages was empty"),
            Cause::MappingTooSmall => "mappings smaller than one page of that size".into(),
            Cause::Stack => "stacks, which the policy leaves alone".into(),
            Cause::PrivateFileCopy => "private copies of file pages".into(),
            Cause::Demoted => "given back to smaller pages because the program needs their granularity".into(),
            Cause::LargerThanAsked => "larger pages than asked for".into(),
            Cause::FilteredByProgram => "the program's own seccomp filter refuses the advice".into(),
            Cause::AdviceRefused { errno } => format!("the kernel refused the advice (errno {errno})"),
            Cause::Debugger => {
                "the program traces processes itself (ptrace), which fails under pagelab's tracer".into()
            }
            Cause::JumpInText { places } => {
                let places = if *places == 1 { "one place".into() } else { format!("{places} places") };
                format!(
                    "the tracer put a jump into the program's text at {places}, so that its frequent mmap needs no stop"
                )
            }
            Cause::ProtectionWidened => "protections inside a large page could not be enforced".into(),
            Cause::NoGuardSeen => "the program made no guard page that could be left open".into(),
            Cause::ForeignAbi => "a 32-bit program, whose calls are not traced".into(),
            Cause::PrivilegeNotGained => {
                "a setuid program ran without its privilege, which measured commands do not gain".into()
            }
            Cause::DirectMapOtherwise => "there the kernel's direct map has leaves of other sizes".into(),
            Cause::DirectMapUnseen { reason } => format!("the direct map could not be seen: {reason}"),
            Cause::FoliosInvisible => "folio sizes are visible to root only".into(),
            Cause::ProvenByThpDisable => {
                "base pages are proven by PR_SET_THP_DISABLE, which was in force until the end (`THP_enabled: 0` in \
                 /proc/PID/status), not by looking at folios"
                    .into()
            }
            Cause::NothingToSee => "no memory was present at exit".into(),
            Cause::FreedBeforeExit => "memory was given back before the process ended, and not seen".into(),
            Cause::ProcessUnseen { reason } => format!("a process could not be looked at: {reason}"),
            Cause::Unexplained => "I do not know why".into(),
        }
    }

    /// What to do about it; `None` where nothing can be done.
    pub fn remedy(&self) -> Option<String> {
        let text = match self {
            Cause::NoAlignedSlot | Cause::MappingTooSmall => {
                "make the mapping larger, or align it: allocate in multiples of the page size"
            }
            Cause::AdvisedAgainst => "remove the program's MADV_NOHUGEPAGE (mappings with MAP_STACK have it by design)",
            Cause::NotAdvised => "advise the mapping (MADV_HUGEPAGE) or set the size to `always`",
            Cause::SizeDisabled { path } => return Some(format!("as root: echo madvise > {path}")),
            Cause::DisabledForProcess => {
                "redis: `disable-thp no`; systemd: no MemoryTHP=disable; else remove the prctl"
            }
            Cause::TouchedBeforeEligible => "advise before the first touch, or grow the heap in larger steps",
            Cause::ZeroPageInSlot => {
                "write before reading, or echo 0 > /sys/kernel/mm/transparent_hugepage/use_zero_page"
            }
            Cause::SlotPartlyPresent => "a larger working set, or khugepaged with max_ptes_none and more time",
            Cause::FolioPartlyMapped | Cause::LeafSplit => {
                "do not cut mappings inside a large page; do not fork before writing"
            }
            Cause::AllocationFellBack { .. } => {
                "free memory or compact it (echo 1 > /proc/sys/vm/compact_memory), or set defrag to `madvise`"
            }
            Cause::ChargeFellBack => "raise memory.max of the control group",
            Cause::PoolExhausted { .. } => "a larger pool: --hugetlb-pool, or vm.nr_hugepages",
            Cause::DirectMapOtherwise => "pagelab direct-map status says why, and which boot would give them",
            Cause::FoliosInvisible => "run as root to see them",
            Cause::FilteredByProgram => "run the program without its sandbox",
            Cause::PrivilegeNotGained => "run pagelab as root, with --user root",
            Cause::Debugger => "run it without the debugger",
            Cause::FreedBeforeExit => {
                "--prove-all looks at all memory that goes in large ranges, whatever time it takes; or measure a part of the \
                 program's life in which less goes"
            }
            Cause::NothingToSee => "measure a longer part of the program's life",
            Cause::Stack
            | Cause::PrivateFileCopy
            | Cause::Demoted
            | Cause::LargerThanAsked
            | Cause::NoGuardSeen
            | Cause::ProvenByThpDisable
            | Cause::ForeignAbi
            | Cause::AdviceRefused { .. }
            | Cause::JumpInText { .. }
            | Cause::ProtectionWidened
            | Cause::ProcessUnseen { .. }
            | Cause::DirectMapUnseen { .. }
            | Cause::Unexplained => return None,
        };
        Some(text.to_string())
    }
}
