//! [`Cause`]: why memory is not mapped as a policy asks.
//!
//! The list follows the kernel: `thp_vma_allowable_orders` and `alloc_anon_folio` (mm/memory.c, mm/huge_memory.c),
//! `hugepage_vma_check` and `hpage_collapse_scan_pmd` (mm/khugepaged.c). `remedy::fixes` lists what removes each cause. A
//! *slot* is a naturally aligned range of the wanted page size.
//!
//! The file is above 400 lines because it is one list: each cause with its description.

use serde::{Deserialize, Serialize};

use crate::cut::CutBy;
use crate::hugetlb::{ENOMEM, RefusedRequest, RequestCall};
use crate::removal::Unwatched;
use crate::size::{PageSize, format_bytes};

/// A reason why memory is not mapped as a policy asks: it comes from the kernel, the program or the tracer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "code")]
pub enum Cause {
    /// The mapping contains no naturally aligned slot of the target size.
    NoAlignedSlot,
    /// The mapping has MADV_NOHUGEPAGE (`nh`), set by the program or through MAP_STACK.
    AdvisedAgainst,
    /// The kernel gives this size only to advised memory, and the mapping has no MADV_HUGEPAGE (`hg`).
    NotAdvised,
    /// The memory was mapped in pieces that are too small to be advised, and the kernel merged them.
    MappedInPieces {
        /// The smallest piece that is advised.
        advised_bytes: u64,
    },
    /// The size is disabled in sysfs.
    SizeDisabled {
        /// The sysfs file that disables it.
        path: String,
    },
    /// PR_SET_THP_DISABLE is in force for the process.
    DisabledForProcess,
    /// The slot is eligible but holds base pages: it was touched while the mapping was still too small, or before it was advised.
    TouchedBeforeEligible,
    /// The slot held larger pages. Part of their content was dropped (MADV_DONTNEED, MADV_FREE) or unmapped, and later touches
    /// brought in base pages.
    RefilledAfterDrop,
    /// The slot held a larger page that was split. A counter shows that: of split folios, or of split leaves if folios are
    /// not visible.
    SplitMeanwhile,
    /// The process forked or was forked, and its larger pages are mapped in part or by base-page PTEs: on a write to a shared
    /// page, the kernel makes a CoW copy of a single base page.
    SplitAfterFork,
    /// The slot holds base pages, and a fault makes a large page only where nothing is mapped yet. Why the slot has base
    /// pages is not visible.
    FilledWithBasePages,
    /// The slot was read before it was written: the zero page was mapped, and each write replaced it by base pages (at PMD size:
    /// up to Linux 6.12, and later only if the leaf of the huge zero page was split in between).
    ReadFirst,
    /// The slot maps the shared zero page.
    ZeroPageInSlot,
    /// A large page was split, and the kernel replaced its zero-filled base pages by the zero page (since Linux 6.12).
    ZeroPiecesOfSplit,
    /// The slot has holes: part of it was never touched or was given back (MADV_DONTNEED, MADV_FREE).
    SlotPartlyPresent,
    /// A folio of a larger size is mapped only in part or out of place, because of munmap, MADV_DONTNEED or mremap.
    FolioPartlyMapped,
    /// A folio of the target size exists, but PTEs map it: its PMD leaf was split by mprotect, madvise or mremap of a part, or by
    /// migration.
    LeafSplit,
    /// The kernel fell back to a smaller size because no free block was large enough.
    AllocationFellBack {
        /// The kernel counter that moved; it counts for the whole system.
        counter: String,
        /// How much the counter moved during the trial.
        times: u64,
    },
    /// The memory control group's limit did not allow a large folio to be charged.
    ChargeFellBack,
    /// The hugetlb pool was empty.
    PoolExhausted {
        /// The page size of the hugetlb pool.
        size: PageSize,
    },
    /// Limits of control groups left no room for more pages of the hugetlb pool, or could have refused CoW copies after a fork.
    PoolLimited {
        /// The page size of the hugetlb pool.
        size: PageSize,
    },
    /// The program itself asked for pages of a hugetlb pool, and the kernel refused them.
    PoolRequestRefused {
        /// The call that asked.
        call: RequestCall,
        /// The page size that it asked for.
        size: PageSize,
        /// The error number that the kernel returned.
        errno: i32,
        /// How often it was refused.
        times: u64,
        /// Pages that the largest of the requests asked for; 0 for a call without a length.
        pages: u64,
        /// Free pages of the pool when the last request was refused; absent where the kernel has no pool of that size.
        free: Option<u64>,
        /// Whether the limit of a control group left less room than the last request needed.
        is_limited: bool,
    },
    /// The mapping is smaller than a page of the target size.
    MappingTooSmall,
    /// The mapping is a stack. The policy does not change stacks, just as the kernel does not give large pages to MAP_STACK
    /// mappings.
    Stack,
    /// The memory is a private copy of file pages. The kernel makes such copies only in base pages.
    PrivateFileCopy,
    /// The program asked for something that only smaller pages support (a guard page or a different protection inside a large
    /// page), so the range was replaced by smaller pages.
    Demoted,
    /// The program asked for something that only smaller pages support, but its hugetlb pages could not be replaced by smaller
    /// ones, so its call failed.
    NotGivenBack,
    /// The pages are larger than the policy asks for.
    LargerThanAsked,
    /// The program installed a seccomp filter that does not allow the advice.
    FilteredByProgram,
    /// The kernel refused the advice.
    AdviceRefused {
        /// The error number that the kernel returned.
        errno: i32,
    },
    /// The program itself traces processes (a debugger, strace); that fails under pagelab's tracer.
    Debugger,
    /// Guard pages or other protections inside large pages could not be enforced.
    ProtectionWidened,
    /// The policy asks for no guard pages, but the program makes no guard page inside a larger mapping.
    NoGuardSeen,
    /// A 32-bit program, whose calls are not traced.
    ForeignAbi,
    /// A setuid or setgid program ran without its privilege, because a measured command gains privileges only if it already runs
    /// as root.
    PrivilegeNotGained,
    /// The kernel's direct map has leaves of other sizes than asked for.
    DirectMapOtherwise,
    /// The leaves of the kernel's direct map could not be seen.
    DirectMapUnseen {
        /// The reason, as text.
        reason: String,
    },
    /// Folio sizes could not be seen.
    FoliosInvisible,
    /// The policy held although folio sizes could not be seen: PR_SET_THP_DISABLE was in force from the first instruction to the
    /// last, so the kernel gave only base pages.
    ProvenByThpDisable,
    /// The processes left no memory to examine: the census is empty.
    NothingToSee,
    /// The memory was given back before the process ended, and was not examined before that.
    FreedBeforeExit,
    /// Most of the memory at the peak was given back before it could be examined. The verdict is unknown.
    PeakUnseen,
    /// As [`Cause::PeakUnseen`], although every call that frees memory was to be inspected.
    PeakUnwatched {
        /// How the memory may have been freed; empty where that is not known.
        ways: Vec<Unwatched>,
    },
    /// Files and shared memory hide the peak: whether most of it was examined is not known.
    PeakUncertain,
    /// A process of the tree could not be examined.
    ProcessUnseen {
        /// The reason, as text.
        reason: String,
    },
    /// One allocation is cut into several mappings, and the cut falls inside the slot.
    MappingCut {
        /// The kind of the cut.
        by: CutBy,
    },
    /// The memory grew in steps smaller than the size and was touched after each step: by brk, or by mprotect inside a
    /// reservation.
    GrewInSteps,
    /// Folios of the size are mapped completely, but at addresses that are not multiples of the size, because mremap moved them.
    MovedOutOfPlace,
    /// The size is disabled for shared memory.
    SharedDisabled {
        /// The sysfs file that disables it.
        path: String,
    },
    /// The kernel gives this size only to advised shared memory, and the mapping has no MADV_HUGEPAGE (`hg`).
    SharedNotAdvised {
        /// The sysfs file with that setting.
        path: String,
    },
    /// Pages of the page cache; the file system and readahead choose their size.
    FilePages,
    /// Pages of the page cache that hold code, in a mapping that has room for a leaf of the size and is aligned for one.
    CodePages,
    /// The address and the file offset are not congruent modulo the size.
    FileMisaligned,
    /// Shared memory whose setting permits the size, but whose address and offset in the shared object are not congruent modulo
    /// the size.
    SharedMisaligned,
    /// The tmpfs that holds the shared memory is mounted with an option that does not allow the size.
    MountRefuses {
        /// The mount option `huge=`; `never` where the mount has none.
        huge: String,
    },
    /// The tmpfs gives the size only where the file covers the whole slot (`within_size`), and the file ends inside the slot.
    FileEndsInSlot,
    /// Part of the slot is swapped out.
    SwappedOut,
    /// The kernel split a large page that was mostly zero when memory was short (Linux 6.12).
    SplitUnderused,
    /// The kernel has no transparent huge pages: they were not compiled in, or the processor has no PMD leaves.
    NoTransparentPages,
    /// PR_SET_THP_DISABLE with the exception for advised memory is in force for the process (Linux 6.18).
    DisabledExceptAdvised,
    /// KSM has merged pages of the slot with identical pages elsewhere.
    MergedByKsm,
    /// The program handles faults itself (userfaultfd), page by page.
    ServedByUserfaultfd,
    /// Pages are pinned for a device or a ring. Pinned pages are neither moved nor collapsed.
    Pinned,
    /// The program, or its dynamic linker, cannot be mapped with base pages of this size.
    BasePageRefused {
        /// The refused base page size.
        base: PageSize,
        /// The largest base page size that their LOAD segments allow.
        aligned_to: PageSize,
    },
    /// The program's jemalloc refuses base pages of this size when it starts.
    JemallocRefusesBasePage {
        /// The refused base page size.
        base: PageSize,
        /// The base page size that it was built for.
        built_for: PageSize,
    },
    /// Data that may explain the memory could not be read.
    Unread {
        /// What could not be read, and the reason.
        reason: String,
    },
    /// No visible fact explains the memory.
    Unexplained,
    /// A cause that another version of pagelab wrote to a file and this version does not know.
    #[serde(other)]
    OfAnotherVersion,
}

/// A cause and the amount of memory that it explains.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CauseShare {
    /// The cause.
    pub cause: Cause,
    /// Bytes that it explains; absent where the cause concerns the whole process or the whole system.
    pub bytes: Option<u64>,
}

impl From<&RefusedRequest> for Cause {
    fn from(request: &RefusedRequest) -> Cause {
        let RefusedRequest { call, size, errno, times, pages, ref pool, ref limit } = *request;
        let (free, is_limited) = (pool.as_ref().map(|pool| pool.free), limit.is_some());
        Cause::PoolRequestRefused { call, size, errno, times, pages, free, is_limited }
    }
}

impl Cause {
    /// Whether the cause is about pages in the page cache of a file.
    pub fn is_of_file_pages(&self) -> bool {
        matches!(self, Cause::FilePages | Cause::CodePages | Cause::FileMisaligned)
    }

    /// Whether the cause keeps a program from starting at all.
    pub fn prevents_start(&self) -> bool {
        matches!(self, Cause::BasePageRefused { .. } | Cause::JemallocRefusesBasePage { .. })
    }

    /// One short clause for a table.
    pub fn describe(&self) -> String {
        match self {
            Cause::NoAlignedSlot => "no aligned slot of that size inside the mapping".into(),
            Cause::AdvisedAgainst => "advised against (MADV_NOHUGEPAGE or MAP_STACK)".into(),
            Cause::NotAdvised => "not advised, and the kernel gives the size to advised memory only".into(),
            Cause::MappedInPieces { advised_bytes } => {
                format!(
                    "mapped in pieces of less than {}, which are not advised one by one",
                    format_bytes(*advised_bytes)
                )
            }
            Cause::SizeDisabled { path } => format!("the size is switched off in {path}"),
            Cause::DisabledForProcess => "the process disabled THP for itself (PR_SET_THP_DISABLE)".into(),
            Cause::TouchedBeforeEligible => "touched while the mapping was too small or not yet advised".into(),
            Cause::RefilledAfterDrop => {
                "part of a larger page was dropped (MADV_DONTNEED or MADV_FREE), and filled again with base pages"
                    .into()
            }
            Cause::SplitMeanwhile => "a larger page was there, and was split into base pages".into(),
            Cause::SplitAfterFork => "larger pages were split after a fork: a write copies single base pages".into(),
            Cause::FilledWithBasePages => {
                "filled with smaller pages earlier; a fault makes a large page only where nothing is mapped yet".into()
            }
            Cause::ReadFirst => {
                "read before it was written: the zero page was mapped, and writes replaced it by base pages".into()
            }
            Cause::ZeroPageInSlot => "the zero page is mapped in the slot, as by a read before the first write".into(),
            Cause::ZeroPiecesOfSplit => {
                "a large page was split, and the zero page replaced its base pages that held only zeros".into()
            }
            Cause::SlotPartlyPresent => "part of the slot was never touched or was given back".into(),
            Cause::LeafSplit => "the folio is large enough, but its leaf was split to base pages".into(),
            Cause::FolioPartlyMapped => "a larger folio is mapped only in part".into(),
            Cause::AllocationFellBack { counter, times } => {
                format!("the kernel found no free block of that size ({counter} +{times}, whole system)")
            }
            Cause::ChargeFellBack => "the control group's memory limit did not admit a large folio".into(),
            Cause::PoolExhausted { size } => format!("the hugetlb pool of {size} pages was empty"),
            Cause::PoolLimited { size } => {
                format!(
                    "limits of control groups left no room for more pages of {size} from the pool, or for copies of them after fork"
                )
            }
            Cause::PoolRequestRefused { call, size, errno, times, pages, free, is_limited } => {
                let what = match pages {
                    0 => format!("a file of {size} pages"),
                    1 => format!("a page of {size}"),
                    _ => format!("{pages} pages of {size}"),
                };
                let times = if *times > 1 { format!(", {times} times, the most at once") } else { String::new() };
                let why = match (errno, free) {
                    (&ENOMEM, Some(_)) if *is_limited => ": a control group limits them".to_string(),
                    (&ENOMEM, Some(free)) => format!(": the pool had {free} free"),
                    (_, None) => ": this kernel has no pool of that size".to_string(),
                    (errno, Some(_)) => format!(" (errno {errno})"),
                };
                format!(
                    "the program itself asked for {what} from the pool ({}{times}) and did not get them{why}",
                    call.describe()
                )
            }
            Cause::MappingTooSmall => "mappings smaller than one page of that size".into(),
            Cause::Stack => "stacks, which the policy leaves alone".into(),
            Cause::PrivateFileCopy => "private copies of file pages".into(),
            Cause::Demoted => {
                "the program needs smaller pages there: a guard page or another protection inside a large page".into()
            }
            Cause::NotGivenBack => {
                "a call that needs smaller pages failed: the pages of the pool could not be replaced by them".into()
            }
            Cause::LargerThanAsked => "larger pages than asked for".into(),
            Cause::FilteredByProgram => "the program's own seccomp filter refuses the advice".into(),
            Cause::AdviceRefused { errno } => format!("the kernel refused the advice (errno {errno})"),
            Cause::Debugger => {
                "the program traces processes itself (ptrace), which fails under pagelab's tracer".into()
            }
            Cause::ProtectionWidened => "protections inside a large page could not be enforced".into(),
            Cause::NoGuardSeen => "the program made no guard page that could be left open".into(),
            Cause::ForeignAbi => "a 32-bit program, whose calls are not traced".into(),
            Cause::PrivilegeNotGained => {
                "a setuid program ran without its privilege, which measured commands do not gain".into()
            }
            Cause::DirectMapOtherwise => "the kernel's direct map has leaves of other sizes there".into(),
            Cause::DirectMapUnseen { reason } => format!("the direct map could not be seen: {reason}"),
            Cause::FoliosInvisible => "folio sizes are visible to root only".into(),
            Cause::ProvenByThpDisable => {
                "base pages are proven by PR_SET_THP_DISABLE, which was in force until the end (`THP_enabled: 0` in \
                 /proc/PID/status), not by looking at folios"
                    .into()
            }
            Cause::NothingToSee => "no memory was present at exit".into(),
            Cause::FreedBeforeExit => "memory was given back before the process ended, and was not inspected".into(),
            Cause::PeakUnseen => "most of the memory was given back before it could be inspected".into(),
            Cause::PeakUnwatched { ways } => {
                let known: Vec<String> = ways.iter().map(Unwatched::to_string).collect();
                let how = if known.is_empty() { "I do not know how".to_owned() } else { known.join("; ") };
                format!("most of the memory went before it could be inspected, by no call that stops: {how}")
            }
            Cause::PeakUncertain => {
                "files and shared memory hide the peak: whether most of it was inspected is unknown".into()
            }
            Cause::ProcessUnseen { reason } => format!("a process could not be inspected: {reason}"),
            Cause::MappingCut { by } => format!("one allocation, cut by {}", by.describe()),
            Cause::GrewInSteps => "grew in steps smaller than the size, and was touched after each".into(),
            Cause::MovedOutOfPlace => "moved to an address that is no multiple of the size (mremap)".into(),
            Cause::SharedDisabled { path } => format!("the size is switched off for shared memory in {path}"),
            Cause::SharedNotAdvised { path } => {
                format!("shared memory that is not advised, and {path} gives the size to advised memory only")
            }
            Cause::FilePages => "pages of a file: the file system and readahead choose their size".into(),
            Cause::CodePages => "code of a file: the file system and readahead choose the size of its pages".into(),
            Cause::FileMisaligned => "the file offset and the address are not congruent modulo the size".into(),
            Cause::SharedMisaligned => {
                "the offset in the shared memory and the address are not congruent modulo the size".into()
            }
            Cause::MountRefuses { huge } => {
                format!("the tmpfs that holds it is mounted without large pages (huge={huge})")
            }
            Cause::FileEndsInSlot => {
                "the file ends inside the slot, and its tmpfs gives the size within the file only (within_size)".into()
            }
            Cause::SwappedOut => "part of the slot is swapped out".into(),
            Cause::SplitUnderused => "the kernel split a page of the size that was mostly zero".into(),
            Cause::NoTransparentPages => {
                "this kernel has no transparent large pages (built without them, or no PMD leaves)".into()
            }
            Cause::DisabledExceptAdvised => {
                "the process disabled THP except for advised memory (PR_THP_DISABLE_EXCEPT_ADVISED)".into()
            }
            Cause::MergedByKsm => "pages were merged with equal ones (KSM)".into(),
            Cause::ServedByUserfaultfd => "the program handles page faults itself, page by page (userfaultfd)".into(),
            Cause::Pinned => "pages are pinned (RDMA, VFIO, io_uring)".into(),
            Cause::BasePageRefused { base, aligned_to } => {
                format!(
                    "the program cannot start with base pages of {base}: LOAD segments of it or of a library are aligned to \
                     {aligned_to}"
                )
            }
            Cause::JemallocRefusesBasePage { base, built_for } => {
                format!("the program's jemalloc refuses base pages of {base}: it was built for {built_for}")
            }
            Cause::Unread { reason } => format!("the cause is not known: {reason}"),
            Cause::Unexplained => "the cause is not known".into(),
            Cause::OfAnotherVersion => {
                "a cause that another version of pagelab stored and this one does not have".into()
            }
        }
    }

    /// The clause for a cause that holds in addition to another one.
    pub fn describe_also(&self) -> String {
        match self {
            // `describe` would add that advised memory gets the size, which may be wrong if another cause holds too.
            Cause::NotAdvised | Cause::SharedNotAdvised { .. } => "not advised (MADV_HUGEPAGE)".into(),
            other => other.describe(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_of_another_version_is_read_and_named_as_such() {
        for stored in [r#"{"code":"jump_in_text","places":3}"#, r#"{"code":"of_tomorrow"}"#] {
            assert_eq!(serde_json::from_str::<Cause>(stored).unwrap(), Cause::OfAnotherVersion);
        }
    }
}
