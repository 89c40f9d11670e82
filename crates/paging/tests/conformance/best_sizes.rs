//! A range is mapped with the largest possible leaves: no leaf and no contiguous group could be larger.

use paging::{Action, Format, InputAddress, Mapping, Node, OutputAddress, Sizes, Tables, Visitor};
use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};

use crate::formats::for_every_format;

/// Searches for leaves that could be part of a larger leaf or of a group.
struct TooSmall<'a, F> {
    format: &'a F,
    mapping: &'a Mapping,
    leaves: u64,
}

impl<F: Format> TooSmall<'_, F> {
    /// Every size of a leaf or a group, as software writes them.
    fn sizes(&self) -> Vec<u64> {
        let geometry = self.format.geometry();
        let levels = (0..geometry.levels()).filter(|level| self.format.has_leaf(*level));
        let bits = |level| [self.format.run_bits(), self.format.group_bits_at(level).max(self.format.run_bits())];
        levels.flat_map(|level| bits(level).map(|bits| geometry.span(level) << bits)).collect()
    }

    /// Whether a leaf of that size around `va` would be inside the mapping, with aligned memory.
    fn fits(&self, va: InputAddress, bytes: u64) -> bool {
        let Mapping { va: first, pa, bytes: all, .. } = *self.mapping;
        let start = va.aligned_down(bytes);
        start >= first && bytes <= all && start - first <= all - bytes && (pa + (start - first)).is_aligned(bytes)
    }
}

impl<F: Format> Visitor for TooSmall<'_, F> {
    fn leaf(&mut self, node: &Node) -> Action {
        let bits = self.format.group_bits(node.level, node.entry).max(self.format.run_bits());
        let best = self.sizes().into_iter().filter(|bytes| self.fits(node.va, *bytes)).max();
        assert_eq!(Some(node.bytes << bits), best, "{:?}: {:x?} {node:x?}", self.format, self.mapping);
        self.leaves += 1;
        Action::Continue
    }
}

fn no_leaf_could_be_larger<F: Format>(format: F) {
    let geometry = format.geometry();
    let mut random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let unit = geometry.page_bytes() << format.run_bits();
    let room = geometry.input_bytes() / 4;
    let mut mapped = 0;
    for _ in 0..40 {
        let mut below = |end: u64| random.next_u64() % end;
        // Lengths of every magnitude, with memory that has the same alignment as the addresses, or almost the same.
        let level = below(u64::from(geometry.levels()).min(3)) as u8;
        let shifts = [0, unit, geometry.span(1), geometry.span(1) << 4, geometry.span(level)];
        let whole = geometry.span(level) << format.run_bits();
        let offset = if below(2) == 0 { 0 } else { unit * below(600) };
        let va = geometry.extended(offset);
        let shift = shifts[below(5) as usize] * below(3);
        let pa = OutputAddress((1 << 40) + offset + shift).aligned_down(unit);
        // A limited number of leaves, and no more than there is room for.
        let few = if shift == 0 { room } else { room.min(600 << shift.trailing_zeros()) };
        let bytes = u64::try_from(u128::from(whole * (1 + below(3)) + unit * below(40)).min(few)).unwrap();
        let attributes = crate::data(&format);
        let mapping = Mapping { va, pa, bytes: bytes & !(unit - 1), attributes, sizes: Sizes::BEST };
        let mut tables = Tables::new(format, OutputAddress(1 << 30), 1 << 30).unwrap();
        if tables.map(&mapping).is_err() {
            continue;
        }
        let mut small = TooSmall { format: &format, mapping: &mapping, leaves: 0 };
        tables.walk_all(&mut small).unwrap();
        assert!(small.leaves > 0, "{format:?}: {mapping:x?}");
        mapped += 1;
    }
    assert!(mapped > 20, "{format:?}: {mapped} of 40 could be mapped");
}

#[test]
fn a_range_gets_the_best_leaves() {
    for_every_format!(no_leaf_could_be_larger);
}
