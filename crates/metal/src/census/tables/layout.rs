//! Where the kernel keeps what is needed, in its structures: from BTF.
//!
//! | field | declared in |
//! |---|---|
//! | `task_struct.files`, `.mm`, `.stack_vm_area` (CONFIG_VMAP_STACK) | include/linux/sched.h |
//! | `files_struct.fdt`, `fdtable.fd` | include/linux/fdtable.h |
//! | `file.private_data` | include/linux/fs.h |
//! | `mm_struct.pgd`, `.mm_users`; `page.flags`, `.compound_head`; `folio.index` | include/linux/mm_types.h |
//! | `vm_struct.pages` | include/linux/vmalloc.h |
//! | `PG_head` | include/linux/page-flags.h |

use crate::kernel_memory::btf::{Btf, BtfError};

/// Offsets in bytes from the start of each structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub task_files: u64,
    pub task_mm: u64,
    pub task_stack_area: u64,
    pub files_table: u64,
    pub table_files: u64,
    pub file_data: u64,
    pub mm_pgd: u64,
    pub mm_users: u64,
    pub area_pages: u64,
    pub page_flags: u64,
    /// Its lowest bit says that the page is a tail (`page_tail`, include/linux/page-flags.h).
    pub page_compound: u64,
    pub folio_index: u64,
    /// The size of a `struct page`.
    pub page_bytes: u64,
    /// The number of the flag of heads.
    pub head_flag: u32,
}

impl Layout {
    /// The layout that a kernel describes.
    ///
    /// # Errors
    /// What it does not have.
    pub fn read(btf: &Btf) -> Result<Layout, BtfError> {
        let layout = Layout {
            task_files: btf.offset("task_struct", "files")?,
            task_mm: btf.offset("task_struct", "mm")?,
            task_stack_area: btf.offset("task_struct", "stack_vm_area")?,
            files_table: btf.offset("files_struct", "fdt")?,
            table_files: btf.offset("fdtable", "fd")?,
            file_data: btf.offset("file", "private_data")?,
            mm_pgd: btf.offset("mm_struct", "pgd")?,
            mm_users: btf.offset("mm_struct", "mm_users")?,
            area_pages: btf.offset("vm_struct", "pages")?,
            page_flags: btf.offset("page", "flags")?,
            page_compound: btf.offset("page", "compound_head")?,
            folio_index: btf.offset("folio", "index")?,
            page_bytes: btf.structure_bytes("page")?,
            head_flag: btf.enumerator("pageflags", "PG_head")?,
        };
        let words = [layout.page_flags, layout.page_compound, layout.page_bytes];
        match words.iter().all(|bytes| bytes % 8 == 0) && layout.head_flag < u64::BITS {
            true => Ok(layout),
            false => Err(BtfError::Missing("struct page made of whole words".into())),
        }
    }
}
