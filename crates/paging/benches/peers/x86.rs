//! The crate x86_64. It maps leaf by leaf, so the caller loops over the range.

use x86_64::structures::paging::mapper::TranslateResult;
use x86_64::structures::paging::page::PageSize;
use x86_64::structures::paging::{
    FrameAllocator, Mapper as _, OffsetPageTable, Page, PageTable, PageTableFlags, PhysFrame, Size1GiB, Size2MiB,
    Size4KiB, Translate,
};
use x86_64::{PhysAddr, VirtAddr};

use super::contender::Contender;
use super::memory::Memory;
use super::scene::Range;

const PARENT: PageTableFlags =
    PageTableFlags::PRESENT.union(PageTableFlags::WRITABLE).union(PageTableFlags::USER_ACCESSIBLE);
const READ_ONLY: PageTableFlags = PageTableFlags::PRESENT
    .union(PageTableFlags::USER_ACCESSIBLE)
    .union(PageTableFlags::ACCESSED)
    .union(PageTableFlags::NO_EXECUTE);
const DATA: PageTableFlags = READ_ONLY.union(PageTableFlags::WRITABLE);

pub struct Mapper {
    memory: Frames,
    tables: Option<OffsetPageTable<'static>>,
}

struct Frames(Memory);

// SAFETY: a page is not handed out again before `begin` returns all pages, and `begin` drops the tables first.
unsafe impl FrameAllocator<Size4KiB> for Frames {
    fn allocate_frame(&mut self) -> Option<PhysFrame> {
        self.0.take().map(|page| PhysFrame::containing_address(PhysAddr::new(page)))
    }
}

impl Mapper {
    pub fn new() -> Mapper {
        Mapper { memory: Frames(Memory::new()), tables: None }
    }

    fn tables(&mut self) -> (&mut OffsetPageTable<'static>, &mut Frames) {
        (self.tables.as_mut().expect("begin was called"), &mut self.memory)
    }

    fn map_leaf<S: PageSize>(&mut self, va: u64, pa: u64)
    where
        OffsetPageTable<'static>: x86_64::structures::paging::Mapper<S>,
    {
        let (tables, frames) = self.tables();
        let (page, frame) =
            (Page::<S>::containing_address(VirtAddr::new(va)), PhysFrame::containing_address(PhysAddr::new(pa)));
        // SAFETY: no hardware ever walks these tables.
        let mapped = unsafe { tables.map_to_with_table_flags(page, frame, DATA, PARENT, frames) };
        mapped.ok().expect("nothing is mapped").ignore();
    }

    fn protect_leaf<S: PageSize>(&mut self, va: u64)
    where
        OffsetPageTable<'static>: x86_64::structures::paging::Mapper<S>,
    {
        let page = Page::<S>::containing_address(VirtAddr::new(va));
        // SAFETY: no hardware ever walks these tables.
        let protected = unsafe { self.tables().0.update_flags(page, READ_ONLY) };
        protected.expect("it is mapped").ignore();
    }

    fn unmap_leaf<S: PageSize>(&mut self, va: u64)
    where
        OffsetPageTable<'static>: x86_64::structures::paging::Mapper<S>,
    {
        let page = Page::<S>::containing_address(VirtAddr::new(va));
        self.tables().0.unmap(page).expect("it is mapped").1.ignore();
    }
}

impl Contender for Mapper {
    fn name(&self) -> &'static str {
        "x86_64"
    }

    fn begin(&mut self) {
        self.tables = None;
        self.memory.0.give_all();
        let root = self.memory.0.take().expect("memory for the root") as *mut PageTable;
        // SAFETY: the page belongs to this contender for its lifetime, is aligned, and nothing else points to it; an
        // array of entries may hold any bits. Addresses of pages are pointers, so the offset is zero.
        self.tables = Some(unsafe {
            (*root).zero();
            OffsetPageTable::new(&mut *root, VirtAddr::new(0))
        });
    }

    fn map(&mut self, range: &Range) {
        for (va, pa, bytes) in range.leaves() {
            match bytes {
                Size1GiB::SIZE => self.map_leaf::<Size1GiB>(va, pa),
                Size2MiB::SIZE => self.map_leaf::<Size2MiB>(va, pa),
                _ => self.map_leaf::<Size4KiB>(va, pa),
            }
        }
    }

    fn protect(&mut self, range: &Range) {
        for (va, _, bytes) in range.leaves() {
            match bytes {
                Size1GiB::SIZE => self.protect_leaf::<Size1GiB>(va),
                Size2MiB::SIZE => self.protect_leaf::<Size2MiB>(va),
                _ => self.protect_leaf::<Size4KiB>(va),
            }
        }
    }

    fn unmap(&mut self, range: &Range) {
        for (va, _, bytes) in range.leaves() {
            match bytes {
                Size1GiB::SIZE => self.unmap_leaf::<Size1GiB>(va),
                Size2MiB::SIZE => self.unmap_leaf::<Size2MiB>(va),
                _ => self.unmap_leaf::<Size4KiB>(va),
            }
        }
    }

    #[inline]
    fn translate(&self, va: u64) -> Option<u64> {
        self.tables.as_ref()?.translate_addr(VirtAddr::new(va)).map(PhysAddr::as_u64)
    }

    fn is_writable(&self, va: u64) -> bool {
        let Some(tables) = &self.tables else { return false };
        match tables.translate(VirtAddr::new(va)) {
            TranslateResult::Mapped { flags, .. } => flags.contains(PageTableFlags::WRITABLE),
            TranslateResult::NotMapped | TranslateResult::InvalidFrameAddress(_) => false,
        }
    }
}
