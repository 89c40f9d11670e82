//! Tracks which parts of an arena were written. All other entries are zero and need not be read.

use alloc::vec::Vec;
use core::ops::Range;

/// log2 of the entries of a line, as processors cache them: 64 bytes.
const LINE_BITS: u32 = 3;
/// log2 of the lines of a word.
const WORD_BITS: u32 = u64::BITS.trailing_zeros();
const LINES: usize = 1 << WORD_BITS;

/// One bit for each line of an arena. Entries are counted from the arena's first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WrittenLines {
    words: Vec<u64>,
}

impl WrittenLines {
    /// Resizes to an arena of `entries` entries; new entries count as not written.
    pub fn grow(&mut self, entries: usize) {
        self.words.resize(entries.div_ceil(LINES << LINE_BITS), 0);
    }

    /// Marks one entry as written.
    #[inline]
    pub fn add(&mut self, entry: usize) {
        if let Some(word) = self.words.get_mut(entry >> (LINE_BITS + WORD_BITS)) {
            *word |= 1 << ((entry >> LINE_BITS) % LINES);
        }
    }

    /// Marks these entries as written.
    #[inline]
    pub fn add_all(&mut self, entries: Range<usize>) {
        for_each_word(entries, |word, bits| {
            if let Some(word) = self.words.get_mut(word) {
                *word |= bits;
            }
        });
    }

    /// Marks these entries as zero again. `clear` is called for the ranges of them that may not be zero, and must zero them. A
    /// line that they share with other entries stays marked.
    #[inline]
    pub fn remove_all(&mut self, entries: Range<usize>, mut clear: impl FnMut(Range<usize>)) {
        let Range { start, end } = entries.clone();
        let is_shared = |entry: usize| !entry.is_multiple_of(1 << LINE_BITS) && self.has(entry);
        let (at_start, at_end) = (is_shared(start), is_shared(end));
        for_each_word(entries, |word, bits| {
            let Some(written) = self.words.get_mut(word).filter(|written| **written & bits != 0) else { return };
            clear(clipped(word, *written & bits, start, end));
            *written &= !bits;
        });
        if at_start {
            self.add(start);
        }
        if at_end {
            self.add(end);
        }
    }

    #[inline]
    fn has(&self, entry: usize) -> bool {
        let bit = 1 << ((entry >> LINE_BITS) % LINES);
        self.words.get(entry >> (LINE_BITS + WORD_BITS)).is_some_and(|word| word & bit != 0)
    }

    /// Whether all of these entries are zero or accepted. `accepts` is called for each range of them that may not be zero.
    #[inline]
    pub fn all(&self, entries: Range<usize>, mut accepts: impl FnMut(Range<usize>) -> bool) -> bool {
        let Range { start, end } = entries.clone();
        let mut all = true;
        for_each_word(entries, |word, bits| {
            let written = self.words.get(word).map_or(0, |written| written & bits);
            all = all && (written == 0 || accepts(clipped(word, written, start, end)));
        });
        all
    }
}

/// Calls `act` for the lines of a range of entries: with the number of each word, and the bits in it.
#[inline]
fn for_each_word(entries: Range<usize>, mut act: impl FnMut(usize, u64)) {
    if entries.is_empty() {
        return;
    }
    let (first, last) = (entries.start >> LINE_BITS, (entries.end - 1) >> LINE_BITS);
    let (low, high) = (u64::MAX << (first % LINES), u64::MAX >> (LINES - 1 - last % LINES));
    let (first, last) = (first / LINES, last / LINES);
    if first == last {
        return act(first, low & high);
    }
    act(first, low);
    (first + 1..last).for_each(|word| act(word, u64::MAX));
    act(last, high);
}

/// The entries from the first line of these bits to the last one, clipped to `start` and `end`.
#[inline]
fn clipped(word: usize, bits: u64, start: usize, end: usize) -> Range<usize> {
    let (first, past) = (bits.trailing_zeros() as usize, LINES - bits.leading_zeros() as usize);
    let entry = |line| (word * LINES + line) << LINE_BITS;
    entry(first).max(start)..entry(past).min(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn within(written: &WrittenLines, entries: Range<usize>) -> Vec<[usize; 2]> {
        let mut found = Vec::new();
        assert!(written.all(entries, |clipped| {
            found.push([clipped.start, clipped.end]);
            true
        }));
        found
    }

    fn cleared(written: &mut WrittenLines, entries: Range<usize>) -> Vec<[usize; 2]> {
        let mut found = Vec::new();
        written.remove_all(entries, |clipped| found.push([clipped.start, clipped.end]));
        found
    }

    #[test]
    fn finds_and_forgets_written_lines() {
        let mut written = WrittenLines::default();
        written.grow(4000);
        assert_eq!(within(&written, 0..4000), [[0; 2]; 0]);
        written.add(0);
        written.add_all(500..530);
        written.add(3999);
        assert_eq!(within(&written, 0..4000), [[0, 512], [512, 536], [3992, 4000]]);
        assert_eq!(within(&written, 3..510), [[3, 510]]);
        assert_eq!(within(&written, 8..496), [[0; 2]; 0]);
        assert!(!written.all(0..4000, |clipped| clipped.start < 512));
        assert_eq!(cleared(&mut written, 498..520), [[498, 512], [512, 520]]);
        assert_eq!(within(&written, 9..1000), [[496, 504], [520, 536]]);
        assert_eq!(cleared(&mut written, 0..8), [[0, 8]]);
        assert_eq!(within(&written, 0..600), [[496, 504], [520, 536]]);
        assert_eq!(cleared(&mut written, 0..496), [[0; 2]; 0]);
    }

    #[test]
    fn whole_words_and_empty_ranges() {
        let mut written = WrittenLines::default();
        written.grow(2560);
        written.add_all(512..2048);
        assert_eq!(within(&written, 0..2560), [[512, 1024], [1024, 1536], [1536, 2048]]);
        written.add_all(7..7);
        assert_eq!(cleared(&mut written, 515..515), [[0; 2]; 0]);
        assert_eq!(cleared(&mut written, 513..519), [[513, 519]]);
        assert_eq!(within(&written, 0..1024), [[512, 1024]]);
        assert_eq!(within(&written, 600..600), [[0; 2]; 0]);
        assert_eq!(cleared(&mut written, 512..1536), [[512, 1024], [1024, 1536]]);
        assert_eq!(within(&written, 0..2560), [[1536, 2048]]);
    }
}
