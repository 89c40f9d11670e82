//! Address-space events: system calls that change the memory map, with their arguments and results.
//!
//! Numbers are those of the traced program's kernel interface as Linux documents it (`mmap(2)`, `madvise(2)`, ...).
//! Protections and flags have the values of the generic ABI, which x86-64, arm64 and riscv64 share for these calls.

use serde::{Deserialize, Serialize};

/// The event: a system call, or something that the recorder notes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case", deny_unknown_fields)]
pub enum Call {
    /// `mmap`: the result is the address of the mapping.
    Mmap {
        /// The requested address.
        address: u64,
        /// Length in bytes.
        bytes: u64,
        /// Protection bits, `PROT_*`.
        protection: u64,
        /// Flags, `MAP_*`.
        flags: u64,
        /// The file descriptor, or -1.
        file: i64,
        /// Offset in the file, in bytes.
        offset: u64,
        /// The file system's `f_type` (statfs(2)). Recorded only for mappings so large that file systems place them
        /// differently.
        #[serde(skip_serializing_if = "Option::is_none")]
        file_system: Option<u64>,
    },
    /// `munmap`: the mappings in the range are removed.
    Munmap {
        /// The first address.
        address: u64,
        /// Length in bytes.
        bytes: u64,
    },
    /// `mprotect`: the protection of the range changes.
    Mprotect {
        /// The first address.
        address: u64,
        /// Length in bytes.
        bytes: u64,
        /// Protection bits, `PROT_*`.
        protection: u64,
    },
    /// `mremap`: the result is the new address.
    Mremap {
        /// The old address.
        address: u64,
        /// Old length in bytes.
        old_bytes: u64,
        /// New length in bytes.
        new_bytes: u64,
        /// Flags, `MREMAP_*`.
        flags: u64,
        /// The requested address, with `MREMAP_FIXED`.
        new_address: u64,
    },
    /// `brk`: the result is the end of the heap.
    Brk {
        /// The requested end; 0 only queries it.
        address: u64,
    },
    /// `madvise`: advice for the range.
    Madvise {
        /// The first address.
        address: u64,
        /// Length in bytes.
        bytes: u64,
        /// The advice, `MADV_*`.
        advice: u64,
    },
    /// `mlock`, `mlock2`: the range is populated, unless the flags ask for locking at faults.
    Mlock {
        /// The first address.
        address: u64,
        /// Length in bytes.
        bytes: u64,
        /// Flags, `MLOCK_*`; 0 for `mlock`.
        flags: u64,
    },
    /// `mlockall`, and `munlockall` with no flags.
    Mlockall {
        /// Flags, `MCL_*`.
        flags: u64,
    },
    /// The mapping made just before is a shared mapping of a file in memory (memfd, tmpfs), of which nothing is allocated yet
    /// in this range: the first touch of each page allocates it. Noted by the recorder.
    Hole {
        /// The first address.
        address: u64,
        /// Length in bytes.
        bytes: u64,
    },
    /// `prctl`, with its first two arguments.
    Prctl {
        /// The option, `PR_*`.
        option: u64,
        /// Its second argument.
        argument: u64,
    },
    /// `execve`: if it succeeded, the address space is a new one.
    Exec {
        /// The program's path, as the caller passed it.
        program: String,
        /// Why the recorder did not follow it there; `None` where it did, or where it does not know whether the call would
        /// succeed.
        #[serde(skip_serializing_if = "Option::is_none")]
        unrecorded: Option<String>,
    },
    /// `clone`, `fork` or `vfork`: the result is the child's number.
    Clone {
        /// Flags, `CLONE_*`.
        flags: u64,
    },
    /// The thread exited.
    Exit {
        /// Its exit status.
        status: i64,
    },
    /// A synchronization point: every event with a smaller `order` than this one happened before it. The thread's runs
    /// up to here may have been before or after those events. A single-threaded program needs no such event.
    Seen,
    /// A window begins: accesses were not recorded before this event and are recorded after it.
    Window {
        /// Instructions that the thread had executed at this point.
        instructions: u64,
    },
    /// Accesses of a whole machine's vCPU outside memory (devices, firmware), which are not in the trace. Reported at
    /// the vCPU's end.
    Outside {
        /// Number of loads and stores.
        accesses: u64,
        /// Number of instructions fetched there.
        instructions: u64,
    },
    /// Memory that was mapped before recording began. It is treated as if it had been mapped by this event.
    Region {
        /// The first address.
        address: u64,
        /// Length in bytes.
        bytes: u64,
        /// Protection bits, `PROT_*`.
        protection: u64,
        /// Its name in `/proc/PID/maps`.
        name: String,
    },
}

impl Call {
    /// An `execve` of `program` that the recorder followed.
    pub fn exec(program: impl Into<String>) -> Call {
        Call::Exec { program: program.into(), unrecorded: None }
    }
}

/// An event with its position among the runs of its thread and among the events of all threads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// How many runs the thread had begun before the event.
    pub run: u64,
    /// How many events of all threads came before it.
    pub order: u64,
    /// The call or note.
    #[serde(flatten)]
    pub call: Call,
    /// The return value: an address, 0, a process number, or a negative error number. 0 for events that are not calls.
    pub result: i64,
}
