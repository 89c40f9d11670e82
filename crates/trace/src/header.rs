//! The header of a trace: the first block of the file.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::image::Image;
use crate::run::PAGE_SHIFT;

/// The name and version of the format.
pub const SCHEMA: &str = "pagelab.trace/1";

/// The columns that runs have in addition to their pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Columns {
    /// The kind of each run.
    pub kinds: bool,
    /// The number of accesses of each run.
    pub accesses: bool,
    /// The address, size and kind of every access: lossless.
    pub addresses: bool,
}

/// The runs that were left out. This determines for which TLBs the number of misses is still exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "filter", rename_all = "snake_case", deny_unknown_fields)]
pub enum Filter {
    /// All runs are kept: exact for every page size from 4K up.
    None,
    /// Runs whose page is the most recent of its set at 4K, 64K and 2M were dropped. This is exact for LRU TLBs of one
    /// of these page sizes with this number of sets or a multiple of it, whichever threads and kinds of accesses they
    /// serve. [`LruFilter`](crate::LruFilter) implements it.
    #[serde(rename = "most_recent")]
    Lru {
        /// Number of sets at 4K.
        sets_4k: u32,
        /// Number of sets at 64K.
        sets_64k: u32,
        /// Number of sets at 2M.
        sets_2m: u32,
    },
    /// Memory samples instead of all accesses: exact for no TLB.
    Sampled,
}

/// An LRU TLB whose misses are requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlbGeometry {
    /// Page size in bytes.
    pub page_bytes: u64,
    /// Number of sets.
    pub sets: u32,
}

/// Why a trace cannot give an exact answer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotExact {
    /// The TLB has too few sets, or a page size that the filter does not preserve.
    #[error(
        "the trace was filtered, which is exact for {kept}; a TLB of {sets} sets with pages of {page_bytes} bytes needs a trace without a filter"
    )]
    Sets {
        /// The geometries that the filter is exact for.
        kept: String,
        /// The requested number of sets.
        sets: u32,
        /// The requested page size in bytes.
        page_bytes: u64,
    },
    /// Simulating a policy needs all runs: page faults and invalidations depend on runs that were left out.
    #[error(
        "the trace was filtered: runs that were left out may be those that fault or miss under a policy; `sim sweep` reads it, and `sim` the trace that it was cut from"
    )]
    Policies,
    /// The trace holds samples.
    #[error("the trace has samples of the accesses, which say nothing about the number of misses")]
    Sampled,
    /// The pages are smaller than those of the runs.
    #[error("a run covers a page of 4096 bytes; a page of {page_bytes} bytes needs a trace with addresses")]
    Page {
        /// The requested page size in bytes.
        page_bytes: u64,
    },
}

impl Filter {
    /// Checks that all runs were kept, which simulating machines under policies requires.
    ///
    /// # Errors
    /// Runs were left out, or the trace holds samples.
    pub fn admits_policies(&self) -> Result<(), NotExact> {
        match self {
            Filter::None => Ok(()),
            Filter::Sampled => Err(NotExact::Sampled),
            Filter::Lru { .. } => Err(NotExact::Policies),
        }
    }

    /// Checks that the filter preserves the misses of an LRU TLB.
    ///
    /// # Errors
    /// The filter does not preserve them; the error says what the trace is exact for.
    pub fn admits(&self, tlb: &TlbGeometry) -> Result<(), NotExact> {
        if tlb.page_bytes < 1 << PAGE_SHIFT {
            return Err(NotExact::Page { page_bytes: tlb.page_bytes });
        }
        let (sets_4k, sets_64k, sets_2m) = match *self {
            Filter::None => return Ok(()),
            Filter::Sampled => return Err(NotExact::Sampled),
            Filter::Lru { sets_4k, sets_64k, sets_2m } => (sets_4k, sets_64k, sets_2m),
        };
        let enough = match tlb.page_bytes {
            0x1000 => tlb.sets.is_multiple_of(sets_4k),
            0x1_0000 => tlb.sets.is_multiple_of(sets_64k),
            0x20_0000 => tlb.sets.is_multiple_of(sets_2m),
            _ => false,
        };
        if enough {
            return Ok(());
        }
        let kept = format!("{sets_4k} sets at 4K, {sets_64k} at 64K and {sets_2m} at 2M, and multiples of these");
        Err(NotExact::Sets { kept, sets: tlb.sets, page_bytes: tlb.page_bytes })
    }
}

/// The part of the execution that was recorded, in instructions of the thread. The rest was not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// Instructions skipped before recording began and before each further window.
    pub skip_instructions: u64,
    /// Instructions recorded in each window; `None` for all up to the end.
    pub record_instructions: Option<u64>,
}

/// The part of a longer trace that this trace holds, in instructions of a thread: the blocks that overlap it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// The first instruction.
    pub from_instructions: u64,
    /// The end; `None` for the end of the longer trace.
    pub to_instructions: Option<u64>,
    /// Threads whose runs were kept; empty for all.
    pub threads: Vec<u32>,
}

/// The process whose address space the trace records. All threads of a trace share this address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// Its number, as in the `clone` event of its parent.
    pub process: u32,
    /// The recorded process that forked it. Its memory began as a copy of that process's memory. `None` for the first process.
    pub parent: Option<u32>,
    /// How many programs it had executed (`execve`) since the fork or since recording began, including the trace's own;
    /// 0 if none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub execs: u32,
}

impl Process {
    /// The image that the trace records.
    pub fn image(&self) -> Image {
        Image { process: self.process, execs: self.execs }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives the type")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The emulator that executed the program or machine for the recorder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Emulator {
    /// Its name, such as `qemu-x86_64` or `qemu-system-aarch64`.
    pub name: String,
    /// Its version as it reports it, such as `7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)`.
    pub version: String,
}

/// jemalloc in a file. It refuses to run with base pages larger than those that it was built for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Jemalloc {
    /// The file.
    pub file: String,
    /// The base page that it was built for, in bytes; `None` where the file does not show it.
    pub built_for_bytes: Option<u64>,
}

/// The content of the first block of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// The format's name and version, [`SCHEMA`].
    pub schema: String,
    /// Name and version of the recorder or importer.
    pub recorder: String,
    /// The emulator that ran the program or machine, if any. It chose the program's addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emulator: Option<Emulator>,
    /// The command, argument by argument.
    pub command: Vec<String>,
    /// The instruction set of the program: `x86_64`, `aarch64` or `riscv64`; empty if unknown.
    pub architecture: String,
    /// Whether addresses are guest-physical addresses of a whole machine instead of virtual addresses of a program.
    pub system: bool,
    /// The largest base page, in bytes, that the LOAD segments of the program and its dynamic linker allow; `None` if the recorder
    /// does not know it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_base_bytes: Option<u64>,
    /// The jemalloc in the program or in a library that it names; `None` where the recorder found none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jemalloc: Option<Jemalloc>,
    /// The columns of the runs.
    pub columns: Columns,
    /// The runs that were left out.
    pub filter: Filter,
    /// The part that was recorded, if not all.
    pub window: Option<Window>,
    /// The maximum number of instructions recorded per thread, if limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_instructions: Option<u64>,
    /// Which part of a longer trace this is, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<Part>,
    /// The process, if the recorder knows it. A recorder fills it in when it begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<Process>,
}

impl Header {
    /// The header of a trace that keeps the kind and the number of accesses of each run. Nothing is known about the program.
    pub fn of(recorder: impl Into<String>) -> Header {
        Header {
            schema: SCHEMA.to_owned(),
            recorder: recorder.into(),
            emulator: None,
            command: Vec::new(),
            architecture: String::new(),
            system: false,
            max_base_bytes: None,
            jemalloc: None,
            columns: Columns { kinds: true, accesses: true, addresses: false },
            filter: Filter::None,
            window: None,
            max_instructions: None,
            part: None,
            process: None,
        }
    }

    /// The recorder, and the emulator in which it ran, for display.
    pub fn recorded_by(&self) -> String {
        let emulator = self.emulator.as_ref().map(|emulator| format!(" in {} {}", emulator.name, emulator.version));
        format!("{}{}", self.recorder, emulator.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filtered_trace_answers_only_what_it_is_exact_for() {
        let filter = Filter::Lru { sets_4k: 16, sets_64k: 16, sets_2m: 8 };
        let ask = |page_bytes, sets| TlbGeometry { page_bytes, sets };
        assert_eq!(filter.admits(&ask(4096, 16)), Ok(()));
        assert_eq!(filter.admits(&ask(2 << 20, 8)), Ok(()));
        assert_eq!(filter.admits(&ask(4096, 48)), Ok(()));
        assert_eq!((filter.admits_policies(), Filter::None.admits_policies()), (Err(NotExact::Policies), Ok(())));
        for refused in [ask(4096, 8), ask(4096, 24), ask(2 << 20, 4), ask(16384, 64)] {
            assert!(matches!(filter.admits(&refused), Err(NotExact::Sets { .. })), "{refused:?}");
        }
        assert_eq!(Filter::None.admits(&ask(1 << 30, 1)), Ok(()));
        assert_eq!(Filter::None.admits(&ask(512, 1)), Err(NotExact::Page { page_bytes: 512 }));
        assert_eq!(Filter::Sampled.admits(&ask(4096, 16)), Err(NotExact::Sampled));
    }
}
