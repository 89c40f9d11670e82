//! Dirty bitmaps: one bit for each page, in 64-bit words (Documentation/virt/kvm/api.rst, KVM_GET_DIRTY_LOG).

/// Number of pages in one word.
pub const WORD_PAGES: u64 = u64::BITS as u64;

/// Number of words in the bitmap of a slot.
pub fn words(pages: u64) -> usize {
    pages.div_ceil(WORD_PAGES) as usize
}

/// Number of pages that are set; bits beyond the slot do not count.
pub fn dirty_pages(bitmap: &[u64], pages: u64) -> u64 {
    let ones: u64 = bitmap.iter().map(|word| u64::from(word.count_ones())).sum();
    let past = match (bitmap.last(), pages % WORD_PAGES) {
        (Some(last), rest) if rest != 0 => u64::from((last >> rest).count_ones()),
        _ => 0,
    };
    ones - past
}

/// Whether a page of the slot is set.
pub fn is_dirty(bitmap: &[u64], page: u64) -> bool {
    bitmap[(page / WORD_PAGES) as usize] >> (page % WORD_PAGES) & 1 == 1
}

/// The parts of a slot for which one KVM_CLEAR_DIRTY_LOG each is made: first page and number of pages. `chunk_pages` is a
/// positive multiple of 64; the last part ends at the end of the slot, as the call requires.
pub fn chunks(pages: u64, chunk_pages: u64) -> impl Iterator<Item = (u64, u64)> {
    let step = usize::try_from(chunk_pages).unwrap_or(usize::MAX);
    (0..pages).step_by(step).map(move |first| (first, chunk_pages.min(pages - first)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_past_the_slot_do_not_count() {
        assert_eq!(words(64), 1);
        assert_eq!(words(65), 2);
        assert_eq!(dirty_pages(&[u64::MAX, u64::MAX], 65), 65);
        assert_eq!(dirty_pages(&[u64::MAX, u64::MAX], 128), 128);
        assert_eq!(dirty_pages(&[1, 0b110], 66), 2);
        assert_eq!(dirty_pages(&[], 0), 0);
        assert_eq!([64, 65, 66].map(|page| is_dirty(&[1, 0b110], page)), [false, true, true]);
    }

    #[test]
    fn chunks_cover_the_slot_once() {
        assert_eq!(chunks(200, 64).collect::<Vec<_>>(), [(0, 64), (64, 64), (128, 64), (192, 8)]);
        assert_eq!(chunks(128, 64).collect::<Vec<_>>(), [(0, 64), (64, 64)]);
        assert_eq!(chunks(100, u64::MAX - 63).collect::<Vec<_>>(), [(0, 100)]);
    }
}
