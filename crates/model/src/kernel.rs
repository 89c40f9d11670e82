//! Kernel settings that are not part of the policy.

/// khugepaged's settings in `/sys/kernel/mm/transparent_hugepage/khugepaged`. `None` means the default of `khugepaged_init`
/// (mm/khugepaged.c), which depends on the number of pages in a PMD.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Khugepaged {
    /// Pages to scan before khugepaged sleeps (`pages_to_scan`): by default the pages of eight PMDs. With 0 it does not run.
    pub pages_to_scan: Option<u64>,
    /// Sleep time between scans (`scan_sleep_millisecs`), in seconds.
    pub scan_sleep_s: f64,
    /// How many pages of a PMD-sized window may be missing (`max_ptes_none`): by default all but one, which is the maximum.
    pub max_ptes_none: Option<u64>,
    /// Whether khugepaged also makes folios smaller than a PMD, of the size of an `mthp-*` policy and of the sizes in `smaller_folios`
    /// (`mthp_collapse`, mm/khugepaged.c, since Linux 7.2).
    pub makes_folios: bool,
}

/// Kernel settings that are not part of the policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// khugepaged runs under THP policies, and under folio policies if it makes folios.
    pub khugepaged: Khugepaged,
    /// Instructions that the program executes per second. The model has no other clock: the instructions of the thread that
    /// has executed most determine when the kernel does its periodic work.
    pub instructions_per_s: f64,
    /// Fallback sizes in bytes, for when no folio of the `mthp-*` policy and no THP fits or can be allocated
    /// (`hugepages-*kB/enabled`). They are enabled for the memory that may have large pages.
    pub smaller_folios: Vec<u64>,
    /// Whether MADV_DONTNEED frees a PTE table when it drops everything that the table maps (CONFIG_PT_RECLAIM, since Linux
    /// 6.14). The default is that of Linux 6.18: only on x86-64 (`ARCH_SUPPORTS_PT_RECLAIM`).
    pub pt_reclaim: Option<bool>,
    /// Whether a write fault reuses a page of a PTE-mapped large folio that no other process maps any more
    /// (`__wp_can_reuse_large_anon_folio`, mm/memory.c, since Linux 6.15). Earlier kernels copied each such page.
    pub reuses_large_folios: bool,
    /// Number of pages of the vDSO and its data, below which a program's mappings begin. The default is that of Linux 6.18.
    pub vdso_pages: Option<u64>,
}

impl Khugepaged {
    /// Number of pages that khugepaged scans before it sleeps, if a PMD has `pmd_pages` pages.
    pub(crate) fn pages_per_scan(&self, pmd_pages: u64) -> u64 {
        self.pages_to_scan.unwrap_or(pmd_pages * 8)
    }

    /// Whether `max_ptes_none`, `max_ptes_shared` and `max_ptes_swap` allow this number of missing, shared and swapped pages in
    /// a window to be collapsed.
    pub(crate) fn can_collapse(&self, pmd_pages: u64, missing: u64, shared: u64, swapped: u64) -> bool {
        missing <= self.max_ptes_none.unwrap_or(pmd_pages - 1) && shared <= pmd_pages / 2 && swapped <= pmd_pages / 8
    }

    /// How many of a folio's pages must be present, if a PMD has `pmd_pages` pages: either one or all
    /// (`collapse_max_ptes_none`, since Linux 7.2).
    pub(crate) fn min_present(&self, pmd_pages: u64, folio_pages: u64) -> u64 {
        if self.max_ptes_none.is_none_or(|max| max == pmd_pages - 1) { 1 } else { folio_pages }
    }
}

impl Default for Khugepaged {
    fn default() -> Khugepaged {
        Khugepaged { pages_to_scan: None, scan_sleep_s: 10.0, max_ptes_none: None, makes_folios: false }
    }
}

impl Default for Kernel {
    fn default() -> Kernel {
        // Assumes one instruction per cycle at 2.5 GHz.
        let instructions_per_s = 2.5e9;
        Kernel {
            khugepaged: Khugepaged::default(),
            instructions_per_s,
            smaller_folios: Vec::new(),
            pt_reclaim: None,
            reuses_large_folios: true,
            vdso_pages: None,
        }
    }
}
