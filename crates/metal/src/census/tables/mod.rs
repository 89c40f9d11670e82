//! The page tables of a process and the kernel's `struct page`s, read from the kernel's memory: what pagemap and
//! kpageflags say, without a call for every page.
//!
//! Where tables and `struct page`s lie is found out by what is known of memory of this process's own ([`anchors`]),
//! and nothing is believed that does not agree with pagemap there. The address space of another process is the one
//! that an open `/proc/PID/pagemap` reads (`pagemap_open`, fs/proc/task_mmu.c: `private_data`), whatever process
//! namespaces are between them.
//!
//! Only for x86-64, and only what base pages map; what a PMD leaf maps PAGEMAP_SCAN tells as fast ([`walk`]).

mod anchors;
mod layout;
mod pages;
mod walk;

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Mutex, PoisonError};

use paging::format::Format;
use paging::format::x86_64::X86_64;
use study::size::PageSize;

use crate::kernel_memory::Copier;
use crate::kernel_memory::btf::{Btf, BtfError};

use anchors::Anchors;
use layout::Layout;

pub use walk::Kinds;

/// The kernel's description of its types.
const BTF: &str = "/sys/kernel/btf/vmlinux";

/// Why page tables cannot be read from the kernel's memory.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// Their format is known for x86-64 only.
    #[error("page tables are read from the kernel's memory on x86-64 only; this is {0}")]
    Architecture(&'static str),
    /// No description of the kernel's types.
    #[error("{BTF}: {0} (a kernel with CONFIG_DEBUG_INFO_BTF has it)")]
    NoBtf(io::Error),
    /// The description lacks something.
    #[error("{BTF}: {0}; the kernel may be newer than this program, or built otherwise")]
    Layout(#[from] BtfError),
    /// No program that reads the kernel's memory.
    #[error(
        "BPF programs that read the kernel's memory: {0} (they need Linux 5.17, root or CAP_BPF and CAP_PERFMON, and \
         a kernel that is not locked down)"
    )]
    Bpf(io::Error),
    /// No pages of this process's own to search by.
    #[error("this process's own pages, to find the kernel's memory by: {0}")]
    NoPages(io::Error),
    /// Where memory ends is not known.
    #[error("/proc/zoneinfo does not say where memory ends (expected lines as \"spanned 4095\" and \"start_pfn: 1\")")]
    NoEnd,
    /// What the kernel's memory holds is not what pagemap says of this process.
    #[error("{0} was not found in the kernel's memory where this process's own pages are known to be")]
    NotFound(&'static str),
}

/// Reads page tables. Opened once; used for any number of processes.
pub struct PageTables {
    layout: Layout,
    anchors: Anchors,
    base: PageSize,
    /// Those that nobody uses at the moment.
    copiers: Mutex<Vec<Copier>>,
    /// What happens between the two readings of a chunk, in a test.
    #[cfg(test)]
    meanwhile: Option<Box<dyn Fn() + Send + Sync>>,
}

/// The address space of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Its `struct mm_struct`.
    mm: u64,
    /// The root of its tables.
    pgd: u64,
}

/// What an address leads to, above the tables of leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Located {
    /// The table of level 1 for the address, as the kernel addresses it.
    Directory(u64),
    /// Nothing is mapped up to there.
    Hole { until: u64 },
    /// Something else, up to there.
    Other { until: u64 },
}

impl PageTables {
    /// Finds out where everything is.
    ///
    /// # Errors
    /// Why it cannot be.
    pub fn open(base: PageSize) -> Result<PageTables, Unavailable> {
        if std::env::consts::ARCH != "x86_64" {
            return Err(Unavailable::Architecture(std::env::consts::ARCH));
        }
        let mut copier = Copier::new().map_err(Unavailable::Bpf)?;
        let bytes = fs::read(BTF).map_err(Unavailable::NoBtf)?;
        let layout = Layout::read(&Btf::parse(&bytes)?)?;
        let anchors = anchors::find(&mut copier, &layout, base)?;
        Ok(PageTables {
            layout,
            anchors,
            base,
            copiers: Mutex::new(vec![copier]),
            #[cfg(test)]
            meanwhile: None,
        })
    }

    /// The address space that an open `/proc/PID/pagemap` of this process reads; `None` where it has ended.
    ///
    /// # Errors
    /// What the kernel said of the reading.
    pub fn space(&self, pagemap: &File) -> io::Result<Option<Space>> {
        self.with_copier(|copier| {
            let mm = mm_of_file(copier, &self.layout, pagemap)?;
            let Some(pgd) = mm.map(|mm| copier.word(mm + self.layout.mm_pgd)).transpose()?.flatten() else {
                return Ok(None);
            };
            let space = mm.map(|mm| Space { mm, pgd });
            Ok(if self.lives(copier, space)? { space } else { None })
        })
    }

    /// Whether the tables of an address space are still its own: they go when its last user is gone
    /// (`mmput`, kernel/fork.c), and it gets no new one then.
    fn lives(&self, copier: &mut Copier, space: Option<Space>) -> io::Result<bool> {
        let Some(space) = space else { return Ok(false) };
        let users = copier.word(space.mm + self.layout.mm_users)?.map(|word| word as u32 as i32);
        Ok(users.is_some_and(|users| users > 0))
    }

    fn with_copier<T>(&self, work: impl FnOnce(&mut Copier) -> io::Result<T>) -> io::Result<T> {
        let waiting = || self.copiers.lock().unwrap_or_else(PoisonError::into_inner);
        let idle = waiting().pop();
        let mut copier = idle.map_or_else(Copier::new, Ok)?;
        let result = work(&mut copier);
        waiting().push(copier);
        result
    }

    /// The same, but something happens between the two readings of each chunk.
    #[cfg(test)]
    pub fn with_meanwhile(self, work: impl Fn() + Send + Sync + 'static) -> PageTables {
        PageTables { meanwhile: Some(Box::new(work)), ..self }
    }

    /// The same, but looks for `struct page`s where they are not.
    #[cfg(test)]
    pub fn misled(mut self) -> PageTables {
        self.anchors.vmemmap += self.layout.page_bytes;
        self
    }
}

/// The `struct mm_struct` behind an open pagemap of this process: the files of the calling task, by their numbers.
fn mm_of_file(copier: &mut Copier, layout: &Layout, pagemap: &File) -> io::Result<Option<u64>> {
    let mut address = copier.current_task()?;
    let number = pagemap.as_raw_fd() as u64;
    for offset in [layout.task_files, layout.files_table, layout.table_files, number * 8, layout.file_data] {
        match copier.word(address.wrapping_add(offset))? {
            Some(next) if next != 0 => address = next,
            _ => return Ok(None),
        }
    }
    Ok(Some(address))
}

/// Goes down from the root to the table of level 1.
fn locate(copier: &mut Copier, format: &X86_64, direct_map: u64, pgd: u64, va: u64) -> io::Result<Located> {
    let geometry = format.geometry();
    let mut table = pgd;
    for level in (2..geometry.levels()).rev() {
        let until = (va | (geometry.span(level) - 1)).saturating_add(1);
        let Some(entry) = copier.word(table + 8 * geometry.index(level, va))? else {
            return Ok(Located::Other { until });
        };
        match format.kind(level, entry) {
            paging::format::Kind::Table => table = direct_map + format.table_address(entry),
            paging::format::Kind::Hole if entry == 0 => return Ok(Located::Hole { until }),
            _ => return Ok(Located::Other { until }),
        }
    }
    Ok(Located::Directory(table))
}

/// The frame that an entry of level 0 maps; `None` where it maps none.
///
/// Memory without access is present to Linux but not to the processor (`_PAGE_PROTNONE`, bit 8 of an entry without bit
/// 0), and its frame number is written inverted (arch/x86/include/asm/pgtable-invert.h).
#[inline]
fn frame_of(format: &X86_64, entry: u64) -> Option<u64> {
    const PRESENT: u64 = 1;
    const NO_ACCESS: u64 = 1 << 8;
    let shift = format.geometry().page_shift();
    match (entry & PRESENT != 0, entry & NO_ACCESS != 0) {
        (true, _) => Some(format.leaf_address(0, entry, 0) >> shift),
        (false, true) => Some(format.leaf_address(0, !entry, 0) >> shift),
        (false, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_entries_are_read_as_linux_writes_them() {
        let format = X86_64::new(4, 52);
        for (entry, frame) in [
            (0, None),
            (0x8000_0001_2345_6867, Some(0x12_3456)),
            // Swapped, and a migration entry: neither bit.
            (0xffff_fff0_0000_0400, None),
            // PROT_NONE: 0x8000000123456120 with the frame inverted.
            (0x8000_0001_2345_6120 ^ 0x000f_ffff_ffff_f000, Some(0x12_3456)),
        ] {
            assert_eq!(frame_of(&format, entry), frame, "{entry:#x}");
        }
    }
}
