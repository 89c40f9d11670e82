//! Reads machine files and validates every value.

use std::fmt::{Debug, Display};

use ::policy::size::{PageSize, format_bytes};
use paging::format::named::Named;

use super::ambiguity::{ambiguous_tlb, level_after_gap};
use super::error::MachineError;
use super::kernel_costs::{KernelCosts, Zeroing};
use super::shape::{
    AccessKind, Architecture, Coalescing, Figure, LineCacheShape, MAX_TLB_LEVEL, Machine, Needs, Provenance, Reach,
    Replacement, Stage2, TableFormat, TlbShape, WalkCacheShape, WalkerShape,
};
use super::stages::{has_leaf, stage1_architecture, stage2_architecture};
use super::wire::{self, Cited};
use crate::toml_file;

/// The name and version of machine files.
pub const SCHEMA: &str = "pagelab.machine/1";

/// Maximum number of sets: the simulation stores a set index in 16 bits.
const MAX_SETS: u32 = 1 << 16;
/// Maximum number of TLBs: the simulation stores the number of a TLB in seven bits.
const MAX_TLBS: usize = 127;
/// Maximum number of entries of a TLB or lines of a cache: far more than real hardware has, but few enough to simulate.
const MAX_ENTRIES: u32 = 1 << 22;

/// Parses the text of a machine file; `file` is its name in messages. Returns the first error found.
pub fn read(file: &str, text: &str) -> Result<Machine, MachineError> {
    let syntax = |error| MachineError::Syntax { file: file.to_owned(), error };
    let wire: wire::Machine = toml_file::read(text).map_err(syntax)?;
    if wire.schema != SCHEMA {
        return Err(MachineError::Schema { file: file.to_owned(), found: wire.schema, expected: SCHEMA });
    }
    let mut validator = Validator { file, wire: &wire, figures: Vec::new() };
    let architecture = validator.named("architecture", &wire.architecture, Architecture::ALL, Architecture::name)?;
    let mut machine = Machine {
        name: validator.display_name("name", &wire.name)?,
        processor: validator.display_name("processor", &wire.processor)?,
        architecture,
        formats: validator.formats(architecture)?,
        cpus: match &wire.cpus {
            Some(cpus) => validator.cited("cpus", cpus)?.clone(),
            None => Vec::new(),
        },
        tlbs: validator.tlbs()?,
        walk_caches: validator.walk_caches()?,
        walker: validator.walker()?,
        stage2: validator.stage2(architecture)?,
        kernel_costs: validator.kernel_costs()?,
        figures: Vec::new(),
    };
    validator.check_base_pages(&machine)?;
    machine.figures = validator.figures;
    Ok(machine)
}

/// Validates the values of a file and collects their provenance.
struct Validator<'a> {
    file: &'a str,
    wire: &'a wire::Machine,
    figures: Vec<Figure>,
}

impl Validator<'_> {
    fn error(&self, key: &str, found: impl Display, expected: impl Into<String>) -> MachineError {
        MachineError::Value {
            file: self.file.to_owned(),
            key: key.to_owned(),
            found: found.to_string(),
            expected: expected.into(),
        }
    }

    /// A name that can be printed in tables.
    fn display_name(&self, key: &str, name: &str) -> Result<String, MachineError> {
        if name.trim().is_empty() || name.chars().any(char::is_control) {
            return Err(self.error(key, format!("{name:?}"), "a name of one line, without control characters"));
        }
        Ok(name.to_owned())
    }

    /// Returns the value of a figure, and records its provenance.
    fn cited<'a, T: Debug>(&mut self, key: &str, cited: &'a Cited<T>) -> Result<&'a T, MachineError> {
        let provenance = match (&cited.source, &cited.assumed) {
            (Some(source), None) => match self.wire.sources.get(source) {
                Some(text) if text.trim().is_empty() => {
                    return Err(self.error(&format!("sources.{source}"), "nothing", "what the source is, and where"));
                }
                Some(text) => Provenance::Source(text.clone()),
                None => return Err(self.error(&format!("{key}.source"), source, "a key of [sources]")),
            },
            (None, Some(why)) if why.trim().is_empty() => {
                return Err(self.error(&format!("{key}.assumed"), "nothing", "why it is assumed"));
            }
            (None, Some(why)) => Provenance::Assumed(why.clone()),
            (None, None) => return Err(self.error(key, "neither", "a `source`, or `assumed` with the reason")),
            (Some(_), Some(_)) => return Err(self.error(key, "both", "either a `source` or `assumed`")),
        };
        let value = format!("{:?}", cited.is).replace('"', "");
        self.figures.push(Figure { key: key.to_owned(), value, provenance });
        Ok(&cited.is)
    }

    /// Finds the value whose name is `found`. The error lists the allowed names.
    fn named<T: Copy>(
        &self,
        key: &str,
        found: &str,
        all: impl IntoIterator<Item = T> + Clone,
        name: fn(T) -> &'static str,
    ) -> Result<T, MachineError> {
        let names = all.clone().into_iter().map(name).collect::<Vec<_>>().join(", ");
        let known = all.into_iter().find(|value| name(*value) == found);
        known.ok_or_else(|| self.error(key, format!("{found:?}"), format!("one of {names}")))
    }

    fn format(&self, key: &str, name: &str) -> Result<TableFormat, MachineError> {
        let format = name.parse::<Named>().map_err(|error| self.error(key, format!("{name:?}"), error.expected()))?;
        Ok(TableFormat { name: name.to_owned(), format })
    }

    fn formats(&mut self, architecture: Architecture) -> Result<Vec<TableFormat>, MachineError> {
        let wire = self.wire;
        let names = self.cited("formats", &wire.formats)?;
        if names.is_empty() {
            return Err(self.error("formats", "none", "at least one page-table format"));
        }
        let mut formats = Vec::new();
        for name in names {
            let format = self.format("formats", name)?;
            if stage1_architecture(&format.format) != Some(architecture) {
                return Err(self.error("formats", name, format!("a stage 1 format of {}", architecture.name())));
            }
            formats.push(format);
        }
        Ok(formats)
    }

    fn size(&self, key: &str, text: &str) -> Result<PageSize, MachineError> {
        let expected = "a page size: a power of two of at least 4K, such as 64K, 2M or 1G";
        let size: PageSize = text.parse().map_err(|_| self.error(key, format!("{text:?}"), expected))?;
        if size.bytes() < 4096 {
            return Err(self.error(key, size, "4K or more: no supported processor has smaller pages"));
        }
        Ok(size)
    }

    /// The number of sets of a TLB or cache. `keys`: of its entries and its ways in the file.
    fn sets(&self, keys: [&str; 2], entries: u32, ways: u32) -> Result<u32, MachineError> {
        let [of_entries, of_ways] = keys;
        if entries == 0 {
            Err(self.error(of_entries, 0, "at least one entry"))
        } else if entries > MAX_ENTRIES {
            Err(self.error(of_entries, entries, format!("at most {MAX_ENTRIES} entries")))
        } else if ways == 0 {
            Err(self.error(of_ways, 0, "at least one way"))
        } else if !entries.is_multiple_of(ways) {
            Err(self.error(of_ways, ways, format!("a divisor of the {entries} entries")))
        } else if !(entries / ways).is_power_of_two() || entries / ways > MAX_SETS {
            let found = format!("{entries} entries in {ways} ways, thus {} sets", entries / ways);
            Err(self.error(of_entries, found, format!("a power of two of at most {MAX_SETS} sets")))
        } else {
            Ok(entries / ways)
        }
    }

    fn tlbs(&mut self) -> Result<Vec<TlbShape>, MachineError> {
        let wire = self.wire;
        let mut tlbs = Vec::new();
        for (index, tlb) in wire.tlb.iter().enumerate() {
            tlbs.push(self.tlb(&format!("tlb[{index}]"), tlb)?);
        }
        if tlbs.len() > MAX_TLBS {
            return Err(self.error("tlb", tlbs.len(), format!("at most {MAX_TLBS} TLBs")));
        }
        if let Some((index, found)) = ambiguous_tlb(&tlbs) {
            let expected = "one for each level, kind of access and page size: otherwise it is undefined \
                            which of the two holds a page";
            return Err(self.error(&format!("tlb[{index}]"), found, expected));
        }
        if let Some(level) = level_after_gap(&tlbs) {
            let found = format!("level {level} without level {}", level - 1);
            return Err(self.error("tlb", found, "consecutive levels from 1 on"));
        }
        tlbs.sort_by_key(|tlb| tlb.level);
        Ok(tlbs)
    }

    fn tlb(&mut self, key: &str, tlb: &wire::Tlb) -> Result<TlbShape, MachineError> {
        let at = |name: &str| format!("{key}.{name}");
        if !(1..=MAX_TLB_LEVEL).contains(&tlb.level) {
            return Err(self.error(&at("level"), tlb.level, format!("1 to {MAX_TLB_LEVEL}")));
        }
        let mut serves = Vec::new();
        for name in &tlb.serves {
            serves.push(self.named(&at("serves"), name, AccessKind::ALL, AccessKind::name)?);
        }
        if serves.is_empty() {
            return Err(self.error(&at("serves"), "nothing", "some of fetch, load, store"));
        }
        let mut holds = Vec::new();
        for size in self.cited(&at("holds"), &tlb.holds)? {
            holds.push(self.size(&at("holds"), size)?);
        }
        holds.sort_unstable();
        if holds.is_empty() || holds.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(self.error(&at("holds"), format!("{:?}", tlb.holds.is), "sizes, each once"));
        }
        let entries = *self.cited(&at("entries"), &tlb.entries)?;
        let ways = *self.cited(&at("ways"), &tlb.ways)?;
        let sets = self.sets([&at("entries"), &at("ways")], entries, ways)?;
        let replacement = self.cited(&at("replacement"), &tlb.replacement)?;
        let replacement = self.named(&at("replacement"), replacement, Replacement::ALL, Replacement::name)?;
        if replacement == Replacement::TreePlru && !(ways.is_power_of_two() && ways <= 64) {
            return Err(self.error(&at("ways"), ways, "a power of two of at most 64, as plru requires"));
        }
        if replacement == Replacement::Srrip && tlb.level == 1 {
            return Err(self.error(
                &at("replacement"),
                "srrip in level 1",
                "lru, plru, random or fifo: srrip depends on each single use, and a trace merges consecutive uses into runs",
            ));
        }
        Ok(TlbShape {
            name: self.display_name(&at("name"), &tlb.name)?,
            level: tlb.level,
            serves,
            holds,
            sets,
            ways,
            replacement,
            coalescing: self.coalescing(key, tlb)?,
            hit_cycles: *self.cited(&at("hit_cycles"), &tlb.hit_cycles)?,
        })
    }

    fn coalescing(&mut self, key: &str, tlb: &wire::Tlb) -> Result<Option<Coalescing>, MachineError> {
        let (at, needs_at) = (format!("{key}.coalesces"), format!("{key}.coalescing_needs"));
        let (coalesces, needs) = match (&tlb.coalesces, &tlb.coalescing_needs) {
            (None, None) => return Ok(None),
            (Some(coalesces), needs) => (self.cited(&at, coalesces)?, needs),
            (None, Some(_)) => return Err(self.error(&at, "nothing", "none, 4, 8, 16 or full")),
        };
        let reach = match coalesces.as_str() {
            "none" => None,
            "4" => Some(Reach::Pages(4)),
            "8" => Some(Reach::Pages(8)),
            "16" => Some(Reach::Pages(16)),
            "full" => Some(Reach::Group),
            other => return Err(self.error(&at, format!("{other:?}"), "none, 4, 8, 16 or full")),
        };
        let Some(reach) = reach else {
            let found =
                needs.is_some().then(|| self.error(&needs_at, "a condition", "nothing, because nothing coalesces"));
            return found.map_or(Ok(None), Err);
        };
        let Some(needs) = needs else {
            return Err(self.error(&needs_at, "nothing", "the condition for coalescing: bit or contiguity"));
        };
        let needs = match (self.cited(&needs_at, needs)?.as_str(), reach) {
            ("bit", _) => Needs::Bit,
            ("contiguity", Reach::Pages(_)) => Needs::Contiguity,
            ("contiguity", Reach::Group) => {
                return Err(self.error(
                    &needs_at,
                    "contiguity",
                    "bit, or a reach of 4, 8 or 16: without the bit a group has no end",
                ));
            }
            (other, _) => return Err(self.error(&needs_at, format!("{other:?}"), "bit or contiguity")),
        };
        Ok(Some(Coalescing { reach, needs }))
    }

    fn walk_caches(&mut self) -> Result<Vec<WalkCacheShape>, MachineError> {
        let wire = self.wire;
        let mut caches: Vec<WalkCacheShape> = Vec::new();
        for (index, cache) in wire.walk_cache.iter().enumerate() {
            let key = format!("walk_cache[{index}]");
            if !(1..=4).contains(&cache.level) || caches.iter().any(|other| other.level == cache.level) {
                let expected = "a level from 1 to 4, each once: entries of level 0 map pages and are in TLBs";
                return Err(self.error(&format!("{key}.level"), cache.level, expected));
            }
            let entries = *self.cited(&format!("{key}.entries"), &cache.entries)?;
            let ways = *self.cited(&format!("{key}.ways"), &cache.ways)?;
            let sets = self.sets([&format!("{key}.entries"), &format!("{key}.ways")], entries, ways)?;
            caches.push(WalkCacheShape { level: cache.level, sets, ways });
        }
        caches.sort_by_key(|cache| cache.level);
        Ok(caches)
    }

    fn walker(&mut self) -> Result<WalkerShape, MachineError> {
        let wire = &self.wire.walker;
        let walkers = *self.cited("walker.walkers", &wire.walkers)?;
        if walkers == 0 {
            return Err(self.error("walker.walkers", 0, "at least one"));
        }
        let memory_cycles = *self.cited("walker.memory_cycles", &wire.memory_cycles)?;
        let mut caches = Vec::new();
        for (index, cache) in wire.cache.iter().enumerate() {
            let key = format!("walker.cache[{index}]");
            let lines = *self.cited(&format!("{key}.lines"), &cache.lines)?;
            let ways = *self.cited(&format!("{key}.ways"), &cache.ways)?;
            let cycles = *self.cited(&format!("{key}.cycles"), &cache.cycles)?;
            let name = self.display_name(&format!("{key}.name"), &cache.name)?;
            let sets = self.sets([&format!("{key}.lines"), &format!("{key}.ways")], lines, ways)?;
            caches.push(LineCacheShape { name, sets, ways, cycles });
        }
        Ok(WalkerShape { walkers, caches, memory_cycles })
    }

    fn stage2(&mut self, architecture: Architecture) -> Result<Option<Stage2>, MachineError> {
        let Some(wire) = &self.wire.stage2 else { return Ok(None) };
        let name = self.cited("stage2.format", &wire.format)?;
        let format = self.format("stage2.format", name)?;
        if stage2_architecture(&format.format) != Some(architecture) {
            return Err(self.error("stage2.format", name, format!("a stage 2 format of {}", architecture.name())));
        }
        let page = self.cited("stage2.page", &wire.page)?;
        let page = self.size("stage2.page", page)?;
        let has_leaf = paging::with_format!(&format.format, format => has_leaf(format, page.bytes()));
        if !has_leaf {
            return Err(self.error("stage2.page", page, format!("a leaf size of {name}")));
        }
        let entries = *self.cited("stage2.tlb_entries", &wire.tlb_entries)?;
        let ways = *self.cited("stage2.tlb_ways", &wire.tlb_ways)?;
        let sets = self.sets(["stage2.tlb_entries", "stage2.tlb_ways"], entries, ways)?;
        Ok(Some(Stage2 { format, page, sets, ways }))
    }

    fn kernel_costs(&mut self) -> Result<Option<KernelCosts>, MachineError> {
        let Some(wire) = &self.wire.kernel_costs else { return Ok(None) };
        let mut zeroing: Vec<Zeroing> = Vec::new();
        for (index, zeroed) in wire.zeroing.iter().enumerate() {
            let key = format!("kernel_costs.zeroing[{index}]");
            let page_bytes = self.size(&format!("{key}.page"), &zeroed.page)?.bytes();
            if zeroing.iter().any(|other| other.page_bytes == page_bytes) {
                return Err(self.error(&format!("{key}.page"), &zeroed.page, "sizes, each once"));
            }
            let cycles = self.cycles(&format!("{key}.cycles"), &zeroed.cycles)?;
            zeroing.push(Zeroing { page_bytes, cycles });
        }
        zeroing.sort_by_key(|zeroing| zeroing.page_bytes);
        if zeroing.is_empty() {
            return Err(self.error("kernel_costs.zeroing", "none", "at least one page size"));
        }
        Ok(Some(KernelCosts {
            fault_cycles: self.cycles("kernel_costs.fault_cycles", &wire.fault_cycles)?,
            copy_4k_cycles: self.cycles("kernel_costs.copy_4k_cycles", &wire.copy_4k_cycles)?,
            zeroing,
        }))
    }

    /// A number of cycles, which must not be zero.
    fn cycles(&mut self, key: &str, cycles: &Cited<u32>) -> Result<u32, MachineError> {
        match self.cited(key, cycles)? {
            0 => Err(self.error(key, 0, "at least one cycle")),
            cycles => Ok(*cycles),
        }
    }

    /// Refuses a machine unless each kind of access has a level 1 TLB that holds the base pages of each format.
    fn check_base_pages(&self, machine: &Machine) -> Result<(), MachineError> {
        for format in &machine.formats {
            let base = paging::with_format!(&format.format, format => paging::Format::geometry(format).page_bytes());
            for kind in AccessKind::ALL {
                let mut first = machine.tlbs.iter().filter(|tlb| tlb.level == 1 && tlb.serves.contains(&kind));
                if !first.any(|tlb| tlb.stored_bytes(base, base, base).is_some()) {
                    let expected =
                        format!("a level 1 TLB that serves {} and holds pages of {}", kind.name(), format_bytes(base));
                    return Err(self.error("tlb", format!("none for {}", format.name), expected));
                }
            }
        }
        Ok(())
    }
}
