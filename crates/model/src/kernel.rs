//! What can be set about the kernel besides the policy.

/// khugepaged, as `/sys/kernel/mm/transparent_hugepage/khugepaged` sets it. What is not set has the default of
/// `khugepaged_init` (mm/khugepaged.c), which depends on how many pages a PMD has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Khugepaged {
    /// Pages that it looks at before it sleeps (`pages_to_scan`): eight PMDs; 0 stops it.
    pub pages_to_scan: Option<u64>,
    /// How long it sleeps (`scan_sleep_millisecs`), in seconds.
    pub scan_sleep_s: f64,
    /// How many pages of a window may not be there (`max_ptes_none`), all but one at most: all but one.
    pub max_ptes_none: Option<u64>,
    /// Whether it makes folios that are smaller than a PMD, too: of the policy's size and of `smaller_folios` (`mthp_collapse`,
    /// mm/khugepaged.c, since Linux 7.2).
    pub makes_folios: bool,
}

/// What the kernel does besides the policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// It works under policies of THP, and under those of folios where it makes them.
    pub khugepaged: Khugepaged,
    /// How many instructions the program executes in a second. The model has no other clock: what the kernel does by time
    /// is done after so many instructions of the thread that has executed most.
    pub instructions_per_s: f64,
    /// Further sizes of folios, in bytes, that are taken where one of the policy `mthp-*` cannot be had
    /// (`hugepages-*kB/enabled`).
    pub smaller_folios: Vec<u64>,
    /// Whether MADV_DONTNEED gives back a table of pages when it drops all that this maps (CONFIG_PT_RECLAIM, since Linux
    /// 6.14). What is not set is as Linux 6.18 is configured, which has it on x86-64 alone (`ARCH_SUPPORTS_PT_RECLAIM`).
    pub pt_reclaim: Option<bool>,
    /// Whether a write fault keeps the page of a larger folio that PTEs map, where no other process maps the folio any more
    /// (`__wp_can_reuse_large_anon_folio`, mm/memory.c, since Linux 6.15). Before, each such page was copied.
    pub reuses_large_folios: bool,
    /// How many pages the vDSO and its data have, which lie where mappings end. What is not set is as in Linux 6.18.
    pub vdso_pages: Option<u64>,
}

impl Khugepaged {
    /// Pages that it looks at before it sleeps, where a PMD has so many.
    pub(crate) fn scans(&self, pmd_pages: u64) -> u64 {
        self.pages_to_scan.unwrap_or(pmd_pages * 8)
    }

    /// Whether a window with so many pages missing, shared and in swap can be collapsed (`max_ptes_none`,
    /// `max_ptes_shared`, `max_ptes_swap`).
    pub(crate) fn takes(&self, pmd_pages: u64, missing: u64, shared: u64, swapped: u64) -> bool {
        missing <= self.max_ptes_none.unwrap_or(pmd_pages - 1) && shared <= pmd_pages / 2 && swapped <= pmd_pages / 8
    }

    /// How many of a folio's pages must be there, where a PMD has so many: one, or all of them; nothing between
    /// (`collapse_max_ptes_none`, since Linux 7.2).
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
        // About one instruction a cycle at 2.5 GHz.
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
