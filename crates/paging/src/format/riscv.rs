//! RISC-V: Sv39, Sv48 and Sv57, and the G-stage Sv39x4, Sv48x4 and Sv57x4.
//!
//! Source: RISC-V Privileged Specification, "Sv39: Page-Based 39-bit Virtual-Memory System" and its siblings, "Svnapot",
//! "Svpbmt", and "Two-Stage Address Translation" of the hypervisor extension.

use alloc::string::String;
use alloc::vec::Vec;

use super::bits::mask;
use super::riscv_bits::{
    A, D, FLAGS, G, N, NAPOT_64K, NAPOT_MASK, OF_LEAVES, PBMT, PERMISSIONS, PPN, R, RESERVED, RSW, STATE, U, V, W, X,
};
use super::{Change, Discipline, Field, Fields, Format, Kind, Pattern};
use crate::address::{InputAddress, OutputAddress};
use crate::attributes::{Attributes, Flags};
use crate::error::Error;
use crate::extension::Extension;
use crate::geometry::Geometry;
use crate::rule::Rule;

/// log2 of the entries of a 64K NAPOT group, the only one that Svnapot defines.
const NAPOT_BITS: u8 = 4;

/// The kind of address that the tables translate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// A virtual address, through `satp` or `vsatp`.
    Supervisor,
    /// A guest physical address, through `hgatp`: the root has four times the entries.
    Guest,
}

/// One of the Sv modes, or of the G-stage modes.
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
    /// The stage at which the tables translate.
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

    /// The same format on a machine with physical addresses of `physical_bits` bits, 32 to 56. The architecture leaves
    /// this size to the implementation.
    pub const fn with_physical_bits(mut self, physical_bits: u8) -> RiscV {
        assert!(physical_bits >= 32 && physical_bits <= 56);
        self.geometry = self.geometry.with_output_bits(physical_bits);
        self
    }

    #[inline]
    const fn is_napot(&self, level: u8, entry: u64) -> bool {
        self.napot && level == 0 && entry & (N.mask | NAPOT_MASK) == N.mask | NAPOT_64K
    }

    const fn reserved(&self) -> u64 {
        RESERVED.mask | PBMT.when(!self.memory_types) | N.when(!self.napot)
    }

    fn encoded(&self, attributes: Attributes) -> Result<u64, Error> {
        let inexpressible = |what| Err(Error::Inexpressible { what, format: self.name() });
        let Attributes { flags, memory, key } = attributes;
        let execute = flags & (Flags::KERNEL_EXECUTE | Flags::USER_EXECUTE);
        let user = flags.contains(Flags::USER);
        if flags.contains(Flags::WRITE) && !flags.contains(Flags::READ) {
            return inexpressible("memory that can be written and not read");
        } else if !flags.contains(Flags::READ) && execute.is_empty() {
            return inexpressible("a leaf that may be neither read nor executed");
        } else if !execute.is_empty() && execute != self.execute(user) {
            return inexpressible("execution by the level that the page is not for");
        } else if flags.contains(Flags::GUARDED) {
            return inexpressible("guarded pages");
        } else if self.stage == Stage::Guest && flags.intersects(Flags::USER | Flags::GLOBAL) {
            return inexpressible("user or global memory at the G-stage");
        } else if memory > 2 || memory != 0 && !self.memory_types {
            return inexpressible("this memory type");
        } else if key != 0 {
            return inexpressible("a protection key");
        }
        // The G-stage treats every access as a U-mode access.
        let of_guest = U.when(self.stage == Stage::Guest);
        Ok(FLAGS.encode(flags) | X.when(!execute.is_empty()) | of_guest | PBMT.put(u64::from(memory)))
    }
}

impl Format for RiscV {
    /// PPN holds the address divided by 4096, from bit 10 on.
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
        if !V.is_set(entry) {
            return Kind::Hole;
        }
        match (entry & PERMISSIONS, level) {
            (0, 0) => Kind::Illegal,
            (0, _) if entry & (OF_LEAVES | RESERVED.mask) != 0 => Kind::Illegal,
            (0, _) => Kind::Table,
            (permissions, _) if permissions & (R.mask | W.mask) == W.mask => Kind::Illegal,
            _ if entry & self.reserved() != 0 || entry & PBMT.mask == PBMT.mask => Kind::Illegal,
            _ if N.is_set(entry) && !self.is_napot(level, entry) => Kind::Illegal,
            _ => Kind::Leaf,
        }
    }

    #[inline]
    fn table_pattern(&self) -> Pattern {
        Pattern { mask: V.mask | PERMISSIONS | OF_LEAVES | RESERVED.mask, value: V.mask, address: PPN.mask }
    }

    /// A leaf that is readable, maps ordinary memory, and is in no group.
    #[inline]
    fn leaf_pattern(&self, level: u8) -> Pattern {
        let address = PPN.mask & !((self.geometry.span(level) - 1) >> 2);
        Pattern { mask: V.mask | R.mask | OF_LEAVES | RESERVED.mask, value: V.mask | R.mask, address }
    }

    #[inline]
    fn table_address(&self, entry: u64) -> OutputAddress {
        OutputAddress((entry & PPN.mask) << 2)
    }

    #[inline]
    fn leaf_address(&self, level: u8, entry: u64, va: InputAddress) -> OutputAddress {
        if self.is_napot(level, entry) {
            // The hardware takes PPN[0][3:0] from the virtual address.
            OutputAddress((entry & PPN.mask & !NAPOT_MASK) << 2 | va.0 & mask(15, 12))
        } else {
            self.table_address(entry).aligned_down(self.geometry.span(level))
        }
    }

    #[inline]
    fn group_bits(&self, level: u8, entry: u64) -> u8 {
        if self.is_napot(level, entry) { NAPOT_BITS } else { 0 }
    }

    fn attributes(&self, _level: u8, entry: u64) -> Attributes {
        let mut flags = FLAGS.decode(entry);
        if self.stage == Stage::Guest {
            flags -= Flags::USER | Flags::GLOBAL;
        }
        if X.is_set(entry) {
            flags |= self.execute(flags.contains(Flags::USER));
        }
        Attributes { flags, memory: if self.memory_types { PBMT.get(entry) as u8 } else { 0 }, key: 0 }
    }

    #[inline]
    fn has_leaf(&self, _level: u8) -> bool {
        true
    }

    #[inline]
    fn group_bits_at(&self, level: u8) -> u8 {
        if self.napot && level == 0 { NAPOT_BITS } else { 0 }
    }

    /// S-mode never executes U-mode pages, so a page of user code is executable only by U-mode.
    fn execute(&self, user: bool) -> Flags {
        match (self.stage, user) {
            (Stage::Guest, _) => Flags::KERNEL_EXECUTE | Flags::USER_EXECUTE,
            (Stage::Supervisor, true) => Flags::USER_EXECUTE,
            (Stage::Supervisor, false) => Flags::KERNEL_EXECUTE,
        }
    }

    fn leaf(&self, _level: u8, attributes: Attributes, grouped: bool) -> Result<u64, Error> {
        Ok(V.mask | self.encoded(attributes)? | if grouped { N.mask | NAPOT_64K } else { 0 })
    }

    #[inline]
    fn address_bits(&self, _level: u8, pa: u64, grouped: bool) -> u64 {
        let ppn = pa >> 2;
        if grouped { ppn & !NAPOT_MASK } else { ppn }
    }

    #[inline]
    fn table(&self, pa: OutputAddress) -> u64 {
        pa.0 >> 2 | V.mask
    }

    fn with_attributes(&self, _level: u8, entry: u64, attributes: Attributes) -> Result<u64, Error> {
        let bits = FLAGS.mask() | X.mask | PBMT.when(self.memory_types);
        Ok(entry & !bits | self.encoded(attributes)?)
    }

    fn software_bits(&self) -> u64 {
        RSW.mask
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

    /// "Svnapot": all entries of a group must be made invalid, and fenced, before an entry of another kind is written. Without
    /// Svvptc, even a change from an invalid entry needs a fence, for harts that have seen the entry as invalid. Without the
    /// fence such a hart takes at most a fault, so the change counts as free here.
    fn change(&self, level: u8, old: u64, new: u64) -> Change {
        let is_group = |entry| self.is_napot(level, entry);
        let changed = (old ^ new) & !RSW.mask;
        match self.kind(level, old) {
            Kind::Hole | Kind::Illegal => Change::Free,
            _ if changed == 0 => Change::Free,
            _ if self.kind(level, new) == Kind::Hole => Change::Invalidate,
            // Hardware sets A and D in any one entry of a group, and software collects them. That is not a change of kind.
            _ if (is_group(old) || is_group(new)) && changed & !STATE.all() != 0 => Change::Break,
            Kind::Leaf if new & old == old && changed & !(PERMISSIONS | STATE.all()) == 0 => Change::Free,
            _ => Change::Invalidate,
        }
    }

    fn rules(&self, level: u8, entry: u64, broken: &mut dyn FnMut(Rule)) {
        if !V.is_set(entry) {
            return;
        }
        let output_bits = self.geometry.output_bits();
        let pa = self.table_address(entry);
        if pa.0 >> output_bits != 0 {
            broken(Rule::AddressTooLarge { pa });
        }
        if entry & PERMISSIONS == 0 {
            return self.table_rules(level, entry, broken);
        }
        if entry & (R.mask | W.mask) == W.mask {
            broken(Rule::WriteWithoutRead);
        }
        if entry & self.reserved() != 0 {
            broken(Rule::Reserved { bits: entry & self.reserved() });
        }
        if self.memory_types && entry & PBMT.mask == PBMT.mask {
            broken(Rule::MemoryType);
        }
        if self.napot && N.is_set(entry) && !self.is_napot(level, entry) {
            broken(Rule::NapotPattern);
        }
        let low = pa.0 & (self.geometry.span(level) - 1);
        if level > 0 && low != 0 {
            broken(Rule::MisalignedLeaf { bits: low });
        }
        if self.stage == Stage::Guest && G.is_set(entry) {
            broken(Rule::Ignored { bits: G.mask });
        }
        // "Guest physical address translation": all accesses are treated as U-mode accesses.
        if self.stage == Stage::Guest && !U.is_set(entry) {
            broken(Rule::GuestWithoutUser);
        }
    }

    /// "Virtual address translation process": a misaligned superpage raises a page fault. An address without memory
    /// raises an access fault ("Physical Memory Attributes").
    fn faults(&self, rule: Rule) -> bool {
        matches!(rule, Rule::MisalignedLeaf { .. } | Rule::AddressTooLarge { .. })
    }

    fn fields(&self, level: u8, entry: u64) -> Vec<Field> {
        let mut fields = Fields::of(entry);
        fields.flag(V, "not valid: the other bits are software's", "valid");
        if !V.is_set(entry) {
            return fields.done();
        }
        let is_table = entry & PERMISSIONS == 0;
        let napot = match (N.is_set(entry), self.is_napot(level, entry), self.napot) {
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
            alloc::format!("maps {:#x}", self.leaf_address(level, entry, InputAddress(0)))
        };
        fields
            .flag(R, "may not be read", "may be read")
            .flag(W, "may not be written", "may be written")
            .flag(X, "may not be executed", "may be executed")
            .flag(U, "of S-mode", "of U-mode")
            .flag(G, "of this address space", "global")
            .flag(A, "not accessed: an access faults or sets it", "accessed")
            .flag(D, "not written: a write faults or sets it", "written")
            .field(RSW, "software's")
            .field(PPN, address)
            .field(RESERVED, "must be zero")
            .field(PBMT, memory[PBMT.get(entry) as usize])
            .field(N, napot);
        fields.done()
    }

    /// Mode and root in the format of `satp` or `hgatp`, with ASID and VMID 0.
    fn registers(&self, root: OutputAddress) -> Vec<(&'static str, u64)> {
        let mode = u64::from(self.geometry.levels()) + 5;
        let name = if self.stage == Stage::Guest { "hgatp" } else { "satp" };
        alloc::vec![(name, mode << 60 | root.0 >> 12)]
    }
}

impl RiscV {
    fn table_rules(&self, level: u8, entry: u64, broken: &mut dyn FnMut(Rule)) {
        if level == 0 {
            broken(Rule::TableAtLeafLevel);
        }
        if entry & OF_LEAVES != 0 {
            broken(Rule::LeafBitInTable { bits: entry & OF_LEAVES });
        }
        if let bits @ 1.. = entry & (RESERVED.mask | D.mask | A.mask | U.mask) {
            broken(Rule::Reserved { bits });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaf_of_the_guest_stage_needs_u() {
        let broken = |stage, entry| {
            let mut broken = Vec::new();
            RiscV::new(3, stage).rules(0, entry, &mut |rule| broken.push(rule));
            broken
        };
        assert_eq!(broken(Stage::Guest, V.mask | R.mask | A.mask), [Rule::GuestWithoutUser]);
        assert_eq!(broken(Stage::Guest, V.mask | R.mask | A.mask | U.mask), []);
        assert_eq!(broken(Stage::Supervisor, V.mask | R.mask | A.mask), []);
    }
}
