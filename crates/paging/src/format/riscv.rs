//! RISC-V: Sv39, Sv48 and Sv57, and the G-stage Sv39x4, Sv48x4 and Sv57x4.
//!
//! Source: RISC-V Privileged Specification, "Sv39: Page-Based 39-bit Virtual-Memory System" and its siblings, "Svnapot",
//! "Svpbmt", and "Two-Stage Address Translation" of the hypervisor extension.

use alloc::string::String;
use alloc::vec::Vec;

use super::{Change, Discipline, Field, Fields, Format, Kind, Pattern, StateBits, bits, mask};
use crate::attributes::{Attributes, Flags};
use crate::error::Error;
use crate::extension::Extension;
use crate::geometry::Geometry;
use crate::rule::Rule;

const V: u64 = 1 << 0;
const R: u64 = 1 << 1;
const W: u64 = 1 << 2;
const X: u64 = 1 << 3;
const U: u64 = 1 << 4;
const G: u64 = 1 << 5;
const A: u64 = 1 << 6;
const D: u64 = 1 << 7;
const STATE: StateBits = StateBits { accessed: A, dirty: D };
const RSW: u64 = mask(9, 8);
const PPN: u64 = mask(53, 10);
const RESERVED: u64 = mask(60, 54);
const PBMT: u64 = mask(62, 61);
const N: u64 = 1 << 63;
/// The lowest four bits of PPN[0] in a NAPOT entry of 64K.
const NAPOT_64K: u64 = 0b1000 << 10;
const NAPOT_MASK: u64 = 0b1111 << 10;
/// log2 of the entries of a 64K NAPOT group, the only one that Svnapot defines.
const NAPOT_BITS: u8 = 4;

/// What the tables translate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// A virtual address, by `satp` or `vsatp`.
    Supervisor,
    /// A guest physical address, by `hgatp`: the root has four times the entries.
    Guest,
}

/// One of the Sv modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RiscV {
    geometry: Geometry,
    stage: Stage,
    /// Groups of 16 pages may be one NAPOT entry of 64K (Svnapot).
    pub napot: bool,
    /// Leaves have a memory type (Svpbmt).
    pub memory_types: bool,
}

impl RiscV {
    /// What the tables translate.
    pub const fn stage(&self) -> Stage {
        self.stage
    }

    /// Tables of `levels` levels, 3 to 5: Sv39, Sv48, Sv57, or their guest stages; without extensions.
    pub const fn new(levels: u8, stage: Stage) -> RiscV {
        assert!(levels >= 3 && levels <= 5);
        let bits = 12 + 9 * levels;
        let geometry = match stage {
            Stage::Supervisor => Geometry::new(12, levels, bits, 56, Extension::Sign),
            Stage::Guest => Geometry::new(12, levels, bits + 2, 56, Extension::Zero),
        };
        RiscV { geometry, stage, napot: false, memory_types: false }
    }

    /// The same format with Svnapot.
    pub const fn with_napot(mut self) -> RiscV {
        self.napot = true;
        self
    }

    /// The same format with Svpbmt.
    pub const fn with_memory_types(mut self) -> RiscV {
        self.memory_types = true;
        self
    }

    /// The same format on a machine with physical addresses of `physical_bits` bits, 32 to 56, which the architecture
    /// leaves to it.
    pub const fn with_physical_bits(mut self, physical_bits: u8) -> RiscV {
        assert!(physical_bits >= 32 && physical_bits <= 56);
        self.geometry = self.geometry.with_output_bits(physical_bits);
        self
    }

    #[inline]
    const fn is_napot(&self, level: u8, entry: u64) -> bool {
        self.napot && level == 0 && entry & (N | NAPOT_MASK) == N | NAPOT_64K
    }

    const fn reserved(&self) -> u64 {
        let types = if self.memory_types { 0 } else { PBMT };
        RESERVED | types | if self.napot { 0 } else { N }
    }

    fn encoded(&self, attributes: Attributes) -> Result<u64, Error> {
        let inexpressible = |what| Err(Error::Inexpressible { what, format: self.name() });
        let Attributes { flags, memory, key } = attributes;
        let execute = flags & (Flags::KERNEL_EXECUTE | Flags::USER_EXECUTE);
        let user = flags.contains(Flags::USER);
        match () {
            () if flags.contains(Flags::WRITE) && !flags.contains(Flags::READ) => {
                return inexpressible("memory that can be written and not read");
            }
            () if !flags.contains(Flags::READ) && execute.is_empty() => {
                return inexpressible("a leaf that may be neither read nor executed");
            }
            () if !execute.is_empty() && execute != self.execute(user) => {
                return inexpressible("execution by the level that the page is not for");
            }
            () if flags.contains(Flags::GUARDED) => return inexpressible("guarded pages"),
            () if self.stage == Stage::Guest && flags.intersects(Flags::USER | Flags::GLOBAL) => {
                return inexpressible("user or global memory at the G-stage");
            }
            () if memory > 2 || memory != 0 && !self.memory_types => return inexpressible("this memory type"),
            () if key != 0 => return inexpressible("a protection key"),
            () => {}
        }
        let bit = |condition: bool, bit: u64| if condition { bit } else { 0 };
        Ok(bit(flags.contains(Flags::READ), R)
            | bit(flags.contains(Flags::WRITE), W)
            | bit(!execute.is_empty(), X)
            // The G-stage treats every access as one of user mode.
            | bit(user || self.stage == Stage::Guest, U)
            | bit(flags.contains(Flags::GLOBAL), G)
            | bit(flags.contains(Flags::ACCESSED), A)
            | bit(flags.contains(Flags::DIRTY), D)
            | u64::from(memory) << 61)
    }
}

impl Format for RiscV {
    /// PPN is an address over 4096, from bit 10 on.
    const ADDRESS_SHIFT: u32 = 2;

    fn name(&self) -> &'static str {
        match (self.geometry.levels(), self.stage) {
            (3, Stage::Supervisor) => "Sv39",
            (4, Stage::Supervisor) => "Sv48",
            (_, Stage::Supervisor) => "Sv57",
            (3, Stage::Guest) => "Sv39x4",
            (4, Stage::Guest) => "Sv48x4",
            (_, Stage::Guest) => "Sv57x4",
        }
    }

    fn level_name(&self, level: u8) -> String {
        let names = ["page", "megapage", "gigapage", "terapage", "petapage"];
        alloc::format!("VPN[{level}] ({})", names.get(usize::from(level)).unwrap_or(&"?"))
    }

    fn geometry(&self) -> Geometry {
        self.geometry
    }

    #[inline]
    fn kind(&self, level: u8, entry: u64) -> Kind {
        if entry & V == 0 {
            return Kind::Hole;
        }
        match (entry & (R | W | X), level) {
            (0, 0) => Kind::Illegal,
            (0, _) if entry & (N | PBMT | RESERVED) != 0 => Kind::Illegal,
            (0, _) => Kind::Table,
            (W, _) => Kind::Illegal,
            (permissions, _) if permissions == W | X => Kind::Illegal,
            _ if entry & self.reserved() != 0 || entry & PBMT == PBMT => Kind::Illegal,
            _ if entry & N != 0 && !self.is_napot(level, entry) => Kind::Illegal,
            _ => Kind::Leaf,
        }
    }

    #[inline]
    fn table_pattern(&self) -> Pattern {
        Pattern { mask: V | R | W | X | N | PBMT | RESERVED, value: V, address: PPN }
    }

    /// A leaf that can be read, of ordinary memory, in no group.
    #[inline]
    fn leaf_pattern(&self, level: u8) -> Pattern {
        let address = PPN & !((self.geometry.span(level) - 1) >> 2);
        Pattern { mask: V | R | RESERVED | PBMT | N, value: V | R, address }
    }

    #[inline]
    fn table_address(&self, entry: u64) -> u64 {
        (entry & PPN) << 2
    }

    #[inline]
    fn leaf_address(&self, level: u8, entry: u64, va: u64) -> u64 {
        if self.is_napot(level, entry) {
            // The hardware takes PPN[0][3:0] from the virtual address.
            (entry & PPN & !NAPOT_MASK) << 2 | va & mask(15, 12)
        } else {
            (entry & PPN) << 2 & !(self.geometry.span(level) - 1)
        }
    }

    #[inline]
    fn group_bits(&self, level: u8, entry: u64) -> u8 {
        if self.is_napot(level, entry) { NAPOT_BITS } else { 0 }
    }

    fn attributes(&self, _level: u8, entry: u64) -> Attributes {
        let user = entry & U != 0 && self.stage == Stage::Supervisor;
        let mut flags = self.state(entry);
        flags.set(Flags::READ, entry & R != 0);
        flags.set(Flags::WRITE, entry & W != 0);
        flags.set(Flags::USER, user);
        flags.set(Flags::GLOBAL, entry & G != 0 && self.stage == Stage::Supervisor);
        if entry & X != 0 {
            flags |= self.execute(user);
        }
        Attributes { flags, memory: if self.memory_types { bits(entry, 62, 61) as u8 } else { 0 }, key: 0 }
    }

    #[inline]
    fn has_leaf(&self, _level: u8) -> bool {
        true
    }

    #[inline]
    fn group_bits_at(&self, level: u8) -> u8 {
        if self.napot && level == 0 { NAPOT_BITS } else { 0 }
    }

    /// S-mode never executes the pages of U-mode.
    fn execute(&self, user: bool) -> Flags {
        match (self.stage, user) {
            (Stage::Guest, _) => Flags::KERNEL_EXECUTE | Flags::USER_EXECUTE,
            (Stage::Supervisor, true) => Flags::USER_EXECUTE,
            (Stage::Supervisor, false) => Flags::KERNEL_EXECUTE,
        }
    }

    fn leaf(&self, _level: u8, attributes: Attributes, grouped: bool) -> Result<u64, Error> {
        Ok(V | self.encoded(attributes)? | if grouped { N | NAPOT_64K } else { 0 })
    }

    #[inline]
    fn address_bits(&self, _level: u8, pa: u64, grouped: bool) -> u64 {
        let ppn = pa >> 2;
        if grouped { ppn & !NAPOT_MASK } else { ppn }
    }

    #[inline]
    fn table(&self, pa: u64) -> u64 {
        pa >> 2 | V
    }

    fn with_attributes(&self, _level: u8, entry: u64, attributes: Attributes) -> Result<u64, Error> {
        let types = if self.memory_types { PBMT } else { 0 };
        Ok(entry & !(R | W | X | U | G | A | D | types) | self.encoded(attributes)?)
    }

    fn software_bits(&self) -> u64 {
        RSW
    }

    #[inline]
    fn state(&self, entry: u64) -> Flags {
        STATE.read(entry)
    }

    #[inline]
    fn state_bits(&self) -> Option<u64> {
        Some(STATE.all())
    }

    #[inline]
    fn with_state(&self, entry: u64, state: Flags) -> u64 {
        STATE.write(entry, state)
    }

    fn discipline(&self) -> Discipline {
        Discipline::FenceGroups
    }

    /// "Svnapot": all entries of a group must be made invalid, and fenced, before one of another kind is
    /// written. Without Svvptc even an entry that was not valid needs a fence for the harts that have seen it
    /// so; they take a fault at most, which is why such a change is free here.
    fn change(&self, level: u8, old: u64, new: u64) -> Change {
        let is_group = |entry| self.is_napot(level, entry);
        let changed = (old ^ new) & !RSW;
        match self.kind(level, old) {
            Kind::Hole | Kind::Illegal => Change::Free,
            _ if changed == 0 => Change::Free,
            _ if self.kind(level, new) == Kind::Hole => Change::Invalidate,
            // Hardware sets A and D in any one of them, and software gathers them: that is no change of kind.
            _ if (is_group(old) || is_group(new)) && changed & !(A | D) != 0 => Change::Break,
            Kind::Leaf if new & old == old && changed & !(R | W | X | A | D) == 0 => Change::Free,
            _ => Change::Invalidate,
        }
    }

    fn rules(&self, level: u8, entry: u64, broken: &mut dyn FnMut(Rule)) {
        if entry & V == 0 {
            return;
        }
        let output_bits = self.geometry.output_bits();
        let pa = (entry & PPN) << 2;
        if pa >> output_bits != 0 {
            broken(Rule::AddressTooLarge { pa });
        }
        if entry & (R | W | X) == 0 {
            return self.table_rules(level, entry, broken);
        }
        if entry & (R | W) == W {
            broken(Rule::WriteWithoutRead);
        }
        if entry & self.reserved() != 0 {
            broken(Rule::Reserved { bits: entry & self.reserved() });
        }
        if self.memory_types && entry & PBMT == PBMT {
            broken(Rule::MemoryType);
        }
        if self.napot && entry & N != 0 && !self.is_napot(level, entry) {
            broken(Rule::NapotPattern);
        }
        let low = pa & (self.geometry.span(level) - 1);
        if level > 0 && low != 0 {
            broken(Rule::MisalignedLeaf { bits: low });
        }
        if self.stage == Stage::Guest && entry & G != 0 {
            broken(Rule::Ignored { bits: G });
        }
        // "Guest physical address translation": all accesses are considered to be of U-mode.
        if self.stage == Stage::Guest && entry & U == 0 {
            broken(Rule::GuestWithoutUser);
        }
    }

    /// "Virtual address translation process": a misaligned superpage raises a page fault, and an address without memory
    /// an access fault ("Physical Memory Attributes").
    fn faults(&self, rule: Rule) -> bool {
        matches!(rule, Rule::MisalignedLeaf { .. } | Rule::AddressTooLarge { .. })
    }

    fn fields(&self, level: u8, entry: u64) -> Vec<Field> {
        let mut fields = Fields::of(entry);
        fields.flag("V", 0, "not valid: the other bits are software's", "valid");
        if entry & V == 0 {
            return fields.done();
        }
        let is_table = entry & (R | W | X) == 0;
        let napot = match (entry & N != 0, self.is_napot(level, entry), self.napot) {
            (false, ..) => "an entry for itself",
            (true, true, _) => "one of 16 entries that map 64K",
            (true, false, true) => "reserved here: faults",
            (true, false, false) => "reserved without Svnapot: faults",
        };
        let memory = if self.memory_types {
            ["PMA", "NC", "IO", "reserved: faults"]
        } else {
            ["no memory types without Svpbmt", "reserved", "reserved", "reserved"]
        };
        let address = if is_table {
            alloc::format!("table at {:#x}", self.table_address(entry))
        } else {
            alloc::format!("maps {:#x}", self.leaf_address(level, entry, 0))
        };
        fields
            .flag("R", 1, "may not be read", "may be read")
            .flag("W", 2, "may not be written", "may be written")
            .flag("X", 3, "may not be executed", "may be executed")
            .flag("U", 4, "of S-mode", "of U-mode")
            .flag("G", 5, "of this address space", "global")
            .flag("A", 6, "not accessed: an access faults or sets it", "accessed")
            .flag("D", 7, "not written: a write faults or sets it", "written")
            .field("RSW", 9, 8, "software's")
            .field("PPN", 53, 10, address)
            .field("reserved", 60, 54, "must be zero")
            .field("PBMT", 62, 61, memory[bits(entry, 62, 61) as usize])
            .field("N", 63, 63, napot);
        fields.done()
    }

    /// Mode and root as `satp` or `hgatp` hold them, ASID and VMID 0.
    fn registers(&self, root: u64) -> Vec<(&'static str, u64)> {
        let mode = u64::from(self.geometry.levels()) + 5;
        let name = if self.stage == Stage::Guest { "hgatp" } else { "satp" };
        alloc::vec![(name, mode << 60 | root >> 12)]
    }
}

impl RiscV {
    fn table_rules(&self, level: u8, entry: u64, broken: &mut dyn FnMut(Rule)) {
        if level == 0 {
            broken(Rule::TableAtLeafLevel);
        }
        if entry & (N | PBMT) != 0 {
            broken(Rule::LeafBitInTable { bits: entry & (N | PBMT) });
        }
        let reserved = RESERVED | D | A | U;
        if entry & reserved != 0 {
            broken(Rule::Reserved { bits: entry & reserved });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaf_of_the_guest_stage_is_for_users() {
        let broken = |stage, entry| {
            let mut broken = Vec::new();
            RiscV::new(3, stage).rules(0, entry, &mut |rule| broken.push(rule));
            broken
        };
        assert_eq!(broken(Stage::Guest, V | R | A), [Rule::GuestWithoutUser]);
        assert_eq!(broken(Stage::Guest, V | R | A | U), []);
        assert_eq!(broken(Stage::Supervisor, V | R | A), []);
    }
}
