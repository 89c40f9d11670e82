//! The small program behind one cell of the matrix of capabilities: memory of one kind, whose pages come about in one way.
//!
//! Unlike other workloads, this program asks for page sizes itself: its memory has MADV_HUGEPAGE, except while it is to be filled with
//! base pages. Nothing is unmapped: the memory lives as long as the process, and another process examines it meanwhile.

mod kinds;
mod memory;
mod ways;

use std::fs::File;
use std::io;

use memory::Memory;
use policy::capability::{Kind, Way};
use policy::size::PageSize;

/// What the program does.
#[derive(Debug)]
pub struct Probe {
    /// What backs the memory.
    pub kind: Kind,
    /// How its pages come about.
    pub way: Way,
    /// The wanted size: the page size of a hugetlb mapping, and the slot around a changed protection.
    pub size: PageSize,
    /// The leaf of a PMD, to which the memory is aligned.
    pub pmd: PageSize,
    /// Length of the memory in bytes, a multiple of `size`.
    pub bytes: usize,
    /// The file, of `bytes` bytes, of [`Kind::Tmpfs`], [`Kind::FileData`] and [`Kind::FileText`].
    pub file: Option<File>,
}

/// The memory after its pages have come about.
#[derive(Debug)]
pub struct Prepared {
    /// The process that has the memory: this process, or its forked child.
    pub pid: u32,
    /// The first address to examine.
    pub start: u64,
    /// The address after the last.
    pub end: u64,
    memory: Memory,
}

impl Prepared {
    /// Reads one byte of every base page of this process's memory.
    pub fn read_again(&self) {
        self.memory.read(ways::step());
    }
}

/// A call of the program that the kernel refused.
#[derive(Debug, thiserror::Error)]
#[error("{call}: {source}")]
pub struct ProbeError {
    /// The call, as text.
    pub call: &'static str,
    /// Its error.
    pub source: io::Error,
}

impl ProbeError {
    fn new(call: &'static str) -> impl FnOnce(io::Error) -> ProbeError {
        move |source| ProbeError { call, source }
    }
}

/// Makes the memory and its pages. The process must end soon afterwards, because the memory is never given back.
pub fn prepare(probe: &Probe) -> Result<Prepared, ProbeError> {
    ways::fill(probe, kinds::map(probe)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_every_kind_without_a_file_is_prepared_in_place() {
        let pmd = PageSize::M2;
        for kind in [Kind::Anonymous, Kind::SharedAnonymous, Kind::Memfd] {
            for way in [Way::Touch, Way::Zeros, Way::Mremap, Way::Mprotect] {
                let probe = Probe { kind, way, size: PageSize::K64, pmd, bytes: 4 << 20, file: None };
                let prepared = prepare(&probe).unwrap_or_else(|error| panic!("{kind:?} {way:?}: {error}"));
                assert!(prepared.start.is_multiple_of(pmd.bytes()), "{kind:?} {way:?}");
                let bytes = if way == Way::Mprotect { 64 << 10 } else { 4 << 20 };
                assert_eq!((prepared.end - prepared.start, prepared.pid), (bytes, std::process::id()));
            }
        }
    }

    #[test]
    fn a_kind_that_needs_a_file_is_refused_without_one() {
        let probe = Probe {
            kind: Kind::Tmpfs,
            way: Way::Touch,
            size: PageSize::M2,
            pmd: PageSize::M2,
            bytes: 2 << 20,
            file: None,
        };
        assert!(prepare(&probe).unwrap_err().to_string().contains("file"));
    }
}
