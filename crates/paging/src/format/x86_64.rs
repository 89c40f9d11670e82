//! x86-64: 4-level and 5-level paging.
//!
//! Source: Intel SDM vol. 3A, chapter "Paging", 4-level paging and 5-level paging: the tables of the formats of
//! CR3, PML5E, PML4E, PDPTE, PDE and PTE; AMD64 APM vol. 2, 5.3 gives the same bits.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::{Change, Discipline, Field, Fields, Format, Kind, Pattern, StateBits, bits, mask};
use crate::attributes::{Attributes, Flags};
use crate::error::Error;
use crate::extension::Extension;
use crate::geometry::Geometry;
use crate::rule::Rule;

const P: u64 = 1 << 0;
const RW: u64 = 1 << 1;
const US: u64 = 1 << 2;
const PWT: u64 = 1 << 3;
const PCD: u64 = 1 << 4;
const A: u64 = 1 << 5;
const D: u64 = 1 << 6;
const STATE: StateBits = StateBits { accessed: A, dirty: D };
/// In entries above level 0: this is a leaf.
const PS: u64 = 1 << 7;
/// The PAT bit of a 4K leaf, and of larger ones.
const PAT_PAGE: u64 = 1 << 7;
const PAT_LARGE: u64 = 1 << 12;
const G: u64 = 1 << 8;
const XD: u64 = 1 << 63;
const KEY: u64 = mask(62, 59);

/// 4-level or 5-level paging of a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct X86_64 {
    geometry: Geometry,
    /// PDPTEs may be leaves of 1G (CPUID.80000001H:EDX[26]).
    pub gigabyte_leaves: bool,
    /// XD is a permission, not reserved (EFER.NXE).
    pub execute_disable: bool,
    /// Bits 62:59 of a leaf are a protection key, not ignored (CR4.PKE or CR4.PKS).
    pub keys: bool,
}

impl X86_64 {
    /// Paging of `levels` (4 or 5) levels with 1G leaves, XD and protection keys, on a processor with
    /// `physical_bits` (MAXPHYADDR, 32 to 52).
    pub const fn new(levels: u8, physical_bits: u8) -> X86_64 {
        assert!((levels == 4 || levels == 5) && physical_bits >= 32 && physical_bits <= 52);
        let geometry = Geometry::new(12, levels, 12 + 9 * levels, physical_bits, Extension::Sign);
        X86_64 { geometry, gigabyte_leaves: true, execute_disable: true, keys: true }
    }

    /// The same format on a processor with another MAXPHYADDR.
    pub const fn with_physical_bits(self, physical_bits: u8) -> X86_64 {
        X86_64 { geometry: X86_64::new(self.geometry.levels(), physical_bits).geometry, ..self }
    }

    const fn address_mask(&self) -> u64 {
        mask(self.geometry.output_bits() - 1, 12)
    }

    const fn reserved_address(&self) -> u64 {
        if self.geometry.output_bits() == 52 { 0 } else { mask(51, self.geometry.output_bits()) }
    }

    const fn pat_bit(level: u8) -> u64 {
        if level == 0 { PAT_PAGE } else { PAT_LARGE }
    }

    /// The bits that [`Attributes`] hold.
    const fn attribute_bits(&self, level: u8) -> u64 {
        let key = if self.keys { KEY } else { 0 };
        RW | US | PWT | PCD | A | D | G | XD | key | X86_64::pat_bit(level)
    }

    fn encoded(&self, level: u8, attributes: Attributes) -> Result<u64, Error> {
        let inexpressible = |what| Err(Error::Inexpressible { what, format: self.name() });
        let Attributes { flags, memory, key } = attributes;
        let user = flags.contains(Flags::USER);
        let execute = flags & (Flags::KERNEL_EXECUTE | Flags::USER_EXECUTE);
        match () {
            () if !flags.contains(Flags::READ) => return inexpressible("memory that is present and cannot be read"),
            () if flags.contains(Flags::GUARDED) => return inexpressible("guarded pages"),
            () if !execute.is_empty() && execute != self.execute(user) => {
                return inexpressible("execution by one of the two levels alone in a page of the other");
            }
            () if execute.is_empty() && !self.execute_disable => return inexpressible("no execution without XD"),
            () if memory > 7 => return inexpressible("a PAT index above 7"),
            () if key > 15 || key != 0 && !self.keys => return inexpressible("this protection key"),
            () => {}
        }
        let bit = |condition: bool, bit: u64| if condition { bit } else { 0 };
        Ok(bit(flags.contains(Flags::WRITE), RW)
            | bit(user, US)
            | bit(memory & 1 != 0, PWT)
            | bit(memory & 2 != 0, PCD)
            | bit(memory & 4 != 0, X86_64::pat_bit(level))
            | bit(flags.contains(Flags::ACCESSED), A)
            | bit(flags.contains(Flags::DIRTY), D)
            | bit(flags.contains(Flags::GLOBAL), G)
            | bit(execute.is_empty(), XD)
            | u64::from(key) << 59)
    }
}

impl Format for X86_64 {
    fn name(&self) -> &'static str {
        if self.geometry.levels() == 5 { "x86-64 5-level" } else { "x86-64" }
    }

    fn level_name(&self, level: u8) -> String {
        ["PT", "PD", "PDPT", "PML4", "PML5"].get(usize::from(level)).unwrap_or(&"?").to_string()
    }

    fn geometry(&self) -> Geometry {
        self.geometry
    }

    #[inline]
    fn kind(&self, level: u8, entry: u64) -> Kind {
        match (entry & P != 0, level, entry & PS != 0) {
            (false, ..) => Kind::Hole,
            (true, 0, _) => Kind::Leaf,
            (true, _, false) => Kind::Table,
            (true, _, true) if self.has_leaf(level) => Kind::Leaf,
            (true, _, true) => Kind::Illegal,
        }
    }

    #[inline]
    fn table_pattern(&self) -> Pattern {
        Pattern { mask: P | PS, value: P, address: self.address_mask() }
    }

    #[inline]
    fn leaf_pattern(&self, level: u8) -> Pattern {
        let mask = if level == 0 { P } else { P | PS };
        match self.has_leaf(level) {
            true => Pattern { mask, value: mask, address: self.address_mask() & !(self.geometry.span(level) - 1) },
            false => Pattern::NONE,
        }
    }

    #[inline]
    fn table_address(&self, entry: u64) -> u64 {
        entry & self.address_mask()
    }

    #[inline]
    fn leaf_address(&self, level: u8, entry: u64, _va: u64) -> u64 {
        entry & self.address_mask() & !(self.geometry.span(level) - 1)
    }

    #[inline]
    fn group_bits(&self, _level: u8, _entry: u64) -> u8 {
        0
    }

    fn attributes(&self, level: u8, entry: u64) -> Attributes {
        let set = |bit: u64| entry & bit != 0;
        let mut flags = Flags::READ | self.state(entry);
        flags.set(Flags::WRITE, set(RW));
        flags.set(Flags::USER, set(US));
        flags.set(Flags::GLOBAL, set(G));
        if !set(XD) {
            flags |= self.execute(set(US));
        }
        let pat = u8::from(set(X86_64::pat_bit(level))) << 2;
        let memory = pat | bits(entry, 4, 3) as u8;
        Attributes { flags, memory, key: if self.keys { bits(entry, 62, 59) as u8 } else { 0 } }
    }

    fn restrictions(&self, entry: u64) -> Flags {
        let take = |condition: bool, flags: Flags| if condition { flags } else { Flags::empty() };
        take(entry & RW == 0, Flags::WRITE)
            | take(entry & US == 0, Flags::USER | Flags::USER_EXECUTE)
            | take(entry & XD != 0, Flags::KERNEL_EXECUTE | Flags::USER_EXECUTE)
    }

    #[inline]
    fn has_leaf(&self, level: u8) -> bool {
        level < 2 || level == 2 && self.gigabyte_leaves
    }

    #[inline]
    fn group_bits_at(&self, _level: u8) -> u8 {
        0
    }

    /// Without SMEP the kernel may execute what the user may.
    fn execute(&self, user: bool) -> Flags {
        if user { Flags::KERNEL_EXECUTE | Flags::USER_EXECUTE } else { Flags::KERNEL_EXECUTE }
    }

    fn leaf(&self, level: u8, attributes: Attributes, _grouped: bool) -> Result<u64, Error> {
        let large = if level == 0 { 0 } else { PS };
        Ok(P | large | self.encoded(level, attributes)?)
    }

    #[inline]
    fn address_bits(&self, _level: u8, pa: u64, _grouped: bool) -> u64 {
        pa
    }

    /// Everything is allowed; the leaves decide.
    #[inline]
    fn table(&self, pa: u64) -> u64 {
        pa | P | RW | US | A
    }

    fn with_attributes(&self, level: u8, entry: u64, attributes: Attributes) -> Result<u64, Error> {
        Ok(entry & !self.attribute_bits(level) | self.encoded(level, attributes)?)
    }

    fn software_bits(&self) -> u64 {
        mask(11, 9) | mask(58, 52)
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
        Discipline::WriteThenInvalidate
    }

    /// No TLB holds an entry that is not present, and one that allows less than the new entry costs a
    /// fault at most (SDM vol. 3, "Optional invalidation").
    fn change(&self, level: u8, old: u64, new: u64) -> Change {
        let ignored = mask(11, 9) | mask(58, 52) | if self.keys { 0 } else { KEY };
        let (cleared, set) = (old & !new, new & !old);
        let grows_more_permissive = cleared & !(XD | ignored) == 0 && set & !(RW | US | A | D | ignored) == 0;
        match self.kind(level, old) {
            Kind::Hole | Kind::Illegal => Change::Free,
            Kind::Table | Kind::Leaf if grows_more_permissive => Change::Free,
            Kind::Table | Kind::Leaf => Change::Invalidate,
        }
    }

    fn rules(&self, level: u8, entry: u64, broken: &mut dyn FnMut(Rule)) {
        if entry & P == 0 {
            return;
        }
        let kind = self.kind(level, entry);
        if kind == Kind::Illegal {
            broken(Rule::LeafLevel);
        }
        let too_large = entry & self.reserved_address();
        if too_large != 0 {
            broken(Rule::AddressTooLarge { pa: entry & mask(51, 12) });
        }
        if !self.execute_disable && entry & XD != 0 {
            broken(Rule::Reserved { bits: XD });
        }
        if kind == Kind::Leaf && level > 0 {
            let low = entry & (self.geometry.span(level) - 1) & !mask(12, 0);
            if low != 0 {
                broken(Rule::MisalignedLeaf { bits: low });
            }
        }
        if kind == Kind::Leaf && entry & D != 0 && entry & RW == 0 {
            broken(Rule::ShadowStack);
        }
    }

    /// Reserved bits, of which those below and above an address are some, raise a page fault with RSVD (SDM vol. 3,
    /// "Page-fault exceptions").
    fn faults(&self, rule: Rule) -> bool {
        matches!(rule, Rule::MisalignedLeaf { .. } | Rule::AddressTooLarge { .. } | Rule::Reserved { .. })
    }

    fn fields(&self, level: u8, entry: u64) -> Vec<Field> {
        let mut fields = Fields::of(entry);
        fields.flag("P", 0, "not present: the other bits are software's", "present");
        if entry & P == 0 {
            return fields.done();
        }
        // Where no processor has leaves, the entry has the fields of one that points to a table.
        let leaf = self.kind(level, entry) != Kind::Table && level < 3;
        fields
            .flag("R/W", 1, "no writes below", "writes allowed")
            .flag("U/S", 2, "no user-mode access below", "user-mode access allowed")
            .flag("PWT", 3, "adds nothing to the PAT index", "adds 1 to the PAT index")
            .flag("PCD", 4, "adds nothing to the PAT index", "adds 2 to the PAT index")
            .flag("A", 5, "not accessed", "accessed")
            .field("ignored", 11, 9, "software's (bit 11: R of HLAT paging)")
            .field("ignored", 58, 52, "software's");
        let size = |leaf| match (leaf, level) {
            (true, 1) => "a leaf of 2M",
            (true, 2) if self.gigabyte_leaves => "a leaf of 1G",
            (true, _) => "reserved: this processor has no leaves of 1G",
            (false, _) if entry & PS != 0 => "must be zero: no leaf at this level",
            (false, _) => "points to a table",
        };
        if level > 0 {
            fields.field("PS", 7, 7, size(leaf));
        }
        if leaf {
            fields.flag("D", 6, "not written", "written").flag("G", 8, "of this address space", "global").field(
                "key",
                62,
                59,
                if self.keys { "protection key" } else { "ignored" },
            );
            let pat = if level == 0 { 7 } else { 12 };
            fields.flag("PAT", pat, "adds nothing to the PAT index", "adds 4 to the PAT index");
        } else {
            fields.field("ignored", 6, 6, "D in a leaf").field("ignored", 62, 59, "software's");
            fields.field("ignored", 8, 8, "G in a leaf");
        }
        let low = if leaf { self.geometry.shift(level) as u8 } else { 12 };
        let high = self.geometry.output_bits() - 1;
        let address = entry & mask(high, low);
        if low <= high {
            let what = if leaf { "maps" } else { "table at" };
            fields.field("address", high, low, alloc::format!("{what} {address:#x}"));
        }
        if leaf && level > 0 && level < 3 {
            fields.field("reserved", low - 1, 13, "must be zero");
        }
        if high < 51 {
            fields.field("reserved", 51, high + 1, "must be zero: past MAXPHYADDR");
        }
        let xd = if self.execute_disable { "no instruction fetches" } else { "reserved: EFER.NXE is 0" };
        fields.flag("XD", 63, "instruction fetches allowed", xd);
        fields.done()
    }

    /// CR3 and the control bits that choose this format (SDM vol. 3, "Paging modes and control bits").
    fn registers(&self, root: u64) -> Vec<(&'static str, u64)> {
        let la57 = if self.geometry.levels() == 5 { 1 << 12 } else { 0 };
        let keys = if self.keys { 1 << 22 } else { 0 };
        let nxe = if self.execute_disable { 1 << 11 } else { 0 };
        alloc::vec![("cr0", 0x8001_0011), ("cr3", root), ("cr4", 1 << 5 | 1 << 7 | la57 | keys), ("efer", 1 << 8 | nxe)]
    }
}
