//! The address of a buffer, and the number of PMD-size windows that results.

use std::fmt;

use host::KernelVersion;
use policy::size::PageSize;

/// Where the kernel places the first byte of a buffer (mmap(2) of anonymous memory without an address).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// At a multiple of the PMD leaf size.
    Aligned,
    /// At any base page: it depends on the other mappings and is random in each run (`randomize_va_space`).
    AnyPage,
}

impl Placement {
    /// The first version that aligns mappings of at least a PMD leaf (`__mmap_region` of mm/mmap.c, commit efa7df3e3bb5).
    const ALIGNS_LARGE: KernelVersion = KernelVersion(6, 7);
    /// The first version that aligns only mappings whose length is a multiple of a PMD leaf (commit d4148aeab412).
    const ALIGNS_MULTIPLES: KernelVersion = KernelVersion(6, 12);

    /// The placement of a buffer under a version of Linux.
    pub fn of(buffer_bytes: u64, pmd: PageSize, kernel: KernelVersion) -> Placement {
        let is_large = buffer_bytes >= pmd.bytes();
        let is_multiple = buffer_bytes.is_multiple_of(pmd.bytes());
        match (kernel >= Placement::ALIGNS_LARGE, kernel >= Placement::ALIGNS_MULTIPLES) {
            (true, false) if is_large => Placement::Aligned,
            (true, true) if is_multiple => Placement::Aligned,
            _ => Placement::AnyPage,
        }
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Placement::Aligned => "aligned",
            Placement::AnyPage => "any_page",
        })
    }
}

/// A number of windows that may depend on the buffer's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// The minimum over all addresses.
    pub min: u64,
    /// The maximum over all addresses.
    pub max: u64,
}

impl Windows {
    /// The number, where it is the same for all addresses.
    pub fn known(self) -> Option<u64> {
        (self.min == self.max).then_some(self.min)
    }

    pub(super) fn or(self, other: Windows) -> Windows {
        Windows { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// `448`, or `380 to 389`.
impl fmt::Display for Windows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.known() {
            Some(windows) => write!(f, "{windows}"),
            None => write!(f, "{} to {}", self.min, self.max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn kernels_align_more_and_then_less() {
        let of = |mib: u64, minor| Placement::of(mib * MIB, PageSize::M2, KernelVersion(6, minor));
        assert_eq!(
            [6, 7, 11, 12, 18].map(|minor| of(32, minor) == Placement::Aligned),
            [false, true, true, true, true]
        );
        assert_eq!(
            [6, 7, 11, 12, 18].map(|minor| of(33, minor) == Placement::Aligned),
            [false, true, true, false, false]
        );
        assert_eq!([7, 12].map(|minor| of(1, minor)), [Placement::AnyPage; 2]);
    }
}
