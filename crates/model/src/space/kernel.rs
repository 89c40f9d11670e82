//! What can be set about the kernel besides the policy.

/// khugepaged, as `/sys/kernel/mm/transparent_hugepage/khugepaged` sets it. Its defaults are those of mm/khugepaged.c.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Khugepaged {
    /// Pages that it looks at before it sleeps (`pages_to_scan`); 0 stops it.
    pub pages_to_scan: u64,
    /// How long it sleeps (`scan_sleep_millisecs`), in seconds.
    pub scan_sleep_s: f64,
    /// How many pages of a window may not be there (`max_ptes_none`).
    pub max_ptes_none: u64,
    /// How many may be shared with other processes (`max_ptes_shared`).
    pub max_ptes_shared: u64,
    /// How many may be in swap (`max_ptes_swap`).
    pub max_ptes_swap: u64,
}

/// What the kernel does besides the policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Kernel {
    /// It works under policies of THP.
    pub khugepaged: Khugepaged,
    /// How many instructions the program executes in a second. The model has no other clock: what the kernel does by time
    /// is done after so many instructions of the thread that has executed most.
    pub instructions_per_s: f64,
    /// Further sizes of folios, in bytes, that are taken where one of the policy `mthp-*` cannot be had
    /// (`hugepages-*kB/enabled`).
    pub smaller_folios: Vec<u64>,
}

impl Khugepaged {
    /// The defaults for a PMD of so many pages (`khugepaged_init`): eight PMDs every ten seconds; all pages but one may
    /// be missing, half may be shared, an eighth may be in swap.
    pub fn of_pmd(pages: u64) -> Khugepaged {
        Khugepaged {
            pages_to_scan: pages * 8,
            scan_sleep_s: 10.0,
            max_ptes_none: pages - 1,
            max_ptes_shared: pages / 2,
            max_ptes_swap: pages / 8,
        }
    }
}

impl Default for Kernel {
    fn default() -> Kernel {
        // About one instruction a cycle at 2.5 GHz.
        Kernel { khugepaged: Khugepaged::of_pmd(512), instructions_per_s: 2.5e9, smaller_folios: Vec::new() }
    }
}
