//! The crate aarch64-paging. It cannot translate an address, so `leaf` visits the descriptors of the address's page.

use std::cell::RefCell;
use std::ptr::NonNull;

use aarch64_paging::Mapping;
use aarch64_paging::descriptor::{El1Attributes, PhysicalAddress};
use aarch64_paging::paging::{Constraints, El1And0, MemoryRegion, PageTable, Translation, VaRange};

use super::contender::Contender;
use super::memory::Memory;
use super::scene::Range;

const ROOT_LEVEL: usize = 0;
const DATA: El1Attributes = El1Attributes::VALID
    .union(El1Attributes::ACCESSED)
    .union(El1Attributes::INNER_SHAREABLE)
    .union(El1Attributes::NON_GLOBAL)
    .union(El1Attributes::USER)
    .union(El1Attributes::PXN)
    .union(El1Attributes::UXN);

struct Tables(RefCell<Memory>);

impl Translation<El1Attributes> for Tables {
    fn allocate_table(&mut self) -> (NonNull<PageTable<El1Attributes>>, PhysicalAddress) {
        let page = self.0.get_mut().take().expect("memory for a table") as *mut [u64; 512];
        // SAFETY: this table owns the page exclusively, the page is aligned, and zero is an invalid descriptor.
        unsafe { page.write([0; 512]) };
        (NonNull::new(page.cast()).expect("no page is at zero"), PhysicalAddress(page as usize))
    }

    /// Returns the page to the free list.
    ///
    /// # Safety
    /// As the trait requires; nothing more is needed.
    unsafe fn deallocate_table(&mut self, table: NonNull<PageTable<El1Attributes>>) {
        self.0.get_mut().give(table.as_ptr() as u64);
    }

    fn physical_to_virtual(&self, pa: PhysicalAddress) -> NonNull<PageTable<El1Attributes>> {
        NonNull::new(pa.0 as *mut PageTable<El1Attributes>).expect("no page is at zero")
    }
}

pub struct Linear {
    mapping: Mapping<Tables, El1And0>,
}

impl Linear {
    pub fn new() -> Linear {
        let tables = Tables(RefCell::new(Memory::new()));
        Linear { mapping: Mapping::with_asid_and_va_range(tables, 1, ROOT_LEVEL, El1And0, VaRange::Lower) }
    }

    fn region(range: &Range) -> MemoryRegion {
        MemoryRegion::new(range.va as usize, (range.va + range.bytes) as usize)
    }

    #[inline]
    fn leaf(&self, va: u64) -> Option<(u64, El1Attributes)> {
        let mut found = None;
        let page = MemoryRegion::new(va as usize, va as usize + 1);
        let walked = self.mapping.walk_range(&page, &mut |_, descriptor, level| {
            if descriptor.is_valid() {
                let offset = va & ((4096 << (9 * (3 - level))) - 1);
                found = Some((descriptor.output_address().0 as u64 | offset, descriptor.flags()));
            }
            Ok(())
        });
        walked.ok().and(found)
    }
}

impl Contender for Linear {
    fn name(&self) -> &'static str {
        "aarch64-paging"
    }

    /// `unmap` frees the tables that its range covers completely. This frees the other empty tables.
    fn begin(&mut self) {
        self.mapping.compact_subtables();
    }

    fn map(&mut self, range: &Range) {
        let constraints = match range.largest_bytes {
            4096 => Constraints::NO_BLOCK_MAPPINGS | Constraints::NO_CONTIGUOUS_HINT,
            _ => Constraints::NO_CONTIGUOUS_HINT,
        };
        let pa = PhysicalAddress(range.pa as usize);
        self.mapping.map_range(&Linear::region(range), pa, DATA, constraints).expect("nothing is mapped");
    }

    fn protect(&mut self, range: &Range) {
        let modified = self.mapping.modify_range(&Linear::region(range), &|_, descriptor| {
            if descriptor.is_table() {
                Ok(())
            } else {
                descriptor.modify_flags(El1Attributes::READ_ONLY, El1Attributes::empty())
            }
        });
        modified.expect("all is mapped");
    }

    fn unmap(&mut self, range: &Range) {
        let (pa, flags) = (PhysicalAddress(0), El1Attributes::empty());
        let constraints = Constraints::NO_CONTIGUOUS_HINT;
        self.mapping.map_range(&Linear::region(range), pa, flags, constraints).expect("all is mapped");
    }

    #[inline]
    fn translate(&self, va: u64) -> Option<u64> {
        self.leaf(va).map(|(pa, _)| pa)
    }

    fn is_writable(&self, va: u64) -> bool {
        self.leaf(va).is_some_and(|(_, flags)| !flags.contains(El1Attributes::READ_ONLY))
    }
}
