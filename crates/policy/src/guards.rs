//! Guard pages, and how `+no-guards` finds them.
//!
//! Memory is *closed* while it is PROT_NONE; mprotect *opens* it. A program makes a guard page in one of three ways. It makes a
//! page inside an accessible mapping PROT_NONE. It maps an inaccessible page over an accessible mapping (mmap with PROT_NONE and
//! MAP_FIXED). Or it opens a PROT_NONE reservation in parts and leaves a page between them closed (QEMU's code regions since 6.1,
//! thread stacks of glibc).

use crate::call::{Vma, map, prot};
use crate::size::PageSize;

/// The largest closed gap that counts as a guard, in base pages. Reservations that a program intends to open later are larger.
const MAX_PAGES: u64 = 16;

/// The record of an mprotect that would have closed a page inside a mapping.
pub const CLOSED: &str = "mprotect(PROT_NONE) of a guard page";
/// The record of an mmap that would have mapped an inaccessible page over a mapping.
pub const MAPPED_OVER: &str = "mmap(PROT_NONE, MAP_FIXED) of a guard page";

/// The record of an mprotect that would have left guard pages closed next to the range that it opens.
pub const LEFT_CLOSED: &str = "mprotect that left a guard page closed, widened over it";

/// Whether these mmap arguments map a guard over existing memory: inaccessible private anonymous memory at an address that the
/// caller chose with MAP_FIXED.
pub fn maps_over(protection: u64, flags: u64) -> bool {
    const WANTED: u64 = map::FIXED | map::ANONYMOUS;
    const UNWANTED: u64 = map::FIXED_NOREPLACE | map::HUGETLB;
    let private = flags & map::TYPE == map::PRIVATE;
    protection == prot::NONE && private && flags & WANTED == WANTED && flags & UNWANTED == 0
}

/// Whether a range is small enough to be a guard.
pub fn is_small(start: u64, end: u64, base: PageSize) -> bool {
    end - start <= MAX_PAGES * base.bytes()
}

/// Whether closing `[start, end)` makes a guard: the range is small and part of a larger accessible anonymous mapping. `at` is
/// the mapping that contains `start`.
pub fn closes_a_guard(at: Option<Vma>, start: u64, end: u64, base: PageSize) -> bool {
    is_small(start, end, base)
        && at.is_some_and(|vma| {
            end <= vma.end && vma.is_anonymous && !is_closed(&vma) && vma.length_bytes() > end - start
        })
}

/// The range to open instead of `[start, end)` so that the neighbouring guards are opened too. `at` is the mapping that contains
/// `start`.
pub fn without_guards(at: Option<Vma>, start: u64, end: u64, base: PageSize) -> (u64, u64) {
    let most = MAX_PAGES * base.bytes();
    let Some(vma) = at.filter(|vma| end <= vma.end && vma.is_anonymous && is_closed(vma)) else {
        return (start, end);
    };
    let low = if start - vma.start <= most { vma.start } else { start };
    let high = if vma.end - end <= most { vma.end } else { end };
    (low, high)
}

fn is_closed(vma: &Vma) -> bool {
    vma.protection == prot::NONE
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    fn vma(start: u64, end: u64, accessible: bool) -> Vma {
        let (start, end) = (start * PAGE, end * PAGE);
        let protection = if accessible { 3 } else { 0 };
        Vma { start, end, protection, is_anonymous: true, is_named: false }
    }

    #[test]
    fn a_page_closed_inside_a_mapping_is_a_guard() {
        let at = Some(vma(0, 512, true));
        assert!(closes_a_guard(at, 511 * PAGE, 512 * PAGE, PageSize::K4));
        assert!(!closes_a_guard(at, 0, 512 * PAGE, PageSize::K4), "the whole mapping is no guard");
        assert!(!closes_a_guard(at, 100 * PAGE, 200 * PAGE, PageSize::K4), "too large for a guard");
        assert!(!closes_a_guard(at, 511 * PAGE, 513 * PAGE, PageSize::K4), "it reaches into another mapping");
        assert!(!closes_a_guard(None, 511 * PAGE, 512 * PAGE, PageSize::K4), "nothing is mapped there");
    }

    #[test]
    fn a_guard_is_mapped_over_something_and_nothing_else_is() {
        let flags = map::PRIVATE | map::ANONYMOUS | map::FIXED;
        assert!(maps_over(prot::NONE, flags) && maps_over(prot::NONE, flags | map::NORESERVE));
        assert!(!maps_over(prot::READ, flags) && !maps_over(prot::NONE, flags | map::FIXED_NOREPLACE));
        assert!(!maps_over(prot::NONE, flags & !map::FIXED) && !maps_over(prot::NONE, flags & !map::ANONYMOUS));
        assert!(!maps_over(prot::NONE, flags & !map::PRIVATE | map::SHARED));
    }

    #[test]
    fn regions_of_a_reservation_grow_over_the_gaps_between_them() {
        // Three regions of 512 pages, each with a guard at its end, are opened one after the other.
        let opened = |reservation: Vma, start: u64, end: u64| {
            let (low, high) = without_guards(Some(reservation), start * PAGE, end * PAGE, PageSize::K4);
            (low / PAGE, high / PAGE)
        };
        assert_eq!(opened(vma(0, 1536, false), 0, 511), (0, 511), "what follows may be another region");
        let second = opened(vma(511, 1536, false), 512, 1023);
        assert_eq!(second, (511, 1023), "the first guard is opened with the second region");
        let third = opened(vma(1023, 1536, false), 1024, 1535);
        assert_eq!(third, (1023, 1536), "the last guard ends the reservation");
        assert_eq!(opened(vma(0, 512, true), 1, 511), (1, 511), "no reservation");
    }
}
