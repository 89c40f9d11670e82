//! Random sequences of operations: the resulting tables are legal, and so is every step.

use paging::format::BreakLevel;
use paging::format::arm64::Granule;
use paging::format::arm64_stage1::Arm64Stage1;
use paging::format::arm64_stage2::Arm64Stage2;
use paging::{Attributes, Event, Flags, Format, InputAddress, Mapping, OutputAddress, Sizes, Tables};

use crate::formats::for_every_format;
use crate::{assert_good, data};

/// Pseudorandom numbers that are the same in every run (Steele, Lea and Flood: SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % end
    }

    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

/// Tables under random operations in a window of input addresses.
pub struct Bench<F> {
    pub tables: Tables<F, Vec<Event>>,
    pub random: Random,
    va: InputAddress,
    window: u64,
    /// Ranges consist of units of these sizes.
    sizes: Vec<u64>,
    operations: Vec<String>,
}

impl<F: Format> Bench<F> {
    pub fn new(format: F, seed: u64) -> Bench<F> {
        let geometry = format.geometry();
        let large = geometry.span(1) << format.group_bits_at(1).max(format.run_bits());
        let window = (4 * large).min(1 << (geometry.input_bits() - 2));
        let va = geometry.extended(((1 << (geometry.input_bits() - 1)) - window / 2) & !(window - 1));
        let unit = geometry.page_bytes() << format.run_bits();
        let group = geometry.page_bytes() << format.group_bits_at(0);
        let sizes = vec![unit, unit.max(group), geometry.span(1) << format.run_bits(), large];
        let tables = Tables::with_log(format, OutputAddress(1 << 30), 1 << 30, Vec::new()).unwrap();
        Bench { tables, random: Random(seed), va, window, sizes, operations: Vec::new() }
    }

    /// A range that begins and ends at a multiple of one of the sizes.
    fn range(&mut self) -> (InputAddress, u64) {
        let size = self.random.one_of(&self.sizes);
        let units = self.window / size;
        let first = self.random.below(units);
        let count = 1 + self.random.below((units - first).min(24));
        let (mut va, mut end) = (first * size, (first + count) * size);
        let unit = self.sizes[0];
        if self.random.below(3) == 0 {
            va += unit * self.random.below(20);
            end = (end + unit * self.random.below(20)).min(self.window);
        }
        let va = va.min(self.window - unit);
        (self.va + va, end.max(va + unit) - va)
    }

    fn attributes(&mut self) -> Attributes {
        let mut attributes = data(self.tables.format());
        if self.random.below(2) == 0 {
            attributes.flags -= Flags::WRITE;
        }
        if self.random.below(4) == 0 {
            let dirty = Attributes { flags: attributes.flags | Flags::DIRTY | Flags::WRITE, ..attributes };
            attributes = if self.tables.format().leaf(0, dirty, false).is_ok() { dirty } else { attributes };
        }
        if self.random.below(4) == 0 {
            let global = Attributes { flags: attributes.flags | Flags::GLOBAL, ..attributes };
            attributes = if self.tables.format().leaf(0, global, false).is_ok() { global } else { attributes };
        }
        attributes
    }

    fn map(&mut self, va: InputAddress, bytes: u64) {
        let size = self.random.one_of(&self.sizes);
        let shift = self.random.one_of(&[0, self.sizes[0], self.sizes[1], self.sizes[2], size]);
        let few = bytes / self.sizes[0] < 1_000;
        let smallest = if few { self.sizes[0] } else { self.sizes[2] };
        let (shift, bytes) = if few { (shift, bytes) } else { (0, bytes) };
        let largest_bytes = self.random.one_of(&[smallest, self.sizes[2], u64::MAX]);
        let sizes = Sizes { largest_bytes, contiguous: self.random.below(3) != 0 };
        let attributes = self.attributes();
        let pa = OutputAddress((1 << 36) + (va.0 & (self.window - 1)) + shift);
        let _ = self.tables.map(&Mapping { va, pa, bytes, attributes, sizes });
    }

    pub fn step(&mut self) {
        let (va, bytes) = self.range();
        let level = 1 + self.random.below(2) as u8;
        let what = self.random.below(12);
        match what {
            0..=2 => self.map(va, bytes),
            3 | 4 => drop(self.tables.unmap(va, bytes)),
            5 | 6 => {
                let attributes = self.attributes();
                drop(self.tables.protect(va, bytes, attributes));
            }
            7 => drop(self.tables.split(va)),
            8 => drop(self.tables.collapse(va, level)),
            9 => drop(self.tables.fold(va)),
            10 => drop(self.tables.unfold(va)),
            _ => {
                for _ in 0..4 {
                    let (at, write) = (va + self.random.below(bytes), self.random.below(2) == 0);
                    drop(self.tables.access(at, write));
                }
                let clear = self.random.one_of(&[Flags::ACCESSED, Flags::DIRTY, Flags::STATE, Flags::empty()]);
                drop(self.tables.harvest(va, bytes, clear, |_, _, _| {}));
            }
        }
        let names =
            ["map", "map", "map", "unmap", "unmap", "protect", "protect", "split", "collapse", "fold", "unfold"];
        let name = names.get(what as usize).unwrap_or(&"harvest");
        self.operations.push(format!("{}: {name} {va:#x} {bytes:#x}", self.tables.log().len()));
    }

    pub fn run(format: F, seed: u64, steps: usize) -> Bench<F> {
        let mut bench = Bench::new(format, seed);
        let first = (bench.va, bench.window / 2);
        bench.map(first.0, first.1);
        (0..steps).for_each(|_| bench.step());
        bench
    }
}

fn sequences_are_good<F: Format>(format: F) {
    for seed in 0..SEEDS {
        let bench = Bench::run(format, seed, 40);
        assert!(bench.tables.log().len() > 10);
        assert_good(&bench.tables, &(seed, &bench.operations));
    }
}

/// Number of sequences for each format: few in unoptimised builds.
const SEEDS: u64 = if cfg!(debug_assertions) { 2 } else { 40 };

#[test]
fn the_engine_makes_only_legal_steps() {
    for_every_format!(sequences_are_good);
}

#[test]
fn the_engine_makes_only_legal_steps_at_every_level_of_bbm() {
    for level in [BreakLevel::Zero, BreakLevel::One, BreakLevel::Two] {
        for granule in [Granule::K4, Granule::K16, Granule::K64] {
            sequences_are_good(Arm64Stage1::new(granule, 48).with_break_level(level));
            sequences_are_good(Arm64Stage1::new(granule, 52).with_hardware_dirty().with_break_level(level));
            sequences_are_good(Arm64Stage2::new(granule, 40).with_hardware_dirty().with_break_level(level));
        }
    }
}
