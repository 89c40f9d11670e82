//! Random sequences of operations, each compared with the oracle.

use core::cell::RefCell;

use paging::{
    Action, Attributes, Error, Flags, Format, FreeRequest, InputAddress, Mapping, Node, OutputAddress, Sizes, Tables,
    Visitor,
};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::formats::for_every_format;
use crate::oracle::Oracle;
use crate::resizes::{Changed, Resize};

/// An operation on a range of `count` units from `first` on; a unit is a page, or the leaf of a level.
#[derive(Clone, Copy, Debug)]
struct Operation {
    what: Change,
    level: u8,
    first: u16,
    count: u16,
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Map { shift: u8, writable: bool, contiguous: bool, largest: u8 },
    Unmap,
    UnmapLeaves,
    FreeEmptyTables { top: u8 },
    Protect { writable: bool },
    Split,
    Collapse,
    Fold,
    Unfold,
}

fn mapping() -> impl Strategy<Value = Change> {
    (0u8..4, any::<bool>(), any::<bool>(), 0u8..3).prop_map(|(shift, writable, contiguous, largest)| Change::Map {
        shift,
        writable,
        contiguous,
        largest,
    })
}

/// Operations near the beginning, where most of them affect existing mappings.
fn operation() -> impl Strategy<Value = Operation> {
    let what = prop_oneof![
        3 => mapping(),
        1 => Just(Change::Unmap),
        1 => Just(Change::UnmapLeaves),
        1 => (0u8..3).prop_map(|top| Change::FreeEmptyTables { top }),
        2 => any::<bool>().prop_map(|writable| Change::Protect { writable }),
        2 => Just(Change::Split),
        2 => Just(Change::Collapse),
        2 => Just(Change::Fold),
        2 => Just(Change::Unfold),
    ];
    let count = prop_oneof![3 => 1u16..40, 1 => 500u16..1100];
    let first = prop_oneof![1 => Just(0u16), 2 => (0u16..40).prop_map(|n| n * 16), 2 => 0u16..600];
    let level = prop_oneof![3 => Just(0u8), 1 => Just(1u8)];
    (what, level, first, count).prop_map(|(what, level, first, count)| {
        // Near the first mapping, so that there is something to resize.
        let is_far = level > 0 && matches!(what, Change::Split | Change::Collapse | Change::Fold | Change::Unfold);
        Operation { what, level, first: if is_far { first % 3 } else { first }, count }
    })
}

/// A mapping of several tables, followed by other operations.
fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let first = (mapping(), 0u16..3).prop_map(|(what, first)| Operation { what, level: 1, first, count: 3 });
    (first, proptest::collection::vec(operation(), 1..14)).prop_map(|(first, mut operations)| {
        operations.insert(0, first);
        operations
    })
}

struct Bench<F> {
    format: F,
    tables: Tables<F>,
    oracle: Oracle,
    changed: Changed,
    /// Whether empty tables are kept.
    keeps_tables: bool,
    /// The address of the operations: the beginning of a leaf of the highest level that they use.
    va: InputAddress,
    pa: OutputAddress,
}

impl<F: Format> Bench<F> {
    fn new(format: F) -> Bench<F> {
        let geometry = format.geometry();
        let large = geometry.span(geometry.root_level().min(2));
        let va = geometry.extended(large.min(1 << (geometry.input_bits() - 2)));
        Bench {
            format,
            tables: Tables::new(format, OutputAddress(1 << 30), 1 << 30).unwrap(),
            oracle: Oracle::default(),
            changed: Changed::default(),
            keeps_tables: false,
            va,
            pa: OutputAddress(1 << 45),
        }
    }

    fn unit(&self, level: u8) -> u64 {
        self.format.geometry().span(level) << self.format.run_bits()
    }

    fn attributes(&self, writable: bool) -> Attributes {
        let data = crate::data(&self.format);
        if writable { data } else { Attributes { flags: data.flags - Flags::WRITE, ..data } }
    }

    /// The range of an operation, cut to the address space above `va`.
    fn range(&self, operation: Operation) -> Option<(InputAddress, u64)> {
        let unit = self.unit(operation.level);
        let room = self.format.geometry().input_bytes() - u128::from(self.format.geometry().resolved(self.va));
        let first = u64::from(operation.first) * unit;
        let end = (first + u64::from(operation.count) * unit).min(u64::try_from(room / 2).unwrap());
        (first < end).then(|| (self.va + first, end - first))
    }

    fn run(&mut self, operation: Operation) {
        let Some((va, bytes)) = self.range(operation) else { return };
        match operation.what {
            Change::Map { shift, writable, contiguous, largest } => {
                // Memory with the same alignment as the addresses, or with another one.
                let off = [0, 0, self.unit(0), self.unit(operation.level)][usize::from(shift)];
                let pa = self.pa + (va - self.va) + off;
                let attributes = self.attributes(writable);
                // Limits the time: no small pages for a large range.
                let smallest = if operation.count < 4 { 0 } else { operation.level };
                let level = largest.max(smallest).min(self.format.geometry().root_level());
                let sizes = Sizes { largest_bytes: self.unit(level), contiguous };
                let mapped = self.tables.map(&Mapping { va, pa, bytes, attributes, sizes });
                let expected = self.oracle.map(va, pa, bytes, attributes);
                match mapped {
                    Ok(()) => assert!(expected, "{va:#x} was mapped already"),
                    Err(Error::Overlap { va: at, .. }) => {
                        assert!(!expected && self.oracle.translate(at).is_some() && (va..va + bytes).contains(&at));
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            Change::Unmap => {
                self.tables.unmap(va, bytes).unwrap();
                self.oracle.unmap(va, bytes);
            }
            Change::UnmapLeaves => {
                self.keeps_tables = true;
                self.tables.unmap_leaves(va, bytes).unwrap();
                self.oracle.unmap(va, bytes);
            }
            Change::FreeEmptyTables { top } => {
                self.tables.free_empty_tables(&FreeRequest { top, ..FreeRequest::within(va, bytes) }).unwrap();
            }
            Change::Protect { writable } => {
                let protected = self.tables.protect(va, bytes, self.attributes(writable));
                let expected = self.oracle.protect(va, bytes, self.attributes(writable));
                assert_eq!(protected.is_ok(), expected, "{protected:?}");
            }
            // The following operations change nothing that the oracle tracks.
            Change::Split => self.resize().split(va),
            Change::Collapse => self.resize().collapse(va, operation.level + 1),
            Change::Fold => self.resize().fold(va),
            Change::Unfold => self.resize().unfold(va),
        }
    }

    fn resize(&mut self) -> Resize<'_, F> {
        Resize { tables: &mut self.tables, oracle: &self.oracle, changed: &mut self.changed }
    }

    /// Compares translations, which is fast.
    fn compare(&self) {
        let page = self.format.geometry().page_bytes();
        let borders = self.oracle.borders();
        let near = |border: u64| [border.wrapping_sub(1), border, border + page - 1].map(InputAddress);
        let around = borders.iter().flat_map(|border| near(border.0));
        let spread = (0..64).map(|index| self.va + index * 37 * page);
        for va in around.chain(spread).filter(|va| self.format.geometry().is_canonical(*va)) {
            let found = self.tables.translate(va).ok().map(|found| (found.pa, self.tables.attributes(va).unwrap()));
            let found =
                found.map(|(pa, attributes)| (pa, Attributes { flags: attributes.flags - Flags::STATE, ..attributes }));
            assert_eq!(found, self.oracle.translate(va), "{:?} at {va:#x}", self.format);
        }
    }

    /// Compares the tables as a whole, and once more after the tables that were kept empty are released.
    fn compare_all(&mut self) {
        self.compare_tables();
        if self.keeps_tables {
            let half = 1 << (self.format.geometry().input_bits() - 1);
            self.tables.free_empty_tables(&FreeRequest::within(self.format.geometry().extended(0), half)).unwrap();
            self.compare_tables();
        }
        self.no_table_is_empty();
    }

    fn no_table_is_empty(&self) {
        let mut tables = EmptyTables { leaves: 0, before: Vec::new(), empty: 0 };
        self.tables.walk_all(&mut tables).unwrap();
        // The hardware tables of a software table are created and released together.
        let is_software = self.format.run_bits() != 0;
        assert!(tables.empty == 0 || is_software, "{:?}: {} empty tables were kept", self.format, tables.empty);
        if self.oracle.bytes() == 0 {
            let tables = self.tables.census().unwrap().tables;
            assert_eq!(tables.values().sum::<u64>(), 1, "{:?}: only the root is left", self.format);
        }
    }

    fn compare_tables(&self) {
        let mut mapped_ranges = MappedRanges { bench: self, next: 0 };
        self.tables.walk_all(&mut mapped_ranges).unwrap();
        assert_eq!(u128::from(mapped_ranges.next), self.format.geometry().input_bytes(), "{:?}", self.format);
        let census = self.tables.census().unwrap();
        assert_eq!(census.total_bytes(), self.oracle.bytes(), "{:?}", self.format);
        assert_eq!(census.illegal, 0);
        // There is neither a surplus table nor a leaked one.
        assert_eq!(self.tables.arena().used_bytes(), census.table_bytes, "{:?}", self.format);
    }
}

/// Compares every leaf and hole with the oracle; they must be adjacent.
struct MappedRanges<'a, F> {
    bench: &'a Bench<F>,
    /// The resolved input address at which the next one must begin.
    next: u64,
}

impl<F: Format> MappedRanges<'_, F> {
    fn follow(&mut self, node: &Node) {
        assert_eq!(self.bench.format.geometry().resolved(node.va), self.next, "{:?}: {node:x?}", self.bench.format);
        self.next += node.bytes;
    }
}

impl<F: Format> Visitor for MappedRanges<'_, F> {
    fn leaf(&mut self, node: &Node) -> Action {
        self.follow(node);
        let pa = self.bench.format.leaf_address(node.level, node.entry, node.va);
        assert_eq!(
            self.bench.oracle.consecutive_memory(node.va, node.bytes),
            Some(pa),
            "{:?}: {node:x?}",
            self.bench.format
        );
        Action::Continue
    }

    fn hole(&mut self, node: &Node) -> Action {
        self.follow(node);
        // The last hole of the upper half ends with the address space.
        let last = self.bench.format.geometry().extended(self.next - 1);
        let is_of_one_half = last >= node.va;
        assert!(!is_of_one_half || !self.bench.oracle.has_any(node.va, last), "{:?}: {node:x?}", self.bench.format);
        Action::Continue
    }
}

/// Counts tables without a leaf.
struct EmptyTables {
    leaves: u64,
    /// The number of leaves met before each table that is being walked.
    before: Vec<u64>,
    empty: u64,
}

impl Visitor for EmptyTables {
    fn table(&mut self, _node: &Node) -> Action {
        self.before.push(self.leaves);
        Action::Continue
    }

    fn table_done(&mut self, _node: &Node) -> Action {
        self.empty += u64::from(self.before.pop() == Some(self.leaves));
        Action::Continue
    }

    fn leaf(&mut self, _node: &Node) -> Action {
        self.leaves += 1;
        Action::Continue
    }
}

fn runner(cases: u32) -> TestRunner {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

fn sequences_agree<F: Format>(format: F) {
    let all = RefCell::new(Changed::default());
    let ran = runner(40).run(&operations(), |operations| {
        let mut bench = Bench::new(format);
        for operation in operations {
            bench.run(operation);
            bench.compare();
        }
        bench.compare_all();
        all.borrow_mut().add(bench.changed);
        Ok(())
    });
    ran.unwrap_or_else(|error| panic!("{format:?}: {error}"));
    let Changed { splits, collapses, folds, unfolds } = all.into_inner();
    assert!(splits > 0 && collapses > 0, "{format:?}: {splits} splits, {collapses} collapses");
    // A software page is a group from the beginning, or cannot be one.
    let has_groups = format.group_bits_at(0) != 0 && format.run_bits() == 0;
    assert!(folds > 0 || !has_groups, "{format:?}: nothing was folded");
    assert!(unfolds > 0 || !has_groups, "{format:?}: nothing was unfolded");
}

#[test]
fn sequences_of_operations_agree_with_the_oracle() {
    for_every_format!(sequences_agree);
}

/// State that hardware set in any one entry is never lost, however leaves are split, collapsed, folded and unfolded.
fn state_is_kept<F: Format>(format: F) {
    let can_be_dirty = crate::data(&format).flags | Flags::DIRTY;
    let dirty = format.leaf(0, Attributes { flags: can_be_dirty, ..crate::data(&format) }, false).is_ok();
    let steps = proptest::collection::vec((0u16..600, any::<bool>(), operation()), 1..8);
    let ran = runner(24).run(&(steps, any::<bool>()), |(steps, pages)| {
        let mut bench = Bench::new(format);
        let unit = bench.unit(0);
        let bytes = bench.unit(1) * 2;
        let data = Attributes { flags: crate::data(&format).flags - Flags::STATE, ..crate::data(&format) };
        let (va, pa) = (bench.va, bench.pa);
        let sizes = if pages { Sizes::up_to(unit) } else { Sizes::BEST };
        bench.tables.map(&Mapping { va, pa, bytes, attributes: data, sizes }).unwrap();
        assert!(bench.oracle.map(va, pa, bytes, data));
        let mut touched = Vec::new();
        for (page, write, operation) in steps {
            let at = va + u64::from(page) * unit % bytes;
            bench.tables.access(at, write).unwrap();
            touched.push((at, write));
            // Near the accessed memory, so that it matters.
            let operation = Operation { first: if operation.level == 0 { page } else { page / 512 }, ..operation };
            if matches!(operation.what, Change::Split | Change::Collapse | Change::Fold | Change::Unfold) {
                bench.run(operation);
            }
        }
        let mut found = Vec::new();
        bench.tables.harvest(va, bytes, Flags::STATE, |va, bytes, flags| found.push((va, bytes, flags))).unwrap();
        assert_eq!(found.iter().map(|(_, bytes, _)| bytes).sum::<u64>(), bytes, "every leaf is reported once");
        for (va, write) in touched {
            let (_, _, flags) = found.iter().find(|(start, bytes, _)| (*start..*start + *bytes).contains(&va)).unwrap();
            assert!(flags.contains(Flags::ACCESSED), "{format:?} {va:#x}");
            assert!(!dirty || !write || flags.contains(Flags::DIRTY), "{format:?} {va:#x}");
        }
        let mut again = Flags::empty();
        bench.tables.harvest(va, bytes, Flags::empty(), |_, _, flags| again |= flags).unwrap();
        assert_eq!(again, Flags::empty(), "{format:?}: cleared");
        Ok(())
    });
    ran.unwrap_or_else(|error| panic!("{format:?}: {error}"));
}

#[test]
fn accessed_and_dirty_survive_every_change_of_size() {
    for_every_format!(state_is_kept);
}
