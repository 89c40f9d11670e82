//! Random tables, created by the engine, with an ordered map of the requested mappings; and addresses to test.

use std::collections::BTreeMap;

use paging::{Attributes, Flags, Format, InputAddress, Mapping, OutputAddress, Severity, Sizes, Tables};

use crate::random::Random;
use crate::verdict::{Verdict, verdict};

/// Limit for the tables, in bytes.
const LIMIT_BYTES: u64 = 24 << 20;
/// Number of different attributes that mappings have.
const PALETTE: usize = 150;
/// Attempts per wanted mapping: many overlap.
const TRIES: usize = 6;

/// The requested mappings, by their first (resolved) input address.
#[derive(Default)]
struct RequestedMappings(BTreeMap<u64, MappedRange>);

#[derive(Clone, Copy)]
struct MappedRange {
    end: u64,
    pa: OutputAddress,
    attributes: Attributes,
}

impl RequestedMappings {
    fn at(&self, va: u64) -> Option<(OutputAddress, Attributes)> {
        let (first, mapped) = self.0.range(..=va).next_back()?;
        (va < mapped.end).then_some((mapped.pa + (va - first), mapped.attributes))
    }

    /// Splits the mapping that contains `va`, if any.
    fn cut(&mut self, va: u64) {
        let Some((first, mapped)) = self.0.range_mut(..va).next_back().filter(|(_, mapped)| va < mapped.end) else {
            return;
        };
        let upper = MappedRange { pa: mapped.pa + (va - first), ..*mapped };
        mapped.end = va;
        self.0.insert(va, upper);
    }

    fn remove(&mut self, first: u64, end: u64) {
        self.cut(first);
        self.cut(end);
        self.0.retain(|va, _| *va < first || *va >= end);
    }

    fn protect(&mut self, first: u64, end: u64, attributes: Attributes) {
        self.cut(first);
        self.cut(end);
        self.0.range_mut(first..end).for_each(|(_, mapped)| mapped.attributes = attributes);
    }
}

/// Random tables and the mappings that were requested.
pub struct World<F> {
    pub tables: Tables<F>,
    /// Number of mappings that were made.
    pub mappings: usize,
    requested: RequestedMappings,
    random: Random,
    anchors: Vec<u64>,
    palette: Vec<Attributes>,
    lowest_output: OutputAddress,
}

impl<F: Format> World<F> {
    /// Empty tables in memory from `base` on. Output addresses will be at `lowest_output` or above.
    pub fn empty(format: F, seed: u64, base: OutputAddress, lowest_output: OutputAddress) -> World<F> {
        let geometry = format.geometry();
        let mut random = Random::new(seed);
        // As many positions as the size of tables allows, including both ends.
        let table = geometry.page_bytes() << format.run_bits();
        let places = ((4 << 20) / table / u64::from(geometry.levels())).clamp(6, 64);
        let last = geometry.input_bytes() as u64 - 1;
        let anchors = (2..places).map(|_| random.bits() & last).chain([0, last]).collect();
        let tables = Tables::new(format, base, LIMIT_BYTES).expect("room for the root");
        let palette = (0..PALETTE).map(|_| random_attributes(&format, &mut random)).collect();
        World { tables, mappings: 0, requested: RequestedMappings::default(), random, anchors, palette, lowest_output }
    }

    /// Tables with about `wanted` random mappings, some of them partly unmapped or changed.
    pub fn fill(mut self, wanted: usize) -> World<F> {
        for _ in 0..wanted * TRIES {
            let mapping = self.random_mapping();
            self.mappings += usize::from(self.map(&mapping));
            if self.random.once_in(30) {
                self.change();
            }
            if self.mappings >= wanted {
                break;
            }
        }
        self
    }

    /// Makes one mapping and returns whether the engine accepted it.
    pub fn map(&mut self, mapping: &Mapping) -> bool {
        let mapped = self.tables.map(mapping).is_ok();
        if mapped {
            let Mapping { pa, attributes, .. } = *mapping;
            let (first, end) = self.tables.geometry().range(mapping.va, mapping.bytes).unwrap();
            self.requested.0.insert(first, MappedRange { end, pa, attributes });
        }
        mapped
    }

    fn random_mapping(&mut self) -> Mapping {
        let (format, geometry) = (*self.tables.format(), self.tables.geometry());
        let levels: Vec<u8> = (0..geometry.levels()).filter(|level| format.has_leaf(*level)).collect();
        let level = if self.random.once_in(2) { 0 } else { self.random.pick(&levels) };
        let leaf = geometry.span(level) << format.run_bits();
        let group = geometry.span(level) << format.group_bits_at(level);
        let smaller = if level == 0 { leaf } else { geometry.span(level - 1) << format.run_bits() };
        let unit = if self.random.once_in(2) { leaf.max(group) } else { leaf };
        let region = region_bytes(&format, level);
        let anchor = self.random.pick(&self.anchors);
        let place = anchor & !(region - 1) | self.random.bits() & (region - 1);
        // In one of four cases the output is not aligned as the input is, so that smaller leaves are needed; then only a few.
        let congruent = level == 0 || !self.random.once_in(4);
        let max_units = if congruent { 24 } else { 3 };
        let sizes = match self.random.below(8) {
            0 => Sizes::up_to(if congruent { leaf } else { smaller }),
            1 => Sizes { contiguous: false, ..Sizes::BEST },
            _ => Sizes::BEST,
        };
        let pa_unit = if congruent { unit } else { smaller };
        Mapping {
            va: geometry.extended(place & !(pa_unit.max(smaller) - 1)),
            pa: self.random_output(pa_unit),
            bytes: unit * (1 + self.random.below(max_units)),
            attributes: self.random.pick(&self.palette),
            sizes,
        }
    }

    fn random_output(&mut self, unit: u64) -> OutputAddress {
        let bits = self.tables.geometry().output_bits();
        loop {
            // Short addresses are as likely as long ones.
            let pa = self.random.bits() >> (64 - bits) >> self.random.below(u64::from(bits) - 31);
            let (pa, OutputAddress(lowest)) = (pa & !(unit - 1), self.lowest_output);
            if pa >= lowest || unit > lowest {
                return OutputAddress(pa.max(lowest.next_multiple_of(unit)));
            }
        }
    }

    /// Unmaps or protects a random part of an existing mapping.
    fn change(&mut self) {
        let (format, geometry) = (*self.tables.format(), self.tables.geometry());
        let Some((va, mapped)) = self.random_mapped() else { return };
        let page = geometry.page_bytes() << format.run_bits();
        let pages = (mapped.end - va) / page;
        let first = va + self.random.below(pages) * page;
        let end = first + (1 + self.random.below((mapped.end - first) / page)) * page;
        let address = geometry.extended(first);
        if self.random.once_in(2) {
            if self.tables.unmap(address, end - first).is_ok() {
                self.requested.remove(first, end);
            }
        } else {
            let attributes = self.random.pick(&self.palette);
            if self.tables.protect(address, end - first, attributes).is_ok() {
                self.requested.protect(first, end, attributes);
            }
        }
    }

    fn random_mapped(&mut self) -> Option<(u64, MappedRange)> {
        let from = self.random.pick(&self.anchors) ^ self.random.bits() >> 16 >> self.random.below(32);
        let at_or_after = self.requested.0.range(from..).next();
        at_or_after.or_else(|| self.requested.0.iter().next()).map(|(va, mapped)| (*va, *mapped))
    }

    /// `count` addresses worth testing: inside mappings, at their edges, near them, anywhere, and addresses that the
    /// tables cannot translate.
    pub fn test_addresses(&mut self, count: usize) -> Vec<InputAddress> {
        (0..count).map(|_| self.test_address()).collect()
    }

    fn test_address(&mut self) -> InputAddress {
        let geometry = self.tables.geometry();
        let last = geometry.input_bytes() as u64 - 1;
        let resolved = match (self.random_mapped(), self.random.below(16)) {
            (Some((va, mapped)), 0..8) => va + self.random.below(mapped.end - va),
            (Some((va, _)), 8) => va,
            (Some((_, mapped)), 9) => mapped.end - 1,
            (Some((va, _)), 10) => va.wrapping_sub(1) & last,
            (Some((_, mapped)), 11) => mapped.end & last,
            (Some((va, _)), 12) => va ^ 1 << self.random.below(u64::from(geometry.input_bits())),
            (_, 13) => return InputAddress(self.random.bits()),
            (_, 14) => {
                let above = u64::from(64 - geometry.input_bits());
                let InputAddress(va) = geometry.extended(self.random.bits() & last);
                return InputAddress(va ^ 1 << (63 - self.random.below(above)));
            }
            _ => self.random.bits() & last,
        };
        geometry.extended(resolved)
    }

    /// The required result for `va`, which must also match the requested mappings.
    pub fn verdict(&self, va: InputAddress) -> Verdict {
        let (verdict, geometry) = (verdict(&self.tables, va), self.tables.geometry());
        let requested = if geometry.is_canonical(va) { self.requested.at(geometry.resolved(va)) } else { None };
        match (verdict, requested) {
            (Verdict::Leaf { pa, attributes, .. }, Some((requested_pa, requested))) => {
                assert_eq!(pa, requested_pa, "{va:#x} in {:?}", self.tables.format());
                let flags = |attributes: Attributes| attributes.flags - Flags::STATE;
                assert_eq!(
                    (flags(attributes), attributes.memory, attributes.key),
                    (flags(requested), requested.memory, requested.key)
                );
            }
            (Verdict::Hole { .. } | Verdict::NotCanonical, None) => {}
            (verdict, requested) => {
                panic!("{va:#x} in {:?}: {verdict:?}; requested: {requested:?}", self.tables.format())
            }
        }
        verdict
    }
}

/// The bytes that the tables for one (software) entry above `level` map.
fn region_bytes<F: Format>(format: &F, level: u8) -> u64 {
    let geometry = format.geometry();
    let tables = if level == geometry.root_level() { 1 } else { 1 << format.run_bits() };
    geometry.span(level) * geometry.entries(level) * tables
}

/// Random attributes that every leaf of the format can have.
fn random_attributes<F: Format>(format: &F, random: &mut Random) -> Attributes {
    loop {
        let mut flags = Flags::from_bits_truncate(random.bits() as u16);
        flags.set(Flags::ACCESSED, !random.once_in(16));
        let memory = random.below(16) as u8;
        let key = if random.once_in(2) { random.below(16) as u8 } else { 0 };
        let attributes = Attributes { flags, memory, key };
        if is_legal(format, attributes) {
            return attributes;
        }
    }
}

fn is_legal<F: Format>(format: &F, attributes: Attributes) -> bool {
    let levels = (0..format.geometry().levels()).filter(|level| format.has_leaf(*level));
    levels.into_iter().all(|level| match format.leaf(level, attributes, false) {
        Ok(leaf) => {
            let mut legal = true;
            format.rules(level, leaf, &mut |rule| legal &= rule.severity() != Severity::Error);
            legal
        }
        Err(_) => false,
    })
}
