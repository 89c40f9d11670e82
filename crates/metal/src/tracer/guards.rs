//! Guard pages, and how `+no-guards` finds them.
//!
//! They come in two shapes. Either a page inside an accessible mapping is made PROT_NONE later; or a
//! PROT_NONE reservation is opened in parts that leave a page between them closed (QEMU's code regions
//! since 6.1, thread stacks of glibc).

use study::size::PageSize;

use crate::census::{Vma, VmaKind};

/// The largest closed gap that counts as a guard, in base pages. Reservations that a program means to
/// open later are larger.
const MOST_PAGES: u64 = 16;

/// Whether closing `[start, end)` makes a guard: it is small, and part of a larger accessible anonymous
/// mapping.
pub fn closes_a_guard(vmas: &[Vma], start: u64, end: u64, base: PageSize) -> bool {
    if end - start > MOST_PAGES * base.bytes() {
        return false;
    }
    let around = vmas.iter().find(|vma| vma.start <= start && end <= vma.end);
    around.is_some_and(|vma| is_anonymous(vma) && !is_closed(vma) && vma.length_bytes() > end - start)
}

/// The range that opening `[start, end)` becomes when the guards beside it are opened too.
pub fn without_guards(vmas: &[Vma], start: u64, end: u64, base: PageSize) -> (u64, u64) {
    let most = MOST_PAGES * base.bytes();
    let Some(within) =
        vmas.iter().position(|vma| vma.start <= start && end <= vma.end && is_anonymous(vma) && is_closed(vma))
    else {
        return (start, end);
    };
    let vma = &vmas[within];
    let low = if start - vma.start <= most { vma.start } else { start };
    let high = if vma.end - end <= most { vma.end } else { end };
    (low, high)
}

fn is_anonymous(vma: &Vma) -> bool {
    vma.kind() == VmaKind::Anonymous
}

fn is_closed(vma: &Vma) -> bool {
    vma.protection == libc::PROT_NONE as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    fn vma(start: u64, end: u64, accessible: bool) -> Vma {
        let (start, end) = (start * PAGE, end * PAGE);
        let protection = if accessible { 3 } else { 0 };
        Vma { start, end, protection, shared: false, device: (0, 0), inode: 0, name: String::new() }
    }

    #[test]
    fn a_page_closed_inside_a_mapping_is_a_guard() {
        let vmas = [vma(0, 512, true)];
        assert!(closes_a_guard(&vmas, 511 * PAGE, 512 * PAGE, PageSize::K4));
        assert!(!closes_a_guard(&vmas, 0, 512 * PAGE, PageSize::K4), "the whole mapping is no guard");
        assert!(!closes_a_guard(&vmas, 100 * PAGE, 200 * PAGE, PageSize::K4), "too large for a guard");
    }

    #[test]
    fn regions_of_a_reservation_grow_over_the_gaps_between_them() {
        // Three regions of 512 pages with a guard at the end of each, opened one after the other.
        let reservation = [vma(0, 1536, false)];
        let first = without_guards(&reservation, 0, 511 * PAGE, PageSize::K4);
        assert_eq!(first, (0, 511 * PAGE), "what follows may be another region");
        let second = without_guards(&[vma(0, 511, true), vma(511, 1536, false)], 512 * PAGE, 1023 * PAGE, PageSize::K4);
        assert_eq!(second, (511 * PAGE, 1023 * PAGE), "the first guard is opened with the second region");
        let third =
            without_guards(&[vma(0, 1023, true), vma(1023, 1536, false)], 1024 * PAGE, 1535 * PAGE, PageSize::K4);
        assert_eq!(third, (1023 * PAGE, 1536 * PAGE), "the last guard ends the reservation");
    }
}
