//! What every contender does.

use super::scene::Range;

/// A library that maps, as user data: readable, writable, not executable.
pub trait Contender {
    /// Its name in the output.
    fn name(&self) -> &'static str;

    /// Empty tables, in the memory that the last ones had.
    fn begin(&mut self);

    /// Maps a range, of which nothing is mapped.
    fn map(&mut self, range: &Range);

    /// Makes a mapped range read-only.
    fn protect(&mut self, range: &Range);

    /// Unmaps a mapped range.
    fn unmap(&mut self, range: &Range);

    /// The output address.
    fn translate(&self, va: u64) -> Option<u64>;

    /// Whether a mapped address may be written.
    fn is_writable(&self, va: u64) -> bool;

    /// The sum of the output addresses of mapped addresses.
    fn sum(&self, addresses: &[u64]) -> u64 {
        let translated = addresses.iter().map(|va| self.translate(*va).unwrap_or_default());
        translated.fold(0, u64::wrapping_add)
    }
}
