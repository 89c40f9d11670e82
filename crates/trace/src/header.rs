//! What a trace says about itself: the first block of the file.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::image::Image;
use crate::run::PAGE_SHIFT;

/// The name and version of the format.
pub const SCHEMA: &str = "pagelab.trace/1";

/// Which columns the runs have besides their pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Columns {
    /// What each run does.
    pub kinds: bool,
    /// How many accesses each run has.
    pub accesses: bool,
    /// The address, size and kind of every access: nothing is lost.
    pub addresses: bool,
}

/// What was left out, and so for which TLBs the number of misses is still exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "filter", rename_all = "snake_case", deny_unknown_fields)]
pub enum Filter {
    /// Nothing but what runs leave out: exact for every page size from 4K up.
    None,
    /// Runs that are most recent in their sets at 4K, 64K and 2M were dropped: exact for LRU TLBs of one of these page
    /// sizes with so many sets or a multiple, whichever threads and kinds of accesses they serve. [`LruFilter`](crate::LruFilter)
    /// does it.
    #[serde(rename = "most_recent")]
    Lru {
        /// Sets at 4K.
        sets_4k: u32,
        /// Sets at 64K.
        sets_64k: u32,
        /// Sets at 2M.
        sets_2m: u32,
    },
    /// Memory samples, not all accesses: exact for nothing.
    Sampled,
}

/// An LRU TLB whose misses are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlbGeometry {
    /// Bytes of the pages in it.
    pub page_bytes: u64,
    /// How many sets it has.
    pub sets: u32,
}

/// A trace is not exact for what it is asked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotExact {
    /// Too few sets, or another page size than the filter knows.
    #[error(
        "the trace was filtered, which is exact for {kept}; a TLB of {sets} sets with pages of {page_bytes} bytes needs a trace without a filter"
    )]
    Sets {
        /// What the filter is exact for.
        kept: String,
        /// Sets asked about.
        sets: u32,
        /// Bytes of a page.
        page_bytes: u64,
    },
    /// More than TLBs: faults and what invalidates translations depend on what was left out.
    #[error(
        "the trace was filtered: runs that were left out may be those that fault or miss under a policy; `sim sweep` reads it, and `sim` the trace that it was cut from"
    )]
    Policies,
    /// Samples.
    #[error("the trace has samples of the accesses, which say nothing about the number of misses")]
    Sampled,
    /// Pages smaller than those of the runs.
    #[error("runs are of 4096 bytes; a page of {page_bytes} bytes needs the addresses themselves")]
    Page {
        /// Bytes of a page.
        page_bytes: u64,
    },
}

impl Filter {
    /// Refuses to simulate machines under policies, but for what has all runs.
    ///
    /// # Errors
    /// Says why.
    pub fn admits_policies(&self) -> Result<(), NotExact> {
        match self {
            Filter::None => Ok(()),
            Filter::Sampled => Err(NotExact::Sampled),
            Filter::Lru { .. } => Err(NotExact::Policies),
        }
    }

    /// Refuses LRU TLBs whose misses the filter may have changed.
    ///
    /// # Errors
    /// Says what the trace is exact for.
    pub fn admits(&self, ask: &TlbGeometry) -> Result<(), NotExact> {
        if ask.page_bytes < 1 << PAGE_SHIFT {
            return Err(NotExact::Page { page_bytes: ask.page_bytes });
        }
        let (sets_4k, sets_64k, sets_2m) = match *self {
            Filter::None => return Ok(()),
            Filter::Sampled => return Err(NotExact::Sampled),
            Filter::Lru { sets_4k, sets_64k, sets_2m } => (sets_4k, sets_64k, sets_2m),
        };
        let enough = match ask.page_bytes {
            0x1000 => ask.sets.is_multiple_of(sets_4k),
            0x1_0000 => ask.sets.is_multiple_of(sets_64k),
            0x20_0000 => ask.sets.is_multiple_of(sets_2m),
            _ => false,
        };
        if enough {
            return Ok(());
        }
        let kept = format!("{sets_4k} sets at 4K, {sets_64k} at 64K and {sets_2m} at 2M, and multiples of these");
        Err(NotExact::Sets { kept, sets: ask.sets, page_bytes: ask.page_bytes })
    }
}

/// A part of the run that was recorded, in instructions of the thread; the rest was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// Instructions before recording began, and before each further window.
    pub skip_instructions: u64,
    /// Instructions that were recorded each time; `None` to the end.
    pub record_instructions: Option<u64>,
}

/// Which part of a longer trace one is, in instructions of a thread: the blocks that lie in it, at least in part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Where it begins.
    pub from_instructions: u64,
    /// Where it ends; `None` at the end of the longer one.
    pub to_instructions: Option<u64>,
    /// Threads whose runs were kept; empty: all.
    pub threads: Vec<u32>,
}

/// The process whose address space a trace is of. All threads of a trace share that one address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// Its number, by which the `clone` event of its parent calls it.
    pub process: u32,
    /// The recorded process that forked it, whose memory it began with a copy of; `None` for the first.
    pub parent: Option<u32>,
    /// How many programs it had executed (`execve`) since then or since recording began, the trace's own among them; 0
    /// where it had not.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub execs: u32,
}

impl Process {
    /// The image that the trace is of.
    pub fn image(&self) -> Image {
        Image { process: self.process, execs: self.execs }
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde gives the type")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// What executed the program or machine in the recorder's stead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Emulator {
    /// Its name: `qemu-x86_64`, `qemu-system-aarch64`.
    pub name: String,
    /// Its version, as it tells it: `7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)`.
    pub version: String,
}

/// The first block of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// [`SCHEMA`].
    pub schema: String,
    /// What recorded or imported it, with its version.
    pub recorder: String,
    /// The emulator that ran what was recorded, if one did: a program's addresses are those that it chose.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub emulator: Option<Emulator>,
    /// The command, argument by argument.
    pub command: Vec<String>,
    /// The instruction set of the program: `x86_64`, `aarch64`, `riscv64`; empty if it is not known.
    pub architecture: String,
    /// Whether addresses are guest physical ones of a whole machine, not virtual ones of a program.
    pub system: bool,
    /// Which columns there are.
    pub columns: Columns,
    /// What was left out.
    pub filter: Filter,
    /// The part that was recorded, if not all.
    pub window: Option<Window>,
    /// Most instructions of a thread that were recorded, if there was a bound.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_instructions: Option<u64>,
    /// The part of a longer trace that it is, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part: Option<Part>,
    /// The process, if the recorder knows it. A recorder fills it in when it begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<Process>,
}

impl Header {
    /// That of a trace which keeps what each run does and how many accesses it has, of a program of which nothing is
    /// known.
    pub fn of(recorder: impl Into<String>) -> Header {
        Header {
            schema: SCHEMA.to_owned(),
            recorder: recorder.into(),
            emulator: None,
            command: Vec::new(),
            architecture: String::new(),
            system: false,
            columns: Columns { kinds: true, accesses: true, addresses: false },
            filter: Filter::None,
            window: None,
            max_instructions: None,
            part: None,
            process: None,
        }
    }

    /// The recorder and the emulator in which it was, for people.
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
