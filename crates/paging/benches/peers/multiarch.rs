//! The crate page_table_multiarch: one engine with an entry type per format.
//!
//! Its entries for arm64 and RISC-V compile only on those processors, so the same bits are encoded here. Its own
//! metadata flush the TLB of the processor, which a user program may not do.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;

use memory_addr::{PhysAddr, VirtAddr};
use page_table_multiarch::{GenericPTE, MappingFlags, PageTable64, PagingHandler, PagingMetaData};

use super::contender::Contender;
use super::memory::Memory;
use super::scene::Range;

#[cfg(target_arch = "x86_64")]
pub type X86 = Multiarch<4, page_table_entry::x86_64::X64PTE>;
pub type Arm64 = Multiarch<4, Entry<Arm64Bits>>;
pub type Sv39 = Multiarch<3, Entry<RiscVBits>>;
pub type Sv48 = Multiarch<4, Entry<RiscVBits>>;

const READ_ONLY: MappingFlags = MappingFlags::READ.union(MappingFlags::USER);
const DATA: MappingFlags = READ_ONLY.union(MappingFlags::WRITE);

thread_local! {
    static MEMORY: RefCell<Memory> = RefCell::new(Memory::new());
}

struct Handler;

impl PagingHandler for Handler {
    fn alloc_frames(count: usize, _: usize) -> Option<PhysAddr> {
        assert_eq!(count, 1, "tables are single pages");
        MEMORY.with_borrow_mut(Memory::take).map(|page| PhysAddr::from(page as usize))
    }

    fn dealloc_frames(pa: PhysAddr, _: usize) {
        MEMORY.with_borrow_mut(|memory| memory.give(pa.as_usize() as u64));
    }

    fn phys_to_virt(pa: PhysAddr) -> VirtAddr {
        VirtAddr::from(pa.as_usize())
    }
}

struct Levels<const LEVELS: usize>;

impl<const LEVELS: usize> PagingMetaData for Levels<LEVELS> {
    const LEVELS: usize = LEVELS;
    const PA_MAX_BITS: usize = 48;
    const VA_MAX_BITS: usize = 12 + 9 * LEVELS;
    type VirtAddr = VirtAddr;

    fn flush_tlb(_: Option<VirtAddr>) {}
}

pub struct Multiarch<const LEVELS: usize, E: GenericPTE> {
    tables: Option<PageTable64<Levels<LEVELS>, E, Handler>>,
}

impl<const LEVELS: usize, E: GenericPTE> Multiarch<LEVELS, E> {
    pub fn new() -> Multiarch<LEVELS, E> {
        Multiarch { tables: None }
    }

    fn tables(&mut self) -> &mut PageTable64<Levels<LEVELS>, E, Handler> {
        self.tables.as_mut().expect("begin was called")
    }
}

impl<const LEVELS: usize, E: GenericPTE> Contender for Multiarch<LEVELS, E> {
    fn name(&self) -> &'static str {
        "page_table_multiarch"
    }

    /// Dropping the old tables returns their memory.
    fn begin(&mut self) {
        self.tables = None;
        self.tables = Some(PageTable64::try_new().expect("memory for the root"));
    }

    fn map(&mut self, range: &Range) {
        let (va, offset) = (VirtAddr::from(range.va as usize), (range.pa - range.va) as usize);
        let pa = |va: VirtAddr| PhysAddr::from(va.as_usize() + offset);
        let huge = range.largest_bytes > 4096;
        let mapped = self.tables().cursor().map_region(va, pa, range.bytes as usize, DATA, huge);
        mapped.expect("nothing is mapped");
    }

    fn protect(&mut self, range: &Range) {
        let va = VirtAddr::from(range.va as usize);
        self.tables().cursor().protect_region(va, range.bytes as usize, READ_ONLY).expect("all is mapped");
    }

    fn unmap(&mut self, range: &Range) {
        let va = VirtAddr::from(range.va as usize);
        self.tables().cursor().unmap_region(va, range.bytes as usize).expect("all is mapped");
    }

    #[inline]
    fn translate(&self, va: u64) -> Option<u64> {
        let found = self.tables.as_ref()?.query(VirtAddr::from(va as usize));
        found.ok().map(|(pa, _, _)| pa.as_usize() as u64)
    }

    fn is_writable(&self, va: u64) -> bool {
        let query = |tables: &PageTable64<_, _, _>| tables.query(VirtAddr::from(va as usize));
        self.tables.as_ref().is_some_and(|tables| query(tables).is_ok_and(|(_, flags, _)| flags.contains(DATA)))
    }
}

/// The bits of a format's entries.
pub trait Bits: Copy + Sync + Send + 'static {
    const PRESENT: u64;
    const TABLE: u64;
    fn encoded(flags: MappingFlags, is_huge: bool) -> u64;
    fn decoded(entry: u64) -> MappingFlags;
    fn is_huge(entry: u64) -> bool;
    fn address_bits(pa: u64) -> u64;
    fn address(entry: u64) -> u64;
}

/// VMSAv8-64: page or table, valid, AF, AP, PXN, UXN.
#[derive(Clone, Copy)]
pub struct Arm64Bits;

impl Bits for Arm64Bits {
    const PRESENT: u64 = 1;
    const TABLE: u64 = 0b11;

    #[inline]
    fn encoded(flags: MappingFlags, is_huge: bool) -> u64 {
        let page = if is_huge { 0 } else { 0b10 };
        let read_only = if flags.contains(MappingFlags::WRITE) { 0 } else { 1 << 7 };
        let user = if flags.contains(MappingFlags::USER) { 1 << 6 } else { 0 };
        let execute_never = if flags.contains(MappingFlags::EXECUTE) { 0 } else { 1 << 54 };
        1 | page | 1 << 2 | user | read_only | 3 << 8 | 1 << 10 | 1 << 53 | execute_never
    }

    #[inline]
    fn decoded(entry: u64) -> MappingFlags {
        let mut flags = MappingFlags::READ;
        flags.set(MappingFlags::WRITE, entry & 1 << 7 == 0);
        flags.set(MappingFlags::USER, entry & 1 << 6 != 0);
        flags.set(MappingFlags::EXECUTE, entry & 1 << 54 == 0);
        flags
    }

    #[inline]
    fn is_huge(entry: u64) -> bool {
        entry & 0b10 == 0
    }

    #[inline]
    fn address_bits(pa: u64) -> u64 {
        pa & 0x0000_ffff_ffff_f000
    }

    #[inline]
    fn address(entry: u64) -> u64 {
        entry & 0x0000_ffff_ffff_f000
    }
}

/// RISC-V: V, R, W, X, U, A, D.
#[derive(Clone, Copy)]
pub struct RiscVBits;

impl Bits for RiscVBits {
    const PRESENT: u64 = 1;
    const TABLE: u64 = 1;

    #[inline]
    fn encoded(flags: MappingFlags, _: bool) -> u64 {
        let bit = |flag, bit: u64| if flags.contains(flag) { 1u64 << bit } else { 0 };
        let permissions = bit(MappingFlags::READ, 1) | bit(MappingFlags::WRITE, 2) | bit(MappingFlags::EXECUTE, 3);
        1 | permissions | bit(MappingFlags::USER, 4) | 0b1100_0000
    }

    #[inline]
    fn decoded(entry: u64) -> MappingFlags {
        let mut flags = MappingFlags::empty();
        flags.set(MappingFlags::READ, entry & 2 != 0);
        flags.set(MappingFlags::WRITE, entry & 4 != 0);
        flags.set(MappingFlags::EXECUTE, entry & 8 != 0);
        flags.set(MappingFlags::USER, entry & 16 != 0);
        flags
    }

    #[inline]
    fn is_huge(entry: u64) -> bool {
        entry & 0b1010 != 0
    }

    #[inline]
    fn address_bits(pa: u64) -> u64 {
        pa >> 2 & 0x003f_ffff_ffff_fc00
    }

    #[inline]
    fn address(entry: u64) -> u64 {
        (entry & 0x003f_ffff_ffff_fc00) << 2
    }
}

/// An entry of the format `B`.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Entry<B>(u64, PhantomData<B>);

impl<B> fmt::Debug for Entry<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#018x}", self.0)
    }
}

impl<B: Bits> GenericPTE for Entry<B> {
    #[inline]
    fn new_page(pa: PhysAddr, flags: MappingFlags, is_huge: bool) -> Self {
        Entry(B::encoded(flags, is_huge) | B::address_bits(pa.as_usize() as u64), PhantomData)
    }

    #[inline]
    fn new_table(pa: PhysAddr) -> Self {
        Entry(B::TABLE | B::address_bits(pa.as_usize() as u64), PhantomData)
    }

    #[inline]
    fn paddr(&self) -> PhysAddr {
        PhysAddr::from(B::address(self.0) as usize)
    }

    #[inline]
    fn flags(&self) -> MappingFlags {
        B::decoded(self.0)
    }

    #[inline]
    fn set_paddr(&mut self, pa: PhysAddr) {
        self.0 = self.0 & !B::address_bits(u64::MAX) | B::address_bits(pa.as_usize() as u64);
    }

    #[inline]
    fn set_flags(&mut self, flags: MappingFlags, is_huge: bool) {
        self.0 = self.0 & B::address_bits(u64::MAX) | B::encoded(flags, is_huge);
    }

    #[inline]
    fn bits(self) -> usize {
        self.0 as usize
    }

    #[inline]
    fn is_unused(&self) -> bool {
        self.0 == 0
    }

    #[inline]
    fn is_present(&self) -> bool {
        self.0 & B::PRESENT != 0
    }

    #[inline]
    fn is_huge(&self) -> bool {
        B::is_huge(self.0)
    }

    #[inline]
    fn clear(&mut self) {
        self.0 = 0;
    }
}
