//! The operations that every contender implements.

use super::scene::Range;

/// A page-table library under test. It maps user data: readable, writable, not executable.
pub trait Contender {
    /// Its name in the output.
    fn name(&self) -> &'static str;

    /// Starts with empty tables in the memory of the previous ones.
    fn begin(&mut self);

    /// Maps a range in which nothing is mapped.
    fn map(&mut self, range: &Range);

    /// Makes a mapped range read-only.
    fn protect(&mut self, range: &Range);

    /// Unmaps a mapped range.
    fn unmap(&mut self, range: &Range);

    /// The output address of `va`, if it is mapped.
    fn translate(&self, va: u64) -> Option<u64>;

    /// Whether a mapped address may be written.
    fn is_writable(&self, va: u64) -> bool;

    /// The sum of the output addresses of `addresses`, all of which are mapped.
    fn sum(&self, addresses: &[u64]) -> u64 {
        let translated = addresses.iter().map(|va| self.translate(*va).unwrap_or_default());
        translated.fold(0, u64::wrapping_add)
    }
}
