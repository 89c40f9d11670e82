//! The format of x86-64: 4-level and 5-level paging.
//!
//! Source: Intel SDM vol. 3A, chapter "Paging", 4-level paging and 5-level paging: the tables of the formats of CR3,
//! PML5E, PML4E, PDPTE, PDE and PTE; AMD64 APM vol. 2, 5.3 lists the same bits.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use super::bits::{Bits, Encodes, FlagBits, StateBits, mask};
use super::{Change, Discipline, Field, Fields, Format, Kind, Pattern};
use crate::address::{InputAddress, OutputAddress};
use crate::attributes::{Attributes, Flags};
use crate::error::Error;
use crate::extension::Extension;
use crate::geometry::Geometry;
use crate::rule::Rule;

const P: Bits = Bits::one("P", 0);
const RW: Bits = Bits::one("R/W", 1);
const US: Bits = Bits::one("U/S", 2);
const PWT: Bits = Bits::one("PWT", 3);
const PCD: Bits = Bits::one("PCD", 4);
const A: Bits = Bits::one("A", 5);
const D: Bits = Bits::one("D", 6);
/// In entries above level 0, this bit marks a leaf.
const PS: Bits = Bits::one("PS", 7);
/// The PAT bit of a 4K leaf, and of larger leaves.
const PAT_PAGE: Bits = Bits::one("PAT", 7);
const PAT_LARGE: Bits = Bits::one("PAT", 12);
const G: Bits = Bits::one("G", 8);
const SOFTWARE_LOW: Bits = Bits::new("ignored", 11, 9);
const SOFTWARE_HIGH: Bits = Bits::new("ignored", 58, 52);
const KEY: Bits = Bits::new("key", 62, 59);
const XD: Bits = Bits::one("XD", 63);
const STATE: StateBits = StateBits { accessed: A, dirty: D };
const SOFTWARE: u64 = SOFTWARE_LOW.mask | SOFTWARE_HIGH.mask;
/// The bits that each hold one flag.
const FLAGS: FlagBits<5> = FlagBits([
    (RW, Encodes::Set(Flags::WRITE)),
    (US, Encodes::Set(Flags::USER)),
    (A, Encodes::Set(Flags::ACCESSED)),
    (D, Encodes::Set(Flags::DIRTY)),
    (G, Encodes::Set(Flags::GLOBAL)),
]);

/// 4-level or 5-level paging on a processor with these features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct X86_64 {
    geometry: Geometry,
    /// PDPTEs may be 1G leaves (`CPUID.80000001H:EDX[26]`).
    pub gigabyte_leaves: bool,
    /// XD is a permission instead of a reserved bit (EFER.NXE).
    pub execute_disable: bool,
    /// Bits 62:59 of a leaf are a protection key instead of ignored bits (CR4.PKE or CR4.PKS).
    pub keys: bool,
}

impl X86_64 {
    /// Paging of `levels` (4 or 5) levels with 1G leaves, XD and protection keys, on a processor with `physical_bits`
    /// (MAXPHYADDR, 32 to 52).
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

    const fn pat(level: u8) -> Bits {
        if level == 0 { PAT_PAGE } else { PAT_LARGE }
    }

    /// The bits that hold [`Attributes`].
    const fn attribute_bits(&self, level: u8) -> u64 {
        FLAGS.mask() | PWT.mask | PCD.mask | XD.mask | KEY.when(self.keys) | X86_64::pat(level).mask
    }

    fn encoded(&self, level: u8, attributes: Attributes) -> Result<u64, Error> {
        let inexpressible = |what| Err(Error::Inexpressible { what, format: self.name() });
        let Attributes { flags, memory, key } = attributes;
        let user = flags.contains(Flags::USER);
        let execute = flags & (Flags::KERNEL_EXECUTE | Flags::USER_EXECUTE);
        if !flags.contains(Flags::READ) {
            return inexpressible("memory that is present and cannot be read");
        } else if flags.contains(Flags::GUARDED) {
            return inexpressible("guarded pages");
        } else if !execute.is_empty() && execute != self.execute(user) {
            return inexpressible("execution by one of the two levels alone in a page of the other");
        } else if execute.is_empty() && !self.execute_disable {
            return inexpressible("no execution without XD");
        } else if memory > 7 {
            return inexpressible("a PAT index above 7");
        } else if key > 15 || key != 0 && !self.keys {
            return inexpressible("this protection key");
        }
        let pat = PWT.when(memory & 1 != 0) | PCD.when(memory & 2 != 0) | X86_64::pat(level).when(memory & 4 != 0);
        Ok(FLAGS.encode(flags) | pat | XD.when(execute.is_empty()) | KEY.put(u64::from(key)))
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
        match (P.is_set(entry), level, PS.is_set(entry)) {
            (false, ..) => Kind::Hole,
            (true, 0, _) => Kind::Leaf,
            (true, _, false) => Kind::Table,
            (true, _, true) if self.has_leaf(level) => Kind::Leaf,
            (true, _, true) => Kind::Illegal,
        }
    }

    #[inline]
    fn table_pattern(&self) -> Pattern {
        Pattern { mask: P.mask | PS.mask, value: P.mask, address: self.address_mask() }
    }

    #[inline]
    fn leaf_pattern(&self, level: u8) -> Pattern {
        let mask = P.mask | PS.when(level > 0);
        if self.has_leaf(level) {
            Pattern { mask, value: mask, address: self.address_mask() & !(self.geometry.span(level) - 1) }
        } else {
            Pattern::NONE
        }
    }

    #[inline]
    fn table_address(&self, entry: u64) -> OutputAddress {
        OutputAddress(entry & self.address_mask())
    }

    #[inline]
    fn leaf_address(&self, level: u8, entry: u64, _va: InputAddress) -> OutputAddress {
        OutputAddress(entry & self.address_mask() & !(self.geometry.span(level) - 1))
    }

    #[inline]
    fn group_bits(&self, _level: u8, _entry: u64) -> u8 {
        0
    }

    fn attributes(&self, level: u8, entry: u64) -> Attributes {
        let mut flags = Flags::READ | FLAGS.decode(entry);
        if !XD.is_set(entry) {
            flags |= self.execute(US.is_set(entry));
        }
        let memory = X86_64::pat(level).get(entry) << 2 | PCD.get(entry) << 1 | PWT.get(entry);
        Attributes { flags, memory: memory as u8, key: if self.keys { KEY.get(entry) as u8 } else { 0 } }
    }

    fn restrictions(&self, entry: u64) -> Flags {
        let take = |condition: bool, flags: Flags| if condition { flags } else { Flags::empty() };
        take(!RW.is_set(entry), Flags::WRITE)
            | take(!US.is_set(entry), Flags::USER | Flags::USER_EXECUTE)
            | take(XD.is_set(entry), Flags::KERNEL_EXECUTE | Flags::USER_EXECUTE)
    }

    #[inline]
    fn has_leaf(&self, level: u8) -> bool {
        level < 2 || level == 2 && self.gigabyte_leaves
    }

    #[inline]
    fn group_bits_at(&self, _level: u8) -> u8 {
        0
    }

    /// Without SMEP the kernel may execute user pages, so a page of user code is executable by both.
    fn execute(&self, user: bool) -> Flags {
        if user { Flags::KERNEL_EXECUTE | Flags::USER_EXECUTE } else { Flags::KERNEL_EXECUTE }
    }

    fn leaf(&self, level: u8, attributes: Attributes, _grouped: bool) -> Result<u64, Error> {
        Ok(P.mask | PS.when(level > 0) | self.encoded(level, attributes)?)
    }

    #[inline]
    fn address_bits(&self, _level: u8, pa: u64, _grouped: bool) -> u64 {
        pa
    }

    /// A table entry allows everything; the leaves decide.
    #[inline]
    fn table(&self, pa: OutputAddress) -> u64 {
        pa.0 | P.mask | RW.mask | US.mask | A.mask
    }

    fn with_attributes(&self, level: u8, entry: u64, attributes: Attributes) -> Result<u64, Error> {
        Ok(entry & !self.attribute_bits(level) | self.encoded(level, attributes)?)
    }

    fn software_bits(&self) -> u64 {
        SOFTWARE
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

    /// No TLB holds an entry that is not present. An entry that allows less than the new one costs at most a fault (SDM
    /// vol. 3, "Optional invalidation").
    fn change(&self, level: u8, old: u64, new: u64) -> Change {
        let ignored = SOFTWARE | KEY.when(!self.keys);
        let (cleared, set) = (old & !new, new & !old);
        let grows_more_permissive =
            cleared & !(XD.mask | ignored) == 0 && set & !(RW.mask | US.mask | A.mask | D.mask | ignored) == 0;
        match self.kind(level, old) {
            Kind::Hole | Kind::Illegal => Change::Free,
            Kind::Table | Kind::Leaf if grows_more_permissive => Change::Free,
            Kind::Table | Kind::Leaf => Change::Invalidate,
        }
    }

    fn rules(&self, level: u8, entry: u64, broken: &mut dyn FnMut(Rule)) {
        if !P.is_set(entry) {
            return;
        }
        let kind = self.kind(level, entry);
        if kind == Kind::Illegal {
            broken(Rule::LeafLevel);
        }
        let too_large = entry & self.reserved_address();
        if too_large != 0 {
            broken(Rule::AddressTooLarge { pa: OutputAddress(entry & mask(51, 12)) });
        }
        if !self.execute_disable && XD.is_set(entry) {
            broken(Rule::Reserved { bits: XD.mask });
        }
        if kind == Kind::Leaf && level > 0 {
            let low = entry & (self.geometry.span(level) - 1) & !mask(PAT_LARGE.high, 0);
            if low != 0 {
                broken(Rule::MisalignedLeaf { bits: low });
            }
        }
        if kind == Kind::Leaf && D.is_set(entry) && !RW.is_set(entry) {
            broken(Rule::ShadowStack);
        }
    }

    /// Reserved bits, including those below and above an address, raise a page fault with RSVD (SDM vol. 3, "Page-fault
    /// exceptions").
    fn faults(&self, rule: Rule) -> bool {
        matches!(rule, Rule::MisalignedLeaf { .. } | Rule::AddressTooLarge { .. } | Rule::Reserved { .. })
    }

    fn fields(&self, level: u8, entry: u64) -> Vec<Field> {
        let mut fields = Fields::of(entry);
        fields.flag(P, "not present: the other bits are software's", "present");
        if !P.is_set(entry) {
            return fields.done();
        }
        // Above level 2 no processor has leaves, so the entry has the fields of a pointer to a table.
        let leaf = self.kind(level, entry) != Kind::Table && level < 3;
        fields
            .flag(RW, "no writes below", "writes allowed")
            .flag(US, "no user-mode access below", "user-mode access allowed")
            .flag(PWT, "adds nothing to the PAT index", "adds 1 to the PAT index")
            .flag(PCD, "adds nothing to the PAT index", "adds 2 to the PAT index")
            .flag(A, "not accessed", "accessed")
            .field(SOFTWARE_LOW, "software's (bit 11: R of HLAT paging)")
            .field(SOFTWARE_HIGH, "software's");
        let size = |leaf| match (leaf, level) {
            (true, 1) => "a leaf of 2M",
            (true, 2) if self.gigabyte_leaves => "a leaf of 1G",
            (true, _) => "reserved: this processor has no leaves of 1G",
            (false, _) if PS.is_set(entry) => "must be zero: no leaf at this level",
            (false, _) => "points to a table",
        };
        if level > 0 {
            fields.field(PS, size(leaf));
        }
        if leaf {
            let key = if self.keys { "protection key" } else { "ignored" };
            fields.flag(D, "not written", "written").flag(G, "of this address space", "global").field(KEY, key).flag(
                X86_64::pat(level),
                "adds nothing to the PAT index",
                "adds 4 to the PAT index",
            );
        } else {
            let ignored = |bits: Bits| Bits { name: "ignored", ..bits };
            fields.field(ignored(D), "D in a leaf").field(ignored(KEY), "software's").field(ignored(G), "G in a leaf");
        }
        let low = if leaf { self.geometry.shift(level) as u8 } else { 12 };
        let high = self.geometry.output_bits() - 1;
        let address = entry & mask(high, low);
        if low <= high {
            let what = if leaf { "maps" } else { "table at" };
            fields.field(Bits::new("address", high, low), alloc::format!("{what} {address:#x}"));
        }
        if leaf && level > 0 && level < 3 {
            fields.field(Bits::new("reserved", low - 1, PAT_LARGE.high + 1), "must be zero");
        }
        if high < 51 {
            fields.field(Bits::new("reserved", 51, high + 1), "must be zero: past MAXPHYADDR");
        }
        let xd = if self.execute_disable { "no instruction fetches" } else { "reserved: EFER.NXE is 0" };
        fields.flag(XD, "instruction fetches allowed", xd);
        fields.done()
    }

    /// CR3 and the control bits that select this format (SDM vol. 3, "Paging modes and control bits").
    fn registers(&self, root: OutputAddress) -> Vec<(&'static str, u64)> {
        let la57 = if self.geometry.levels() == 5 { 1 << 12 } else { 0 };
        let keys = if self.keys { 1 << 22 } else { 0 };
        let nxe = if self.execute_disable { 1 << 11 } else { 0 };
        alloc::vec![
            ("cr0", 0x8001_0011),
            ("cr3", root.0),
            ("cr4", 1 << 5 | 1 << 7 | la57 | keys),
            ("efer", 1 << 8 | nxe)
        ]
    }
}
