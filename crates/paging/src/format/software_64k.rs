//! 64K software base pages on a RISC-V MMU with 4K pages: sixteen hardware entries are one software entry, at every level.
//!
//! Source: "riscv: Introduce 64K base page", RFC v2 (linux-riscv, December 2024): a software table page of 64K holds
//! sixteen adjacent hardware tables. The hardware entries of a software entry point to those tables, or map sixteen
//! times the memory of one. The hardware walks Sv39, Sv48 or Sv57 as usual; software's indexes are those of a page
//! shift of 16: `pgd 38:34 | pmd 33:25 | pte 24:16 | offset 15:0` on Sv39.

use alloc::string::String;
use alloc::vec::Vec;

use super::riscv::{RiscV, Stage};
use super::{Change, Discipline, Field, Format, Kind, Pattern};
use crate::address::{InputAddress, OutputAddress};
use crate::attributes::{Attributes, Flags};
use crate::error::Error;
use crate::geometry::Geometry;
use crate::rule::Rule;

/// log2 of the hardware entries of a software entry (HW_PAGES_PER_PAGE in the series).
const RUN_BITS: u8 = 4;

/// Tables for 64K software pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Software64K {
    hardware: RiscV,
}

impl Software64K {
    /// Software tables over hardware of `levels` levels, 3 to 5; with `napot` a page is a NAPOT group.
    pub const fn new(levels: u8, napot: bool) -> Software64K {
        let hardware = RiscV::new(levels, Stage::Supervisor);
        Software64K { hardware: if napot { hardware.with_napot() } else { hardware } }
    }

    /// The same tables on a machine with physical addresses of `physical_bits` bits, 32 to 56.
    pub const fn with_physical_bits(self, physical_bits: u8) -> Software64K {
        Software64K { hardware: self.hardware.with_physical_bits(physical_bits) }
    }

    /// The same tables with pages that are NAPOT groups.
    pub const fn with_napot(self) -> Software64K {
        Software64K { hardware: self.hardware.with_napot() }
    }

    /// The format that the hardware walks.
    pub const fn hardware(&self) -> RiscV {
        self.hardware
    }
}

impl Format for Software64K {
    const ADDRESS_SHIFT: u32 = RiscV::ADDRESS_SHIFT;

    fn name(&self) -> &'static str {
        match self.hardware.geometry().levels() {
            3 => "Sv39 with 64K software pages",
            4 => "Sv48 with 64K software pages",
            _ => "Sv57 with 64K software pages",
        }
    }

    fn level_name(&self, level: u8) -> String {
        let names: &[&str] = match self.hardware.geometry().levels() {
            3 => &["pte", "pmd", "pgd"],
            4 => &["pte", "pmd", "pud", "pgd"],
            _ => &["pte", "pmd", "pud", "p4d", "pgd"],
        };
        String::from(*names.get(usize::from(level)).unwrap_or(&"?"))
    }

    fn run_bits(&self) -> u8 {
        RUN_BITS
    }

    fn geometry(&self) -> Geometry {
        self.hardware.geometry()
    }

    #[inline]
    fn kind(&self, level: u8, entry: u64) -> Kind {
        self.hardware.kind(level, entry)
    }

    #[inline]
    fn table_pattern(&self) -> Pattern {
        self.hardware.table_pattern()
    }

    #[inline]
    fn leaf_pattern(&self, level: u8) -> Pattern {
        self.hardware.leaf_pattern(level)
    }

    #[inline]
    fn table_address(&self, entry: u64) -> OutputAddress {
        self.hardware.table_address(entry)
    }

    #[inline]
    fn leaf_address(&self, level: u8, entry: u64, va: InputAddress) -> OutputAddress {
        self.hardware.leaf_address(level, entry, va)
    }

    #[inline]
    fn group_bits(&self, level: u8, entry: u64) -> u8 {
        self.hardware.group_bits(level, entry)
    }

    fn attributes(&self, level: u8, entry: u64) -> Attributes {
        self.hardware.attributes(level, entry)
    }

    #[inline]
    fn has_leaf(&self, level: u8) -> bool {
        self.hardware.has_leaf(level)
    }

    #[inline]
    fn group_bits_at(&self, level: u8) -> u8 {
        self.hardware.group_bits_at(level)
    }

    fn execute(&self, user: bool) -> Flags {
        self.hardware.execute(user)
    }

    fn leaf(&self, level: u8, attributes: Attributes, grouped: bool) -> Result<u64, Error> {
        self.hardware.leaf(level, attributes, grouped)
    }

    #[inline]
    fn address_bits(&self, level: u8, pa: u64, grouped: bool) -> u64 {
        self.hardware.address_bits(level, pa, grouped)
    }

    #[inline]
    fn table(&self, pa: OutputAddress) -> u64 {
        self.hardware.table(pa)
    }

    fn with_attributes(&self, level: u8, entry: u64, attributes: Attributes) -> Result<u64, Error> {
        self.hardware.with_attributes(level, entry, attributes)
    }

    fn software_bits(&self) -> u64 {
        self.hardware.software_bits()
    }

    #[inline]
    fn state(&self, entry: u64) -> Flags {
        self.hardware.state(entry)
    }

    #[inline]
    fn state_bits(&self) -> Option<u64> {
        self.hardware.state_bits()
    }

    #[inline]
    fn with_state(&self, entry: u64, state: Flags) -> u64 {
        self.hardware.with_state(entry, state)
    }

    fn discipline(&self) -> Discipline {
        self.hardware.discipline()
    }

    fn change(&self, level: u8, old: u64, new: u64) -> Change {
        self.hardware.change(level, old, new)
    }

    fn rules(&self, level: u8, entry: u64, broken: &mut dyn FnMut(Rule)) {
        self.hardware.rules(level, entry, broken);
    }

    fn faults(&self, rule: Rule) -> bool {
        self.hardware.faults(rule)
    }

    fn fields(&self, level: u8, entry: u64) -> Vec<Field> {
        self.hardware.fields(level, entry)
    }

    fn registers(&self, root: OutputAddress) -> Vec<(&'static str, u64)> {
        self.hardware.registers(root)
    }
}
