//! [`RULES`]: which system calls can take memory away from a process, and how each of them is watched.
//!
//! Derived from the system call tables of Linux 7.1 (arch/x86/entry/syscalls/syscall_64.tbl, scripts/syscall.tbl). The rule:
//! private memory is lost only where the kernel zaps or reclaims page-table entries. The system calls that reach that code are
//! those of mm/, ipc/shm.c, exec and exit, calls that shorten a file or punch holes in it, and calls that multiplex operations
//! (ioctl, io_uring, prctl). All these calls are listed here. `other_calls.txt` has every other call, by subsystem; a test of the
//! tracer compares both with the kernel's headers, so that a new call is considered.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::call::madv;

/// A system call at which the process is stopped, because the call can take memory away from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreeingCall {
    /// `munmap`.
    Munmap,
    /// `mmap` with MAP_FIXED, which replaces what is mapped.
    Mmap,
    /// `mremap`.
    Mremap,
    /// `brk`.
    Brk,
    /// `madvise` with one of [`DROPPING_ADVICE`] or [`RSS_REDUCING_ADVICE`].
    Madvise,
    /// `process_madvise` with one of [`DROPPING_ADVICE`] or [`RSS_REDUCING_ADVICE`].
    ProcessMadvise,
    /// `shmat` with SHM_REMAP, which replaces what is mapped.
    Shmat,
    /// `shmdt`.
    Shmdt,
    /// `remap_file_pages`.
    RemapFilePages,
    /// `truncate`.
    Truncate,
    /// `ftruncate`.
    Ftruncate,
    /// `fallocate` with a mode that removes content.
    Fallocate,
    /// `execve`.
    Execve,
    /// `execveat`.
    Execveat,
    /// `io_uring_setup`.
    IoUringSetup,
}

/// How memory is examined before a call takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    /// The call stops, and the ranges that it takes are inspected.
    Ranges,
    /// The call stops, and the sizes of the process's memory are read. The call takes shared memory or pages of files.
    Sizes,
    /// The call stops, and the whole image is inspected.
    Image,
    /// The memory that the call takes is not examined. If memory of the program is missing, the report names the call.
    Named,
}

/// How memory can be lost although every call of [`RULES`] stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unwatched {
    /// The program uses io_uring, whose requests are no system calls.
    IoUring,
    /// SIGKILL ended a process, and its memory may have been reaped before the end.
    Killed,
    /// The kernel has moved memory to swap space.
    SwappedOut,
    /// `shmat` with SHM_REMAP replaced memory by a segment of unknown length.
    UnknownSegment,
}

impl fmt::Display for Unwatched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unwatched::IoUring => "the program uses io_uring, whose requests (IORING_OP_MADVISE) do not stop",
            Unwatched::Killed => "a process was killed (SIGKILL), and the kernel may have reaped its memory first",
            Unwatched::SwappedOut => "memory was swapped out",
            Unwatched::UnknownSegment => "shmat replaced memory (SHM_REMAP) by a segment of another IPC namespace",
        })
    }
}

/// The rule for one call.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// The call.
    pub freeing_call: FreeingCall,
    /// The call's name in the kernel's table.
    pub name: &'static str,
    /// The memory that the call can take, in words.
    pub takes: &'static str,
    /// How this memory is examined before the call.
    pub watched: Watched,
}

/// The calls that are watched.
pub const RULES: [Rule; 15] = {
    use FreeingCall as F;
    use Watched as W;
    const fn rule(freeing_call: FreeingCall, name: &'static str, takes: &'static str, watched: Watched) -> Rule {
        Rule { freeing_call, name, takes, watched }
    }
    [
        rule(F::Munmap, "munmap", "a range", W::Ranges),
        rule(F::Mmap, "mmap", "what MAP_FIXED replaces", W::Ranges),
        rule(F::Mremap, "mremap", "the end of a mapping that shrinks, and what MREMAP_FIXED replaces", W::Ranges),
        rule(F::Brk, "brk", "the end of a heap that shrinks", W::Ranges),
        rule(F::Madvise, "madvise", "the content of a range", W::Ranges),
        rule(
            F::ProcessMadvise,
            "process_madvise",
            "the content of ranges of its own process (others take hints alone)",
            W::Ranges,
        ),
        rule(F::Shmat, "shmat", "what SHM_REMAP replaces", W::Ranges),
        rule(F::Shmdt, "shmdt", "a segment of shared memory", W::Sizes),
        rule(F::RemapFilePages, "remap_file_pages", "pages of a shared mapping", W::Sizes),
        rule(F::Truncate, "truncate", "pages behind the new end of a file, and private copies of them", W::Sizes),
        rule(F::Ftruncate, "ftruncate", "pages behind the new end of a file, and private copies of them", W::Sizes),
        rule(F::Fallocate, "fallocate", "pages of a file; private copies only where content moves", W::Sizes),
        rule(F::Execve, "execve", "the image", W::Image),
        rule(F::Execveat, "execveat", "the image", W::Image),
        rule(F::IoUringSetup, "io_uring_setup", "what IORING_OP_MADVISE drops, later and without a call", W::Named),
    ]
};

/// Advice after which content may be lost: the range is inspected.
pub const DROPPING_ADVICE: [u64; 4] = [madv::DONTNEED, madv::DONTNEED_LOCKED, madv::FREE, madv::GUARD_INSTALL];

/// Advice that shrinks resident memory without losing private content: MADV_REMOVE takes shared memory, MADV_PAGEOUT moves
/// content to swap space. Before these calls the sizes of the process's memory are read.
pub const RSS_REDUCING_ADVICE: [u64; 2] = [madv::REMOVE, madv::PAGEOUT];

/// The modes of fallocate that remove content (include/uapi/linux/falloc.h): PUNCH_HOLE, COLLAPSE_RANGE, ZERO_RANGE,
/// INSERT_RANGE.
pub const REMOVING_MODES: [u32; 4] = [0x02, 0x08, 0x10, 0x20];

/// The flag of `shmat` with which it replaces what is mapped (include/uapi/linux/shm.h).
pub const SHM_REMAP: u32 = 0o40_000;

/// Calls on memory that do not stop, with the reason: the calls of mm/ that take nothing, and those that cannot be watched.
pub const NOT_WATCHED: [(&[&str], &str); 11] = [
    (
        &["exit", "exit_group"],
        "the last task of a process stops at its end in any case, and all memory is inspected then",
    ),
    (
        &["kill", "tkill", "tgkill", "pidfd_send_signal", "rt_sigqueueinfo", "rt_tgsigqueueinfo"],
        "a task that a signal ends stops at its end too; after SIGKILL the kernel may have reaped its memory, which is named",
    ),
    (&["process_mrelease"], "it reaps a process that SIGKILL ends: named like the kernel's own reaper"),
    (
        &["ioctl"],
        "userfaultfd: UFFDIO_MOVE moves pages, COPY, ZEROPAGE, CONTINUE and POISON fill holes; file systems: holes in files, \
         which take pages of files alone; KVM, DRM, VFIO: pins and maps, takes nothing",
    ),
    (&["io_uring_enter", "io_uring_register"], "named at io_uring_setup, without which they do nothing"),
    (
        &["open", "openat", "openat2", "open_by_handle_at", "creat"],
        "O_TRUNC takes pages of files alone, and private copies of them, which are base pages; a stop at every open \
         would be expensive",
    ),
    (&["prctl", "arch_prctl"], "PR_SET_MM moves the borders of heap, stack and arguments, and unmaps nothing"),
    (
        &[
            "mprotect",
            "pkey_mprotect",
            "mseal",
            "map_shadow_stack",
            "mlock",
            "mlock2",
            "mlockall",
            "munlock",
            "munlockall",
        ],
        "protects, seals, locks, or maps where nothing is mapped; large leaves may be split, and what is there stays",
    ),
    (
        &[
            "mbind",
            "set_mempolicy",
            "get_mempolicy",
            "set_mempolicy_home_node",
            "migrate_pages",
            "move_pages",
            "mincore",
            "msync",
            "cachestat",
            "membarrier",
            "memfd_create",
            "memfd_secret",
            "userfaultfd",
            "shmget",
            "shmctl",
        ],
        "content may move to other pages, or is only asked about",
    ),
    (
        &["vmsplice", "splice", "tee", "process_vm_readv", "process_vm_writev", "ptrace", "uprobe", "uretprobe"],
        "SPLICE_F_GIFT lends pages that stay mapped; the others copy",
    ),
    (
        &[
            "swapon",
            "swapoff",
            "fork",
            "vfork",
            "clone",
            "clone3",
            "setns",
            "unshare",
            "personality",
            "setrlimit",
            "prlimit64",
        ],
        "brings content back, copies it, or limits what is mapped later",
    ),
];

/// Every other call of the kernel's tables, by subsystem: `subsystem: call call ...`, a line each.
pub const OTHER_CALLS: &str = include_str!("other_calls.txt");

/// Every call that is considered here, once for each list that contains it.
pub fn considered() -> impl Iterator<Item = &'static str> {
    let others = OTHER_CALLS.lines().filter_map(|line| line.split_once(':'));
    let own = RULES.iter().map(|rule| rule.name);
    let not_watched = NOT_WATCHED.iter().flat_map(|(calls, _)| calls.iter().copied());
    others.flat_map(|(_, calls)| calls.split_whitespace()).chain(own).chain(not_watched)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_call_is_considered_once() {
        let mut seen = BTreeSet::new();
        let twice: Vec<&str> = considered().filter(|call| !seen.insert(*call)).collect();
        assert!(twice.is_empty() && seen.len() > 400, "{} considered, twice: {twice:?}", seen.len());
    }
}
