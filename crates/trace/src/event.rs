//! Address-space events: the system calls that change what memory there is, with their arguments and results.
//!
//! Numbers are those of the traced program's kernel interface as Linux documents it (`mmap(2)`, `madvise(2)`, ...):
//! protections and flags in the values of the generic ABI, which x86-64, arm64 and riscv64 share for these calls.

use serde::{Deserialize, Serialize};

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case", deny_unknown_fields)]
pub enum Call {
    /// `mmap`: the result is the address of the mapping.
    Mmap {
        /// The address asked for.
        address: u64,
        /// Bytes.
        bytes: u64,
        /// `PROT_*`.
        protection: u64,
        /// `MAP_*`.
        flags: u64,
        /// The file, or -1.
        file: i64,
        /// Where in the file, in bytes.
        offset: u64,
        /// What statfs(2) calls the type of the file's file system, where the recorder asked: that of a file of which so
        /// much is mapped that file systems place the mapping differently.
        #[serde(skip_serializing_if = "Option::is_none")]
        file_system: Option<u64>,
    },
    /// `munmap`.
    Munmap {
        /// The address.
        address: u64,
        /// Bytes.
        bytes: u64,
    },
    /// `mprotect`.
    Mprotect {
        /// The address.
        address: u64,
        /// Bytes.
        bytes: u64,
        /// `PROT_*`.
        protection: u64,
    },
    /// `mremap`: the result is the new address.
    Mremap {
        /// The old address.
        address: u64,
        /// Bytes before.
        old_bytes: u64,
        /// Bytes after.
        new_bytes: u64,
        /// `MREMAP_*`.
        flags: u64,
        /// The address asked for, with `MREMAP_FIXED`.
        new_address: u64,
    },
    /// `brk`: the result is the end of the heap.
    Brk {
        /// The end asked for; 0 asks for nothing.
        address: u64,
    },
    /// `madvise`.
    Madvise {
        /// The address.
        address: u64,
        /// Bytes.
        bytes: u64,
        /// `MADV_*`.
        advice: u64,
    },
    /// `prctl`, with its first two arguments.
    Prctl {
        /// `PR_*`.
        option: u64,
        /// Its second argument.
        argument: u64,
    },
    /// `execve`: where it succeeded, the address space is a new one.
    Exec {
        /// The program's name, as the caller gave it.
        program: String,
        /// Why the recorder did not follow it there; `None` where it did, or where it does not know whether the call would
        /// succeed.
        #[serde(skip_serializing_if = "Option::is_none")]
        unrecorded: Option<String>,
    },
    /// `clone`, `fork` or `vfork`: the result is the child.
    Clone {
        /// `CLONE_*`.
        flags: u64,
    },
    /// The thread has ended.
    Exit {
        /// Its status.
        status: i64,
    },
    /// What other threads did before this place: every event whose `order` is smaller than this one's. The thread's runs
    /// up to here may have been before or after it. A program of one thread needs none of these.
    Seen,
    /// Accesses were not recorded up to here, and are from here on: a window begins.
    Window {
        /// Instructions that the thread had executed.
        instructions: u64,
    },
    /// What a vCPU of a whole machine did outside memory (devices, firmware), which is not in the trace. Told at its end.
    Outside {
        /// Loads and stores.
        accesses: u64,
        /// Instructions that were fetched there.
        instructions: u64,
    },
    /// Memory that was there when recording began: as if it had been mapped.
    Region {
        /// The address.
        address: u64,
        /// Bytes.
        bytes: u64,
        /// `PROT_*`.
        protection: u64,
        /// What `/proc/PID/maps` calls it.
        name: String,
    },
}

impl Call {
    /// An `execve` of a program, about which nothing else is known.
    pub fn exec(program: impl Into<String>) -> Call {
        Call::Exec { program: program.into(), unrecorded: None }
    }
}

/// An event, its place among the runs of its thread, and its place among the events of all threads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// How many runs the thread had begun before.
    pub run: u64,
    /// How many events of all threads there were before.
    pub order: u64,
    /// What happened.
    #[serde(flatten)]
    pub call: Call,
    /// What it returned: an address, 0, a process; or a negative error number. 0 for what is no call.
    pub result: i64,
}
