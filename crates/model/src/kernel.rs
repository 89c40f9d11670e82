//! Kernel settings other than the policy.

/// khugepaged's settings in `/sys/kernel/mm/transparent_hugepage/khugepaged`. A value that is not set has the default
/// of `khugepaged_init` (mm/khugepaged.c), which depends on the number of pages in a PMD.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Khugepaged {
    /// Pages to scan before it sleeps (`pages_to_scan`): by default those of eight PMDs; 0 stops it.
    pub pages_to_scan: Option<u64>,
    /// Sleep time between scans (`scan_sleep_millisecs`), in seconds.
    pub scan_sleep_s: f64,
    /// How many pages of a window may be missing (`max_ptes_none`): at most, and by default, all but one.
    pub max_ptes_none: Option<u64>,
    /// Whether it also makes folios smaller than a PMD: of the policy's size and of `smaller_folios` (`mthp_collapse`,
    /// mm/khugepaged.c, since Linux 7.2).
    pub makes_folios: bool,
}

/// The kernel's settings other than the policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// khugepaged runs under THP policies, and under folio policies if it makes folios.
    pub khugepaged: Khugepaged,
    /// Instructions that the program executes per second. The model has no other clock: what the kernel does
    /// periodically is timed by the instructions of the thread that has executed most.
    pub instructions_per_s: f64,
    /// Further folio sizes, in bytes, that are used if a folio of the `mthp-*` policy cannot be allocated
    /// (`hugepages-*kB/enabled`).
    pub smaller_folios: Vec<u64>,
    /// Whether MADV_DONTNEED frees a table of pages when it drops everything that the table maps (CONFIG_PT_RECLAIM,
    /// since Linux 6.14). By default as Linux 6.18 is configured: only on x86-64 (`ARCH_SUPPORTS_PT_RECLAIM`).
    pub pt_reclaim: Option<bool>,
    /// Whether a write fault reuses the page of a larger PTE-mapped folio if no other process maps the folio any more
    /// (`__wp_can_reuse_large_anon_folio`, mm/memory.c, since Linux 6.15). Earlier kernels copied each such page.
    pub reuses_large_folios: bool,
    /// Number of pages of the vDSO and its data, which are at the end of the mappings. By default as in Linux 6.18.
    pub vdso_pages: Option<u64>,
}

impl Khugepaged {
    /// Pages to scan before it sleeps, if a PMD has `pmd_pages` pages.
    pub(crate) fn scans(&self, pmd_pages: u64) -> u64 {
        self.pages_to_scan.unwrap_or(pmd_pages * 8)
    }

    /// Whether a window with this number of missing, shared and swapped pages can be collapsed (`max_ptes_none`,
    /// `max_ptes_shared`, `max_ptes_swap`).
    pub(crate) fn takes(&self, pmd_pages: u64, missing: u64, shared: u64, swapped: u64) -> bool {
        missing <= self.max_ptes_none.unwrap_or(pmd_pages - 1) && shared <= pmd_pages / 2 && swapped <= pmd_pages / 8
    }

    /// How many of a folio's pages must be present, if a PMD has `pmd_pages` pages: one or all of them, nothing in
    /// between (`collapse_max_ptes_none`, since Linux 7.2).
    pub(crate) fn least_present(&self, pmd_pages: u64, folio_pages: u64) -> u64 {
        if self.max_ptes_none.is_none_or(|most| most == pmd_pages - 1) { 1 } else { folio_pages }
    }
}

impl Default for Khugepaged {
    fn default() -> Khugepaged {
        Khugepaged { pages_to_scan: None, scan_sleep_s: 10.0, max_ptes_none: None, makes_folios: false }
    }
}

impl Default for Kernel {
    fn default() -> Kernel {
        // About one instruction per cycle at 2.5 GHz.
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
