//! Ranges of recorded addresses that are translated by the same distance.

use super::Layout;

/// The end of a range of recorded addresses, and the distance by which it is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) end: u64,
    pub(super) distance: u64,
}

impl Layout {
    /// The ranges in Linux's layout, as address and bytes, that a recorded range translates to.
    pub(super) fn parts(&self, begin: u64, bytes: u64) -> Vec<(u64, u64)> {
        let end = begin.saturating_add(bytes);
        let mut parts: Vec<(u64, u64)> = Vec::new();
        let mut at = begin;
        while at < end {
            let inside = self.pieces.range(..=at).next_back().filter(|(_, piece)| piece.end > at);
            let next = match inside {
                Some((_, piece)) => piece.end.min(end),
                None => self.pieces.range(at..end).next().map_or(end, |(next, _)| *next),
            };
            let to = self.address(at);
            match parts.last_mut() {
                Some((before, bytes)) if before.wrapping_add(*bytes) == to => *bytes += next - at,
                _ => parts.push((to, next - at)),
            }
            at = next;
        }
        parts
    }

    /// Removes the translation of a recorded range and frees its addresses in Linux's layout.
    pub(super) fn release(&mut self, begin: u64, end: u64) {
        for (from, to) in self.remove_translation(begin, end) {
            self.used_ranges.free(from, to);
        }
    }

    /// Removes the translation of a recorded range. Returns the ranges that it translated to.
    pub(super) fn remove_translation(&mut self, begin: u64, end: u64) -> Vec<(u64, u64)> {
        let first = self.pieces.range(..=begin).next_back().map_or(begin, |(at, _)| *at);
        let touched: Vec<(u64, Piece)> = self.pieces.range(first..end).map(|(at, piece)| (*at, *piece)).collect();
        let mut removed = Vec::new();
        for (at, piece) in touched.into_iter().filter(|(_, piece)| piece.end > begin) {
            self.pieces.remove(&at);
            if at < begin {
                self.pieces.insert(at, Piece { end: begin, ..piece });
            }
            if piece.end > end {
                self.pieces.insert(end, piece);
            }
            let (from, to) = (at.max(begin), piece.end.min(end));
            removed.push((from.wrapping_add(piece.distance), to.wrapping_add(piece.distance)));
            self.changed.push((from, to));
        }
        removed
    }

    /// Translates a recorded range to `to` and marks the addresses as used.
    pub(super) fn add(&mut self, recorded: u64, bytes: u64, to: u64) {
        if bytes > 0 {
            self.add_translation(recorded, bytes, to);
            self.used_ranges.take(to, to.saturating_add(bytes));
        }
    }

    /// Translates a recorded range to `to`.
    pub(super) fn add_translation(&mut self, recorded: u64, bytes: u64, to: u64) {
        if bytes > 0 {
            let piece = Piece { end: recorded.saturating_add(bytes), distance: to.wrapping_sub(recorded) };
            self.pieces.insert(recorded, piece);
            self.changed.push((recorded, piece.end));
        }
    }
}
