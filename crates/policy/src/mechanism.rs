//! [`Mechanism`]: a policy as data, in terms of how it changes system calls.

use crate::call::{madv, map};
use crate::intent::{Granularity, Modifier, PageSizes, Policy};
use crate::size::PageSize;
use crate::windows::Windows;

/// How a policy changes the memory calls of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mechanism {
    /// The advice for the heap, and for anonymous mappings of at least [`Mechanism::advised_bytes`] with the mappings they are
    /// merged with.
    pub advice: Option<u64>,
    /// The parts of the advised memory that have the advice; `None`: all of it.
    pub windows: Option<Windows>,
    /// The smallest mapping that can hold a page of the policy's size; also the growth step of the heap.
    pub large: PageSize,
    /// Whether large anonymous mappings use the hugetlb pool of pages of `large` bytes.
    pub hugetlb: bool,
    /// Whether guard pages are left accessible.
    pub no_guards: bool,
    /// Whether writable anonymous memory is populated when it is mapped.
    pub prefault: bool,
    /// Whether PMD leaves of anonymous memory are split into base-page entries after the memory was populated.
    pub pte_mapped: bool,
    /// Whether transparent huge pages are disabled for the whole process tree before the program starts.
    pub disable_thp: bool,
    /// The kernel's base page size.
    pub base: PageSize,
}

impl Mechanism {
    /// The mechanism of a policy. `page_sizes` is the kernel's; a size that the kernel lacks was rejected earlier.
    pub fn of(policy: &Policy, page_sizes: &PageSizes) -> Mechanism {
        let smallest_large = page_sizes.mthp.first().copied().or(page_sizes.pmd).unwrap_or(page_sizes.base);
        let (advice, large) = match policy.granularity {
            _ if policy.has(Modifier::NoHuge) => (None, smallest_large),
            Granularity::Thp => (Some(madv::HUGEPAGE), page_sizes.pmd.unwrap_or(page_sizes.base)),
            Granularity::Mthp(size) => (Some(madv::HUGEPAGE), size),
            Granularity::Hugetlb(size) => (None, size),
            Granularity::Default | Granularity::Base | Granularity::DirectMap(_) => (None, smallest_large),
        };
        Mechanism {
            advice,
            windows: policy.windows(),
            large,
            hugetlb: matches!(policy.granularity, Granularity::Hugetlb(_)),
            no_guards: policy.has(Modifier::NoGuards),
            prefault: policy.has(Modifier::Prefault),
            pte_mapped: policy.has(Modifier::PteMapped),
            disable_thp: policy.granularity == Granularity::Base || policy.has(Modifier::NoHuge),
            base: page_sizes.base,
        }
    }

    /// Whether the program's calls that disable large pages are answered and not passed on.
    pub fn wants_large(&self) -> bool {
        self.advice == Some(madv::HUGEPAGE)
    }

    /// Whether PR_SET_THP_DISABLE and PR_GET_THP_DISABLE are answered and not passed on.
    pub fn answers_thp_disable(&self) -> bool {
        self.wants_large() || self.disable_thp
    }

    /// Whether the policy holds without a tracer: none of the program's calls is changed.
    pub fn needs_no_tracer(&self) -> bool {
        self.advice.is_none() && !self.hugetlb && !self.no_guards && !self.prefault
    }

    /// The growth step of the heap; larger than a base page where the heap should hold large pages.
    pub fn heap_step(&self) -> PageSize {
        if self.wants_large() { self.large } else { self.base }
    }

    /// The smallest anonymous mapping that is advised. The kernel merges adjacent mappings with equal attributes, and a page of
    /// the policy's size may then fit where none of the single mappings could hold one. A sixteenth of the size is 128K for 2M,
    /// which is the threshold above which glibc's malloc calls mmap. Below it, stopping the program costs more than the advice
    /// gains. A smaller mapping is advised together with the next mapping that it is merged with.
    pub fn advised_bytes(&self) -> u64 {
        (self.large.bytes() / 16).max(self.piece_bytes()).min(self.large.bytes())
    }

    /// The smallest part of a reservation that is advised when mmap opens it. Smaller parts are the ends of a program's own
    /// segments, which its loader maps this way.
    pub fn piece_bytes(&self) -> u64 {
        16 * self.base.bytes()
    }

    /// Whether a mapping made with these arguments is advised: large mappings are, and parts of large reservations. Inaccessible
    /// reservations are advised too; the parts opened later keep the advice.
    pub fn advises(&self, bytes: u64, flags: u64) -> bool {
        let is_long = bytes >= self.advised_bytes();
        let is_piece = flags & map::FIXED != 0 && bytes >= self.piece_bytes();
        let is_own = flags & map::ANONYMOUS != 0 && flags & map::LEFT_ALONE == 0;
        self.advice.is_some() && is_own && (is_long || is_piece)
    }

    /// Whether the policy populates a mapping made with these arguments. Reservations are not populated, whether they are
    /// inaccessible or MAP_NORESERVE.
    pub fn populates(&self, protection: u64, flags: u64) -> bool {
        let is_own = flags & map::ANONYMOUS != 0 && flags & map::LEFT_ALONE == 0;
        self.prefault && is_own && protection & crate::call::prot::WRITE != 0 && flags & map::NORESERVE == 0
    }

    /// Whether memory that a program has before its first call is advised and populated as if it were mapped then: zeroed data
    /// (bss) and heap that are large enough for a large page.
    pub fn concerns_early(&self, is_anonymous: bool, is_writable: bool, bytes: u64) -> bool {
        (self.advice.is_some() || self.prefault) && is_anonymous && is_writable && bytes >= self.large.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_begin_at_a_sixteenth_of_the_size_but_not_below_a_piece() {
        let (base, pmd) = (PageSize::K4, Some(PageSize::M2));
        let mthp = [14, 16, 19, 20].map(|order| PageSize::new(1 << order).unwrap()).to_vec();
        let page_sizes = PageSizes { base, pmd, mthp, hugetlb: vec![] };
        let from = |policy: &str| Mechanism::of(&policy.parse().unwrap(), &page_sizes).advised_bytes() >> 10;
        let expected = [("thp", 128), ("mthp-1m", 64), ("mthp-512k", 64), ("mthp-64k", 64), ("mthp-16k", 16)];
        for (policy, kib) in expected {
            assert_eq!(from(policy), kib, "{policy}");
        }
    }
}
